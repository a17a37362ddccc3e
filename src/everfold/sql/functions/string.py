"""String functions. Positions start at 1 and count characters (code points)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.sql.functions.cast_from_text import matches
from everfold.sql.functions.coercion import common_type, convert_to, kind, types_of
from everfold.sql.functions.entry import Args, Function, Typed
from everfold.sql.functions.java_regex import like_sql
from everfold.sql.functions.signatures import signature
from everfold.sql.functions.similar import LINE_END, NO_LINE_END, matches_whole, translate_like
from everfold.sql.functions.writer import Writer
from everfold.types import INT, MAX_VARCHAR, STRING, IntegerType, StringType

_MAX_CODE = 255
"""The greatest code of a character that SPLIT_INDEX accepts as its separator."""
_MAX_TRIED_CHARS = 50
"""Characters of a string for which LIKE may try every position for every `%` of its pattern."""
_CASED_WORDS = "[a-zA-Z0-9]+|[^a-zA-Z0-9]+"
Write = Callable[[Writer, Call, Sequence[str]], str]


def _concat_rule(args: Args) -> Typed | None:
    """Type `||`: the length is the sum of both; two CHARs give a CHAR."""
    if len(args) != 2 or any(kind(arg.type) not in ("string", "null") for arg in args):
        return None
    a, b = (convert_to(arg, STRING) if kind(arg.type) == "null" else arg for arg in args)
    assert isinstance(a.type, StringType)
    assert isinstance(b.type, StringType)
    length = min(a.type.length + b.type.length, MAX_VARCHAR)
    return (a, b), StringType(
        length=length, fixed=a.type.fixed and b.type.fixed, nullable=a.type.nullable or b.type.nullable
    )


def _overlay_rule(args: Args) -> Typed | None:
    typed = signature("STRING STRING INT INT? -> STRING")(args)
    if not isinstance(typed, tuple):
        return None
    first, second = typed[0][0].type, typed[0][1].type
    assert isinstance(first, StringType)
    assert isinstance(second, StringType)
    return typed[0], StringType(length=min(first.length + second.length, MAX_VARCHAR))


def _trim_rule(args: Args) -> Typed | Expr | None:
    """Type TRIM with the parser's three arguments (side, characters, string) or a string only."""
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


def _concat(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return f"concat({', '.join(texts)})" if writer.spark else "(" + " || ".join(texts) + ")"


def _concat_ws(writer: Writer, call: Call, texts: Sequence[str]) -> str:
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
        # A start before the first character yields '', not a part of the requested length.
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


def _replace(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    plain = f"replace({texts[0]}, {texts[1]}, {texts[2]})"
    searched = call.args[1]
    if isinstance(searched, Literal) and searched.value:
        return plain
    item = writer.new_variable()
    # An empty string is found between all characters.
    if writer.spark:
        around = f"concat({texts[2]}, array_join(transform(split({texts[0]}, ''), {item} -> concat({item}, {texts[2]})), ''))"
    else:
        each = f"list_transform(string_split({texts[0]}, ''), lambda {item}: {item} || {texts[2]})"
        around = f"({texts[2]} || array_to_string({each}, ''))"
    # In an empty string it is found once.
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
    """Rewrite INSTR to LOCATE with swapped arguments.

    A backward search and a search for a later occurrence are not supported.
    """
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
        if not 0 < code <= _MAX_CODE:
            is_call = signature("STRING INT INT -> STRING")(args) is not None
            return Literal(value=None, type=STRING) if is_call else None
        args = (args[0], Literal(value=chr(code), type=StringType(length=1, fixed=True)), args[2])
    return signature("STRING STRING INT -> STRING")(args)


def quote_pattern(writer: Writer, arg: Expr, text: str) -> str:
    """Return a Java pattern that matches a string literally."""
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
        part = f"get(split({text}, {quote_pattern(writer, call.args[1], delimiter)}), {index})"
        return f"CASE WHEN {text} <> '' THEN {part} END"
    return f"CASE WHEN {text} <> '' AND {index} >= 0 THEN string_split({text}, {delimiter})[CAST({index} AS BIGINT) + 1] END"


def _split(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Split a string; the empty string has no parts."""
    if writer.spark:
        parts = f"split({texts[0]}, {quote_pattern(writer, call.args[1], texts[1])})"
        none = "CAST(array() AS ARRAY<STRING>)"
    else:
        parts, none = f"string_split({texts[0]}, {texts[1]})", "CAST([] AS VARCHAR[])"
    return f"CASE WHEN {texts[1]} IS NULL THEN NULL WHEN {texts[0]} = '' THEN {none} ELSE {parts} END"


def _upper(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Convert to upper case: 'ß' becomes 'SS' in DuckDB too, and a CHAR(n) keeps its length."""
    text = f"upper({texts[0]})" if writer.spark else f"upper(replace({texts[0]}, 'ß', 'SS'))"
    assert isinstance(call.type, StringType)
    return f"left({text}, {call.type.length})" if call.type.fixed and not isinstance(call.args[0], InputRef) else text


def _pad(side: str) -> str:
    return f"CASE WHEN {{1}} < 0 OR {{2}} = '' THEN NULL ELSE {side}({{0}}, {{1}}, {{2}}) END"


def _elt_rule(args: Args) -> Typed | None:
    common = common_type(types_of(args[1:])) if len(args) > 1 else None
    if common is None or kind(args[0].type) != "integer" or kind(common) not in ("string", "bytes"):
        return None
    return (args[0], *(convert_to(arg, common) for arg in args[1:])), common.as_nullable()


def _like_rule(args: Args) -> Typed | Expr | None:
    return signature("STRING STRING STRING? -> BOOLEAN")(args)


def _like(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Render LIKE: without ESCAPE there is no escape character (Spark: a backslash).

    In Flink `_` is not the end of a line.
    """
    escape = call.args[2] if len(texts) > 2 else None
    if escape is not None and not (
        isinstance(escape, Literal) and isinstance(escape.value, str) and len(escape.value) == 1
    ):
        raise writer.unsupported(call, "ESCAPE must be a single constant character")
    pattern, char = call.args[1], None if escape is None else str(escape.value)
    if not isinstance(pattern, Literal):
        return _like_column(writer, texts, char)
    if not isinstance(pattern.value, str):
        return _plain_like(writer, texts, char)
    is_costly = not _is_one_search(pattern.value, char)
    regex = translate_like(pattern.value, char, always=is_costly and (writer.spark or char is not None))
    if writer.spark and is_costly and regex is not None:
        return like_sql(writer, texts[0], texts[1], char)
    return _plain_like(writer, texts, char) if regex is None else matches_whole(writer, texts[0], regex)


def _is_one_search(pattern: str, escape: str | None) -> bool:
    """Return whether a pattern of LIKE takes one pass through a string, in any engine."""
    if escape is not None and escape in pattern:
        pattern = pattern.replace(escape, "%")
    many = pattern.count("%")
    return many == 0 or ("_" not in pattern and (many == 1 or (many == 2 and pattern[0] == pattern[-1] == "%")))


def _plain_like(writer: Writer, texts: Sequence[str], escape: str | None) -> str:
    if escape is None:
        return f"({texts[0]} LIKE {texts[1]}" + (" ESCAPE '\\u0001')" if writer.spark else ")")
    return f"({texts[0]} LIKE {texts[1]} ESCAPE {writer.text(escape)})"


def _like_column(writer: Writer, texts: Sequence[str], escape: str | None) -> str:
    """Render LIKE with a computed pattern.

    In DuckDB, a regular expression where the string has the end of a line, or is long.
    """
    string, pattern = texts[:2]
    if writer.spark:
        return like_sql(writer, string, pattern, escape)
    plain = _plain_like(writer, texts, escape)
    if escape is not None:
        return plain
    special = writer.text("([^A-Za-z0-9_%])")
    quoted = f"regexp_replace({pattern}, {special}, {writer.text(chr(92) * 2 + chr(92) + '1')}, 'g')"
    anything = writer.text(NO_LINE_END)
    regex = f"replace(replace({quoted}, '%', '(?s:.*)'), '_', {anything})"
    regex = f"concat('^(?:', {regex}, {writer.text(')' + chr(92) + 'z')})"
    # Of a pattern that is not a constant, DuckDB tries every position for every `%`.
    many = f"length({pattern}) - length(replace({pattern}, '%', '')) > 2 AND length({string}) > {_MAX_TRIED_CHARS}"
    needs_regex = f"{matches(writer, string, LINE_END)} OR {many}"
    return f"CASE WHEN {needs_regex} THEN regexp_matches({string}, {regex}) ELSE {plain} END"


def _template_entry(name: str, takes: str, text: str, doc: str, *aliases: str, duckdb: str | None = None) -> Function:
    """Return a function with one template for both engines, or with two templates."""
    return Function(
        name=name,
        rule=signature(takes),
        spark=text,
        duckdb=text if duckdb is None else duckdb,
        doc=doc,
        usage=f"{name}({', '.join(f'<{word}>' for word in takes.partition('->')[0].split())})",
        aliases=aliases,
    )


def _code_entry(
    name: str, takes: str | Callable[[Args], Typed | Expr | None], write: Write, doc: str, usage: str, *aliases: str
) -> Function:
    """Return a function whose SQL is computed."""
    rule = signature(takes) if isinstance(takes, str) else takes
    return Function(name=name, rule=rule, spark=write, duckdb=write, doc=doc, usage=usage, aliases=aliases)


def _initcap(engine: str) -> str:
    """Return INITCAP's template: capitalize words of ASCII letters and digits, keep the rest."""
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
    Function(name="||", rule=_concat_rule, spark=_concat, duckdb=_concat, doc="Concatenates two strings.",
             usage="<STRING> || <STRING>", operator=True),
    Function(name="LIKE", rule=_like_rule, spark=_like, duckdb=_like, usage="<STRING> LIKE <STRING> [ESCAPE <STRING>]", operator=True,
             doc="Whether the string matches a pattern: `%` matches any characters, `_` exactly one."),
    _code_entry("CONCAT", "STRING+ -> STRING", _concat, "Concatenates strings; NULL if any is NULL.", "CONCAT(<STRING>, …)"),
    _code_entry("CONCAT_WS", "STRING STRING* -> STRING", _concat_ws, "Concatenates strings with a separator; NULLs are skipped.",
           "CONCAT_WS(<STRING separator>, <STRING>, …)"),
    _code_entry("UPPER", "STRING -> =0", _upper, "Converts to upper case.", "UPPER(<STRING>)"),
    _template_entry("LOWER", "STRING -> =0", "lower({0})", "Converts to lower case."),
    _template_entry("INITCAP", "STRING -> =0", _initcap("Spark"), "Converts the first letter of every word to upper case and the rest to lower case.", duckdb=_initcap("DuckDB")),
    _template_entry("CHAR_LENGTH", "STRING -> INT", "char_length({0})", "Number of characters.", "CHARACTER_LENGTH", duckdb="CAST(length({0}) AS INTEGER)"),
    _code_entry("TRIM", _trim_rule, _trim("BOTH"), "Removes characters, by default spaces, from both ends or from one end.",
           "TRIM([BOTH, LEADING or TRAILING] <STRING> FROM <STRING>)"),
    _code_entry("LTRIM", "STRING STRING? -> VARCHAR 0", _trim("LEADING"), "Removes characters, by default spaces, from the start.", "LTRIM(<STRING>[, <STRING>])"),
    _code_entry("RTRIM", "STRING STRING? -> VARCHAR 0", _trim("TRAILING"), "Removes characters, by default spaces, from the end.", "RTRIM(<STRING>[, <STRING>])"),
    _code_entry("BTRIM", "STRING STRING? -> STRING", _trim("BOTH"), "Removes characters, by default spaces, from both ends.", "BTRIM(<STRING>[, <STRING>])"),
    _template_entry("LPAD", "STRING INT STRING -> STRING", _pad("lpad"), "Pads on the left to a length, or truncates to it."),
    _template_entry("RPAD", "STRING INT STRING -> STRING", _pad("rpad"), "Pads on the right to a length, or truncates to it."),
    _code_entry("SUBSTRING", "STRING INT INT? -> VARCHAR 0", _substring, "Substring from a position on; a negative position counts from the end.",
           "SUBSTRING(<STRING> FROM <INT> [FOR <INT>])", "SUBSTR"),
    _code_entry("LEFT", "STRING INT -> VARCHAR 0", _side("left"), "First characters of a string.", "LEFT(<STRING>, <INT>)"),
    _code_entry("RIGHT", "STRING INT -> VARCHAR 0", _side("right"), "Last characters of a string.", "RIGHT(<STRING>, <INT>)"),
    _code_entry("REPLACE", "STRING STRING STRING -> STRING", _replace, "Replaces all occurrences of a string by another.",
           "REPLACE(<STRING>, <STRING sought>, <STRING by>)"),
    _code_entry("OVERLAY", _overlay_rule, _overlay, "Replaces characters from a position on.", "OVERLAY(<STRING> PLACING <STRING> FROM <INT> [FOR <INT>])"),
    _code_entry("POSITION", "STRING STRING -> INT", _locate, "Position of the first occurrence of a string in another, 0 if there is none.", "POSITION(<STRING> IN <STRING>)"),
    _code_entry("LOCATE", "STRING STRING INT? -> INT", _locate, "Position of the first occurrence of a string in another, from a position on; 0 if there is none.",
           "LOCATE(<STRING sought>, <STRING>[, <INT>])"),
    Function(name="INSTR", rule=_instr_rule, spark="", duckdb="", doc="Position of the first occurrence of a string in another, 0 if there is none.",
             usage="INSTR(<STRING>, <STRING sought>[, <constant start of at least 1>])"),
    _template_entry("REVERSE", "STRING -> STRING", "reverse({0})", "Reverses the characters."),
    _template_entry("REPEAT", "STRING INT -> STRING", "repeat({0}, {1})", "Repeats a string a number of times.", duckdb="repeat({0}, greatest({1}, 0 * {1}))"),
    _template_entry("ASCII", "STRING -> INT", "CASE WHEN {0} = '' THEN 0 ELSE CAST(CAST(CAST(conv(left(hex({0}), 2), 16, 10) AS INT) AS TINYINT) AS INT) END",
          "Value of the first byte, as a signed number.", duckdb="CASE WHEN {0} = '' THEN 0 WHEN ord(left({0}, 1)) < 128 THEN ord(left({0}, 1)) "
          "ELSE CAST(('0x' || left(hex(encode({0})), 2)) AS INTEGER) - 256 END"),
    _template_entry("CHR", "BIGINT -> STRING", "chr({0})", "Character with the given code (modulo 256).",
          duckdb="CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} % 256 AS INTEGER)) END"),
    _code_entry("SPLIT_INDEX", _split_index_rule, _split_index, "Splits a string by a separator and returns the part at an index (from 0); NULL if there is none.",
           "SPLIT_INDEX(<STRING>, <STRING separator>, <INT>)"),
    _code_entry("SPLIT", "STRING STRING -> ARRAY<STRING>", _split, "Splits a string by a separator.", "SPLIT(<STRING>, <STRING separator>)"),
    _template_entry("STARTSWITH", "STRING STRING -> BOOLEAN", "startswith({0}, {1})", "Whether the first string starts with the second.", duckdb="starts_with({0}, {1})"),
    _template_entry("ENDSWITH", "STRING STRING -> BOOLEAN", "endswith({0}, {1})", "Whether the first string ends with the second.", duckdb="ends_with({0}, {1})"),
    _template_entry("TRANSLATE", "STRING STRING STRING -> STRING", "translate({0}, {1}, coalesce({2}, ''))",
          "Replaces characters one by one; those without a counterpart are removed."),
    Function(name="ELT", rule=_elt_rule, spark="elt({*})", doc="String at a position (from 1) in the list.", usage="ELT(<INT>, <STRING>, …)",
             duckdb="CASE WHEN {0} > 0 THEN ([{1*}])[{0}] END"),
)  # fmt: skip
