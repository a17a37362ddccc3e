"""CAST and TRY_CAST: the conversions that Flink has, and their results.

CAST of a value that cannot be converted fails the job; TRY_CAST returns NULL. In both, integers
wrap, floats saturate (and then wrap below INT), and decimals that overflow are NULL. Strings are
cut to the length of CHAR(n) and VARCHAR(n); CHAR(n) is padded.
Source: asked of Flink 2.3, in `tests/unit/sql/functions`.
"""

from __future__ import annotations

from everfold.errors import Span, SqlError
from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.cast_collections import collection_fails, to_collection
from everfold.sql.functions.cast_from_text import cast_from_string, fails_to_parse
from everfold.sql.functions.cast_to_text import cast_to_string
from everfold.sql.functions.coercion import kind
from everfold.sql.functions.entry import Function
from everfold.sql.functions.writer import Writer
from everfold.types import (
    AnyType,
    ArrayType,
    BytesType,
    DataType,
    DecimalType,
    IntegerType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)

_ANY_NUMBER = {"integer", "decimal", "floating"}
ALLOWED: dict[str, set[str]] = {
    "boolean": {"boolean", "string"} | _ANY_NUMBER,
    "integer": {"boolean", "string"} | _ANY_NUMBER,
    "decimal": {"boolean", "string"} | _ANY_NUMBER,
    "floating": {"boolean", "string"} | _ANY_NUMBER,
    "string": {"boolean", "string", "bytes", "date", "time", "timestamp", "ltz"} | _ANY_NUMBER,
    "bytes": {"bytes", "string"},
    "date": {"date", "timestamp", "ltz", "string"},
    "time": {"time", "timestamp", "ltz", "string"},
    "timestamp": {"date", "time", "timestamp", "ltz", "string"},
    "ltz": {"date", "time", "timestamp", "ltz", "string"},
    "millis": {"millis", "string"},
    "months": {"months", "string"},
    "array": {"array", "string"},
    "map": {"map", "string"},
    "row": {"row", "string"},
}
"""The kinds to which each kind of value can be cast."""

_HELP = {
    ("integer", "timestamp"): "write TO_TIMESTAMP(FROM_UNIXTIME(seconds)) to convert a number to a TIMESTAMP",
    ("integer", "ltz"): "write TO_TIMESTAMP_LTZ(number, 0) for seconds, TO_TIMESTAMP_LTZ(number, 3) for milliseconds",
    ("timestamp", "integer"): "UNIX_TIMESTAMP(CAST(ts AS STRING)) returns seconds, EXTRACT returns parts",
    ("ltz", "integer"): "UNIX_TIMESTAMP(CAST(ts AS STRING)) returns seconds, EXTRACT returns parts",
    ("date", "integer"): "EXTRACT returns parts of a date, TIMESTAMPDIFF counts days",
}


def can_cast(source: DataType, target: DataType) -> bool:
    """Return whether Flink has a CAST from `source` to `target`."""
    if source.same_as(target) or isinstance(source, AnyType) or kind(source) == "null":
        return True
    if kind(target) not in ALLOWED.get(kind(source), ()):
        return False
    match source, target:
        case (ArrayType(), ArrayType()):
            return can_cast(source.element, target.element)
        case (MapType(), MapType()):
            return can_cast(source.key, target.key) and can_cast(source.value, target.value)
        case (RowType(), RowType()):
            return len(source.fields) == len(target.fields) and all(
                can_cast(one.type, other.type) for one, other in zip(source.fields, target.fields, strict=True)
            )
    return True


def cast(expr: Expr, type: DataType, span: Span | None = None, *, try_: bool = False) -> Expr:
    """Build CAST(expr AS type), or TRY_CAST with `try_`.

    Raises SqlError `wrong-cast` if Flink does not have the conversion.
    """
    source = expr.type
    if not can_cast(source, type):
        raise SqlError.of(
            "wrong-cast",
            f"a value of type {source.sql} cannot be cast to {type.sql}",
            span or expr.span,
            _HELP.get((kind(source), kind(type))),
        )
    if isinstance(expr, Literal) and expr.value is None:
        return Literal(value=None, type=type.as_nullable(), span=span or expr.span)
    if source.same_as(type):
        return expr
    nullable = try_ or source.nullable or isinstance(type, DecimalType)
    return Call(function="TRY_CAST" if try_ else "CAST", args=(expr,), type=type.as_nullable(nullable), span=span)


def cast_sql(writer: Writer, source: DataType, target: DataType, text: str, try_: bool) -> str:
    """Return the SQL of a value converted from one type to another."""
    if source.same_as(target):
        return text
    if kind(source) == "null":
        return writer.literal(None, target)
    if isinstance(source, StringType):
        return cast_from_string(writer, source, target, text, try_)
    if isinstance(target, StringType):
        return cast_to_string(writer, source, target, text)
    if kind(target) in ("array", "map", "row"):
        if try_:
            return _try_collection(writer, source, target, text)
        return to_collection(
            writer, source, target, text, lambda one, other, inner: cast_sql(writer, one, other, inner, try_=False)
        )
    if isinstance(target, BytesType):
        return _resize_bytes(writer, source, target, text)
    if kind(source) in ("date", "time", "timestamp", "ltz"):
        return _temporal(writer, source, target, text)
    if kind(source) in ("millis", "months"):
        return text
    if kind(source) == "floating" and kind(target) == "decimal" and not try_:
        # NaN and infinities cannot be decimals; a number that is only too large is NULL.
        fail = (
            f"CAST({writer.fail(f'cast-failed: NaN or Infinity is not a valid {target.sql}')} AS {writer.type(target)})"
        )
        finite, number = _is_finite(writer, "\x03"), _number(writer, source, target, "\x03")
        return writer.bind_once(text, f"CASE WHEN \x03 IS NOT NULL AND NOT {finite} THEN {fail} ELSE {number} END")
    return _number(writer, source, target, text)


def _try_collection(writer: Writer, source: DataType, target: DataType, text: str) -> str:
    """Return the SQL of a converted collection, NULL if the conversion of any part fails."""
    item = writer.new_variable()
    fails = _fails(writer, source, target, item)
    whole = cast_sql(writer, source, target, text if fails is None else item, try_=False)
    return whole if fails is None else writer.let(item, text, f"CASE WHEN {fails} THEN NULL ELSE {whole} END")


def _fails(writer: Writer, source: DataType, target: DataType, text: str) -> str | None:
    """Return the SQL of whether CAST fails for a value, None if it never does."""
    if source.same_as(target) or kind(source) == "null":
        return None
    if isinstance(source, StringType):
        return fails_to_parse(writer, target, text)
    if kind(target) in ("array", "map", "row"):
        return collection_fails(
            writer, source, target, text, lambda one, other, inner: _fails(writer, one, other, inner)
        )
    if kind(source) == "floating" and kind(target) == "decimal":
        return f"({text} IS NOT NULL AND NOT {_is_finite(writer, text)})"
    return None


def _is_finite(writer: Writer, text: str) -> str:
    return f"abs({text}) < CAST('Infinity' AS DOUBLE)" if writer.spark else f"isfinite({text})"


def _number(writer: Writer, source: DataType, target: DataType, text: str) -> str:
    name = writer.type(target)
    if kind(target) == "boolean":
        return f"({text} <> 0)"
    if writer.spark:
        return f"CAST({text} AS {name})"
    match kind(source), kind(target):
        case "boolean", "decimal":
            return f"TRY_CAST(CAST({text} AS INTEGER) AS {name})"
        case (("integer" | "decimal"), "decimal"):
            return f"TRY_CAST({text} AS {name})"
        case "floating", "decimal":
            return f"TRY_CAST(CAST({text} AS VARCHAR) AS {name})"
        case "integer", "integer":
            assert isinstance(source, IntegerType)
            assert isinstance(target, IntegerType)
            return (
                f"CAST({text} AS {name})"
                if source.bits <= target.bits
                else wrap_integer(f"CAST({text} AS HUGEINT)", target)
            )
        case "decimal", "integer":
            assert isinstance(target, IntegerType)
            return wrap_integer(f"CAST(trunc({text}) AS HUGEINT)", target)
        case "floating", "integer":
            assert isinstance(target, IntegerType)
            return writer.bind_once(text, _saturate(target))
        case _, "floating" if source.sql == "DOUBLE":
            # A value too large for a FLOAT is infinite, not an error.
            infinite = f"sign(\x03) * CAST('Infinity' AS {name})"
            return writer.bind_once(
                text,
                f"CASE WHEN abs(\x03) >= 3.4028235677973366e38 AND NOT isnan(\x03) THEN {infinite} ELSE CAST(\x03 AS {name}) END",
            )
    return f"CAST({text} AS {name})"


def wrap_integer(text: str, type: IntegerType) -> str:
    """Return DuckDB SQL of the low bits of a wider integer: it wraps on overflow."""
    half, mask = 1 << type.bits - 1, (1 << type.bits) - 1
    return f"CAST((({text} + {half}) & {mask}) - {half} AS {type.duckdb})"


def _saturate(target: IntegerType) -> str:
    """Return DuckDB SQL of Java's conversion from float to integer.

    It truncates toward zero, NaN is 0, and values out of range saturate. For types below INT, the
    INT is wrapped.
    """
    bits = max(target.bits, 32)
    most, wide = 1 << bits - 1, "BIGINT" if bits == 64 else "INTEGER"
    text = (
        f"CASE WHEN isnan(\x03) THEN 0 WHEN \x03 >= {most}::DOUBLE THEN {most - 1} WHEN \x03 <= -{most}::DOUBLE THEN -{most - 1} - 1 "
        f"ELSE CAST(trunc(\x03) AS {wide}) END"
    )
    return f"CAST({text} AS {wide})" if target.bits >= 32 else wrap_integer(f"CAST({text} AS BIGINT)", target)


def _resize_bytes(writer: Writer, source: DataType, target: BytesType, text: str) -> str:
    """Cut bytes to the length of the type; BINARY(n) is also padded with zeros."""
    assert isinstance(source, BytesType)
    if target.fixed and not (source.fixed and source.length == target.length):
        return f"unhex(rpad(hex({text}), {2 * target.length}, '0'))"
    return text if source.length <= target.length else f"unhex(left(hex({text}), {2 * target.length}))"


def truncate_timestamp(writer: Writer, text: str, precision: int) -> str:
    """Return the SQL of a TIMESTAMP or instant truncated to a precision."""
    if precision >= 6:
        return text
    unit = {0: "second", 3: "millisecond"}.get(precision)
    if writer.spark:
        if unit is not None:
            return f"CAST(date_trunc('{unit}', {text}) AS TIMESTAMP_NTZ)"
        micros = f"unix_micros(CAST({text} AS TIMESTAMP))"
        step = 10 ** (6 - precision)
        return writer.bind_once(micros, f"CAST(timestamp_micros(\x03 - pmod(\x03, {step})) AS TIMESTAMP_NTZ)")
    if unit is not None:
        return f"date_trunc('{unit}', {text})"
    step = 10 ** (6 - precision)
    return writer.bind_once(f"epoch_us({text})", f"make_timestamp(\x03 - ((\x03 % {step}) + {step}) % {step})")


def _precision(type: DataType) -> int:
    assert isinstance(type, TimestampType | TimeType)
    return min(type.precision, 6)


def _temporal(writer: Writer, source: DataType, target: DataType, text: str) -> str:
    to = kind(target)
    match kind(source):
        case "time" if to == "time":
            step = 10 ** max(3 - _precision(target), 0)
            return text if _precision(source) <= _precision(target) or step == 1 else f"({text} - {text} % {step})"
        case "time":
            days = "TIMESTAMP_NTZ'1970-01-01 00:00:00'" if writer.spark else "TIMESTAMP '1970-01-01 00:00:00'"
            wall = (
                f"({days} + {text} * INTERVAL '0.001' SECOND)"
                if writer.spark
                else f"({days} + to_microseconds(CAST({text} AS BIGINT) * 1000))"
            )
            return wall if to == "timestamp" else writer.instant(wall)
        case "date":
            wall = f"CAST({text} AS {'TIMESTAMP_NTZ' if writer.spark else 'TIMESTAMP'})"
            return wall if to == "timestamp" else writer.instant(wall)
        case "timestamp":
            wall = text
        case _:
            if to == "ltz":
                if _precision(source) <= _precision(target):
                    return text
                cut = truncate_timestamp(writer, text, _precision(target))
                return f"CAST({cut} AS TIMESTAMP)" if writer.spark else cut
            wall = writer.local(text)
    if to == "date":
        return f"CAST({wall} AS DATE)"
    if to == "time":
        step = 10 ** max(3 - _precision(target), 0)
        return time_of_day_sql(writer, wall, step)
    cut = truncate_timestamp(writer, wall, _precision(target)) if _precision(source) > _precision(target) else wall
    return cut if to == "timestamp" else writer.instant(cut)


def millis_in_duckdb(wall: str) -> str:
    """Return DuckDB SQL of the milliseconds since 1970, rounded down; its `epoch_ms` rounds."""
    return f"epoch_ms(date_trunc('millisecond', {wall}))"


def time_of_day_sql(writer: Writer, wall: str, step: int) -> str:
    """Return SQL of a TIMESTAMP's milliseconds of the day, rounded down to a multiple of `step`."""
    if writer.spark:
        millis = f"CAST(pmod(unix_millis(CAST({wall} AS TIMESTAMP)), 86400000) AS INT)"
    else:
        millis = f"CAST(({millis_in_duckdb(wall)} % 86400000 + 86400000) % 86400000 AS INTEGER)"
    return millis if step == 1 else writer.bind_once(millis, f"(\x03 - \x03 % {step})")


def _entry(name: str, doc: str) -> Function:
    try_ = name == "TRY_CAST"
    return Function(
        name=name,
        rule=lambda args: None,
        spark=lambda writer, call, texts: cast_sql(writer, call.args[0].type, call.type, texts[0], try_),
        duckdb=lambda writer, call, texts: cast_sql(writer, call.args[0].type, call.type, texts[0], try_),
        doc=doc,
        usage=f"{name}(<ANY> AS <TYPE>)",
        operator=True,
    )


FUNCTIONS = (
    _entry("CAST", "Converts a value to another type; fails the job if that is not possible."),
    _entry("TRY_CAST", "Converts a value to another type; NULL if that is not possible."),
)
