"""Values in cells: how each Flink type is written in a case file, and how a value is shown.

What is shown is canonical: two values are equal when their texts are. TIMESTAMP shows all digits of its precision, TIMESTAMP_LTZ is
shown in UTC with a `Z`, numbers as Java writes them, ARRAY, MAP, MULTISET and ROW as JSON, BYTES as hex digits. Read is more than
shown: a TIMESTAMP may leave out seconds or the time, a TIMESTAMP_LTZ may carry an offset, or none: then it is in the session's zone.
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

_OFFSET = re.compile(r"(Z|[+-]\d\d:\d\d)$")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?")
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_EPOCH = datetime(1970, 1, 1)
_DAY_MS = 86_400_000
_INTEGER = re.compile(r"[+-]?\d+")


class CellError(ValueError):
    """A text that is no value of the type."""


def read(text: str | None, type: DataType, zone: str = "UTC") -> Any:
    """The value that a cell means, in the form pyarrow wants for `type.arrow`."""
    if text is None:
        return None
    try:
        return _read(text, type, zone)
    except (ValueError, InvalidOperation, KeyError, TypeError, OverflowError) as error:
        reason = f": {error}" if isinstance(error, CellError) else ""
        raise CellError(f"`{text}` is no {type.sql}{reason}") from error


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
            raise CellError("only NULL is")
        case _:
            raise CellError("no cell can hold it")


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
        raise CellError("no more than microseconds are kept")
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


# --- showing values ---------------------------------------------------------------------------------------------------


def write(value: Any, type: DataType) -> str | None:
    """The canonical text of a value as pyarrow's `to_pylist` gives it; None for NULL."""
    if value is None:
        return None
    match type:
        case BooleanType():
            return "TRUE" if value else "FALSE"
        case FloatType():
            return java_float(value, single=True)
        case DoubleType():
            return java_float(value)
        case DecimalType():
            return f"{value:f}"
        case TimeType():
            return _clock(value, type.precision)
        case TimestampType():
            return _written_timestamp(value, type)
        case BytesType():
            return bytes(value).hex()
        case IntervalType():
            return f"P{value}M" if type.months else _duration(value)
        case ArrayType() | MapType() | RowType():
            return to_json(value, type)
        case _:
            return str(value)


def java_float(value: float, *, single: bool = False) -> str:
    """A FLOAT (`single`) or DOUBLE as Java's `toString` writes it: 1.0, 1.0E10, NaN, -Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(_shortest_single(c_float(value).value) if single else repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    # The value is 0.text times ten to the power of `point`.
    point = len(digits) + exponent
    minus = "-" if sign else ""
    if text == "0":
        return f"{minus}0.0"
    if -3 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    if 0 < point <= 7:
        padded = text.ljust(point, "0")
        return f"{minus}{padded[:point]}.{padded[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _shortest_single(value: float) -> str:
    """The shortest decimal that a 32-bit float reads back as the value."""
    return next(text for n in range(1, 10) if c_float(float(text := f"{value:.{n}g}")).value == value)


def _clock(ms: int, precision: int) -> str:
    seconds, rest = divmod(ms, 1000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{f'{rest:03}'.ljust(precision, '0')[:precision]}" if precision else text


def _written_timestamp(value: datetime, type: TimestampType) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    text = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
    if type.precision:
        text += f".{f'{value.microsecond:06}'.ljust(type.precision, '0')[: type.precision]}"
    return f"{text}Z" if type.local_zone else text


def _duration(ms: int) -> str:
    """Milliseconds as Java's Duration writes them: PT1H30M, PT0.5S."""
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
    """A value as JSON, with a blank behind commas and colons and the keys of maps in order."""
    if value is None:
        return "null"
    match type:
        case ArrayType():
            return "[" + ", ".join(to_json(each, type.element) for each in value) + "]"
        case MapType():
            pairs = value.items() if isinstance(value, dict) else value
            texts = sorted((str(write(key, type.key)), to_json(each, type.value)) for key, each in pairs)
            return "{" + ", ".join(f"{_quoted(key)}: {each}" for key, each in texts) + "}"
        case RowType():
            fields = (f"{_quoted(field.name)}: {to_json(value[field.name], field.type)}" for field in type.fields)
            return "{" + ", ".join(fields) + "}"
        case BooleanType():
            return "true" if value else "false"
        case IntegerType() | FloatingType() | DecimalType():
            return str(write(value, type))
        case _:
            return _quoted(str(write(value, type)))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def canonical(text: str | None, type: DataType, zone: str = "UTC") -> str | None:
    """The canonical text of the value that a cell means."""
    if text is None or isinstance(type, IntervalType):
        return text
    value = read(text, type, zone)
    if isinstance(type, FloatType):
        value = c_float(value).value
    if isinstance(type, MultisetType):
        value = [(key, count) for key, count in value if count]
    return write(value, type)
