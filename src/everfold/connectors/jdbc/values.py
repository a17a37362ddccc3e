"""Convert values between Arrow and the CSV format of PostgreSQL's COPY.

Strings are always quoted, NULL is an empty field. Spark workers import this module: it imports
little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everfold.types import BytesType, DataType, DecimalType, StringType, TimestampType, TimeType

if TYPE_CHECKING:
    import pyarrow as pa


_BLOCK_BYTES = 1 << 20
_COLUMN = re.compile(r"In CSV column #(\d+): ")
"""How Arrow names a column in an error."""


class NulInString(Exception):
    """A string has U+0000, which PostgreSQL cannot store. The message is the column name."""


# --- to PostgreSQL --------------------------------------------------------------------------------


def to_csv(columns: Sequence[pa.Array], types: Sequence[DataType | None], names: Sequence[str]) -> bytes:
    """Return rows as CSV for PostgreSQL.

    types: None for the numeric columns of the staging table. names: the columns, for errors. Raises
    NulInString.
    """
    import pyarrow as pa
    import pyarrow.csv

    encoded = [
        values if of is None else _encode(values, of, name)
        for values, of, name in zip(columns, types, names, strict=True)
    ]
    out = pa.BufferOutputStream()
    table = pa.table(encoded, names=[str(at) for at in range(len(encoded))])
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))
    result: bytes = out.getvalue().to_pybytes()
    return result


def _encode(values: Any, of: DataType, name: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    match of:
        case StringType():
            if pc.any(pc.match_substring(values, "\0")).as_py():
                raise NulInString(name)
            return values
        case BytesType():
            import polars as pl

            result = pl.from_arrow(values)
            assert isinstance(result, pl.Series)
            frame = pl.DataFrame({"x": result}).select(pl.concat_str(pl.lit("\\x"), pl.col("x").bin.encode("hex")))
            return frame.to_arrow(compat_level=pl.CompatLevel.oldest()).column(0)
        case TimeType():
            return values.cast(pa.time32("ms"))
        case _:
            return values


# --- from PostgreSQL ------------------------------------------------------------------------------


def expression(of: DataType, column: str) -> str:
    """Return an SQL expression of a column (a quoted name) that `from_csv` can read."""
    match of:
        case StringType():
            return f"CAST({column} AS text)"
        case BytesType():
            return f"encode({column}, 'hex')"
        case DecimalType():
            return f"CAST({column} AS numeric({of.precision}, {of.scale}))"
        case TimeType():
            return f"CAST(floor(extract(epoch FROM {column}) * 1000) AS integer)"
        case TimestampType(local_zone=True):
            return f"({column} AT TIME ZONE 'UTC')"
        case _:
            return column


def from_csv(text: bytes, types: Sequence[DataType], columns: Sequence[str]) -> pa.Table:
    """Return rows that COPY has written as columns `c0…` of Arrow's physical types.

    columns: their names in the table. Raises ValueError, which names the column, for a value that
    its type cannot represent (`infinity`).
    """
    import pyarrow as pa
    import pyarrow.csv

    from everfold.types import physical_name

    names = [physical_name(at) for at in range(len(types))]
    schema = pa.schema([pa.field(name, of.arrow) for name, of in zip(names, types, strict=True)])
    if not text:
        return schema.empty_table()
    # A row must fit into a block.
    options = pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=max(_BLOCK_BYTES, len(text)))
    try:
        table = _parse(text, options, dict(zip(names, types, strict=True)))
    except pa.ArrowInvalid as wrong:
        raise ValueError(_COLUMN.sub(lambda number: f"column `{columns[int(number[1])]}`: ", str(wrong))) from None
    decoded = [_decode(table.column(name), of) for name, of in zip(names, types, strict=True)]
    return pa.table(decoded, schema=schema)


def _parse(text: bytes, options: pa.csv.ReadOptions, types: Mapping[str, DataType]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv

    return pa.csv.read_csv(
        pa.BufferReader(text),
        options,
        pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pa.csv.ConvertOptions(
            column_types={name: _csv_type(of) for name, of in types.items()},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )


def _csv_type(of: DataType) -> pa.DataType:
    import pyarrow as pa

    match of:
        case BytesType():
            return pa.string()
        case TimestampType():
            return pa.timestamp("us")
        case _:
            return of.arrow


def _decode(values: Any, of: DataType) -> Any:
    import polars as pl

    match of:
        case BytesType():
            result = pl.from_arrow(values)
            assert isinstance(result, pl.Series)
            return result.str.decode("hex").to_arrow(compat_level=pl.CompatLevel.oldest())
        case TimestampType():
            unit = 10 ** max(0, 6 - of.precision)  # truncate to the precision of the type
            frame = pl.DataFrame({"x": pl.from_arrow(values)})
            cut = frame.select((pl.col("x").cast(pl.Int64) // unit * unit).cast(of.polars))
            return cut.to_arrow(compat_level=pl.CompatLevel.oldest()).column(0)
        case _:
            return values
