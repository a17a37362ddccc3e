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
from everfold.value_text import format_float, format_time, format_timestamp

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
            return lambda value: format_float(_as(float, value), single=single)
        case DecimalType():
            return lambda value: f"{_as(Decimal, value):f}"
        case DateType():
            return lambda value: _as(date, value).isoformat()
        case TimeType():
            return lambda value: format_time(_as(int, value))
        case TimestampType():
            separator, zone = "T" if iso else " ", "Z" if of.local_zone else ""
            return lambda value: format_timestamp(_as(datetime, value), separator=separator) + zone
        case BytesType():
            return lambda value: base64.b64encode(_as(bytes, value)).decode()
        case _:
            return str


def _as(kind: type[_T], value: object) -> _T:
    assert isinstance(value, kind), (kind, value)
    return value
