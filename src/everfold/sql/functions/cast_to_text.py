"""CAST to strings.

Numbers are formatted as in Java, points in time with all digits of their precision, collections as
in Flink.
"""

from __future__ import annotations

from everfold.sql.functions.cast_from_text import fit_to_length
from everfold.sql.functions.coercion import kind
from everfold.sql.functions.writer import Writer
from everfold.types import (
    MAX_VARCHAR,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)
from everfold.value_text import LEAST_DOUBLES, LEAST_FLOATS


def cast_to_string(writer: Writer, source: DataType, target: StringType, text: str) -> str:
    """Return the SQL of a value as a string of the target's length."""
    whole = format_value(writer, source, text)
    return whole if target.length == MAX_VARCHAR and not target.fixed else fit_to_length(whole, target)


def format_value(writer: Writer, source: DataType, text: str) -> str:
    """Return the SQL of a value as a string, formatted as in Flink."""
    match source:
        case StringType():
            return text
        case DecimalType():
            return _decimal(writer, source, text)
        case TimestampType():
            wall = writer.local(text) if source.local_zone else text
            return format_timestamp(writer, wall, min(source.precision, 6))
        case TimeType():
            return _time(writer, source, text)
        case ArrayType() | MapType() | RowType():
            return _collection(writer, source, text)
    match kind(source):
        case "boolean":
            return f"upper(CAST({text} AS {STRING.spark if writer.spark else STRING.duckdb}))"
        case "floating":
            return f"CAST({text} AS STRING)" if writer.spark else writer.bind_once(text, _java_double(source.duckdb))
        case "bytes":
            return f"CAST({text} AS STRING)" if writer.spark else f"decode({text})"
        case "millis":
            return writer.bind_once(text, _day_to_second(writer))
        case "months":
            return writer.bind_once(text, _year_to_month(writer))
    return f"CAST({text} AS {writer.type(STRING)})"


def _decimal(writer: Writer, source: DecimalType, text: str) -> str:
    """Format a decimal with all digits of its scale and without an exponent.

    Spark writes an exponent from the seventh zero after the point on: 1.23E-8.
    """
    if not writer.spark:
        written = f"CAST({text} AS VARCHAR)"
        # DuckDB omits the 0 before the point if the type has no digit there.
        return f"replace({written}, '.', '0.')" if source.scale == source.precision else written
    if source.scale <= 6:
        return f"CAST({text} AS {STRING.spark})"
    exponential = "CAST(\x03 AS STRING)"
    digits = f"replace(ltrim('-', substring_index({exponential}, 'E', 1)), '.', '')"
    zeros = f"repeat('0', CAST(substring_index({exponential}, 'E-', -1) AS INT) - 1)"
    plain = f"concat(IF(\x03 < 0, '-', ''), '0.', {zeros}, {digits})"
    return writer.bind_once(text, f"IF(contains({exponential}, 'E'), {plain}, {exponential})")


_LEAST = {"DOUBLE": LEAST_DOUBLES, "FLOAT": LEAST_FLOATS}


def _java_double(name: str) -> str:
    """Return DuckDB SQL of a float as in Java: 1.0E10, 1.0E-4, but 0.001 and 1234567.0."""
    digits = "CAST(abs(\x03) AS VARCHAR)"
    mantissa = f"split_part({digits}, 'e', 1)"
    scientific = f"{mantissa} || CASE WHEN contains({mantissa}, '.') THEN '' ELSE '.0' END || 'E' || CAST(CAST(split_part({digits}, 'e', 2) AS INTEGER) AS VARCHAR)"
    least = " ".join(f"WHEN '{shortest}' THEN '{text}'" for shortest, text in _LEAST[name].items())
    scientific = f"CASE {digits} {least} ELSE {scientific} END"
    all_digits = f"rtrim(rtrim(replace({digits}, '.', ''), '0'), '.')"
    large = f"{all_digits}[1] || '.' || coalesce(nullif({all_digits}[2:], ''), '0') || 'E' || CAST(length(split_part({digits}, '.', 1)) - 1 AS VARCHAR)"
    behind = f"ltrim(split_part({digits}, '.', 2), '0')"
    small = f"{behind}[1] || '.' || coalesce(nullif({behind}[2:], ''), '0') || 'E-' || CAST(length(split_part({digits}, '.', 2)) - length({behind}) + 1 AS VARCHAR)"
    sign = "CASE WHEN \x03 < 0 THEN '-' ELSE '' END"
    return (
        f"CASE WHEN isnan(\x03) THEN 'NaN' WHEN isinf(\x03) THEN {sign} || 'Infinity' "
        f"WHEN \x03 = 0 OR (abs(\x03) >= 0.001::{name} AND abs(\x03) < 10000000) THEN CAST(\x03 AS VARCHAR) "
        f"WHEN contains({digits}, 'e') THEN {sign} || {scientific} "
        f"WHEN abs(\x03) >= 10000000 THEN {sign} || {large} ELSE {sign} || {small} END"
    )


def format_timestamp(writer: Writer, wall: str, precision: int) -> str:
    """Return the SQL of a TIMESTAMP as a string with so many fractional digits."""
    if writer.spark:
        fraction = "." + "S" * precision if precision else ""
        return f"date_format({wall}, 'yyyy-MM-dd HH:mm:ss{fraction}')"
    if precision == 0:
        return f"strftime({wall}, '%Y-%m-%d %H:%M:%S')"
    text = f"strftime({wall}, '%Y-%m-%d %H:%M:%S.%f')"
    return text if precision == 6 else f"left({text}, -{6 - precision})"


def _time(writer: Writer, source: TimeType, text: str) -> str:
    digits = min(source.precision, 3)
    if writer.spark:
        fraction = "." + "S" * digits if digits else ""
        return f"date_format(timestamp_millis({text}), 'HH:mm:ss{fraction}')"
    whole = f"strftime(make_timestamp(CAST({text} AS BIGINT) * 1000), '%H:%M:%S{'.%g' if digits else ''}')"
    return f"left({whole}, {9 + digits})" if 0 < digits < 3 else whole


def _part(writer: Writer, dividend: str, divisor: int, modulus: int | None, width: int) -> str:
    whole = f"({dividend} div {divisor})" if writer.spark else f"({dividend} // {divisor})"
    part = whole if modulus is None else f"({whole} % {modulus})"
    text = f"CAST({part} AS {writer.type(STRING)})"
    return text if width == 1 else f"lpad({text}, {width}, '0')"


def _day_to_second(writer: Writer) -> str:
    size = "abs(\x03)"
    parts = [
        _part(writer, size, 86_400_000, None, 1),
        _part(writer, size, 3_600_000, 24, 2),
        _part(writer, size, 60_000, 60, 2),
        _part(writer, size, 1000, 60, 2),
        _part(writer, size, 1, 1000, 3),
    ]
    days, hours, minutes, seconds, millis = parts
    sign = "CASE WHEN \x03 < 0 THEN '-' ELSE '+' END"
    return f"CASE WHEN \x03 IS NOT NULL THEN concat({sign}, {days}, ' ', {hours}, ':', {minutes}, ':', {seconds}, '.', {millis}) END"


def _year_to_month(writer: Writer) -> str:
    years, months = _part(writer, "abs(\x03)", 12, None, 1), _part(writer, "abs(\x03)", 1, 12, 2)
    sign = "CASE WHEN \x03 < 0 THEN '-' ELSE '+' END"
    return f"CASE WHEN \x03 IS NOT NULL THEN concat({sign}, {years}, '-', {months}) END"


def _or_null(writer: Writer, type: DataType, text: str) -> str:
    return f"coalesce({format_value(writer, type, text)}, 'NULL')"


def _collection(writer: Writer, source: DataType, text: str) -> str:
    item = writer.new_variable()
    match source:
        case ArrayType():
            each = _or_null(writer, source.element, item)
            listed = _join_items(writer, text, item, each)
            return f"concat('[', {listed}, ']')" if writer.spark else f"('[' || {listed} || ']')"
        case MapType():
            key, value = _or_null(writer, source.key, f"{item}.key"), _or_null(writer, source.value, f"{item}.value")
            listed = _join_items(writer, f"map_entries({text})", item, f"concat({key}, '=', {value})")
            return f"concat('{{', {listed}, '}}')" if writer.spark else f"('{{' || {listed} || '}}')"
        case RowType():
            parts = [
                _or_null(writer, field.type, f"{item}.{quote_field(writer, field.name)}") for field in source.fields
            ]
            body = "concat('(', " + ", ', ', ".join(parts) + ", ')')"
            return writer.let(item, text, f"CASE WHEN {item} IS NOT NULL THEN {body} END")
    raise AssertionError(source)


def _join_items(writer: Writer, array: str, item: str, each: str) -> str:
    if writer.spark:
        return f"array_join(transform({array}, {item} -> {each}), ', ')"
    # DuckDB joins an empty list to NULL.
    return writer.bind_once(
        array,
        f"CASE WHEN \x03 IS NULL THEN NULL ELSE coalesce(array_to_string(list_transform(\x03, lambda {item}: {each}), ', '), '') END",
    )


def quote_field(writer: Writer, name: str) -> str:
    """Quote a field's name for the engine."""
    return "`" + name.replace("`", "``") + "`" if writer.spark else '"' + name.replace('"', '""') + '"'
