"""Count rows that options allow to skip, and keep an example.

Spark counts them as observed metrics while it processes the others; the counts are added up by
reason. With the count, a metric has the first such row of the query as an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from everfold.engine_literals import spark_string
from everfold.secrets import redact_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BAD_RECORDS, _NULL_ROWTIME = "everfold_bad_", "everfold_null_rowtime_"
BAD_RECORD, NO_TIME = "not readable in full", "no time, the time attribute is NULL"
"""Reasons for skipping rows."""
_REASONS = {_BAD_RECORDS: BAD_RECORD, _NULL_ROWTIME: NO_TIME}
"""Reasons by prefix of the metric's name."""

SKIPPED, EXAMPLE = "__skipped", "__example"
"""Columns of decoded rows: the number of records that were skipped, NULL in a row of the table; and
the first of them.
"""
EXAMPLE_CHARACTERS = 200
"""To how many characters a string of an example is cut."""


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """An example of skipped rows.

    location: empty if it is unknown. record: its text, empty if it is unknown.
    """

    reason: str
    table: str
    location: str = ""
    record: str = ""

    @classmethod
    def at(cls, location: str, reason: str, table: str, record: str = "") -> SkippedRow:
        """Create an example whose location may be shown: it is cut, and has no secrets."""
        return cls(reason, table, redact_log(location)[:EXAMPLE_CHARACTERS], record)


@dataclass(slots=True)
class SkippedRows:
    """Numbers of skipped rows by reason, and the first of each reason as an example."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, SkippedRow] = field(default_factory=dict)

    def add(self, row: SkippedRow, count: int = 1) -> None:
        """Count rows, of which one is given."""
        self.counts[row.reason] = self.counts.get(row.reason, 0) + count
        self.examples.setdefault(row.reason, row)


def observe_decoded_rows(frame: DataFrame, name: str) -> DataFrame:
    """Add a metric to a frame of decoded rows: how many there are, and how many were skipped.

    The rows with these counts (`SKIPPED`) are left out of the result. name: an identifier, unique
    among the frames read.
    """
    from pyspark.sql.functions import expr

    skipped = expr(f"coalesce(sum({SKIPPED}), 0)").alias("rows")
    example = expr(f"first({EXAMPLE}, true)").alias("example")
    decoded = expr(f"count_if({SKIPPED} IS NULL)").alias("decoded")
    return frame.observe(f"{_BAD_RECORDS}{name}", skipped, example, decoded).where(f"{SKIPPED} IS NULL")


def count_decoded_rows(metrics: Mapping[str, Sequence[Any]], name: str) -> int | None:
    """Return how many rows a frame with a metric of this name had, None if it had no metric."""
    row = metrics.get(f"{_BAD_RECORDS}{name}")
    return None if row is None else int(row[2])


def write_example(table: str, location: str, record: str) -> str:
    """Return an example of skipped rows for the column `EXAMPLE`."""
    return json.dumps({"table": table, "location": location, "record": record[:EXAMPLE_CHARACTERS]})


def count_null_rowtime(frame: DataFrame, condition: str, table: str = "", location: str | None = None) -> DataFrame:
    """Add a metric to the frame that counts rows without a time.

    location: Spark SQL of where a row is from, None to keep no example.
    """
    from pyspark.sql.functions import expr

    name = f"{_NULL_ROWTIME}{uuid4().hex}"
    count = expr(f"count_if({condition})").alias("rows")
    if location is None:
        return frame.observe(name, count)
    where = f"left({location}, {EXAMPLE_CHARACTERS})"
    facts = f"to_json(named_struct('table', {spark_string(table)}, 'location', {where}))"
    return frame.observe(name, count, expr(f"first(IF({condition}, {facts}, NULL), true)").alias("example"))


def add_skipped_rows(metrics: Mapping[str, Sequence[Any]], counts: dict[str, int]) -> None:
    """Add a query's observed metrics, by name, to the numbers of skipped rows, by reason."""
    for name, row in metrics.items():
        reason = _find_reason(name)
        if reason is not None and row[0]:
            counts[reason] = counts.get(reason, 0) + int(row[0])


def find_skipped_rows(metrics: Mapping[str, Sequence[Any]]) -> Iterator[SkippedRow]:
    """Yield the examples in a query's observed metrics, by name."""
    for name, row in metrics.items():
        reason = _find_reason(name)
        if reason is not None and len(row) > 1 and row[1]:
            facts = json.loads(row[1])
            yield SkippedRow.at(facts.get("location", ""), reason, facts["table"], facts.get("record", ""))


def _find_reason(metric: str) -> str | None:
    return next((reason for prefix, reason in _REASONS.items() if metric.startswith(prefix)), None)
