"""Literals and identifiers in the SQL of Spark and DuckDB.

Spark reads a backslash in '…' as an escape, so `spark_string` escapes backslashes, quotes and
control characters. DuckDB has no escapes: `duckdb_string` doubles quotes and writes NUL as chr(0).
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal

from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    NullType,
    StringType,
    TimestampType,
)

_SPARK_TYPE_SUFFIX = {"TINYINT": "Y", "SMALLINT": "S", "INT": "", "BIGINT": "L"}
_SPARK_ESCAPES = str.maketrans({
    **{chr(code): f"\\u{code:04x}" for code in range(0x20)},
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'",
})  # fmt: skip


def spark_string(text: str) -> str:
    """Return a string literal of Spark SQL."""
    return f"'{text.translate(_SPARK_ESCAPES)}'"


def spark_identifier(name: str) -> str:
    """Return a name as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def duckdb_string(text: str) -> str:
    """Return a string literal of DuckDB SQL."""
    if "\0" not in text:
        return "'" + text.replace("'", "''") + "'"
    return "(" + "||chr(0)||".join(map(duckdb_string, text.split("\0"))) + ")"


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None


def format_timestamp(value: datetime) -> str:
    """Format a timestamp with all six fractional digits and a year of four digits."""
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d} {value:%H:%M:%S.%f}"


def spark_literal(value: object, type: DataType) -> str:
    """Return a literal of Spark SQL; the session's time zone is UTC, so TIMESTAMP_LTZ is in UTC."""
    if value is None:
        return "NULL" if isinstance(type, NullType) else f"CAST(NULL AS {type.spark})"
    match type:
        case BooleanType():
            return "true" if value else "false"
        case DecimalType():
            assert isinstance(value, Decimal | int)
            return f"CAST('{Decimal(value):f}' AS {type.spark})"
        case DoubleType() | FloatType():
            assert isinstance(value, float)
            special = _special(value)
            cast = type.spark
            return f"CAST('{special or repr(value)}' AS {cast})" if special or cast != "DOUBLE" else f"({value!r}D)"
        case StringType():
            assert isinstance(value, str)
            return spark_string(value)
        case BytesType():
            assert isinstance(value, bytes)
            return f"X'{value.hex()}'"
        case DateType():
            assert isinstance(value, date)
            return f"DATE'{value.year:04d}-{value.month:02d}-{value.day:02d}'"
        case TimestampType():
            assert isinstance(value, datetime)
            return (
                f"TIMESTAMP_LTZ'{format_timestamp(value)}'"
                if type.local_zone
                else f"TIMESTAMP_NTZ'{format_timestamp(value)}'"
            )
    assert isinstance(value, int), (value, type)
    if type.spark == "BIGINT" and value == -(1 << 63):
        return "(-9223372036854775807L - 1L)"
    text = f"{value}{_SPARK_TYPE_SUFFIX[type.spark]}"
    return f"({text})" if value < 0 else text


def duckdb_literal(value: object, type: DataType) -> str:
    """Return a literal of DuckDB SQL."""
    if value is None:
        return "NULL" if isinstance(type, NullType) else f"CAST(NULL AS {type.duckdb})"
    match type:
        case BooleanType():
            return "true" if value else "false"
        case DecimalType():
            assert isinstance(value, Decimal | int)
            return f"CAST('{Decimal(value):f}' AS {type.duckdb})"
        case DoubleType() | FloatType():
            assert isinstance(value, float)
            return f"CAST('{_special(value) or repr(value)}' AS {type.duckdb})"
        case StringType():
            assert isinstance(value, str)
            return duckdb_string(value)
        case BytesType():
            assert isinstance(value, bytes)
            return "CAST('" + "".join(f"\\x{byte:02X}" for byte in value) + "' AS BLOB)"
        case DateType():
            assert isinstance(value, date)
            return f"DATE '{value.year:04d}-{value.month:02d}-{value.day:02d}'"
        case TimestampType():
            assert isinstance(value, datetime)
            return f"TIMESTAMP '{format_timestamp(value)}'"
    assert isinstance(value, int), (value, type)
    if type.duckdb == "INTEGER" and value > -(1 << 31):
        return f"({value})" if value < 0 else str(value)
    return f"CAST({value} AS {type.duckdb})" if value >= 0 else f"CAST('{value}' AS {type.duckdb})"
