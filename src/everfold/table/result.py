"""Results of statements: rows as Python, Arrow or pandas, or a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Row


@dataclass(frozen=True, slots=True)
class TableResult:
    """The result of a statement: rows of a query, SHOW or DESCRIBE; a message for other statements.

    arrow: the rows under the result's column names; names may repeat.
    """

    arrow: pa.Table = field(repr=False)
    message: str = "OK"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column names."""
        return tuple(self.arrow.column_names)

    def collect(self) -> list[Row]:
        """Return all rows as Spark `Row` objects."""
        from pyspark.sql import Row

        make = Row(*self.columns)
        return [make(*row) for row in self._tuples()]

    def _tuples(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(column.to_pylist() for column in self.arrow.columns), strict=True)

    def to_arrow(self) -> pa.Table:
        """Return all rows as Arrow."""
        return self.arrow

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as pandas; requires pandas."""
        frame: pd.DataFrame = self.arrow.to_pandas()
        return frame


def string_result(columns: Sequence[str], rows: Sequence[Sequence[str]], message: str = "OK") -> TableResult:
    """Return a result of string columns, as SHOW and DESCRIBE have it."""
    import pyarrow as pa

    arrays = [pa.array([row[at] for row in rows], pa.string()) for at in range(len(columns))]
    return TableResult(pa.Table.from_arrays(arrays, names=list(columns)), message)
