"""CAST of strings to numbers, booleans and points in time, as in Flink.

Patterns reject what the engines accept but Flink does not (DuckDB: `1_000`, hexadecimal digits;
Spark: `2020-04-15T08`, `inf`).
"""

from __future__ import annotations

from everfold.sql.functions.coercion import kind
from everfold.sql.functions.writer import Writer
from everfold.types import MAX_VARCHAR, BytesType, DataType, IntegerType, StringType, TimestampType, TimeType

_BLANK = r"[\x00-\x20]"
"""What Flink removes at the ends of most strings; around an integer only spaces."""
_BLANKS = "".join(map(chr, range(0x21)))
_CONTROL = r"[\x00-\x1F\x7F]"
_WHOLE = r"^ *[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]*) *\z"
_DECIMAL = rf"^[ \t\n]*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?([ \t\n]*|{_BLANK})\z"
_FLOAT = rf"^{_BLANK}*[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?|NaN|Infinity){_BLANK}*\z"
_YEAR = r"([1-9][0-9]{0,3}|0[1-9][0-9]{0,2}|00[1-9][0-9]?|000[1-9])"
"""A year from 1 on: Flink parses year 0, but fails to format it."""
_DATE = rf"^{_YEAR}(-[0-9]{{1,2}}(-[0-9]{{1,2}}( .*)?)?)?\z"
"""Of a string without blanks at its ends."""
_TIME = rf"^{_BLANK}*[0-9]{{1,2}}(:[0-9]{{1,2}}(:[0-9]{{1,2}}(\.[0-9]*)?)?)?{_BLANK}*\z"
_TIMESTAMP = r"^[0-9]{1,4}-[0-9]{1,2}-[0-9]{1,2}( [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]{0,9})?)?\z"


def matches(writer: Writer, text: str, pattern: str) -> str:
    """Return SQL that tests whether a string matches a pattern."""
    return (
        f"({text} RLIKE {writer.text(pattern)})" if writer.spark else f"regexp_matches({text}, {writer.text(pattern)})"
    )


def cast_from_string(writer: Writer, source: StringType, target: DataType, text: str, try_: bool) -> str:
    """Return the SQL of a string converted to another type."""
    if isinstance(target, StringType):
        return fit_to_length(text, target) if not fits_length(source, target) else text
    if isinstance(target, BytesType):
        return _bytes(writer, target, text)
    read = _read(writer, target, "\x03")
    if not try_:
        # COALESCE evaluates its second argument only if the string could not be parsed.
        fail = writer.fail_with_value("cast-failed", "\x03", f"is not a valid {target.sql}")
        read = f"coalesce({read}, CASE WHEN \x03 IS NOT NULL THEN CAST({fail} AS {writer.type(target)}) END)"
    return writer.bind_once(text, read)


def fails_to_parse(writer: Writer, target: DataType, text: str) -> str | None:
    """Return the SQL of whether a string cannot be converted to a type, None if every one can.

    text: short SQL, used several times.
    """
    if isinstance(target, StringType | BytesType):
        return None
    return f"({text} IS NOT NULL AND {_read(writer, target, text)} IS NULL)"


def fits_length(source: StringType, target: StringType) -> bool:
    """Return whether every string of type `source` is one of type `target`."""
    return not target.fixed and source.length <= target.length


def fit_to_length(text: str, target: StringType) -> str:
    """Cut a string to the length of the type; CHAR(n) is also padded with spaces."""
    if target.fixed:
        return f"rpad({text}, {target.length}, ' ')"
    return text if target.length == MAX_VARCHAR else f"left({text}, {target.length})"


def _bytes(writer: Writer, target: BytesType, text: str) -> str:
    whole = f"CAST({text} AS BINARY)" if writer.spark else f"encode({text})"
    if target.fixed:
        return f"unhex(rpad(hex({whole}), {2 * target.length}, '0'))"
    return whole if target.length == MAX_VARCHAR else f"unhex(left(hex({whole}), {2 * target.length}))"


def _read(writer: Writer, target: DataType, text: str) -> str:
    """Return SQL that parses a string as the type; NULL if it cannot be parsed."""
    match kind(target):
        case "boolean":
            low = f"lower({text})"
            return (
                f"CASE WHEN {low} IN ('t', 'true', 'y', 'yes', '1') THEN true "
                f"WHEN {low} IN ('f', 'false', 'n', 'no', '0') THEN false END"
            )
        case "integer":
            assert isinstance(target, IntegerType)
            return _integer(writer, target, text)
        case "decimal":
            if writer.spark:
                # Spark ignores all blanks.
                blank = f"{matches(writer, text, _CONTROL)} AND NOT {matches(writer, text, _DECIMAL)}"
                return f"CAST(CASE WHEN NOT ({blank}) THEN {text} END AS {target.spark})"
            stripped = _strip(writer, text)
            return f"CASE WHEN {matches(writer, text, _DECIMAL)} THEN TRY_CAST({stripped} AS {target.duckdb}) END"
        case "floating":
            return _floating(writer, target, text)
        case "date":
            return parse_date(writer, text)
        case "time":
            assert isinstance(target, TimeType)
            return _time(writer, target, text)
    assert isinstance(target, TimestampType)
    wall = parse_timestamp(writer, text, target.precision)
    return writer.instant(wall) if target.local_zone else wall


def _integer(writer: Writer, target: IntegerType, text: str) -> str:
    if writer.spark:
        # Spark ignores control characters at the ends.
        return f"CAST(CASE WHEN NOT {matches(writer, text, _CONTROL)} THEN {text} END AS {target.spark})"
    # The digits before the point; if there are none, 0.
    digits = f"regexp_replace(trim({text}), '\\..*$', '')"
    padded = f"CASE WHEN trim({text}) LIKE '.%' THEN '0' ELSE {digits} END"
    return f"CASE WHEN {matches(writer, text, _WHOLE)} THEN TRY_CAST({padded} AS {target.duckdb}) END"


def _floating(writer: Writer, target: DataType, text: str) -> str:
    if writer.spark:
        loose = f"(lower({text}) RLIKE 'nan|inf')"
        exact = matches(writer, text, rf"^{_BLANK}*[+-]?(NaN|Infinity){_BLANK}*\z")
        return f"CASE WHEN {loose} AND NOT {exact} THEN CAST(NULL AS {target.spark}) ELSE CAST({text} AS {target.spark}) END"
    plain = f"regexp_replace({_strip(writer, text)}, '[dDfF]$', '')"
    return f"CASE WHEN {matches(writer, text, _FLOAT)} THEN TRY_CAST({plain} AS {target.duckdb}) END"


def parse_date(writer: Writer, text: str) -> str:
    """Return SQL that parses a string as a date; NULL if it cannot be parsed.

    Accepts `2020`, `2020-4`, `2020-04-15`, also followed by a time.
    """
    stripped = _strip(writer, text)
    is_date = matches(writer, stripped, _DATE)
    if writer.spark:
        # Spark requires a year of four digits.
        year = f"substring_index({stripped}, '-', 1)"
        rest = f"substring({stripped}, char_length({year}) + 1)"
        return f"CASE WHEN {is_date} THEN CAST(concat(lpad({year}, 4, '0'), {rest}) AS DATE) END"
    day = f"regexp_replace({stripped}, ' .*$', '')"
    read = f"CAST(try_strptime({day}, ['%Y-%m-%d', '%Y-%m', '%Y']) AS DATE)"
    return f"CASE WHEN {is_date} THEN {read} END"


def _time(writer: Writer, target: TimeType, text: str) -> str:
    stripped = _strip(writer, text)
    if writer.spark:
        parts = [f"coalesce(get(split({stripped}, ':'), {index}), '0')" for index in range(3)]
        hour, minute = (f"CAST({part} AS INT)" for part in parts[:2])
        second = f"CAST(rpad({parts[2]}, 12, ' ') AS DECIMAL(12, 9))"
        millis = f"CAST({second} * 1000 AS INT)"
    else:
        parts = [f"coalesce(nullif(split_part({stripped}, ':', {index}), ''), '0')" for index in (1, 2, 3)]
        hour, minute = (f"CAST({part} AS INTEGER)" for part in parts[:2])
        second = f"CAST(rtrim({parts[2]}, '.') AS DECIMAL(12, 9))"
        millis = f"CAST(trunc({second} * 1000) AS INTEGER)"
    step = 10 ** max(3 - target.precision, 0)
    cut = millis if step == 1 else f"({millis} - {millis} % {step})"
    whole = f"({hour} * 3600000 + {minute} * 60000 + {cut})"
    valid = f"{matches(writer, text, _TIME)} AND {hour} < 24 AND {minute} < 60 AND {second} < 60"
    return f"CASE WHEN {matches(writer, text, _TIME)} THEN CASE WHEN {valid} THEN {whole} END END"


def parse_timestamp(writer: Writer, text: str, precision: int) -> str:
    """Return SQL that parses a string as a TIMESTAMP; NULL if it cannot be parsed.

    Accepts `2020-04-15 08:05:07.123` and `2020-04-15`.
    """
    kept = min(precision, 6)
    # Further digits are truncated, not rounded.
    if kept == 0:
        cut = _regexp_replace(writer, text, r"\.[0-9]*$", "")
    else:
        cut = _regexp_replace(writer, text, rf"(\.[0-9]{{{kept}}})[0-9]+$", "$1" if writer.spark else "\\1")
        cut = _regexp_replace(writer, cut, r"\.$", "")
    read = f"CAST({cut} AS TIMESTAMP_NTZ)" if writer.spark else f"TRY_CAST({cut} AS TIMESTAMP)"
    return f"CASE WHEN {matches(writer, text, _TIMESTAMP)} THEN {read} END"


def _strip(writer: Writer, text: str) -> str:
    """Return the SQL of a string without blanks at its ends."""
    if writer.spark:  # Java would try its pattern at every blank of a run
        return f"trim(BOTH {writer.text(_BLANKS)} FROM {text})"
    pattern = writer.text(rf"^{_BLANK}+|{_BLANK}+\z")
    return f"regexp_replace({text}, {pattern}, '', 'g')"


def _regexp_replace(writer: Writer, text: str, pattern: str, by: str) -> str:
    return f"regexp_replace({text}, {writer.text(pattern)}, {writer.text(by)})"
