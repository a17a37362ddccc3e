"""Results: the rows of a query as Python, Arrow or pandas, and what a statement had to say."""

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
    """What a statement gave: rows of a query or of SHOW and DESCRIBE; a message for all else.

    `arrow` has the result's column names; names may repeat.
    """

    arrow: pa.Table = field(repr=False)
    message: str = "OK"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self.arrow.column_names)

    def collect(self) -> list[Row]:
        """All rows as Spark's Row."""
        from pyspark.sql import Row

        make = Row(*self.columns)
        return [make(*row) for row in self._tuples()]

    def _tuples(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(column.to_pylist() for column in self.arrow.columns), strict=True)

    def to_arrow(self) -> pa.Table:
        """All rows as Arrow."""
        return self.arrow

    def to_pandas(self) -> pd.DataFrame:
        """All rows as pandas; needs pandas."""
        made: pd.DataFrame = self.arrow.to_pandas()
        return made


def texts(columns: Sequence[str], rows: Sequence[Sequence[str]], message: str = "OK") -> TableResult:
    """A result of texts: what SHOW and DESCRIBE give."""
    import pyarrow as pa

    arrays = [pa.array([row[at] for row in rows], pa.string()) for at in range(len(columns))]
    return TableResult(pa.Table.from_arrays(arrays, names=list(columns)), message)
