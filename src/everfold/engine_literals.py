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
from everfold.value_text import format_float, format_timestamp

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
            is_plain = type.spark == "DOUBLE" and math.isfinite(value)
            return f"({value!r}D)" if is_plain else f"CAST('{_float_text(value)}' AS {type.spark})"
        case StringType():
            assert isinstance(value, str)
            return spark_string(value)
        case BytesType():
            assert isinstance(value, bytes)
            return f"X'{value.hex()}'"
        case DateType():
            assert isinstance(value, date)
            return f"DATE'{value.isoformat()}'"
        case TimestampType():
            assert isinstance(value, datetime)
            return f"TIMESTAMP_{'LTZ' if type.local_zone else 'NTZ'}'{format_timestamp(value, 6)}'"
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
            return f"CAST('{_float_text(value)}' AS {type.duckdb})"
        case StringType():
            assert isinstance(value, str)
            return duckdb_string(value)
        case BytesType():
            assert isinstance(value, bytes)
            return "CAST('" + "".join(f"\\x{byte:02X}" for byte in value) + "' AS BLOB)"
        case DateType():
            assert isinstance(value, date)
            return f"DATE '{value.isoformat()}'"
        case TimestampType():
            assert isinstance(value, datetime)
            return f"TIMESTAMP '{format_timestamp(value, 6)}'"
    assert isinstance(value, int), (value, type)
    if type.duckdb == "INTEGER" and value > -(1 << 31):
        return f"({value})" if value < 0 else str(value)
    return f"CAST({value} AS {type.duckdb})" if value >= 0 else f"CAST('{value}' AS {type.duckdb})"


def _float_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else format_float(value)
