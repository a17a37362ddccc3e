"""Parquet files that Catalyst decodes: those whose values it is known to read as Arrow does.

Catalyst does not check that strings are UTF-8, that times are within the years 1 to 9999, and that
a decimal has no more digits than its type, so SQL does. Its errors do not name the row: the
driver finds it in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import RecordColumn, RecordLocation, raise_bad_record
from everfold.connectors.formats.parquet import find_int96, find_leaves, open_file
from everfold.engine_literals import spark_identifier
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
from everfold.storage import Location
from everfold.types import (
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    MapType,
    RowType,
    StringType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

FileTypes = dict[str, str]
"""The types in which Spark reads the columns of a file, by name."""
_NANOSECONDS = "BIGINT"
"""The type in which Spark reads a TIMESTAMP in nanoseconds."""
_ENCODINGS = {
    "PLAIN",
    "PLAIN_DICTIONARY",
    "RLE_DICTIONARY",
    "RLE",
    "BIT_PACKED",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
}
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
"""What Spark can read of what Arrow can."""
_HYBRID_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys of files whose early times Spark converts from the Julian calendar; Arrow does not."""
_FIRST_TIME, _LAST_TIME = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


def read_parquet(
    reader: Any, paths: str | list[str], types: FileTypes, table: Table, columns: Sequence[RecordColumn], path: str
) -> tuple[DataFrame, dict[int, str]]:
    """Return a frame of files and their locations, and Spark SQL for the table's columns.

    types: those of all files. path: Spark SQL for the path of a file.
    """
    schema = ", ".join(f"{spark_identifier(name)} {of}" for name, of in types.items()) or "`__none` STRING"
    # Spark reads timestamps in nanoseconds only as integers, and only if a setting allows it.
    frame = (
        reader.format("parquet")
        .options(datetimeRebaseMode="CORRECTED", int96RebaseMode="CORRECTED")
        .schema(schema)
        .load(paths)
        .selectExpr(
            "*",
            f"{path} AS __path",
            "_metadata.file_size AS __size",
            "_metadata.file_modification_time AS __changed",
        )
    )
    location = RecordLocation(table.name, (("path", "__path"),))
    return frame, {column.position: _value(column, types[column.name], location) for column in columns}


def _value(column: RecordColumn, read_as: str, location: RecordLocation) -> str:
    """Return Spark SQL that converts a column from the Spark type it was read as, and checks it."""
    name = spark_identifier(column.name)
    value = name if read_as == column.type.spark else f"CAST({name} AS {column.type.spark})"
    match column.type:
        case TimestampType() if read_as == _NANOSECONDS:
            return f"CAST(timestamp_micros(({name} - pmod({name}, 1000)) div 1000) AS {column.type.spark})"
        case TimestampType() | DateType():
            length, zone = (10, "") if read_as == "DATE" else (None, "Z" if read_as == "TIMESTAMP" else "")
            first, last = (f"{read_as}'{each[:length]}{zone}'" for each in (_FIRST_TIME, _LAST_TIME))
            is_wrong = f"{name} NOT BETWEEN {first} AND {last}"
        case StringType():
            is_wrong = f"NOT is_valid_utf8({name})"
        case DecimalType(precision=precision, scale=scale):
            digits = "9" * precision
            most = f"{digits[scale:]}.{digits[:scale]}"
            # Spark would round a negated literal to 34 digits.
            least, most = (f"CAST('{sign}{most}' AS {column.type.spark})" for sign in ("-", ""))
            is_wrong = f"{name} NOT BETWEEN {least} AND {most}"
        case _:
            return value
    return f"IF({is_wrong}, {raise_bad_record(location, column.name, 'NULL')}, {value})"


def declared_types(columns: Sequence[RecordColumn]) -> FileTypes:
    """Return the types in which Spark reads the files that everfold writes."""
    return {column.name: column.type.spark for column in columns}


def read_types(path: Path | Location, table: Table, columns: Sequence[RecordColumn]) -> tuple[FileTypes | None, bool]:
    """Return the types in which Spark can read the columns of a file, None if it cannot read one of
    them, and whether its values are known to be those of Arrow.

    Raises ConnectorError `missing-column`, `wrong-column-type`, `bad-file`; FileNotFoundError,
    PermissionError.
    """
    with open_file(path, table, columns) as file:
        schema: pa.Schema = file.schema_arrow
        old = {column.name for column in find_int96(file, columns)}
        types: FileTypes = {}
        for column in columns:
            stored = schema.field(column.name).type
            read_as = "TIMESTAMP" if column.name in old else _spark_type(stored, column.type)
            if read_as is None:
                return None, False
            types[column.name] = read_as
        is_alike = not old and _is_decoded_alike(file, columns)
    return types, is_alike


def require_spark_types(path: Path | Location, types: FileTypes | None, table: Table) -> FileTypes:
    """Return the types of a file that only Spark can open. Raises ConnectorError `bad-file`."""
    if types is None:
        raise ConnectorError.of(
            "bad-file",
            f"table `{table.name}`: `{path}` has a column that is read only from local files",
            help="copy the file to a local folder, or write it again with another type of column",
        )
    return types


def _is_decoded_alike(file: pq.ParquetFile, columns: Sequence[RecordColumn]) -> bool:
    """Return whether Catalyst decodes all columns as Arrow does."""
    schema, metadata = file.schema_arrow, file.metadata
    if not all(_is_plain(schema.field(column.name).type, column.type) for column in columns):
        return False
    facts = metadata.metadata or {}
    version = facts.get(b"org.apache.spark.version", b"4").partition(b".")[0]
    if any(key in facts for key in _HYBRID_CALENDAR) or not version.isdigit() or int(version) < 3:
        return False
    for leaf in find_leaves(file, columns):
        stored = file.schema.column(leaf)
        if stored.physical_type == "BYTE_ARRAY" and stored.logical_type.type == "DECIMAL":
            return False
        for number in range(metadata.num_row_groups):
            chunk = metadata.row_group(number).column(leaf)
            if chunk.compression not in _CODECS or not set(chunk.encodings) <= _ENCODINGS:
                return False
    return True


def _is_plain(stored: pa.DataType, to: DataType) -> bool:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(stored):
        stored = stored.value_type
    match to:
        case StringType() | BytesType():
            return not isinstance(stored, pa.BaseExtensionType) and not kinds.is_fixed_size_binary(stored)
        case DecimalType():
            return bool(kinds.is_decimal(stored)) and stored.scale == to.scale
        case FloatingType():
            return not kinds.is_float16(stored)
        case BooleanType() | IntegerType() | DateType() | TimestampType():
            return True
        case _:
            return False


def _spark_type(stored: pa.DataType, to: DataType) -> str | None:
    """Return the Spark type that reads a column of a file for a column that it can be converted to.

    Spark widens numbers itself. None if it cannot read the column.
    """
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(stored):
        stored = stored.value_type
    if kinds.is_null(stored) or isinstance(stored, pa.BaseExtensionType) or kinds.is_float16(stored):
        return None
    match to:
        case TimestampType() if stored.unit == "ns":
            return _NANOSECONDS
        case TimestampType():
            return "TIMESTAMP_NTZ" if stored.tz is None else "TIMESTAMP"
        case ArrayType():
            element = _nested_type(stored.value_type, to.element)
            return None if element is None else f"ARRAY<{element}>"
        case MapType():
            key, value = _nested_type(stored.key_type, to.key), _nested_type(stored.item_type, to.value)
            return None if key is None or value is None else f"MAP<{key}, {value}>"
        case RowType():
            types = [_nested_type(stored.field(field.name).type, field.type) for field in to.fields]
            if None in types:
                return None
            parts = (f"{spark_identifier(field.name)}: {of}" for field, of in zip(to.fields, types, strict=True))
            return "STRUCT<" + ", ".join(parts) + ">"
        case _:
            return to.spark


def _nested_type(stored: pa.DataType, to: DataType) -> str | None:
    """Return `_spark_type` within a collection, where nanoseconds cannot be converted."""
    read_as = _spark_type(stored, to)
    return None if isinstance(to, TimestampType) and read_as == _NANOSECONDS else read_as


def check_units(
    path: Path | Location, types: FileTypes, read_as: FileTypes, table: Table, columns: Sequence[RecordColumn]
) -> None:
    """Check that Spark reads the timestamps of a file in their unit.

    Without an error it would take microseconds for nanoseconds. read_as: the types in which it
    reads the file. Raises ConnectorError `bad-file`.
    """
    for name in (column.name for column in columns if isinstance(column.type, TimestampType)):
        is_read, is_stored = read_as[name] == _NANOSECONDS, types[name] == _NANOSECONDS
        if is_read != is_stored:
            what = (
                "is in nanoseconds, but the stream reads other units"
                if is_stored
                else "is not in nanoseconds, but the stream reads only those"
            )
            raise ConnectorError.of(
                "bad-file",
                f"table `{table.name}`: column `{name}` of `{path.name}` {what}",
                help=f"write the file again with {'nano' if is_read else 'micro'}seconds",
            )
