"""Spark's reports of batches, as records of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from everfold.connectors.skipped_rows import count_decoded_rows
from everfold.jobs.progress import WHOLE_BATCH, SourceProgress
from everfold.jobs.sources import OpenedSource
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_UNKNOWN = OpenedSource("", "(several tables)", is_bounded=False, is_stream=True)


def read_reports(query: StreamingQuery, seen: int) -> Sequence[Any]:
    """Return the reports of Spark after a batch, possibly with earlier ones.

    The last report is usually the only new one. Converting all recent ones at each poll would keep
    the driver busy.
    """
    last = query.lastProgress
    if last is None or int(last.batchId) <= seen:
        return ()
    is_next = int(last.batchId) == seen + 1 and last.durationMs.get("addBatch")
    return (last,) if is_next else query.recentProgress


def read_times(report: Any) -> tuple[int, int]:
    """Return when a batch began and when it was committed, in epoch milliseconds."""
    started_ms = round(datetime.fromisoformat(str(report.timestamp)).timestamp() * 1000)
    return started_ms, started_ms + int(report.durationMs[WHOLE_BATCH])


@dataclass(frozen=True, slots=True)
class SourceReports:
    """Spark's reports of the sources of batches.

    opened: the sources of the job. control: the folder of its control files. earlier_rows: read
    before this run, by table, None if that is not known.
    """

    opened: Sequence[OpenedSource]
    control: Location
    earlier_rows: Mapping[str, int] | None = None

    def count_rows(self, report: Any) -> dict[str, int]:
        """Return the rows that Spark has read in a batch by table, without control files."""
        rows: dict[str, int] = {}
        for source, found in self._match(report):
            count = int(found.numInputRows)
            if source.source is not None and source.source.reads_files:
                # Spark has counted the files whose rows workers decode.
                decoded = count_decoded_rows(report.observedMetrics or {}, source.name)
                count = count if decoded is None else decoded
            rows[source.table] = rows.get(source.table, 0) + count
        return rows

    def describe(self, report: Any, rows: Mapping[str, int]) -> tuple[SourceProgress, ...]:
        """Return the progress of the tables that the job reads.

        rows: read in this run, by table.
        """
        lags: dict[str, dict[str, int]] = {}
        for source, found in self._match(report):
            latest, end = _parse_position(found.latestOffset), _parse_position(found.endOffset)
            if source.source is None or latest is None or end is None:
                continue
            lag = source.source.find_lag(latest, end)
            if lag is not None:
                # A table that is read twice is behind by what its slower reader has not read.
                known = lags.setdefault(source.table, {})
                known.update({split: max(behind, known.get(split, 0)) for split, behind in lag.items()})
        earlier = self.earlier_rows
        return tuple(
            SourceProgress(
                table=name,
                rows=count,
                total_rows=None if earlier is None else earlier.get(name, 0) + count,
                lag=lags.get(name),
            )
            for name, count in rows.items()
        )

    def _match(self, report: Any) -> Iterator[tuple[OpenedSource, Any]]:
        """Yield the sources of tables with their reports.

        Spark lists them in the order in which they were opened, and the control files of the
        operators among them. A DataFrame of the caller may have several sources, or none: then it
        is not known which report belongs to which table.
        """
        found = [each for each in report.sources if not str(each.description).endswith(f"{self.control}]")]
        streams = [each for each in self.opened if each.is_stream]
        yield from zip(streams if len(streams) == len(found) else [_UNKNOWN] * len(found), found, strict=True)


def _parse_position(line: str | None) -> Any:
    """Return a position in a source, None if Spark does not report it."""
    try:
        return None if line is None else json.loads(line)
    except ValueError:
        return None
