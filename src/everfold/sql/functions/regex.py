"""Regular expressions: Java's in Flink and Spark, RE2's in the memory runner.

RE2 has no lookaround and no backreferences: such a pattern is refused in memory, or fails the job
if it is in a column. An invalid pattern matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from everfold.errors import SqlError
from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.build_map import build_map
from everfold.sql.functions.cast_from_text import matches
from everfold.sql.functions.entry import Args, Function, Typed
from everfold.sql.functions.java_regex import (
    extract_all_sql,
    extract_sql,
    find_sql,
    is_fixed,
    is_valid_sql,
    position_sql,
    replace_sql,
    split_sql,
)
from everfold.sql.functions.signatures import signature
from everfold.sql.functions.similar import matches_whole, to_java, to_re2, translate_similar
from everfold.sql.functions.writer import Writer
from everfold.types import BOOLEAN, STRING, StringType

Write = Callable[[Writer, Call, Sequence[str]], str]
_NO_GROUP = r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[:imsU-]"
_ONLY_JAVA = r"\(\?<?[=!>]|\\[1-9kpPGRXZhHvV]|[*+?}]\+|&&"
"""What a valid pattern has that RE2 does not know."""
_ONLY_PYTHON = "(?P"
"""A named group of Python and RE2. Java writes it `(?<name>`."""
_JAVA_NUMBER = (
    r"^(?:[+-]?\p{Nd}{1,18}|[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?)[\x00-\x20]*)\z"
)
"""What Java parses as an INT, a BIGINT or a DOUBLE."""
_MAP_SEPARATORS = (Literal(value=",", type=STRING), Literal(value="=", type=STRING))
"""Between the entries of STR_TO_MAP, and between keys and values, by default."""
_URL = r"^(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?$"
_URL_PARTS = {"PROTOCOL": 1, "AUTHORITY": 2, "PATH": 3, "QUERY": 4, "REF": 5}


def _groups(pattern: str) -> int | None:
    try:
        return re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError):
        return None


@cache
def _find_re2_problem(pattern: str) -> str | None:
    """Return why RE2 refuses a pattern, None if it is valid."""
    import duckdb

    with duckdb.connect() as connection:
        try:
            connection.execute("SELECT regexp_matches('', ?)", [pattern]).fetchall()
        except duckdb.Error as error:
            return str(error).splitlines()[0].rpartition("Error: ")[2]
    return None


def _check_constant(writer: Writer, call: Call, at: int = 1) -> None:
    """Refuse a constant pattern that RE2 does not know, in memory."""
    pattern = call.args[at] if len(call.args) > at else None
    if not writer.spark and isinstance(pattern, Literal) and isinstance(pattern.value, str):
        _check_re2(writer, call, pattern.value)


def _check_re2(writer: Writer, call: Call, pattern: str) -> None:
    problem = _find_re2_problem(pattern)
    if problem is not None:
        raise writer.unsupported(call, f"DuckDB does not know the pattern: {problem}")


def _if_valid(writer: Writer, call: Call, texts: Sequence[str], found: str, otherwise: str = "NULL") -> str:
    """Return the SQL of a value, and of another one where the pattern is invalid.

    texts: the SQL of the string and of the pattern. It is NULL where one of them is NULL.
    """
    string, pattern = texts[:2]
    constant = call.args[1].value if isinstance(call.args[1], Literal) else None
    given = f"{string} IS NOT NULL AND {pattern} IS NOT NULL"
    if writer.spark:
        if (
            isinstance(constant, str)
            and _ONLY_PYTHON not in constant
            and (_groups(constant) is not None or _find_re2_problem(constant) is None)
        ):
            return found  # valid in Java, too
        return f"CASE WHEN {given} THEN CASE WHEN {is_valid_sql(pattern)} THEN {found} ELSE {otherwise} END END"
    if isinstance(constant, str):
        if _find_re2_problem(constant) is None:
            return found
        if re.search(_ONLY_JAVA, constant):
            _check_constant(writer, call)
        return f"CASE WHEN {given} THEN CAST({otherwise} AS {writer.type(call.type)}) END"
    valid = f"TRY(regexp_matches('', {pattern})) IS NOT NULL"
    unknown = f"regexp_matches({pattern}, {writer.text(_ONLY_JAVA)})"
    fail = writer.fail("unsupported-pattern: RE2 does not know the pattern")
    return f"CASE WHEN {given} THEN CASE WHEN {valid} THEN {found} WHEN {unknown} THEN {fail} ELSE {otherwise} END END"


def _guarded(template: str, otherwise: str = "NULL") -> Write:
    """Return the writer of a template of {0}, the string, and {1}, the pattern (`_if_valid`)."""

    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        return _if_valid(writer, call, texts, template.format(*texts), otherwise)

    return write


def _bounded(template: str, search: Callable[[Writer, str, str, str | None], str], otherwise: str = "NULL") -> Write:
    """Return the writer of a template of {0}, a bounded search, and {1}, the pattern."""

    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        found = search(writer, texts[0], texts[1], _constant(call.args[1]))
        return _if_valid(writer, call, texts, template.format(found, texts[1]), otherwise)

    return write


def _extract_match(writer: Writer, text: str, regex: str, pattern: str | None) -> str:
    return extract_sql(writer, text, regex, "0", pattern)


def _extract_matches(writer: Writer, text: str, regex: str, pattern: str | None) -> str:
    return extract_all_sql(writer, text, regex, "0", pattern)


def _constant(expr: Expr) -> str | None:
    """Return the value of a constant string."""
    return expr.value if isinstance(expr, Literal) and isinstance(expr.value, str) else None


def _similar_rule(args: Args) -> Typed | None:
    if len(args) not in (2, 3) or not isinstance(args[0].type, StringType):
        return None
    constants = [arg.value if isinstance(arg, Literal) else None for arg in args[1:]]
    if not all(isinstance(value, str) for value in constants):
        raise SqlError.of(
            "wrong-arguments",
            "SIMILAR TO requires a constant pattern",
            args[1].span,
            "use REGEXP for patterns from columns",
        )
    try:
        pattern = translate_similar(*map(str, constants))
    except ValueError as wrong:
        raise SqlError.of("wrong-arguments", f"SIMILAR TO: {wrong}", args[1].span) from None
    return (args[0], Literal(value=pattern, type=STRING, span=args[1].span)), BOOLEAN


def _extract(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Return NULL if nothing matches or the group does not exist; the engines return '' or fail."""
    pattern = call.args[1]
    group = call.args[2].value if len(call.args) > 2 and isinstance(call.args[2], Literal) else None
    if len(call.args) == 2:
        group = 0
    if isinstance(group, int) and isinstance(pattern, Literal):
        count = _groups(str(pattern.value))
        if count is not None and not 0 <= group <= count:
            return writer.literal(None, call.type)
    index = texts[2] if len(texts) > 2 else "0"
    if not isinstance(group, int) and not writer.spark:
        raise writer.unsupported(call, "the group must be a constant")
    if writer.spark:
        matched = find_sql(writer, texts[0], texts[1], _constant(pattern))
        extracted = extract_sql(writer, texts[0], texts[1], index, _constant(pattern))
    else:
        matched = f"regexp_matches({texts[0]}, {texts[1]})"
        extracted = f"regexp_extract({texts[0]}, {texts[1]}, {index})"
    if group != 0 and not isinstance(pattern, Literal):
        matched = f"{index} BETWEEN 0 AND {_count_groups(writer, texts[1])} AND {matched}"
    found = f"CASE WHEN {matched} THEN {extracted} END"
    return _if_valid(writer, call, texts, found)


def _replace(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Replace by a literal string, without references to groups."""
    if writer.spark:
        return _if_valid(writer, call, texts, replace_sql(writer, *texts))
    by = call.args[2]
    if isinstance(by, Literal) and isinstance(by.value, str):
        plain = writer.text(by.value.replace("\\", "\\\\"))
    else:
        plain = f"replace({texts[2]}, {writer.text(chr(92))}, {writer.text(chr(92) * 2)})"
    return _if_valid(writer, call, texts, f"regexp_replace({texts[0]}, {texts[1]}, {plain}, 'g')")


def _extract_all(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Return NULL if the pattern does not have the group."""
    pattern = call.args[1]
    group = _constant_group(call, default=1)
    index = texts[2] if len(texts) > 2 else "1"
    if group is None and not writer.spark:
        raise writer.unsupported(call, "the group must be a constant")
    if writer.spark:
        found = extract_all_sql(writer, texts[0], texts[1], index, _constant(pattern))
    else:
        found = f"regexp_extract_all({texts[0]}, {texts[1]}, {index})"
    count = _groups(str(pattern.value)) if isinstance(pattern, Literal) else None
    if count is None or group is None:
        known = f"{index} BETWEEN 0 AND {_count_groups(writer, texts[1]) if count is None else count}"
        return _if_valid(writer, call, texts, f"CASE WHEN {known} THEN {found} END")
    return _if_valid(writer, call, texts, found) if 0 <= group <= count else writer.literal(None, call.type)


def _constant_group(call: Call, default: int) -> int | None:
    """Return the number of the group if it is a constant."""
    if len(call.args) < 3:
        return default
    value = call.args[2].value if isinstance(call.args[2], Literal) else None
    return value if isinstance(value, int) else None


def _count_groups(writer: Writer, pattern: str) -> str:
    """Return SQL of the number of groups of a pattern.

    That is its opening parentheses, without escaped ones, those in classes, and non-capturing ones.
    """
    if writer.spark:
        plain = replace_sql(writer, pattern, writer.text(_NO_GROUP), "''")
    else:
        plain = f"regexp_replace({pattern}, {writer.text(_NO_GROUP)}, '', 'g')"
    length = "char_length" if writer.spark else "length"
    return f"{length}({plain}) - {length}(replace({plain}, '(', ''))"


def _similar(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    pattern = call.args[1]
    assert isinstance(pattern, Literal)
    if writer.spark:
        regex = to_java(str(pattern.value))
        return find_sql(writer, texts[0], writer.text(regex), regex)
    _check_re2(writer, call, to_re2(str(pattern.value)))
    return matches_whole(writer, texts[0], str(pattern.value))


def _map_duckdb(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    _check_constant(writer, call, 1)
    _check_constant(writer, call, 2)
    pair = texts[1] if len(texts) > 1 else "','"
    between = texts[2] if len(texts) > 2 else "'='"
    item, items, keys, values = (writer.new_variable() for _ in range(4))
    found = f"regexp_extract({item}, '^(.*?)(?:' || {between} || ')', 1)"
    has = f"regexp_matches({item}, {between})"
    key = f"CASE WHEN {has} THEN {found} ELSE {item} END"
    value = f"CASE WHEN {has} THEN regexp_replace({item}, '^(.*?)(?:' || {between} || ')', '') END"
    arrays = {
        keys: f"list_transform({items}, lambda {item}: {key})",
        values: f"list_transform({items}, lambda {item}: {value})",
    }
    whole = writer.let_all(arrays, build_map(writer, keys, values))
    made = writer.let(items, f"string_split_regex({texts[0]}, {pair})", whole)
    return f"CASE WHEN {' AND '.join(f'{text} IS NOT NULL' for text in texts)} THEN {made} END"


def _map_spark(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    pair = texts[1] if len(texts) > 1 else "','"
    between = texts[2] if len(texts) > 2 else "'='"
    pair_pattern, pattern = (_constant(arg) for arg in (*call.args[1:], *_MAP_SEPARATORS[len(call.args) - 1 :]))
    if is_fixed(pair_pattern) and is_fixed(pattern):
        return f"str_to_map({texts[0]}, {pair}, {between})"
    item, parts = writer.new_variable(), writer.new_variable()
    items = split_sql(writer, texts[0], pair, -1, pair_pattern)
    split = f"transform({items}, {item} -> {split_sql(writer, item, between, 2, pattern)})"
    entries = f"transform({split}, {parts} -> struct({parts}[0] AS key, get({parts}, 1) AS value))"
    return f"map_from_entries({entries})"


def _map(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Split a string into a map; the empty string is an empty map."""
    empty = f"CAST({'map()' if writer.spark else 'MAP {}'} AS {writer.type(call.type)})"
    split = (_map_spark if writer.spark else _map_duckdb)(writer, call, texts)
    return f"CASE WHEN {texts[0]} = '' THEN {empty} ELSE {split} END"


def _url_spark(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Bound the time if the key is not a word: it is a part of a pattern, as in Flink."""
    key = _constant(call.args[2]) if len(texts) > 2 else ""
    if key is not None and re.fullmatch(r"[\w-]*", key, re.A):
        return f"parse_url({', '.join(texts)})"
    query, regex = (writer.new_variable() for _ in range(2))
    first = find_sql(writer, query, regex, None)
    value = extract_sql(writer, query, regex, "2", None)
    values = {query: f"parse_url({texts[0]}, {texts[1]})", regex: f"concat('(&|^)', {texts[2]}, '=([^&]*)')"}
    found = f"CASE WHEN {texts[1]} = 'QUERY' AND {is_valid_sql(regex)} AND {first} THEN {value} END"
    return writer.let_all(values, found)


def _url_duckdb(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    part = call.args[1]
    assert isinstance(part, Literal)
    url = writer.text(_URL)

    def group(number: int) -> str:
        return f"nullif(regexp_extract({texts[0]}, {url}, {number}), '')"

    authority, name = group(_URL_PARTS["AUTHORITY"]), str(part.value)
    if len(texts) > 2:
        if name != "QUERY":
            return writer.literal(None, STRING)
        pattern = f"'(?:^|&)' || regexp_escape({texts[2]}) || '=([^&]*)'"
        query = group(_URL_PARTS["QUERY"])
        return f"CASE WHEN regexp_matches({query}, {pattern}) THEN regexp_extract({query}, {pattern}, 1) END"
    if name == "HOST":
        return f"nullif(regexp_extract({authority}, '^(?:[^@]*@)?([^:]*)', 1), '')"
    if name == "USERINFO":
        return f"nullif(regexp_extract({authority}, '^([^@]*)@', 1), '')"
    if name == "FILE":
        return f"CASE WHEN {group(1)} IS NOT NULL THEN coalesce({group(3)}, '') || coalesce('?' || {group(4)}, '') END"
    if name not in _URL_PARTS:
        return writer.literal(None, STRING)
    return f"CASE WHEN {group(1)} IS NOT NULL THEN {group(_URL_PARTS[name])} END"


def _is_decimal(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    if not isinstance(call.args[0].type, StringType):
        return "TRUE"  # of NULL, too, as in Flink
    return f"coalesce({matches(writer, texts[0], _JAVA_NUMBER)}, false)"


FUNCTIONS = (
    Function(name="SIMILAR TO", rule=_similar_rule, spark=_similar, duckdb=_similar, operator=True,
             doc="Whether the whole string matches an SQL regular expression.", usage="<STRING> SIMILAR TO <STRING> [ESCAPE <STRING>]"),
    Function(name="REGEXP", rule=signature("STRING STRING -> BOOLEAN"), spark=_bounded("({1} <> '' AND {0})", find_sql, "false"),
             duckdb=_guarded("({1} <> '' AND regexp_matches({0}, {1}))", "false"), doc="Whether the pattern matches anywhere in the string.", usage="REGEXP(<STRING>, <STRING>)"),
    Function(name="REGEXP_EXTRACT", rule=signature("STRING STRING INT? -> STRING"), spark=_extract, duckdb=_extract,
             doc="First match, or a group of it (0 is the whole match); NULL if nothing matches.", usage="REGEXP_EXTRACT(<STRING>, <STRING>[, <INT>])"),
    Function(name="REGEXP_REPLACE", rule=signature("STRING STRING STRING -> STRING"), spark=_replace, duckdb=_replace,
             doc="Replaces every match by a literal string.", usage="REGEXP_REPLACE(<STRING>, <STRING>, <STRING>)"),
    Function(name="REGEXP_COUNT", rule=signature("STRING STRING -> INT"), spark=_bounded("size({0})", _extract_matches),
             duckdb=_guarded("CAST(length(regexp_extract_all({0}, {1})) AS INTEGER)"), doc="Number of matches.", usage="REGEXP_COUNT(<STRING>, <STRING>)"),
    Function(name="REGEXP_INSTR", rule=signature("STRING STRING -> INT"), spark=_bounded("{0}", position_sql),
             duckdb=_guarded("CASE WHEN regexp_matches({0}, {1}) THEN CAST(length(regexp_extract({0}, '(?s)^(.*?)(?:' || {1} || ')', 1)) AS INTEGER) + 1 "
             "WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN 0 END"),
             doc="Position of the first match, 0 if there is none.", usage="REGEXP_INSTR(<STRING>, <STRING>)"),
    Function(name="REGEXP_SUBSTR", rule=signature("STRING STRING -> STRING"), spark=_bounded("nullif({0}, '')", _extract_match),
             duckdb=_guarded("CASE WHEN regexp_matches({0}, {1}) THEN regexp_extract({0}, {1}) END"),
             doc="First match, NULL if there is none.", usage="REGEXP_SUBSTR(<STRING>, <STRING>)"),
    Function(name="REGEXP_EXTRACT_ALL", rule=signature("STRING STRING INT? -> ARRAY<STRING>"), spark=_extract_all, duckdb=_extract_all,
             doc="All matches of a group, by default the first group.", usage="REGEXP_EXTRACT_ALL(<STRING>, <STRING>[, <INT>])"),
    Function(name="STR_TO_MAP", rule=signature("STRING STRING? STRING? -> MAP<STRING, STRING>"), spark=_map, duckdb=_map,
             doc="Splits a string into a map; the separators are `,` and `=` by default.", usage="STR_TO_MAP(<STRING>[, <STRING pairs>, <STRING between>])"),
    Function(name="PARSE_URL", rule=signature("STRING TEXT STRING? -> STRING"), spark=_url_spark, duckdb=_url_duckdb,
             doc="Extracts a part of a URL: HOST, PATH, QUERY (optionally the value of a key), REF, PROTOCOL, AUTHORITY, FILE or USERINFO.",
             usage="PARSE_URL(<STRING>, <STRING part>[, <STRING key>])"),
    Function(name="IS_ALPHA", rule=signature("STRING -> BOOLEAN"), spark="coalesce({0} RLIKE '^\\\\p{L}+\\\\z', false)",
             duckdb="coalesce(regexp_full_match({0}, '\\p{L}+'), false)", doc="Whether the string consists of letters only.", usage="IS_ALPHA(<STRING>)"),
    Function(name="IS_DECIMAL", rule=signature("STRING -> BOOLEAN", "NUMERIC -> BOOLEAN"), spark=_is_decimal, duckdb=_is_decimal,
             doc="Whether the argument is a number, or a string that can be parsed as one.", usage="IS_DECIMAL(<STRING or NUMERIC>)"),
    Function(name="IS_DIGIT", rule=signature("STRING -> BOOLEAN"), spark="coalesce({0} RLIKE '^\\\\p{Nd}+\\\\z', false)",
             duckdb="coalesce(regexp_full_match({0}, '\\p{Nd}+'), false)", doc="Whether the string consists of digits only.", usage="IS_DIGIT(<STRING>)"),
)  # fmt: skip
