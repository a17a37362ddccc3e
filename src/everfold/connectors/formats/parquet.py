"""Format `parquet`: columns by name.

A file is read in its own types and then converted to the table's types without loss: a narrower
integer or float becomes the wider one, a timestamp with or without UTC adjustment becomes the
table's type (the wall clock of UTC). A lossy conversion is refused, at the start according to the
oldest file. In a stream that Spark decodes, the timestamps of a column must be in nanoseconds in
all files, or in none. TIMESTAMP is written without UTC adjustment, TIMESTAMP_LTZ with it, both in
microseconds; TIME as TIME_MILLIS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.options import Option, OptionSet
from everfold.engine_literals import spark_identifier
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
from everfold.storage import Location
from everfold.types import (
    ArrayType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    IntervalType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
    with_article,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

FileTypes = dict[str, str]
"""The types in which Spark reads the columns of a file, by name."""
_NANOSECONDS = "BIGINT"
"""The type in which Spark reads a TIMESTAMP in nanoseconds."""
PIECE_ROWS, _PIECE_BYTES = 500_000, 64 << 20
"""Limits of a piece of a file."""
OPTIONS = OptionSet(
    (
        Option("utc-timezone", "bool", "false", note="has no meaning here: the wall clock of UTC is taken"),
        Option("timestamp.time.unit", "string", "micros", note="has no meaning here: microseconds are written, all units are read"),
        Option("write.int64.timestamp", "bool", "true", note="has no meaning here: timestamps are written as INT64"),
        Option("batch-size", "int", "2048", note="has no meaning here"),
        Option("compression", ("SNAPPY", "ZSTD", "GZIP", "LZ4", "UNCOMPRESSED"), "SNAPPY", meaning="compression codec", role="sink"),
    )
)  # fmt: skip


def read_parquet(
    reader: Any, paths: str | list[str], types: FileTypes, columns: Sequence[RecordColumn]
) -> tuple[DataFrame, dict[int, str]]:
    """Return a frame of files and their locations, and Spark SQL for the table's columns.

    types: those of all files.
    """
    schema = ", ".join(f"{spark_identifier(name)} {of}" for name, of in types.items()) or "`__none` STRING"
    # Spark reads timestamps in nanoseconds only as integers, and only if a setting allows it.
    frame = (
        reader.format("parquet")
        .schema(schema)
        .load(paths)
        .selectExpr(
            "*",
            "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/') AS __path",
            "_metadata.file_size AS __size",
            "_metadata.file_modification_time AS __changed",
        )
    )
    return frame, {column.position: _value(column, types[column.name]) for column in columns}


def _value(column: RecordColumn, read_as: str) -> str:
    """Return Spark SQL that converts a column from the Spark type it was read as."""
    name = spark_identifier(column.name)
    if read_as == column.type.spark:
        return name
    if isinstance(column.type, TimestampType) and read_as == _NANOSECONDS:
        name = f"timestamp_micros(({name} - pmod({name}, 1000)) div 1000)"
    return f"CAST({name} AS {column.type.spark})"


def declared_types(columns: Sequence[RecordColumn]) -> FileTypes:
    """Return the types in which Spark reads the files that everfold writes."""
    return {column.name: column.type.spark for column in columns}


def read_types(path: Path | Location, table: Table, columns: Sequence[RecordColumn]) -> FileTypes:
    """Return the types in which Spark reads the columns of a file.

    Raises ConnectorError `missing-column`, `wrong-column-type`, `bad-file`; FileNotFoundError,
    PermissionError.
    """
    with _open_file(path, table) as file:
        schema: pa.Schema = file.schema_arrow
        leaves = [file.schema.column(at) for at in range(len(file.schema))]
    # Old timestamps, which Spark reads as instants.
    int96 = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    types: FileTypes = {}
    for column in columns:
        types[column.name] = _require_spark_type(_field(schema, path, table, column), column, path, table)
        if column.name in int96:
            types[column.name] = "TIMESTAMP"
    return types


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


def _schema(path: Path | Location, table: Table) -> pa.Schema:
    try:
        with _open_file(path, table) as file:
            schema: pa.Schema = file.schema_arrow
    except OSError as wrong:
        raise _bad_file(path, table, wrong) from None
    return schema


def _open_file(path: Path | Location, table: Table) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(_open(path))
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowInvalid, OSError) as wrong:
        raise _bad_file(path, table, wrong) from None


def _open(path: Path | Location) -> Any:
    return path if isinstance(path, Path) else path.local_path or path.open()


def _bad_file(path: Path | Location, table: Table, wrong: Exception) -> ConnectorError:
    reason = str(wrong).splitlines()[0]
    return ConnectorError.of("bad-file", f"table `{table.name}`: `{path}` is not a Parquet file: {reason}")


def _field(schema: pa.Schema, path: Path | Location, table: Table, column: RecordColumn) -> pa.DataType:
    from everfold.errors import suggest_name

    if column.name not in schema.names:
        raise ConnectorError.of(
            "missing-column",
            f"table `{table.name}`: `{path.name}` has no column `{column.name}`",
            help=suggest_name(column.name, schema.names),
        )
    found: pa.DataType = schema.field(column.name).type
    return found


def _require_spark_type(found: pa.DataType, column: RecordColumn, path: Path | Location, table: Table) -> str:
    spark = _spark_type(found, column.type)
    if spark is None:
        raise ConnectorError.of(
            "wrong-column-type",
            f"table `{table.name}`: column `{column.name}` is {with_article(column.type)},"
            f" but in `{path.name}` it is {found}",
        )
    return spark


def _spark_type(found: pa.DataType, of: DataType) -> str | None:
    """Return the Spark type that reads a column of a file for a column of type `of`.

    Spark widens numbers itself. None if the conversion could lose data.
    """
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(found):
        found = found.value_type
    match of:
        case TimestampType() if kinds.is_timestamp(found):
            if found.unit == "ns":
                return _NANOSECONDS
            return "TIMESTAMP_NTZ" if found.tz is None else "TIMESTAMP"
        case TimeType() if kinds.is_int32(found) or found == pa.time32("ms"):
            return "INT"
        case IntegerType() if kinds.is_integer(found):
            bits = found.bit_width * (1 if kinds.is_signed_integer(found) else 2)
            return of.spark if bits <= of.bits else None
        case FloatingType() if kinds.is_float32(found) or (kinds.is_float64(found) and of.spark == "DOUBLE"):
            return of.spark
        case DecimalType() if kinds.is_decimal(found):
            fits = found.scale <= of.scale and found.precision - found.scale <= of.precision - of.scale
            return of.spark if fits else None
        case StringType() if kinds.is_string(found) or kinds.is_large_string(found) or kinds.is_binary(found):
            return "STRING"
        case BytesType() if kinds.is_binary(found) or kinds.is_fixed_size_binary(found) or kinds.is_large_binary(found):
            return "BINARY"
        case DateType() if kinds.is_date(found):
            return "DATE"
        case IntervalType() if kinds.is_integer(found):
            return of.spark if found.bit_width <= (32 if of.months else 64) else None
        case ArrayType() if kinds.is_list(found) or kinds.is_large_list(found):
            inner = _nested(found.value_type, of.element)
            return None if inner is None else f"ARRAY<{inner}>"
        case MapType() if kinds.is_map(found):
            key, value = _nested(found.key_type, of.key), _nested(found.item_type, of.value)
            return None if key is None or value is None else f"MAP<{key}, {value}>"
        case RowType() if kinds.is_struct(found):
            parts = []
            for part in of.fields:
                at = found.get_field_index(part.name)
                inner = None if at < 0 else _nested(found.field(at).type, part.type)
                if inner is None:
                    return None
                parts.append(f"{spark_identifier(part.name)}: {inner}")
            return "STRUCT<" + ", ".join(parts) + ">"
        case _ if kinds.is_boolean(found) and of.spark == "BOOLEAN":
            return "BOOLEAN"
        case _:
            return None


def _nested(found: pa.DataType, of: DataType) -> str | None:
    """Return `_spark_type` within a collection, where nanoseconds cannot be converted."""
    spark = _spark_type(found, of)
    return None if isinstance(of, TimestampType) and spark == _NANOSECONDS else spark


def check_columns(path: Path, table: Table, columns: Sequence[RecordColumn]) -> pa.Schema:
    """Check that columns can be read from a file, and return its schema.

    Raises ConnectorError `missing-column`, `wrong-column-type`, `bad-file`.
    """
    schema = _schema(path, table)
    for column in columns:
        _require_spark_type(_field(schema, path, table, column), column, path, table)
    return schema


def read_parquet_local(
    path: Path, table: Table, columns: Sequence[RecordColumn], first_group: int = 0
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yield the rows of a file in pieces: their number, and columns in the table's Arrow types.

    first_group: the row group to begin with. Raises ConnectorError `missing-column`,
    `wrong-column-type`, `bad-file`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_columns(path, table, columns)
    try:
        with pq.ParquetFile(path) as file:
            names, groups = [column.name for column in columns], range(first_group, file.num_row_groups)
            size = _piece_rows(file.metadata)
            for piece in file.iter_batches(size, row_groups=groups, columns=names, use_threads=False):
                yield piece.num_rows, [_cast_column(piece.column(each.name), each, path, table) for each in columns]
    except (pa.ArrowInvalid, OSError) as wrong:
        raise _bad_file(path, table, wrong) from None


def _cast_column(values: pa.Array, column: RecordColumn, path: Path, table: Table) -> pa.Array:
    """Return the values of a column of a file. Raises ConnectorError `bad-file`."""
    import pyarrow as pa

    try:
        found = cast_values(values, column.type.arrow)
        if isinstance(column.type, StringType | ArrayType | MapType | RowType):
            found.validate(full=True)  # that texts are UTF-8
        return found
    except pa.ArrowInvalid as wrong:
        what = f"table `{table.name}`: column `{column.name}` of `{path}`: {wrong}"
        raise ConnectorError.of("bad-file", what) from None


def _piece_rows(metadata: Any) -> int:
    """Return how many rows of a file are read at once, at most `_PIECE_BYTES` of all columns."""
    size: int = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    return max(1, min(PIECE_ROWS, _PIECE_BYTES * int(metadata.num_rows) // max(size, 1)))


def cast_values(values: Any, to: pa.DataType) -> Any:
    """Return values of a file in the Arrow type of a column that `check_columns` has accepted."""
    import pyarrow as pa

    if pa.types.is_timestamp(to) and pa.types.is_timestamp(values.type):
        if values.type.unit == "ns":
            values = _floor_to_micros(values)
        # Keep the wall clock of UTC in either direction.
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(to)
    if pa.types.is_date64(values.type):
        return values.cast(pa.date32())
    if pa.types.is_time32(values.type):
        return values.cast(pa.int32())
    return values.cast(to)


def _floor_to_micros(values: Any) -> Any:
    """Truncate nanoseconds downwards. Arrow would round times before 1970 upwards."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nanos = values.cast(pa.int64())
    micros = pc.divide(nanos, 1000)
    micros = pc.subtract(micros, pc.less(nanos, pc.multiply(micros, 1000)).cast(pa.int64()))
    return micros.cast(pa.timestamp("us", values.type.tz))


def parse_parquet_failure(table: Table, error_text: str) -> ConnectorError | None:
    """Return the error for a file with another schema than the first, or an unreadable file."""
    found = re.search(r"(?:FAILED_READ_FILE|CANNOT_READ_FILE)[^\n]*?(file:[^\s,]+)", error_text)
    if found is None or (".parquet" not in found.group(1) and "arquet" not in error_text):
        return None
    path = found.group(1).rstrip(".")
    wrong = re.search(r"PARQUET_COLUMN_DATA_TYPE_MISMATCH[^\n]*|[^\n]*is not a Parquet file[^\n]*", error_text)
    why = (
        "a column has another type than the table's"
        if wrong and "MISMATCH" in wrong.group()
        else "it is not a readable Parquet file"
    )
    return ConnectorError.of("bad-file", f"table `{table.name}`: `{path}`: {why}")
