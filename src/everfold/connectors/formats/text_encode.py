"""Convert values to strings as Flink 2.3 writes them into JSON and CSV, in Catalyst and in Python.

Times always have seconds, and a fraction without trailing zeros. Decimals are written without an
exponent and with their full scale. (By default Flink drops trailing zeros, so that `100.00` becomes
`1E+2`, the same number.)
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TypeVar

from everfold.connectors.printing import java_double
from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    FloatType,
    StringType,
    TimestampType,
    TimeType,
)

_T = TypeVar("_T")


def string_sql(of: DataType, value: str, *, iso: bool = False) -> str | None:
    """Return Spark SQL: a date, time or bytes as a string, None for types written unchanged."""
    match of:
        case DateType():
            return f"CAST({value} AS STRING)"
        case TimeType():
            return f"substring(CAST(timestamp_millis({value}) AS STRING), 12)"
        case TimestampType():
            text = f"CAST({value} AS STRING)"
            text = f"replace({text}, ' ', 'T')" if iso else text
            return f"concat({text}, 'Z')" if of.local_zone else text
        case BytesType():
            return f"base64({value})"
        case _:
            return None


def scalar_string_sql(of: DataType, value: str) -> str:
    """Return Spark SQL: a value of any scalar type as a string."""
    return string_sql(of, value) or (value if isinstance(of, StringType) else f"CAST({value} AS STRING)")


def string_encoder(of: DataType, *, iso: bool = False) -> Callable[[object], str]:
    """Return a function from a value, as Arrow converts it to Python, to its string."""
    match of:
        case BooleanType():
            return lambda value: "true" if value else "false"
        case FloatingType():
            single = isinstance(of, FloatType)
            return lambda value: java_double(_as(float, value), single=single)
        case DecimalType():
            return lambda value: f"{_as(Decimal, value):f}"
        case DateType():
            return lambda value: _as(date, value).isoformat()
        case TimeType():
            return _time
        case TimestampType():
            return lambda value: _timestamp(_as(datetime, value), of.local_zone, "T" if iso else " ")
        case BytesType():
            return lambda value: base64.b64encode(_as(bytes, value)).decode()
        case _:
            return str


def _as(kind: type[_T], value: object) -> _T:
    assert isinstance(value, kind), (kind, value)
    return value


def _fraction(micros: int) -> str:
    return f".{micros:06d}".rstrip("0") if micros else ""


def _time(value: object) -> str:
    seconds, millis = divmod(_as(int, value), 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(millis * 1000)}"


def _timestamp(value: datetime, local_zone: bool, separator: str) -> str:
    day = f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    text = f"{day}{separator}{value.hour:02d}:{value.minute:02d}:{value.second:02d}"
    return text + _fraction(value.microsecond) + ("Z" if local_zone else "")
