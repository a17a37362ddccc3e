"""Convert values to strings as Flink 2.3 writes them into JSON and CSV.

Whole columns are converted with Polars, the elements of nested values one by one, and the values
in folder names in Catalyst. Times always have seconds, and a fraction without trailing zeros.
Decimals are written without an exponent and with their full scale. (By default Flink drops trailing
zeros, so that `100.00` becomes `1E+2`, the same number.)
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from everfold.far_times import to_values
from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    FloatType,
    IntegerType,
    StringType,
    TimestampType,
    TimeType,
)
from everfold.value_text import format_float, format_time, format_timestamp

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_T = TypeVar("_T")


def string_sql(of: DataType, value: str) -> str:
    """Return Spark SQL: a value of a scalar type as a string."""
    match of:
        case StringType():
            return value
        case TimeType():
            return f"substring(CAST(timestamp_millis({value}) AS STRING), 12)"
        case TimestampType(local_zone=True):
            return f"concat(CAST({value} AS STRING), 'Z')"
        case BytesType():
            return f"base64({value})"
        case _:
            return f"CAST({value} AS STRING)"


def to_strings(values: pa.ChunkedArray, of: DataType, *, iso: bool = False) -> pl.Series:
    """Convert a column of a scalar type to strings; NULL stays NULL.

    iso: whether `T` separates the date and the time of a TIMESTAMP.
    """
    import polars as pl

    column = pl.Series(pl.from_arrow(values))
    match of:
        case StringType():
            return column
        case BooleanType() | IntegerType() | DecimalType():
            return column.cast(pl.String)
        case DateType():
            return column.dt.strftime("%Y-%m-%d")
        case TimeType():
            return _strip_fraction((column.cast(pl.Int64) * 1000).cast(pl.Datetime("us")), "%H:%M:%S%.6f")
        case TimestampType():
            local = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if of.local_zone else column
            found = _strip_fraction(local, f"%Y-%m-%d{'T' if iso else ' '}%H:%M:%S%.6f")
            return found + "Z" if of.local_zone else found
        case BytesType():
            return column.bin.encode("base64")
        case _:
            return map_values(values, string_encoder(of, iso=iso))


def map_values(values: pa.ChunkedArray, convert: Callable[[object], str]) -> pl.Series:
    """Convert a column value by value; NULL stays NULL."""
    import polars as pl

    texts = [None if value is None else convert(value) for value in to_values(values)]
    return pl.Series(texts, dtype=pl.String)


def _strip_fraction(times: pl.Series, pattern: str) -> pl.Series:
    """Format times; fractions of a second lose their trailing zeros."""
    return times.dt.strftime(pattern).str.strip_chars_end("0").str.strip_chars_end(".")


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
