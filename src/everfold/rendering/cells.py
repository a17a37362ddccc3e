"""Values in cells: how each Flink type is read from a case file, and how a value is written.

Written values are canonical: two values are equal when their strings are. TIMESTAMP has all digits
of its precision, TIMESTAMP_LTZ is in UTC with a `Z`, numbers are as in Java, ARRAY, MAP, MULTISET
and ROW are JSON, BYTES are hex digits. More forms can be read than are written: a TIMESTAMP may
omit seconds or the time; a TIMESTAMP_LTZ may have an offset, and is in the session's zone without
one.
"""

from __future__ import annotations

import json
import math
import re
from ctypes import c_float
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any
from zoneinfo import ZoneInfo

from everfold.types import (
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatingType,
    FloatType,
    IntegerType,
    IntervalType,
    MapType,
    MultisetType,
    NullType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)
from everfold.value_text import format_float, format_time, format_timestamp

_OFFSET = re.compile(r"(Z|[+-]\d\d:\d\d)$")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?")
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_DAY_MS = 86_400_000
_INTEGER = re.compile(r"[+-]?\d+")


class CellError(ValueError):
    """A string that is not a valid value of the type."""


def read(text: str | None, type: DataType, zone: str = "UTC") -> Any:
    """Parse a cell into the form that pyarrow expects for `type.arrow`.

    Raises CellError if it is not a valid value of the type.
    """
    if text is None:
        return None
    try:
        return _read(text, type, zone)
    except (ValueError, InvalidOperation, KeyError, TypeError, OverflowError) as error:
        reason = f": {error}" if isinstance(error, CellError) else ""
        raise CellError(f"`{text}` is not a valid {type.sql}{reason}") from error


def _read(text: str, type: DataType, zone: str) -> Any:
    match type:
        case StringType():
            return text
        case BooleanType():
            return {"true": True, "false": False}[text.lower()]
        case IntegerType():
            return _integer(text, type.bits)
        case FloatingType():
            return _floating(text)
        case DecimalType():
            return _decimal(text, type)
        case DateType():
            return date.fromisoformat(text)
        case TimeType():
            return _time_ms(text)
        case TimestampType(local_zone=False):
            return _timestamp(text)
        case TimestampType():
            offset = _OFFSET.search(text) if ":" in text else None
            if offset is None:
                return _timestamp(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
            of = datetime.fromisoformat(f"2000-01-01T00:00:00{offset.group()}").tzinfo
            return _timestamp(text[: offset.start()]).replace(tzinfo=of).astimezone(UTC)
        case BytesType():
            return bytes.fromhex(text)
        case IntervalType():
            return int(text)
        case ArrayType() | MapType() | RowType():
            return _from_json(json.loads(text, parse_float=str, parse_int=str, parse_constant=str), type, zone)
        case NullType():
            raise CellError("only NULL is allowed")
        case _:
            raise CellError("a cell cannot hold this type")


def _integer(text: str, bits: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise CellError("write digits")
    value = int(text)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise CellError("out of range")
    return value


def _floating(text: str) -> float:
    named = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
    return named[text] if text in named else float(text)


def _decimal(text: str, type: DecimalType) -> Decimal:
    with localcontext() as context:
        context.prec = 80
        value = Decimal(text).quantize(Decimal(1).scaleb(-type.scale), ROUND_HALF_UP)
        if not value.is_finite() or abs(value) >= Decimal(10) ** (type.precision - type.scale):
            raise CellError("out of range")
    return value


def _fraction_us(digits: str | None) -> int:
    if digits is None:
        return 0
    if digits[6:].strip("0"):
        raise CellError("at most microseconds are supported")
    return int(digits[:6].ljust(6, "0"))


def _timestamp(text: str) -> datetime:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise CellError("write 2020-04-15 08:05:00")
    day, minutes, seconds, fraction = found.groups()
    at = datetime.fromisoformat(f"{day}T{minutes or '00:00'}:{seconds or '00'}")
    return at + timedelta(microseconds=_fraction_us(fraction))


def _time_ms(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise CellError("write 08:05:00")
    hours, minutes, seconds, fraction = found.groups()
    value = (int(hours) * 60 + int(minutes)) * 60_000 + int(seconds or 0) * 1000 + _fraction_us(fraction) // 1000
    if value >= _DAY_MS:
        raise CellError("a day has 24 hours")
    return value


def _from_json(value: Any, type: DataType, zone: str) -> Any:
    if value is None:
        return None
    match type:
        case ArrayType():
            if not isinstance(value, list):
                raise CellError("write [1, 2]")
            return [_from_json(each, type.element, zone) for each in value]
        case MapType():
            if not isinstance(value, dict):
                raise CellError('write {"a": 1}')
            return [(_read(key, type.key, zone), _from_json(each, type.value, zone)) for key, each in value.items()]
        case RowType():
            if isinstance(value, list):
                value = dict(zip((field.name for field in type.fields), value, strict=False))
            if unknown := set(value) - {field.name for field in type.fields}:
                raise CellError(f"it has no field `{unknown.pop()}`")
            return {field.name: _from_json(value.get(field.name), field.type, zone) for field in type.fields}
        case _:
            return _read(str(value).lower() if isinstance(value, bool) else value, type, zone)


# --- showing values -------------------------------------------------------------------------------


def write(value: Any, type: DataType) -> str | None:
    """Return the canonical string of a value from pyarrow's `to_pylist`; None for NULL."""
    if value is None:
        return None
    match type:
        case BooleanType():
            return "TRUE" if value else "FALSE"
        case FloatType():
            return format_float(value, single=True)
        case DoubleType():
            return format_float(value)
        case DecimalType():
            return f"{value:f}"
        case TimeType():
            return format_time(value, type.precision)
        case TimestampType():
            return format_timestamp(value, type.precision) + ("Z" if type.local_zone else "")
        case BytesType():
            return bytes(value).hex()
        case IntervalType():
            return f"P{value}M" if type.months else _format_duration(value)
        case ArrayType() | MapType() | RowType():
            return to_json(value, type)
        case _:
            return str(value)


def _format_duration(ms: int) -> str:
    """Format milliseconds as Java's Duration does: PT1H30M, PT0.5S."""
    sign, ms = ("-" if ms < 0 else ""), abs(ms)
    hours, rest = divmod(ms, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".")
    parts = [
        f"{sign}{hours}H" if hours else "",
        f"{sign}{minutes}M" if minutes else "",
        f"{sign}{seconds}S" if rest else "",
    ]
    return "PT" + ("".join(parts) or "0S")


def to_json(value: Any, type: DataType) -> str:
    """Format a value as JSON, with a space after commas and colons and sorted map keys."""
    if value is None:
        return "null"
    match type:
        case ArrayType():
            return "[" + ", ".join(to_json(each, type.element) for each in value) + "]"
        case MapType():
            pairs = value.items() if isinstance(value, dict) else value
            texts = sorted((str(write(key, type.key)), to_json(each, type.value)) for key, each in pairs)
            return "{" + ", ".join(f"{_quote(key)}: {each}" for key, each in texts) + "}"
        case RowType():
            fields = (f"{_quote(field.name)}: {to_json(value[field.name], field.type)}" for field in type.fields)
            return "{" + ", ".join(fields) + "}"
        case BooleanType():
            return "true" if value else "false"
        case IntegerType() | FloatingType() | DecimalType():
            return str(write(value, type))
        case _:
            return _quote(str(write(value, type)))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def to_canonical(text: str | None, type: DataType, zone: str = "UTC") -> str | None:
    """Return the canonical string of a cell."""
    if text is None or isinstance(type, IntervalType):
        return text
    value = read(text, type, zone)
    if isinstance(type, FloatType):
        value = c_float(value).value
    if isinstance(type, MultisetType):
        value = [(key, count) for key, count in value if count]
    return write(value, type)
