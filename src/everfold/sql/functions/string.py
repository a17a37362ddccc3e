"""Functions of texts. Positions count from 1 and in characters (code points)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.sql.functions.coercion import common_type, converted, kind, types_of
from everfold.sql.functions.entry import Args, Function, Typed
from everfold.sql.functions.render import Writer
from everfold.sql.functions.signatures import signature
from everfold.types import INT, MAX_VARCHAR, STRING, IntegerType, StringType

_CASED_WORDS = "[a-zA-Z0-9]+|[^a-zA-Z0-9]+"
Write = Callable[[Writer, Call, Sequence[str]], str]


def _joined(args: Args) -> Typed | None:
    """`||`: as long as both together; CHAR of CHARs."""
    if len(args) != 2 or any(kind(arg.type) not in ("string", "null") for arg in args):
        return None
    a, b = (converted(arg, STRING) if kind(arg.type) == "null" else arg for arg in args)
    assert isinstance(a.type, StringType)
    assert isinstance(b.type, StringType)
    length = min(a.type.length + b.type.length, MAX_VARCHAR)
    return (a, b), StringType(
        length=length, fixed=a.type.fixed and b.type.fixed, nullable=a.type.nullable or b.type.nullable
    )


def _overlaid(args: Args) -> Typed | None:
    typed = signature("STRING STRING INT INT? -> STRING")(args)
    if not isinstance(typed, tuple):
        return None
    first, second = typed[0][0].type, typed[0][1].type
    assert isinstance(first, StringType)
    assert isinstance(second, StringType)
    return typed[0], StringType(length=min(first.length + second.length, MAX_VARCHAR))


def _trim_words(args: Args) -> Typed | Expr | None:
    """TRIM with the parser's three arguments (side, characters, text), or of a text alone."""
    if len(args) == 1:
        return signature("STRING -> VARCHAR 0")(args)
    if len(args) != 3 or not isinstance(args[0], Literal):
        return None
    name = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(str(args[0].value))
    typed = signature("STRING STRING -> VARCHAR 0")((args[2], args[1]))
    if name is None or not isinstance(typed, tuple):
        return None
    return Call(function=name, args=typed[0], type=typed[1])


def _trim(side: str) -> Write:
    word, duckdb = {"BOTH": ("BOTH", "trim"), "LEADING": ("LEADING", "ltrim"), "TRAILING": ("TRAILING", "rtrim")}[side]

    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        characters = texts[1] if len(texts) > 1 else "' '"
        if writer.spark:
            return f"trim({word} {characters} FROM {texts[0]})"
        return f"{duckdb}({texts[0]}, {characters})"

    return write


def _concatenated(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return f"concat({', '.join(texts)})" if writer.spark else "(" + " || ".join(texts) + ")"


def _with_separator(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return f"CASE WHEN {texts[0]} IS NOT NULL THEN '' END"
    return f"concat_ws({', '.join(texts)})"


def _constant(arg: Expr) -> int | None:
    value = arg.value if isinstance(arg, Literal) else None
    return value if isinstance(value, int) else None


def _substring(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    text, start = texts[0], texts[1]
    at = _constant(call.args[1])
    begin = ("1" if at == 0 else start) if at is not None else f"CASE {start} WHEN 0 THEN 1 ELSE {start} END"
    part = f"substring({text}, {begin}" + (f", {texts[2]})" if len(texts) > 2 else ")")
    arms = []
    if len(texts) > 2 and ((size := _constant(call.args[2])) is None or size < 0):
        arms.append(f"WHEN {texts[2]} < 0 THEN NULL")
    if at is None or at < 0:
        # Before the first character there is nothing, not even a part of what is asked for.
        arms.append(f"WHEN {start} < -{_length(writer)}({text}) THEN ''")
    return f"CASE {' '.join(arms)} ELSE {part} END" if arms else part


def _length(writer: Writer) -> str:
    return "char_length" if writer.spark else "length"


def _side(name: str) -> Write:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        count = _constant(call.args[1])
        size = (
            texts[1]
            if writer.spark or (count is not None and count >= 0)
            else f"CASE WHEN {texts[1]} < 0 THEN 0 ELSE {texts[1]} END"
        )
        return f"{name}({texts[0]}, {size})"

    return write


def _replaced(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    plain = f"replace({texts[0]}, {texts[1]}, {texts[2]})"
    searched = call.args[1]
    if isinstance(searched, Literal) and searched.value:
        return plain
    item = writer.fresh()
    # An empty text is found between all characters.
    if writer.spark:
        around = f"concat({texts[2]}, array_join(transform(split({texts[0]}, ''), {item} -> concat({item}, {texts[2]})), ''))"
    else:
        each = f"list_transform(string_split({texts[0]}, ''), lambda {item}: {item} || {texts[2]})"
        around = f"({texts[2]} || array_to_string({each}, ''))"
    # In an empty text it is found once.
    around = f"CASE WHEN {texts[0]} = '' THEN {texts[2]} ELSE {around} END"
    return f"CASE WHEN {texts[1]} = '' THEN {around} ELSE {plain} END"


def _overlay(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    text, by, start = texts[:3]
    length = _length(writer)
    size = texts[3] if len(texts) > 3 else f"{length}({by})"
    parts = [f"left({text}, greatest({start} - 1, 0))", by, f"substring({text}, {start} + {size})"]
    joined = f"concat({', '.join(parts)})" if writer.spark else "(" + " || ".join(parts) + ")"
    return f"CASE WHEN {start} <= 0 OR {start} > {length}({text}) THEN {text} ELSE {joined} END"


def _locate(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    sought, text = texts[:2]
    if len(texts) == 2:
        return f"locate({sought}, {text})" if writer.spark else f"CAST(strpos({text}, {sought}) AS INTEGER)"
    if writer.spark:
        return f"CASE WHEN {texts[2]} IS NOT NULL THEN locate({sought}, {text}, greatest({texts[2]}, 1)) END"
    start = f"greatest({texts[2]}, 1)"
    found = f"strpos(substring({text}, {start}), {sought})"
    return f"CASE WHEN {texts[2]} IS NOT NULL THEN CAST(CASE WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1 END AS INTEGER) END"


def _instr_rule(args: Args) -> Typed | Expr | None:
    """LOCATE with its arguments the other way round. A search backwards, or for the second occurrence, is refused."""
    typed = signature("STRING STRING INT? -> INT")(args)
    if not isinstance(typed, tuple):
        return None
    text, sought, *start = typed[0]
    if start and (_constant(start[0]) or 0) < 1:
        return None
    return Call(function="LOCATE", args=(sought, text, *start), type=INT)


def _split_index_rule(args: Args) -> Typed | Expr | None:
    if len(args) == 3 and isinstance(args[1].type, IntegerType):
        code = _constant(args[1])
        if code is None:
            return None
        args = (args[0], Literal(value=chr(code), type=StringType(length=1, fixed=True)), args[2])
    return signature("STRING STRING INT -> STRING")(args)


def quoted_pattern(writer: Writer, arg: Expr, text: str) -> str:
    """A text as a Java pattern that matches just it."""
    if isinstance(arg, Literal) and isinstance(arg.value, str):
        value = arg.value
        return writer.text(
            value if value.isalnum() or value in ("", ",", " ", ";", ":", "-", "=", "/") else f"\\Q{value}\\E"
        )
    quoted = f"concat({writer.text(chr(92) + 'Q')}, {text}, {writer.text(chr(92) + 'E')})"
    return f"IF({text} = '', '', {quoted})"


def _split_index(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    text, delimiter, index = texts
    if writer.spark:
        part = f"get(split({text}, {quoted_pattern(writer, call.args[1], delimiter)}), {index})"
        return f"CASE WHEN {text} <> '' THEN {part} END"
    return f"CASE WHEN {text} <> '' AND {index} >= 0 THEN string_split({text}, {delimiter})[{index} + 1] END"


def _split(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """The empty text has no parts."""
    if writer.spark:
        parts = f"split({texts[0]}, {quoted_pattern(writer, call.args[1], texts[1])})"
        none = "CAST(array() AS ARRAY<STRING>)"
    else:
        parts, none = f"string_split({texts[0]}, {texts[1]})", "CAST([] AS VARCHAR[])"
    return f"CASE WHEN {texts[1]} IS NULL THEN NULL WHEN {texts[0]} = '' THEN {none} ELSE {parts} END"


def _upper(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """DuckDB has a capital sharp s; a CHAR(n) stays as long as it was."""
    text = f"upper({texts[0]})" if writer.spark else f"upper(replace({texts[0]}, 'ß', 'SS'))"
    assert isinstance(call.type, StringType)
    return f"left({text}, {call.type.length})" if call.type.fixed and not isinstance(call.args[0], InputRef) else text


def _padded(side: str) -> str:
    return f"CASE WHEN {{1}} < 0 OR {{2}} = '' THEN NULL ELSE {side}({{0}}, {{1}}, {{2}}) END"


def _elt_rule(args: Args) -> Typed | None:
    common = common_type(types_of(args[1:])) if len(args) > 1 else None
    if common is None or kind(args[0].type) != "integer" or kind(common) not in ("string", "bytes"):
        return None
    return (args[0], *(converted(arg, common) for arg in args[1:])), common.as_nullable()


def _like_rule(args: Args) -> Typed | Expr | None:
    return signature("STRING STRING STRING? -> BOOLEAN")(args)


def _like(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Without ESCAPE no character escapes; Spark takes the backslash unless another is named."""
    escape = call.args[2] if len(texts) > 2 else None
    if escape is not None and not (
        isinstance(escape, Literal) and isinstance(escape.value, str) and len(escape.value) == 1
    ):
        raise writer.unsupported(call, "ESCAPE takes one constant character")
    if escape is None:
        return f"({texts[0]} LIKE {texts[1]}" + (" ESCAPE '\\u0001')" if writer.spark else ")")
    assert isinstance(escape, Literal)
    return f"({texts[0]} LIKE {texts[1]} ESCAPE {writer.text(str(escape.value))})"


def _same(name: str, takes: str, text: str, doc: str, *aliases: str, duckdb: str | None = None) -> Function:
    """A function with the same words in both engines, or two templates."""
    return Function(
        name=name,
        rule=signature(takes),
        spark=text,
        duckdb=text if duckdb is None else duckdb,
        doc=doc,
        usage=f"{name}({takes.partition('->')[0].strip().replace(' ', ', ')})",
        aliases=aliases,
    )


def _coded(
    name: str, takes: str | Callable[[Args], Typed | Expr | None], write: Write, doc: str, usage: str, *aliases: str
) -> Function:
    """A function whose text is computed."""
    rule = signature(takes) if isinstance(takes, str) else takes
    return Function(name=name, rule=rule, spark=write, duckdb=write, doc=doc, usage=usage, aliases=aliases)


def _pieces(engine: str) -> str:
    """INITCAP: every word (of ASCII letters and digits) with a capital; what is between stays."""
    word = "CASE WHEN w_ {matches} THEN {capital} ELSE w_ END"
    if engine == "Spark":
        pieces = f"regexp_extract_all({{0}}, '{_CASED_WORDS}', 0)"
        each = word.format(
            matches="RLIKE '^[a-zA-Z0-9]'", capital="concat(upper(left(w_, 1)), lower(substring(w_, 2)))"
        )
        return f"array_join(transform({pieces}, w_ -> {each}), '')"
    pieces = f"regexp_extract_all({{0}}, '{_CASED_WORDS}')"
    each = word.format(matches="SIMILAR TO '[a-zA-Z0-9].*'", capital="upper(left(w_, 1)) || lower(w_[2:])")
    joined = f"array_to_string(list_transform({pieces}, lambda w_: {each}), '')"
    return f"CASE WHEN {{0}} IS NOT NULL THEN coalesce({joined}, '') END"


FUNCTIONS = (
    Function(name="||", rule=_joined, spark=_concatenated, duckdb=_concatenated, doc="Both texts, one behind the other.",
             usage="<STRING> || <STRING>", operator=True),
    Function(name="LIKE", rule=_like_rule, spark=_like, duckdb=_like, usage="<STRING> LIKE <STRING> [ESCAPE <STRING>]", operator=True,
             doc="Whether the text has a form: `%` stands for any characters, `_` for one."),
    _coded("CONCAT", "STRING+ -> STRING", _concatenated, "The texts, one behind the other; NULL if one is NULL.", "CONCAT(<STRING>, …)"),
    _coded("CONCAT_WS", "STRING STRING* -> STRING", _with_separator, "The texts with a separator between; NULLs are left out.",
           "CONCAT_WS(<STRING separator>, <STRING>, …)"),
    _coded("UPPER", "STRING -> =0", _upper, "In capitals.", "UPPER(<STRING>)"),
    _same("LOWER", "STRING -> =0", "lower({0})", "In small letters."),
    _same("INITCAP", "STRING -> =0", _pieces("Spark"), "Every word with a capital, the rest small.", duckdb=_pieces("DuckDB")),
    _same("CHAR_LENGTH", "STRING -> INT", "char_length({0})", "Number of characters.", "CHARACTER_LENGTH", duckdb="CAST(length({0}) AS INTEGER)"),
    _coded("TRIM", _trim_words, _trim("BOTH"), "Without the given characters at its ends, spaces by default.",
           "TRIM([BOTH, LEADING or TRAILING] <STRING> FROM <STRING>)"),
    _coded("LTRIM", "STRING STRING? -> VARCHAR 0", _trim("LEADING"), "Without the given characters at its start.", "LTRIM(<STRING>[, <STRING>])"),
    _coded("RTRIM", "STRING STRING? -> VARCHAR 0", _trim("TRAILING"), "Without the given characters at its end.", "RTRIM(<STRING>[, <STRING>])"),
    _coded("BTRIM", "STRING STRING? -> STRING", _trim("BOTH"), "Without the given characters at both ends.", "BTRIM(<STRING>[, <STRING>])"),
    _same("LPAD", "STRING INT STRING -> STRING", _padded("lpad"), "Filled from the left up to a length, or cut to it."),
    _same("RPAD", "STRING INT STRING -> STRING", _padded("rpad"), "Filled from the right up to a length, or cut to it."),
    _coded("SUBSTRING", "STRING INT INT? -> VARCHAR 0", _substring, "A part from a position on; a negative one counts from the end.",
           "SUBSTRING(<STRING> FROM <INT> [FOR <INT>])", "SUBSTR"),
    _coded("LEFT", "STRING INT -> VARCHAR 0", _side("left"), "The first characters.", "LEFT(<STRING>, <INT>)"),
    _coded("RIGHT", "STRING INT -> VARCHAR 0", _side("right"), "The last characters.", "RIGHT(<STRING>, <INT>)"),
    _coded("REPLACE", "STRING STRING STRING -> STRING", _replaced, "With one text in place of another, everywhere.",
           "REPLACE(<STRING>, <STRING sought>, <STRING by>)"),
    _coded("OVERLAY", _overlaid, _overlay, "With characters from a position on replaced.", "OVERLAY(<STRING> PLACING <STRING> FROM <INT> [FOR <INT>])"),
    _coded("POSITION", "STRING STRING -> INT", _locate, "Where a text starts within another, 0 if it does not occur.", "POSITION(<STRING> IN <STRING>)"),
    _coded("LOCATE", "STRING STRING INT? -> INT", _locate, "Where a text starts within another, from a position on; 0 if nowhere.",
           "LOCATE(<STRING sought>, <STRING>[, <INT>])"),
    Function(name="INSTR", rule=_instr_rule, spark="", duckdb="", doc="Where a text starts within another, 0 if it does not occur.",
             usage="INSTR(<STRING>, <STRING sought>[, <constant start of at least 1>])"),
    _same("REVERSE", "STRING -> STRING", "reverse({0})", "Backwards."),
    _same("REPEAT", "STRING INT -> STRING", "repeat({0}, {1})", "So many times, one behind the other.", duckdb="repeat({0}, greatest({1}, 0 * {1}))"),
    _same("ASCII", "STRING -> INT", "CASE WHEN {0} = '' THEN 0 ELSE CAST(CAST(CAST(conv(left(hex({0}), 2), 16, 10) AS INT) AS TINYINT) AS INT) END",
          "The first byte of the text.", duckdb="CASE WHEN {0} = '' THEN 0 WHEN ord(left({0}, 1)) < 128 THEN ord(left({0}, 1)) "
          "ELSE CAST(('0x' || left(hex(encode({0})), 2)) AS INTEGER) - 256 END"),
    _same("CHR", "BIGINT -> STRING", "chr({0})", "The character of a code (modulo 256).",
          duckdb="CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} % 256 AS INTEGER)) END"),
    _coded("SPLIT_INDEX", _split_index_rule, _split_index, "The part at an index (from 0) between separators; NULL if there is none.",
           "SPLIT_INDEX(<STRING>, <STRING separator>, <INT>)"),
    _coded("SPLIT", "STRING STRING -> ARRAY<STRING>", _split, "The parts between separators.", "SPLIT(<STRING>, <STRING separator>)"),
    _same("STARTSWITH", "STRING STRING -> BOOLEAN", "startswith({0}, {1})", "Whether it starts with the other text.", duckdb="starts_with({0}, {1})"),
    _same("ENDSWITH", "STRING STRING -> BOOLEAN", "endswith({0}, {1})", "Whether it ends with the other text.", duckdb="ends_with({0}, {1})"),
    _same("TRANSLATE", "STRING STRING STRING -> STRING", "translate({0}, {1}, coalesce({2}, ''))",
          "With characters replaced one by one; those without a counterpart go."),
    Function(name="ELT", rule=_elt_rule, spark="elt({*})", doc="The text at a position (from 1) in the list.", usage="ELT(<INT>, <STRING>, …)",
             duckdb="CASE WHEN {0} > 0 THEN ([{1*}])[{0}] END"),
)  # fmt: skip
