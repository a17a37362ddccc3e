"""Arrays and rows: constructors and functions; elements of arrays and maps. Indexes start at 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.errors import SqlError, suggest_name
from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.cast_to_text import quote_field
from everfold.sql.functions.coercion import common_type, convert_to, kind, types_of
from everfold.sql.functions.entry import Args, Function, Rule, Typed
from everfold.sql.functions.signatures import signature
from everfold.sql.functions.writer import Writer
from everfold.types import (
    BOOLEAN,
    INT,
    STRING,
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    RowField,
    RowType,
    StringType,
)

Write = Callable[[Writer, Call, Sequence[str]], str]


# --- constructors ---


def _array_rule(args: Args) -> Typed | None:
    element = common_type(types_of(args)) if args else None
    if element is None or kind(element) == "null":
        return None
    return tuple(convert_to(arg, element) for arg in args), ArrayType(element=element, nullable=False)


def _row_rule(args: Args) -> Typed | None:
    if not args or any(kind(arg.type) == "null" for arg in args):
        return None
    fields = tuple(RowField(name=f"EXPR${at}", type=arg.type) for at, arg in enumerate(args))
    return args, RowType(fields=fields, nullable=False)


def _row(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    assert isinstance(call.type, RowType)
    names = [quote_field(writer, field.name) for field in call.type.fields]
    if writer.spark:
        return "struct(" + ", ".join(f"{text} AS {name}" for name, text in zip(names, texts, strict=True)) + ")"
    return "struct_pack(" + ", ".join(f"{name} := {text}" for name, text in zip(names, texts, strict=True)) + ")"


# --- element and field access ---


def _item_rule(args: Args) -> Typed | None:
    if len(args) != 2:
        return None
    of, at = args
    match of.type:
        case ArrayType() if isinstance(at.type, IntegerType):
            constant = at.value if isinstance(at, Literal) else None
            if isinstance(constant, int) and constant < 1:
                raise SqlError.of(
                    "wrong-arguments", f"the index of an array element is at least 1, found {constant}", at.span
                )
            return args, of.type.element.as_nullable()
        case MapType():
            key = _convert_element(at, of.type.key)
            return None if key is None else ((of, key), of.type.value.as_nullable())
    return None


def _convert_element(arg: Expr, type: DataType) -> Expr | None:
    """Convert an argument to the elements' type; None if it is of another kind."""
    common = common_type([arg.type, type])
    if common is None or kind(common) != kind(type):
        return None
    return arg if kind(type) == "string" and kind(arg.type) == "string" else convert_to(arg, type)


def _item(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    of, at = call.args
    if isinstance(of.type, MapType):
        return f"element_at({texts[0]}, {texts[1]})" if writer.spark else f"{texts[0]}[{texts[1]}]"
    if isinstance(at, Literal):
        return f"get({texts[0]}, {texts[1]} - 1)" if writer.spark else f"{texts[0]}[{texts[1]}]"
    if writer.spark:
        return f"get({texts[0]}, {texts[1]} - 1)"
    return f"CASE WHEN {texts[1]} > 0 THEN {texts[0]}[{texts[1]}] END"


def _field_rule(args: Args) -> Typed | None:
    if len(args) != 2 or not isinstance(args[0].type, RowType) or not isinstance(args[1], Literal):
        return None
    row, name = args[0].type, str(args[1].value)
    found = next((field for field in row.fields if field.name == name), None)
    if found is None:
        names = [field.name for field in row.fields]
        raise SqlError.of("unknown-field", f"the row has no field `{name}`", args[1].span, suggest_name(name, names))
    return args, found.type.as_nullable(found.type.nullable or row.nullable)


def _field(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    name = call.args[1]
    assert isinstance(name, Literal)
    return (
        f"({texts[0]}).{quote_field(writer, str(name.value))}"
        if not writer.spark
        else f"{texts[0]}.{quote_field(writer, str(name.value))}"
    )


# --- arrays ---


def _array_function_rule(*more: str, result: str = "array") -> Rule:
    """Return the typing rule of a function (array, …).

    `element` is a value of the elements' type, `array` an array of the same type; other words are
    those of signatures, such as INT.
    """

    def rule(args: Args) -> Typed | None:
        if not args or not isinstance(args[0].type, ArrayType):
            return None
        least = sum(not word.endswith("?") for word in more) + 1
        repeats = bool(more) and more[-1].endswith("+")
        if len(args) < least or (not repeats and len(args) > len(more) + 1):
            return None
        array = args[0].type
        if more in (("array+",), ("array",)):
            # Several arrays are converted to their common type.
            common = common_type(types_of(args))
            if not isinstance(common, ArrayType):
                return None
            return tuple(convert_to(arg, common) for arg in args), common.as_nullable()
        taken: list[Expr] = [args[0]]
        nullable = False
        for at, arg in enumerate(args[1:]):
            word = more[min(at, len(more) - 1)].rstrip("?+")
            accepted = _accept(word, arg, array)
            if accepted is None:
                return None
            nullable = nullable or (word == "element" and accepted.type.nullable)
            taken.append(accepted)
        return tuple(taken), _array_result(result, array, nullable)

    return rule


def _accept(word: str, arg: Expr, array: ArrayType) -> Expr | None:
    if word == "element":
        return _convert_element(arg, array.element)
    typed = signature(f"{word} -> INT")((arg,))
    return typed[0][0] if isinstance(typed, tuple) else None


def _array_result(result: str, array: ArrayType, nullable: bool) -> DataType:
    if result == "array":
        return array.as_nullable()
    if result == "array+":
        element = array.element.as_nullable(array.element.nullable or nullable)
        return ArrayType(element=element)
    if result == "element":
        return array.element.as_nullable()
    return {"INT": INT, "BOOLEAN": BOOLEAN, "STRING": STRING}[result]


def _same_array(args: Args) -> Typed | None:
    typed = _array_function_rule("array")(args)
    return typed if isinstance(typed, tuple) else None


def _join_rule(args: Args) -> Typed | None:
    typed = _array_function_rule("STRING", "STRING?", result="STRING")(args)
    if (
        not isinstance(typed, tuple)
        or not isinstance(args[0].type, ArrayType)
        or not isinstance(args[0].type.element, StringType)
    ):
        return None
    return typed


def _contains(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    item = writer.new_variable()
    if writer.spark:
        return f"exists({texts[0]}, {item} -> {item} <=> {texts[1]})"
    same = f"list_filter({texts[0]}, lambda {item}: {item} IS NOT DISTINCT FROM {texts[1]})"
    return f"(length({same}) > 0)"


def _filter(writer: Writer, text: str, item: str, test: str) -> str:
    return f"filter({text}, {item} -> {test})" if writer.spark else f"list_filter({text}, lambda {item}: {test})"


def _remove(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    item = writer.new_variable()
    test = f"NOT ({item} <=> {texts[1]})" if writer.spark else f"{item} IS DISTINCT FROM {texts[1]}"
    return _filter(writer, texts[0], item, test)


def _distinct_text(writer: Writer, text: str) -> str:
    """Return SQL that removes duplicates and keeps the order of the first occurrences."""
    if writer.spark:
        return f"array_distinct({text})"
    item, at, array = writer.new_variable(), writer.new_variable(), writer.new_variable()
    first = f"length(list_filter({array}[1:{at} - 1], lambda {item}_: {item}_ IS NOT DISTINCT FROM {item})) = 0"
    return writer.let(array, text, f"list_filter({array}, lambda {item}, {at}: {first})")


def _distinct(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return _distinct_text(writer, texts[0])


def _union(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return (
        f"array_union({texts[0]}, {texts[1]})" if writer.spark else _distinct_text(writer, _concat_text(writer, texts))
    )


def _set_operation(keep: bool) -> Write:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        if writer.spark:
            return f"array_{'intersect' if keep else 'except'}({texts[0]}, {texts[1]})"
        item, other = writer.new_variable(), writer.new_variable()
        known = f"length(list_filter({texts[1]}, lambda {other}: {other} IS NOT DISTINCT FROM {item})) {'>' if keep else '='} 0"
        kept = f"list_filter({texts[0]}, lambda {item}: {known})"
        return f"CASE WHEN {texts[1]} IS NOT NULL THEN {_distinct_text(writer, kept)} END"

    return write


def _concat_text(writer: Writer, texts: Sequence[str]) -> str:
    if writer.spark:
        return f"concat({', '.join(texts)})"
    known = " AND ".join(f"{text} IS NOT NULL" for text in texts)
    return f"CASE WHEN {known} THEN list_concat({', '.join(texts)}) END"


def _concat(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return _concat_text(writer, texts)


def _element(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    size = f"{'cardinality' if writer.spark else 'length'}({texts[0]})"
    fail = writer.fail("wrong-size: an array has more than one element")
    one = f"get({texts[0]}, 0)" if writer.spark else f"{texts[0]}[1]"
    return f"CASE WHEN {size} > 1 THEN {fail} ELSE {one} END"


def _slice(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Slice from start to end, both inclusive; negative indexes count from the end."""
    array, start = texts[:2]
    size = f"{'cardinality' if writer.spark else 'length'}({array})"
    end = texts[2] if len(texts) > 2 else size

    def position(text: str, least: int) -> str:
        bound = f"CASE WHEN {text} < 0 THEN {size} + {text} + 1 ELSE {text} END"
        return f"greatest({bound}, {least})" if least else f"({bound})"

    known = f"{array} IS NOT NULL AND {start} IS NOT NULL AND {end} IS NOT NULL"
    first, last = position(start, 1), f"least({position(end, 0)}, {size})"
    if writer.spark:
        return f"CASE WHEN {known} THEN slice({array}, CAST({first} AS INT), CAST(greatest({last} - {first} + 1, 0) AS INT)) END"
    return f"CASE WHEN {known} THEN CASE WHEN {last} >= {first} THEN {array}[{first}:{last}] ELSE {array}[1:0] END END"


def _sort(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Sort in ascending order with NULLs first by default."""
    words = []
    for arg in call.args[1:]:
        if not isinstance(arg, Literal) or arg.value is None:
            raise writer.unsupported(call, "the sort order must be the constant TRUE or FALSE")
        words.append(bool(arg.value))
    ascending = words[0] if words else True
    nulls_first = words[1] if len(words) > 1 else ascending
    if not writer.spark:
        order, nulls = ("ASC" if ascending else "DESC"), ("NULLS FIRST" if nulls_first else "NULLS LAST")
        return f"list_sort({texts[0]}, '{order}', '{nulls}')"
    item = writer.new_variable()
    ordered = f"sort_array(filter({texts[0]}, {item} -> {item} IS NOT NULL), {'true' if ascending else 'false'})"
    nulls = f"filter({texts[0]}, {item} -> {item} IS NULL)"
    return f"concat({nulls}, {ordered})" if nulls_first else f"concat({ordered}, {nulls})"


def _join_duckdb(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    strings, separator = _strings_to_join(writer, texts), texts[1]
    if isinstance(call.args[1], Literal):
        joined = f"array_to_string({strings}, {separator})"
    else:  # that function needs a constant
        left, right = writer.new_variable(), writer.new_variable()
        joined = f"list_reduce({strings}, lambda {left}, {right}: {left} || {separator} || {right})"
    some = f"CASE WHEN length({strings}) > 0 THEN {joined} ELSE '' END"
    given = " AND ".join(f"{text} IS NOT NULL" for text in texts)
    return f"CASE WHEN {given} THEN {some} END"


def _strings_to_join(writer: Writer, texts: Sequence[str]) -> str:
    """Return the strings to join, with NULLs replaced or removed."""
    item = writer.new_variable()
    if len(texts) > 2:
        return f"list_transform({texts[0]}, lambda {item}: coalesce({item}, {texts[2]}))"
    return f"list_filter({texts[0]}, lambda {item}: {item} IS NOT NULL)"


def _typeof_rule(args: Args) -> Expr | None:
    if len(args) != 1:
        return None
    name = str(args[0].type)
    return Literal(value=name, type=STRING.as_nullable(False))


def _entry(
    name: str, rule: Rule, spark: str | Write, duckdb: str | Write, doc: str, usage: str, operator: bool = False
) -> Function:
    return Function(name=name, rule=rule, spark=spark, duckdb=duckdb, doc=doc, usage=usage, operator=operator)


FUNCTIONS = (
    _entry("ARRAY", _array_rule, "array({*})", "[{*}]", "Array of the values.", "ARRAY[<ANY>, …]", operator=True),
    _entry("ROW", _row_rule, _row, _row, "Row of the values.", "ROW(<ANY>, …)", operator=True),
    _entry("ITEM", _item_rule, _item, _item, "Element at an index, or value of a key; NULL if there is none.", "<ARRAY>[<INT>], <MAP>[<key>]", operator=True),
    _entry("FIELD", _field_rule, _field, _field, "Field of a row.", "<ROW>.<name>", operator=True),
    _entry("CARDINALITY", signature("ARRAY -> INT", "MAP -> INT"), "CASE WHEN {0} IS NOT NULL THEN cardinality({0}) END",
          lambda writer, call, texts: f"CAST({'length' if isinstance(call.args[0].type, ArrayType) else 'cardinality'}({texts[0]}) AS INTEGER)",
          "Number of elements.", "CARDINALITY(<ARRAY or MAP>)"),
    _entry("ELEMENT", _array_function_rule(result="element"), _element, _element, "The only element of an array; fails the job if there are several.", "ELEMENT(<ARRAY>)"),
    _entry("ARRAY_CONTAINS", _array_function_rule("element", result="BOOLEAN"), _contains, _contains, "Whether the array contains an element.", "ARRAY_CONTAINS(<ARRAY>, <ANY>)"),
    _entry("ARRAY_DISTINCT", _array_function_rule(), _distinct, _distinct, "Removes duplicates.", "ARRAY_DISTINCT(<ARRAY>)"),
    _entry("ARRAY_POSITION", _array_function_rule("element", result="INT"), "CAST(array_position({0}, {1}) AS INT)",
          "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN coalesce(CAST(list_position({0}, {1}) AS INTEGER), 0) END",
          "Index of the first occurrence of an element, 0 if there is none.", "ARRAY_POSITION(<ARRAY>, <ANY>)"),
    _entry("ARRAY_REMOVE", _array_function_rule("element"), _remove, _remove, "Removes all elements equal to a value.", "ARRAY_REMOVE(<ARRAY>, <ANY>)"),
    _entry("ARRAY_REVERSE", _array_function_rule(), "reverse({0})", "list_reverse({0})", "Reverses the elements.", "ARRAY_REVERSE(<ARRAY>)"),
    _entry("ARRAY_UNION", _same_array, _union, _union, "Elements of both arrays, without duplicates.", "ARRAY_UNION(<ARRAY>, <ARRAY>)"),
    _entry("ARRAY_INTERSECT", _same_array, _set_operation(keep=True), _set_operation(keep=True), "Elements that are in both arrays, without duplicates.", "ARRAY_INTERSECT(<ARRAY>, <ARRAY>)"),
    _entry("ARRAY_EXCEPT", _same_array, _set_operation(keep=False), _set_operation(keep=False), "Elements that are only in the first array, without duplicates.",
          "ARRAY_EXCEPT(<ARRAY>, <ARRAY>)"),
    _entry("ARRAY_CONCAT", _array_function_rule("array+"), _concat, _concat, "Concatenates arrays; NULL if any is NULL.", "ARRAY_CONCAT(<ARRAY>, …)"),
    _entry("ARRAY_APPEND", _array_function_rule("element", result="array+"), "array_append({0}, {1})", "CASE WHEN {0} IS NOT NULL THEN list_append({0}, {1}) END",
          "Appends an element.", "ARRAY_APPEND(<ARRAY>, <ANY>)"),
    _entry("ARRAY_PREPEND", _array_function_rule("element", result="array+"), "array_prepend({0}, {1})", "CASE WHEN {0} IS NOT NULL THEN list_prepend({1}, {0}) END",
          "Prepends an element.", "ARRAY_PREPEND(<ARRAY>, <ANY>)"),
    _entry("ARRAY_JOIN", _join_rule, "array_join({*})", _join_duckdb,
          "Joins strings with a separator; NULLs are skipped or replaced.", "ARRAY_JOIN(<ARRAY<STRING>>, <STRING separator>[, <STRING for NULL>])"),
    _entry("ARRAY_MAX", _array_function_rule(result="element"), "array_max({0})", "list_max({0})", "Greatest element.", "ARRAY_MAX(<ARRAY>)"),
    _entry("ARRAY_MIN", _array_function_rule(result="element"), "array_min({0})", "list_min({0})", "Least element.", "ARRAY_MIN(<ARRAY>)"),
    _entry("ARRAY_SLICE", _array_function_rule("INT", "INT?"), _slice, _slice, "Elements from one index to another, inclusive; negative indexes count from the end.",
          "ARRAY_SLICE(<ARRAY>, <INT>[, <INT>])"),
    _entry("ARRAY_SORT", _array_function_rule("BOOLEAN?", "BOOLEAN?"), _sort, _sort, "Sorts the elements; in ascending order NULLs are first.",
          "ARRAY_SORT(<ARRAY>[, <BOOLEAN ascending>[, <BOOLEAN nulls first>]])"),
    _entry("TYPEOF", _typeof_rule, "", "", "Name of the type of a value.", "TYPEOF(<ANY>)"),
)  # fmt: skip
