"""Count rows that options allow to skip, and keep an example.

Spark counts them as observed metrics while it processes the others; the counts are added up by
reason. With the count, a metric has the first such row of the query as an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


def count_bad_records(frame: DataFrame, condition: str, name: str, table: str, facts: Mapping[str, str]) -> DataFrame:
    """Add a metric to the frame that counts records that cannot be read, or not in full.

    name: an identifier, unique among the frames read. facts: Spark SQL of parts of the location, by
    name, and of the `record`.
    """
    return _observe_count(frame, condition, f"{_BAD_RECORDS}{name}", table, facts)


def count_null_rowtime(
    frame: DataFrame, condition: str, table: str = "", facts: Mapping[str, str] | None = None
) -> DataFrame:
    """Add a metric to the frame that counts rows without a time.

    facts: as for `count_bad_records`, or None to keep no example.
    """
    return _observe_count(frame, condition, f"{_NULL_ROWTIME}{uuid4().hex}", table, facts)


def _observe_count(
    frame: DataFrame, condition: str, name: str, table: str, facts: Mapping[str, str] | None
) -> DataFrame:
    from pyspark.sql.functions import expr

    count = expr(f"count_if({condition})").alias("rows")
    if facts is None:
        return frame.observe(name, count)
    found = {"table": spark_string(table)}
    found |= {part: f"left(CAST({sql} AS STRING), {EXAMPLE_CHARACTERS})" for part, sql in facts.items()}
    members = ", ".join(f"{spark_string(part)}, {sql}" for part, sql in found.items())
    example = f"first(IF({condition}, to_json(named_struct({members})), NULL), true)"
    return frame.observe(name, count, expr(example).alias("example"))


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
            table, record = facts.pop("table"), facts.pop("record", "")
            path = facts.pop("path", "")
            location = path or ", ".join(f"{part} {value}" for part, value in facts.items())
            yield SkippedRow.at(location, reason, table, record)


def _find_reason(metric: str) -> str | None:
    return next((reason for prefix, reason in _REASONS.items() if metric.startswith(prefix)), None)
