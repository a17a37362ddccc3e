"""Results of statements: rows as Python, Arrow, pandas or Polars, or a message."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import IO, TYPE_CHECKING, Any

from everfold.far_times import to_values
from everfold.plan.changelog import KIND, RowKind
from everfold.rendering import table_format
from everfold.rendering.current_rows import CurrentRows
from everfold.rendering.html import format_table
from everfold.types import STRING, Field, Schema

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import Row


@dataclass(frozen=True, slots=True)
class TableResult:
    """The result of a statement: rows of a query, SHOW or DESCRIBE; a message for other statements.

    arrow: the rows under the result's column names; names may repeat. Of an updating query they are
    the rows at its end, without those that it has retracted.
    schema: the columns in Flink's types. zone: the time zone in which instants are shown.
    is_text: whether the result is a text of several lines, such as a plan.
    """

    arrow: pa.Table = field(repr=False)
    message: str = "OK"
    schema: Schema = field(default_factory=lambda: Schema(()), repr=False)
    zone: str = field(default="UTC", repr=False)
    is_text: bool = field(default=False, repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column names."""
        return tuple(self.arrow.column_names)

    def collect(self) -> list[Row]:
        """Return all rows as Spark `Row` objects.

        Raises ValueError for a time beyond the years 1 to 9999, which Python cannot hold.
        """
        from pyspark.sql import Row

        make = Row(*self.columns)
        try:
            columns = [column.to_pylist() for column in self.arrow.columns]
        except OverflowError as error:
            what = "a time is beyond the years 1 to 9999 of Python's datetime: use to_arrow(), or CAST it to STRING"
            raise ValueError(what) from error
        return [make(*row) for row in zip(*columns, strict=True)]

    def to_arrow(self) -> pa.Table:
        """Return all rows as Arrow."""
        return self.arrow

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as pandas; requires pandas."""
        frame: pd.DataFrame = self.arrow.to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as Polars. Raises polars.exceptions.DuplicateError if names repeat."""
        import polars as pl

        frame = pl.from_arrow(self.arrow)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def print(self, out: IO[str] | None = None) -> None:
        """Print all rows as Flink's SQL client does, or the message.

        out: default: standard output.
        """
        out = sys.stdout if out is None else out
        if not self.columns:
            out.write(f"{self.message}\n")
            return
        if self.is_text:
            out.writelines(f"{text}\n" for (text,) in self._tuples(self.arrow))
            return
        rows = list(self._cells(self.arrow))
        out.writelines(f"{line}\n" for line in table_format.table(self.columns, rows))

    def _repr_html_(self) -> str:
        """The first rows as an HTML table, for notebooks."""
        if not self.columns:
            return format_table((), (), total=0, caption=self.message)
        if self.is_text:
            return "".join(f"<pre>{escape(text)}</pre>" for (text,) in self._tuples(self.arrow))
        shown = self.arrow.slice(0, MAX_HTML_ROWS)
        return format_table(self.schema, list(self._cells(shown)), total=self.arrow.num_rows)

    def _cells(self, rows: pa.Table) -> Iterator[list[str | None]]:
        return (table_format.format_cells(row, self.schema, self.zone) for row in self._tuples(rows))

    @staticmethod
    def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
        return zip(*map(to_values, rows.columns), strict=True)


MAX_HTML_ROWS = 20
"""How many rows a notebook shows of a result."""


def string_result(columns: Sequence[str], rows: Sequence[Sequence[str]], message: str = "OK") -> TableResult:
    """Return a result of string columns, as SHOW and DESCRIBE have it."""
    import pyarrow as pa

    arrays = [pa.array([row[at] for row in rows], pa.string()) for at in range(len(columns))]
    schema = Schema(tuple(Field(name=name, type=STRING) for name in columns))
    is_text = list(columns) == ["result"]
    return TableResult(pa.Table.from_arrays(arrays, names=list(columns)), message, schema, is_text=is_text)


def concat_rows(received: Sequence[pa.Table], schema: Schema) -> pa.Table:
    """Return the rows of a query at its end, under the names of its schema.

    received: the rows of its batches, changes if they have the column `__kind`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = schema.arrow
    rows = pa.concat_tables([each.select(wanted.names) for each in received] or [wanted.empty_table()])
    if any(KIND in each.column_names for each in received):
        kinds = pa.concat_tables([each.select([KIND]) for each in received])[KIND]
        if pc.any(pc.not_equal(kinds, RowKind.INSERT.value)).as_py():
            rows = rows.take(_find_current(rows, kinds, schema))
    return rows.rename_columns(list(schema.names))


def _find_current(rows: pa.Table, kinds: pa.ChunkedArray, schema: Schema) -> list[int]:
    """Return the positions of the rows that no later change has retracted."""
    current: CurrentRows[int] = CurrentRows()
    changes = zip(kinds.to_pylist(), *map(to_values, rows.columns), strict=True)
    for at, (kind, *values) in enumerate(changes):
        current.apply(RowKind(kind).short, tuple(table_format.format_cells(values, schema)), at)
    return current.rows()
