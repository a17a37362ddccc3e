"""Rows that options leave out: Spark counts them beside those that it passes on, as observed metrics, and we add the counts up by why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BAD_RECORDS, _NULL_ROWTIME = "everfold_bad_", "everfold_null_rowtime_"
_WHY = {_BAD_RECORDS: "not readable in full", _NULL_ROWTIME: "no time, the time attribute is NULL"}
"""Why rows were left out, by how the name of their metric begins."""


def count_bad(frame: DataFrame, condition: str, table: str) -> DataFrame:
    """The frame, with a metric of the records that cannot be read, or not in full; `table` is an identifier, one of the frames read."""
    return _counted(frame, condition, f"{_BAD_RECORDS}{table}")


def count_timeless(frame: DataFrame, condition: str, number: int) -> DataFrame:
    """The frame, with a metric of the rows without a time; `number` tells the frame from the query's others."""
    return _counted(frame, condition, f"{_NULL_ROWTIME}{number}")


def _counted(frame: DataFrame, condition: str, name: str) -> DataFrame:
    from pyspark.sql.functions import expr

    return frame.observe(name, expr(f"count_if({condition})").alias("rows"))


def add_left_out(metrics: Mapping[str, Sequence[int | None]], counts: dict[str, int]) -> None:
    """Adds a query's observed metrics, by name, to the numbers of rows left out, by why."""
    for name, row in metrics.items():
        why = next((each for prefix, each in _WHY.items() if name.startswith(prefix)), None)
        if why is not None and row[0]:
            counts[why] = counts.get(why, 0) + int(row[0])
