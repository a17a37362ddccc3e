"""Count rows that options allow to skip.

Spark counts them as observed metrics while it processes the others; the counts are added up by
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BAD_RECORDS, _NULL_ROWTIME = "everfold_bad_", "everfold_null_rowtime_"
BAD_RECORD, NO_TIME = "not readable in full", "no time, the time attribute is NULL"
"""Reasons for skipping rows."""
_REASONS = {_BAD_RECORDS: BAD_RECORD, _NULL_ROWTIME: NO_TIME}
"""Reasons by prefix of the metric's name."""


def count_bad_records(frame: DataFrame, condition: str, table: str) -> DataFrame:
    """Add a metric to the frame that counts records that cannot be read, or not in full.

    table: an identifier, unique among the frames read.
    """
    return _observe_count(frame, condition, f"{_BAD_RECORDS}{table}")


def count_null_rowtime(frame: DataFrame, condition: str, number: int) -> DataFrame:
    """Add a metric to the frame that counts rows without a time.

    number: distinguishes the frame from others of the query.
    """
    return _observe_count(frame, condition, f"{_NULL_ROWTIME}{number}")


def _observe_count(frame: DataFrame, condition: str, name: str) -> DataFrame:
    from pyspark.sql.functions import expr

    return frame.observe(name, expr(f"count_if({condition})").alias("rows"))


def add_skipped_rows(metrics: Mapping[str, Sequence[int | None]], counts: dict[str, int]) -> None:
    """Add a query's observed metrics, by name, to the numbers of skipped rows, by reason."""
    for name, row in metrics.items():
        reason = next((each for prefix, each in _REASONS.items() if name.startswith(prefix)), None)
        if reason is not None and row[0]:
            counts[reason] = counts.get(reason, 0) + int(row[0])
