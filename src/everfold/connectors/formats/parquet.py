"""Format `parquet`: columns by name.

A file is read in its own types and then converted to the table's types without loss: a narrower
integer or float becomes the wider one, a timestamp with or without UTC adjustment becomes the
table's type (the wall clock of UTC), a UUID becomes its string. A lossy conversion is refused.
TIMESTAMP is written without UTC adjustment, TIMESTAMP_LTZ with it, both in microseconds; TIME as
TIME_MILLIS.

Arrow decodes files, and Polars where it is known to return the same (`parquet_views`). In a batch,
Catalyst decodes the files whose values it is known to read alike (`parquet_catalyst`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.parquet_values import UUID_NAME, convert_column
from everfold.connectors.formats.text_decode import excerpt
from everfold.connectors.options import Option, OptionSet
from everfold.errors import ConnectorError, suggest_name
from everfold.plan.nodes import Table
from everfold.storage import Location
from everfold.types import (
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
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

PIECE_ROWS, _PIECE_BYTES = 500_000, 64 << 20
"""Limits of a piece of a file."""
_MAX_REASON = 160
OPTIONS = OptionSet(
    (
        Option("utc-timezone", "bool", "false", note="has no meaning here: the wall clock of UTC is taken"),
        Option("timestamp.time.unit", "string", "micros", note="has no meaning here: microseconds are written, all units are read"),
        Option("write.int64.timestamp", "bool", "true", note="has no meaning here: timestamps are written as INT64"),
        Option("batch-size", "int", "2048", note="has no meaning here"),
        Option("compression", ("SNAPPY", "ZSTD", "GZIP", "LZ4", "UNCOMPRESSED"), "SNAPPY", meaning="compression codec", role="sink"),
    )
)  # fmt: skip


def open_file(
    path: Path | Location, table: Table, columns: Sequence[RecordColumn], *, int96_unit: str = "us"
) -> pq.ParquetFile:
    """Open a file whose columns can be read.

    Raises ConnectorError `missing-column`, `wrong-column-type`, `bad-file`; FileNotFoundError,
    PermissionError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(_open(path), coerce_int96_timestamp_unit=int96_unit)
        schema: pa.Schema = file.schema_arrow
        names = list(schema.names)
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError, ValueError) as wrong:
        raise _bad_file(path, table, wrong) from None
    for column in columns:
        _check_column(schema, names, path, table, column)
    _check_footer(file, path, table, columns)
    return file


def _open(path: Path | Location) -> Any:
    return path if isinstance(path, Path) else path.local_path or path.open()


def _bad_file(path: Path | Location, table: Table, wrong: Exception | str) -> ConnectorError:
    text = "a name in it is not UTF-8" if isinstance(wrong, UnicodeDecodeError) else str(wrong)
    reason = excerpt((text.splitlines() or [type(wrong).__name__])[0], _MAX_REASON)
    return ConnectorError.of("bad-file", f"table `{table.name}`: `{path}` is not a readable Parquet file: {reason}")


def _check_column(
    schema: pa.Schema, names: Sequence[str], path: Path | Location, table: Table, column: RecordColumn
) -> None:
    if column.name not in names:
        raise ConnectorError.of(
            "missing-column",
            f"table `{table.name}`: `{path.name}` has no column `{column.name}`",
            help=suggest_name(column.name, names),
        )
    if names.count(column.name) > 1:
        what = f"`{path.name}` has {names.count(column.name)} columns `{column.name}`"
        raise ConnectorError.of("bad-file", f"table `{table.name}`: {what}")
    stored = schema.field(column.name).type
    if not is_convertible(stored, column.type):
        raise ConnectorError.of(
            "wrong-column-type",
            f"table `{table.name}`: column `{column.name}` is {with_article(column.type)},"
            f" but in `{path.name}` it is {_describe(stored)}",
        )


def _describe(stored: pa.DataType) -> str:
    import pyarrow as pa

    return stored.extension_name if isinstance(stored, pa.BaseExtensionType) else str(stored)


def find_leaves(file: pq.ParquetFile, columns: Sequence[RecordColumn]) -> list[int]:
    """Return the numbers of the stored columns that belong to columns of a table."""
    names = {column.name for column in columns}
    paths = (file.schema.column(leaf).path for leaf in range(len(file.schema)))
    return [leaf for leaf, path in enumerate(paths) if path in names or path.partition(".")[0] in names]


def _check_footer(file: pq.ParquetFile, path: Path | Location, table: Table, columns: Sequence[RecordColumn]) -> None:
    """Check that each column of a row group has the group's rows. Raises ConnectorError `bad-file`.

    Arrow would return fewer rows without an error.
    """
    metadata, leaves = file.metadata, find_leaves(file, columns)
    rows = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows += group.num_rows
        for leaf in leaves:
            values, is_flat = group.column(leaf).num_values, file.schema.column(leaf).max_repetition_level == 0
            if values < group.num_rows or (is_flat and values != group.num_rows):
                name = file.schema.column(leaf).path
                what = f"column `{name}` has {values:,} values in a row group of {group.num_rows:,} rows"
                raise _bad_file(path, table, what)
    if rows != metadata.num_rows:
        raise _bad_file(path, table, f"its row groups have {rows:,} rows, and it has {metadata.num_rows:,}")


def is_convertible(stored: pa.DataType, to: DataType) -> bool:
    """Return whether no value of a stored type loses anything in a table's type."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(stored):
        stored = stored.value_type
    if kinds.is_null(stored):
        return True
    if isinstance(stored, pa.BaseExtensionType):
        if stored.extension_name == UUID_NAME:
            return isinstance(to, StringType | BytesType)
        stored = stored.storage_type
    match to:
        case TimestampType():
            return bool(kinds.is_timestamp(stored))
        case TimeType():
            return bool(kinds.is_int32(stored) or kinds.is_time32(stored))
        case IntegerType() if kinds.is_integer(stored):
            return bool(stored.bit_width * (1 if kinds.is_signed_integer(stored) else 2) <= to.bits)
        case FloatingType():
            is_wide = isinstance(to, DoubleType) and kinds.is_float64(stored)
            return bool(is_wide or kinds.is_float32(stored) or kinds.is_float16(stored))
        case DecimalType() if kinds.is_decimal(stored):
            return bool(stored.scale <= to.scale and stored.precision - stored.scale <= to.precision - to.scale)
        case StringType():
            return _is_text(stored) or _is_binary(stored)
        case BytesType():
            return _is_text(stored) or _is_binary(stored) or bool(kinds.is_fixed_size_binary(stored))
        case DateType():
            return bool(kinds.is_date(stored))
        case IntervalType() if kinds.is_integer(stored):
            return bool(stored.bit_width <= (32 if to.months else 64))
        case ArrayType():
            return _is_list(stored) and is_convertible(stored.value_type, to.element)
        case MapType() if kinds.is_map(stored):
            return is_convertible(stored.key_type, to.key) and is_convertible(stored.item_type, to.value)
        case RowType() if kinds.is_struct(stored):
            parts = {field.name: field.type for field in stored}
            is_unique = len(parts) == stored.num_fields
            return is_unique and all(
                field.name in parts and is_convertible(parts[field.name], field.type) for field in to.fields
            )
        case BooleanType():
            return bool(kinds.is_boolean(stored))
        case _:
            return False


def _is_text(stored: pa.DataType) -> bool:
    from pyarrow import types as kinds

    return bool(kinds.is_string(stored) or kinds.is_large_string(stored) or kinds.is_string_view(stored))


def _is_binary(stored: pa.DataType) -> bool:
    from pyarrow import types as kinds

    return bool(kinds.is_binary(stored) or kinds.is_large_binary(stored) or kinds.is_binary_view(stored))


def _is_list(stored: pa.DataType) -> bool:
    from pyarrow import types as kinds

    return bool(kinds.is_list(stored) or kinds.is_large_list(stored) or kinds.is_fixed_size_list(stored))


def read_parquet_local(
    path: Path, table: Table, columns: Sequence[RecordColumn], first_group: int = 0
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yield the rows of a file in pieces: their number, and columns in the table's Arrow types.

    first_group: the row group to begin with. Raises ConnectorError `missing-column`,
    `wrong-column-type`, `bad-file`.
    """
    import pyarrow as pa

    with open_file(path, table, columns) as file:
        try:
            metadata = file.metadata
            row = 1 + sum(metadata.row_group(number).num_rows for number in range(first_group))
            names = [column.name for column in columns]
            groups, size = range(first_group, metadata.num_row_groups), _piece_rows(metadata)
            millis = _read_int96_millis(path, table, find_int96(file, columns), size, groups)
            for piece in file.iter_batches(size, row_groups=groups, columns=names, use_threads=False):
                _check_int96(next(millis), path, table, row)
                arrays = [convert_column(piece.column(column.name), column, path, table, row) for column in columns]
                yield piece.num_rows, arrays
                row += piece.num_rows
        except (pa.ArrowException, OSError) as wrong:
            raise _bad_file(path, table, wrong) from None
        if row - 1 != metadata.num_rows:
            raise _bad_file(path, table, f"it has {row - 1:,} rows, and {metadata.num_rows:,} by its footer")


def find_bad_value(path: Path, table: Table, columns: Sequence[RecordColumn]) -> ConnectorError | None:
    """Return the error with which a file is refused, None if it can be read."""
    try:
        for _ in read_parquet_local(path, table, columns):
            pass
    except ConnectorError as error:
        return error
    except OSError:  # it is reported elsewhere
        return None
    return None


def _piece_rows(metadata: Any) -> int:
    """Return how many rows of a file are read at once, at most `_PIECE_BYTES` of all columns."""
    size: int = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return max(1, min(PIECE_ROWS, _PIECE_BYTES * int(metadata.num_rows) // max(size, 1)))


# --- timestamps of 96 bits ------------------------------------------------------------------------

_Int96 = Sequence[tuple[RecordColumn, Any]]
"""Columns with their values in milliseconds."""


def find_int96(file: pq.ParquetFile, columns: Sequence[RecordColumn]) -> list[RecordColumn]:
    """Return the columns with timestamps that are stored as INT96: a day, and nanoseconds of it."""
    old = {
        file.schema.column(leaf).path.partition(".")[0]
        for leaf in find_leaves(file, columns)
        if file.schema.column(leaf).physical_type == "INT96"
    }
    return [column for column in columns if column.name in old or column.name.partition(".")[0] in old]


def _read_int96_millis(
    path: Path, table: Table, columns: Sequence[RecordColumn], size: int, groups: Sequence[int]
) -> Iterator[_Int96]:
    """Yield the values of INT96 columns in milliseconds, piece by piece as the file itself.

    Microseconds of 64 bits would overflow without an error for days that are far away.
    """
    if not columns:
        yield from repeat(())
        return
    names = [column.name for column in columns]
    with open_file(path, table, columns, int96_unit="ms") as file:
        for piece in file.iter_batches(size, row_groups=groups, columns=names, use_threads=False):
            yield [(column, piece.column(column.name)) for column in columns]


def _check_int96(values: _Int96, path: Path, table: Table, row: int) -> None:
    for column, millis in values:
        convert_column(millis, column, path, table, row)
