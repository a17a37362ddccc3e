"""JSON functions: extract values from JSON strings, and build JSON strings from values.

Arguments with clauses, in this order. An omitted clause is NULL; trailing ones may be missing.

- JSON_VALUE(json, path, returning, on_empty, empty_default, on_error, error_default); `returning`
  is a NULL of the type.
- JSON_QUERY(json, path, returning, wrapper, on_empty, on_error); JSON_EXISTS(json, path, on_error).
- JSON_OBJECT(on_null, key, value, …); JSON_ARRAY(on_null, value, …); IS_JSON(json, word).

Paths are constants of names and indexes (`lax $.a['b c'][0]`); wildcards and filters are not
supported. ON ERROR applies to a value that does not have the RETURNING type. Numbers are written as
the engine reads them: in the memory runner 1.50 may become 1.5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from everfold.engine_literals import spark_string
from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.cast_to_text import format_value, quote_field
from everfold.sql.functions.casts import can_cast, cast_sql
from everfold.sql.functions.coercion import convert_to, kind
from everfold.sql.functions.entry import Args, Function, Rule, Typed
from everfold.sql.functions.signatures import signature
from everfold.sql.functions.writer import Writer
from everfold.types import (
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    ArrayType,
    BytesType,
    DataType,
    DecimalType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    with_article,
)

_STEP = re.compile(
    r"\.([A-Za-z_][\w-]*)|\[\s*(\d+)\s*\]|\[\s*'((?:[^'\\]|\\.)*)'\s*\]|\[\s*\"((?:[^\"\\]|\\.)*)\"\s*\]"
)
SMALL_SCALE = 6
"""Decimals with at most this scale are never written with an exponent."""
_RAW = ("JSON_OBJECT", "JSON_ARRAY")
"""Calls that return JSON, which is not quoted inside another JSON value."""


@dataclass(frozen=True)
class Path:
    """A path of names and indexes; `text` is the path as written.

    `strict` is True for `strict` paths and for paths without a mode: a missing step is an error.
    """

    steps: tuple[str | int, ...]
    strict: bool
    text: str

    def spark(self) -> str:
        """Return the path for `get_json_object` and `variant_get`."""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in self.steps)

    def duckdb(self) -> str:
        """Return the path for DuckDB's JSON functions."""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in self.steps)


def parse_path(arg: Expr) -> Path:
    """Parse the path in a constant string.

    Raises SqlError `wrong-path` and UnsupportedFeature `unsupported-path`.
    """
    if not isinstance(arg, Literal) or not isinstance(arg.value, str):
        raise UnsupportedFeature.of(
            "unsupported-path", "a JSON path must be a constant string", arg.span, "write it as a literal: '$.a.b[0]'"
        )
    text = arg.value.strip()
    mode, _, rest = text.partition("$")
    if "$" not in text or mode.strip().lower() not in ("", "lax", "strict"):
        raise SqlError.of(
            "wrong-path",
            f"`{arg.value}` is not a JSON path",
            arg.span,
            "write it as '$.a.b[0]', optionally after `lax` or `strict`",
        )
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise UnsupportedFeature.of(
                "unsupported-path",
                f"`{rest[at:]}` in the JSON path `{arg.value}` is not supported",
                arg.span,
                "use only names and indexes: '$.a.b[0]'",
            )
        name, index, single, double = match.groups()
        found = name if name is not None else single if single is not None else double
        if found is not None and re.search(r"['\"\\]", found):
            raise UnsupportedFeature.of(
                "unsupported-path", "a name with quotes in a JSON path is not supported", arg.span
            )
        steps.append(int(index) if index is not None else found)
        at = match.end()
    return Path(tuple(steps), mode.strip().lower() != "lax", text)


def _word(args: Args, at: int, default: str) -> str:
    value = args[at].value if len(args) > at and isinstance(args[at], Literal) else None  # type: ignore[union-attr]
    return default if value is None else str(value)


def _pad_args(args: Args, size: int) -> Args:
    from everfold.types import NULL

    return (*args, *(Literal(value=None, type=NULL) for _ in range(size - len(args))))


def _value_rule(args: Args) -> Typed | None:
    if not 2 <= len(args) <= 7 or kind(args[0].type) not in ("string", "null"):
        return None
    parse_path(args[1])
    args = _pad_args(args, 7)
    target = STRING if kind(args[2].type) == "null" else args[2].type
    if not (isinstance(target, StringType) or target.same_as(INT) or target.same_as(DOUBLE) or target.same_as(BOOLEAN)):
        raise UnsupportedFeature.of(
            "unsupported-type",
            f"JSON_VALUE does not return {target.sql}",
            args[1].span,
            "use STRING, BOOLEAN, INTEGER or DOUBLE, and CAST the result",
        )
    for at in (4, 6):
        if kind(args[at].type) != "null":
            if not can_cast(args[at].type, target):
                return None
            default = (
                args[at] if args[at].type.same_as(target) else Call(function="CAST", args=(args[at],), type=target)
            )
            default = convert_to(args[at], target) if kind(args[at].type) == kind(target) else default
            args = (*args[:at], default, *args[at + 1 :])
    return (convert_to(args[0], STRING) if kind(args[0].type) == "null" else args[0], *args[1:]), target.as_nullable()


def _outcome(writer: Writer, path: Path, what: str, default: str, target: DataType, clause: str) -> str:
    """Return the result of ON EMPTY or ON ERROR (the `clause`)."""
    if what == "DEFAULT":
        return default
    if what == "ERROR":
        return f"CAST({_failure(writer, path, clause)} AS {writer.type(target)})"
    return writer.literal(None, target)


def _failure(writer: Writer, path: Path, clause: str) -> str:
    return writer.fail(f"json-failed: no JSON value at the path '{path.text}' (ERROR {clause})")


def _value(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    path, target = parse_path(call.args[1]), call.type
    on_empty, on_error = _word(call.args, 3, "NULL"), _word(call.args, 5, "NULL")
    error = _outcome(writer, path, on_error, texts[6], target, "ON ERROR")
    empty = error if path.strict else _outcome(writer, path, on_empty, texts[4], target, "ON EMPTY")
    return (_value_spark if writer.spark else _value_duckdb)(
        writer, path, texts[0], target, empty, error, on_empty == on_error == "NULL"
    )


def _convert_scalar(writer: Writer, target: DataType, text: str, error: str) -> str:
    """Convert a scalar to the type; the result of ON ERROR if that is not possible."""
    if isinstance(target, StringType):
        return cast_sql(writer, STRING, target, text, True)
    return f"coalesce({cast_sql(writer, STRING, target, text, True)}, {error})"


def _value_spark(writer: Writer, path: Path, json: str, target: DataType, empty: str, error: str, plain: bool) -> str:
    found, steps = writer.new_variable(), spark_string(path.spark())
    variant = f"try_variant_get(try_parse_json({json}), {steps}, 'variant')"
    typed = _convert_scalar(writer, target, found, error)
    # A string may look like an object or array: check the type of the variant.
    body = f"CASE WHEN left({found}, 1) IN ('{{', '[') AND schema_of_variant({variant}) <> 'STRING' THEN {error} WHEN {found} IS NOT NULL THEN {typed} "
    if not plain:
        body += f"WHEN {json} IS NULL THEN NULL WHEN try_parse_json({json}) IS NULL THEN {error if path.strict else empty} WHEN is_variant_null({variant}) THEN NULL ELSE {empty} "
    return writer.let(found, f"get_json_object({json}, {steps})", body + "END")


def _is_valid(writer: Writer, json: str) -> str:
    """Return the SQL of whether a string is valid JSON, NULL or false for NULL.

    DuckDB accepts NaN and infinities, which are searched for outside of strings.
    """
    if writer.spark:
        return f"try_parse_json({json}) IS NOT NULL"
    number = writer.text(r"(?i)(?:^|[-:,\[\s])(?:nan|inf)")
    string = writer.text(r'"(?:[^"\\]|\\.)*"')
    outside = f"regexp_replace({json}, {string}, '', 'g')"
    odd = f"regexp_matches({json}, {number}) AND regexp_matches({outside}, {number})"
    return f"(json_valid({json}) AND NOT ({odd}))"


def _value_duckdb(writer: Writer, path: Path, json: str, target: DataType, empty: str, error: str, plain: bool) -> str:
    steps = writer.text(path.duckdb())
    text = f"json_extract_string({json}, {steps})"
    found = writer.new_variable()
    typed = writer.let(found, text, _convert_scalar(writer, target, found, error))
    sort = f"json_type({json}, {steps})"
    return (
        f"CASE WHEN {json} IS NULL THEN NULL WHEN NOT {_is_valid(writer, json)} "
        f"THEN {error if path.strict else empty} WHEN {sort} IS NULL THEN {empty} "
        f"WHEN {sort} = 'NULL' THEN NULL WHEN {sort} IN ('OBJECT', 'ARRAY') THEN {error} ELSE {typed} END"
    )


def _exists_rule(args: Args) -> Typed | None:
    if not 2 <= len(args) <= 3 or kind(args[0].type) not in ("string", "null"):
        return None
    parse_path(args[1])
    return _pad_args(args, 3), BOOLEAN


def _exists(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    path, json = parse_path(call.args[1]), texts[0]
    what = _word(call.args, 2, "FALSE")
    words = {"TRUE": "true", "FALSE": "false", "UNKNOWN": writer.literal(None, BOOLEAN)}
    error = words.get(what) or f"CAST({_failure(writer, path, 'ON ERROR')} AS BOOLEAN)"
    missing = error if path.strict else "false"
    if writer.spark:
        found = f"get_json_object({json}, {spark_string(path.spark())}) IS NOT NULL"
    else:
        found = f"coalesce(json_type({json}, {writer.text(path.duckdb())}), 'NULL') <> 'NULL'"
    valid = _is_valid(writer, json)
    return (
        f"CASE WHEN {json} IS NULL THEN NULL WHEN NOT ({valid}) THEN {error} WHEN {found} THEN true ELSE {missing} END"
    )


def _query_rule(args: Args) -> Typed | None:
    if not 2 <= len(args) <= 6 or kind(args[0].type) not in ("string", "null"):
        return None
    parse_path(args[1])
    args = _pad_args(args, 6)
    target = STRING if kind(args[2].type) == "null" else args[2].type
    if not isinstance(target, StringType) and target.sql not in ("ARRAY<STRING>",):
        raise UnsupportedFeature.of(
            "unsupported-type",
            f"JSON_QUERY does not return {target.sql}",
            args[1].span,
            "use STRING or ARRAY<STRING>",
        )
    return args, target.as_nullable()


def _query(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    path, json = parse_path(call.args[1]), texts[0]
    wrapper = _word(call.args, 3, "WITHOUT")
    array = isinstance(call.type, ArrayType)

    def outcome(at: int, clause: str) -> str:
        what = _word(call.args, at, "NULL")
        if what.startswith("EMPTY"):
            return "'[]'" if what == "EMPTY ARRAY" else "'{}'"
        return _outcome(writer, path, what, "", STRING, clause)

    error = outcome(5, "ON ERROR")
    empty = error if path.strict else outcome(4, "ON EMPTY")
    raw, found, sort = writer.new_variable(), "", ""
    if writer.spark:
        variant = f"try_variant_get(try_parse_json({json}), {spark_string(path.spark())}, 'variant')"
        found = f"get_json_object({json}, {spark_string(path.spark())})"
        composed = f"left({raw}, 1) IN ('{{', '[') AND schema_of_variant({variant}) <> 'STRING'"
        scalar = f"to_json({variant})"
    else:
        sort = f"json_type({json}, {writer.text(path.duckdb())})"
        found = f"CASE WHEN {_is_valid(writer, json)} AND {sort} <> 'NULL' THEN CAST(json_extract({json}, {writer.text(path.duckdb())}) AS VARCHAR) END"
        composed = f"{sort} IN ('OBJECT', 'ARRAY')"
        scalar = raw
    join = "concat('[', {}, ']')"
    whole = join.format(raw) if wrapper == "UNCONDITIONAL" else raw
    part = join.format(scalar) if wrapper in ("UNCONDITIONAL", "CONDITIONAL") else error
    body = (
        f"CASE WHEN {json} IS NULL THEN NULL WHEN NOT ({_is_valid(writer, json)}) THEN {error if path.strict else empty} WHEN {raw} IS NULL THEN {empty} "
        f"WHEN {composed} THEN {whole} ELSE {part} END"
    )
    text = writer.let(raw, found, body)
    if array:
        return f"from_json({text}, 'ARRAY<STRING>')" if writer.spark else f"from_json({text}, '[\"VARCHAR\"]')"
    return text


# --- JSON of values ---


def render_json(writer: Writer, type: DataType, text: str) -> str:
    """Return SQL of a value as JSON; NULL for NULL."""
    item = writer.new_variable()
    match type:
        case ArrayType():
            each = f"coalesce({render_json(writer, type.element, item)}, 'null')"
            return _join_in_brackets(writer, text, text, item, each, "[]")
        case MapType():
            key = format_value(writer, type.key, f"{item}.key")
            value = f"coalesce({render_json(writer, type.value, f'{item}.value')}, 'null')"
            pair = writer.new_variable()
            each = f"concat({_quote(writer, f'{pair}.k')}, ':', {pair}.v)"
            return _join_in_brackets(
                writer, text, _sort_pairs(writer, f"map_entries({text})", item, key, value), pair, each, "{}"
            )
        case RowType():
            parts = []
            for field in sorted(type.fields, key=lambda field: _java_order(field.name)):
                value = (
                    f"coalesce({render_json(writer, field.type, f'{item}.{quote_field(writer, field.name)}')}, 'null')"
                )
                parts += [f"{_quote(writer, writer.text(field.name))}, ':'", value, "','"]
            return writer.let(
                item, text, f"CASE WHEN {item} IS NOT NULL THEN concat('{{', {', '.join(parts[:-1])}, '}}') END"
            )
        case TimestampType():
            return _instant(writer, type, text)
        case BytesType():
            return f"CASE WHEN {text} IS NOT NULL THEN concat('\"', base64({text}), '\"') END"
    match kind(type):
        case "boolean":
            return f"lower({format_value(writer, type, text)})"
        case "integer":
            return format_value(writer, type, text)
        case "decimal":
            return _decimal(writer, type, text)
        case "floating":
            return _number(writer, format_value(writer, DOUBLE, f"CAST({text} AS {writer.type(DOUBLE)})"))
        case "string" | "date" | "time":
            return _quote(writer, format_value(writer, type, text))
    raise UnsupportedFeature.of(
        "unsupported-type", f"the JSON of {with_article(type)} is not supported", writer.call_span, "CAST it to STRING"
    )


def _sort_pairs(writer: Writer, entries: str, item: str, key: str, value: str) -> str:
    """Return SQL of the entries of a map as pairs of key and JSON value, sorted by key."""
    if writer.spark:
        return f"array_sort(transform({entries}, {item} -> struct({key} AS k, {value} AS v)))"
    return f"list_sort(list_transform({entries}, lambda {item}: struct_pack(k := {key}, v := {value})))"


def _java_order(text: str) -> bytes:
    """Return a sort key that orders strings as Java does."""
    return text.encode("utf-16-be")


def _instant(writer: Writer, type: TimestampType, text: str) -> str:
    """Return SQL of a point in time in ISO 8601; TIMESTAMP_LTZ in UTC."""
    if type.local_zone and writer.spark:
        text = f"CAST({text} AS TIMESTAMP_NTZ)"
    plain = TimestampType(precision=type.precision)
    wall = f"replace({format_value(writer, plain, text)}, ' ', 'T')"
    if type.precision:
        wall = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {wall}))"
    zone = "Z" if type.local_zone else ""
    return f"""CASE WHEN {text} IS NOT NULL THEN concat('"', {wall}, '{zone}"') END"""


def _decimal(writer: Writer, type: DataType, text: str) -> str:
    """Format a DECIMAL as Java's BigDecimal: 1.50, but 0E-8, 1.00E-8 from the seventh zero on."""
    assert isinstance(type, DecimalType)
    if type.scale <= SMALL_SCALE:
        return format_value(writer, type, text)
    plain = format_value(writer, type, "\x03")
    digits = (
        f"ltrim(replace(replace({plain}, '-', ''), '.', ''), '0')"
        if not writer.spark
        else f"ltrim('0', replace(replace({plain}, '-', ''), '.', ''))"
    )
    mantissa = f"CASE WHEN char_length({digits}) > 1 THEN concat(left({digits}, 1), '.', substr({digits}, 2)) ELSE {digits} END"
    if not writer.spark:
        mantissa = mantissa.replace("char_length", "length")
    length = "char_length" if writer.spark else "length"
    power = f"CAST({type.scale + 1} - {length}({digits}) AS {writer.type(STRING)})"
    return writer.bind_once(
        text,
        f"CASE WHEN \x03 IS NULL THEN NULL WHEN \x03 = 0 THEN '0E-{type.scale}' WHEN \x03 >= 0.000001 OR \x03 <= -0.000001 THEN {plain} "
        f"ELSE concat(CASE WHEN \x03 < 0 THEN '-' ELSE '' END, {mantissa}, 'E-', {power}) END",
    )


def _number(writer: Writer, text: str) -> str:
    """Format a DOUBLE as Java's BigDecimal: 1.0E+20, but 12345678 and 0.00010.

    NaN and the infinities become strings.
    """
    digits = "replace(replace(split_part(\x03, 'E', 1), '-', ''), '.', '')"
    power = "TRY_CAST(split_part(\x03, 'E', 2) AS INT)"
    sign = "CASE WHEN left(\x03, 1) = '-' THEN '-' ELSE '' END"
    behind = f"(char_length({digits}) - 1 - {power})"
    return writer.bind_once(
        text,
        "CASE WHEN \x03 IS NULL THEN NULL "
        """WHEN \x03 IN ('NaN', 'Infinity', '-Infinity') THEN concat('"', \x03, '"') """
        "WHEN \x03 NOT LIKE '%E%' THEN \x03 "
        f"WHEN {power} BETWEEN -6 AND -1 THEN concat({sign}, '0.', repeat('0', -{power} - 1), {digits}) "
        f"WHEN {power} < 0 THEN \x03 "
        f"WHEN {behind} < 0 THEN replace(\x03, 'E', 'E+') "
        f"WHEN {behind} = 0 THEN concat({sign}, {digits}) "
        f"ELSE concat({sign}, substr({digits}, 1, {power} + 1), '.', substr({digits}, {power} + 2)) END",
    )


def _quote(writer: Writer, text: str) -> str:
    if not writer.spark:
        return f"CAST(to_json({text}) AS VARCHAR)"
    return writer.bind_once(
        f"to_json(array({text}))", f"CASE WHEN {text} IS NOT NULL THEN substring(\x03, 2, char_length(\x03) - 2) END"
    )


def _quote_ascii(writer: Writer, text: str) -> str:
    """Quote a string as JSON with ASCII characters only: `\\u00e4`, two escapes beyond U+FFFF."""
    item = writer.new_variable()
    if writer.spark:
        code = f"regexp_replace(lower(hex(encode({item}, 'UTF-16BE'))), '(....)', {writer.text(chr(92) * 3 + 'u$1')})"
        escaped = f"CASE WHEN {item} RLIKE '^[^\\\\x00-\\\\x7f]' THEN {code} ELSE {item} END"
        runs = "regexp_extract_all(\x03, '[\\\\x00-\\\\x7f]+|[^\\\\x00-\\\\x7f]+', 0)"
        ascii_only = f"array_join(transform({runs}, {item} -> {escaped}), '')"
    else:
        code = f"ord({item})"
        high, low = f"(55232 + ({code} >> 10))", f"(56320 + ({code} & 1023))"
        escaped = (
            f"CASE WHEN {code} < 128 THEN {item} WHEN {code} < 65536 THEN printf('\\u%04x', {code}) "
            f"ELSE printf('\\u%04x\\u%04x', {high}, {low}) END"
        )
        ascii_only = f"array_to_string(list_transform(regexp_extract_all(\x03, '(?s).'), lambda {item}: {escaped}), '')"
    return writer.bind_once(
        f"replace({_quote(writer, text)}, '/', {writer.text(chr(92) + '/')})",
        f"CASE WHEN \x03 IS NOT NULL THEN {ascii_only} END",
    )


def _join_in_brackets(writer: Writer, whole: str, array: str, item: str, each: str, brackets: str) -> str:
    if writer.spark:
        joined = f"array_join(transform({array}, {item} -> {each}), ',')"
    else:
        joined = f"coalesce(array_to_string(list_transform({array}, lambda {item}: {each}), ','), '')"
    return f"CASE WHEN {whole} IS NOT NULL THEN concat('{brackets[0]}', {joined}, '{brackets[1]}') END"


def _string_rule(args: Args) -> Typed | None:
    return (args, STRING) if len(args) == 1 and kind(args[0].type) != "null" else None


def _constructor_rule(pairs: bool) -> Rule:
    def rule(args: Args) -> Typed | None:
        if (
            not args
            or (pairs and len(args) % 2 == 0)
            or (pairs and any(kind(key.type) != "string" for key in args[1::2]))
        ):
            return None
        return args, STRING.as_nullable(False)

    return rule


def _part(writer: Writer, arg: Expr, text: str) -> str:
    """Return SQL of a value inside a JSON object or array; NULL for NULL."""
    if kind(arg.type) == "null":
        return writer.literal(None, STRING)
    if isinstance(arg, Call) and arg.function in _RAW:
        return text
    return render_json(writer, arg.type, text)


def _join_parts(writer: Writer, parts: Sequence[str], brackets: str) -> str:
    if not parts:
        return f"'{brackets}'"
    if writer.spark:
        return f"concat('{brackets[0]}', array_join(array({', '.join(parts)}), ','), '{brackets[1]}')"
    item = writer.new_variable()
    some = f"list_filter([{', '.join(parts)}], lambda {item}: {item} IS NOT NULL)"
    return f"concat('{brackets[0]}', coalesce(array_to_string({some}, ','), ''), '{brackets[1]}')"


def _object(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    null = _word(call.args, 0, "NULL") == "NULL"
    parts = []
    for at, others in _sort_keys(call.args):
        values = [
            _part(writer, call.args[each + 1], texts[each + 1]) for each in (others[-1:] if null else others[::-1])
        ]
        values += ["'null'"] if null else []
        value = f"coalesce({', '.join(values)})" if len(values) > 1 else values[0]
        key = _quote(writer, texts[at])
        parts.append(f"concat({key}, ':', {value})" if writer.spark else f"({key} || ':' || {value})")
    return _join_parts(writer, parts, "{}")


def _sort_keys(args: Args) -> list[tuple[int, list[int]]]:
    """Return the first position of each key and all positions with the same key.

    They are sorted by key if all keys are constants.
    """
    found: dict[Expr | int, list[int]] = {}
    for at in range(1, len(args), 2):
        key = args[at]
        found.setdefault(key.value if isinstance(key, Literal) else at, []).append(at)  # type: ignore[arg-type]
    if all(isinstance(key, str) for key in found):
        return [(found[key][0], found[key]) for key in sorted(found, key=lambda key: _java_order(str(key)))]
    return [(each[0], each) for each in found.values()]


def _array(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    null = _word(call.args, 0, "ABSENT") == "NULL"
    parts = [_part(writer, arg, text) for arg, text in zip(call.args[1:], texts[1:], strict=True)]
    return _join_parts(writer, [f"coalesce({part}, 'null')" if null else part for part in parts], "[]")


_KINDS = {"VALUE": "true", "OBJECT": "{} = '{{'", "ARRAY": "{} = '['", "SCALAR": "{} NOT IN ('{{', '[')"}
"""How the first character of valid JSON tells its kind."""


def _is_json_rule(args: Args) -> Typed | None:
    if len(args) not in (1, 2) or kind(args[0].type) not in ("string", "null"):
        return None
    if not all(isinstance(word, Literal) for word in args[1:]):
        return None
    return (_pad_args(args, 2), BOOLEAN.as_nullable(False)) if _word(args, 1, "VALUE") in _KINDS else None


def _is_json(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    json = texts[0]
    test = _KINDS[_word(call.args, 1, "VALUE")].format(f"left(ltrim({json}), 1)")
    return f"CASE WHEN {_is_valid(writer, json)} THEN {test} ELSE false END"


def _entry(name: str, rule: Rule, write: object, doc: str, usage: str, *aliases: str) -> Function:
    assert callable(write)
    return Function(name=name, rule=rule, spark=write, duckdb=write, doc=doc, usage=usage, aliases=aliases)


FUNCTIONS = (
    _entry("JSON_VALUE", _value_rule, _value, "Extracts the scalar at a path of a JSON string.",
           "JSON_VALUE(<STRING>, <path> [RETURNING <type>] [NULL, ERROR or DEFAULT <value> ON EMPTY] [… ON ERROR])"),
    _entry("JSON_QUERY", _query_rule, _query, "Extracts the object or array at a path of a JSON string, as JSON.",
           "JSON_QUERY(<STRING>, <path> [RETURNING <type>] [WITH or WITHOUT WRAPPER] [… ON EMPTY] [… ON ERROR])"),
    _entry("JSON_EXISTS", _exists_rule, _exists, "Whether a JSON string has a value at a path.", "JSON_EXISTS(<STRING>, <path> [TRUE, FALSE, UNKNOWN or ERROR ON ERROR])"),
    _entry("JSON_STRING", _string_rule, lambda writer, call, texts: render_json(writer, call.args[0].type, texts[0]), "Converts a value to JSON.", "JSON_STRING(<ANY>)"),
    _entry("JSON_OBJECT", _constructor_rule(pairs=True), _object, "Builds a JSON object from keys and values.", "JSON_OBJECT([KEY] <STRING> VALUE <ANY>, … [NULL or ABSENT ON NULL])"),
    _entry("JSON_ARRAY", _constructor_rule(pairs=False), _array, "Builds a JSON array from values.", "JSON_ARRAY(<ANY>, … [NULL or ABSENT ON NULL])"),
    _entry("IS_JSON", _is_json_rule, _is_json, "Whether a string is valid JSON.", "<STRING> IS JSON [VALUE, SCALAR, ARRAY or OBJECT]", "IS JSON"),
    Function(name="JSON_QUOTE", rule=signature("STRING -> STRING"), spark=lambda writer, call, texts: _quote_ascii(writer, texts[0]),
             duckdb=lambda writer, call, texts: _quote_ascii(writer, texts[0]), doc="Quotes a string as JSON, with ASCII characters only.", usage="JSON_QUOTE(<STRING>)"),
    Function(name="JSON_UNQUOTE", rule=signature("STRING -> STRING"),
             spark="""CASE WHEN {0} RLIKE '^".*"$' THEN coalesce(get_json_object({0}, '$'), {0}) ELSE {0} END""",
             duckdb="""CASE WHEN {0} LIKE '"%"' AND json_valid({0}) THEN json_extract_string({0}, '$') ELSE {0} END""",
             doc="Removes the quotes and escapes of a JSON string; other strings are unchanged.", usage="JSON_UNQUOTE(<STRING>)"),
)  # fmt: skip
