"""Progress of a job, for the progress line and the summary at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from everfold.operators.protocol import NO_WATERMARK, Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a job after a batch.

    batch: its number.
    rows: input rows of this run so far.
    rows_per_second: input rate of the batch.
    watermark_ms: lowest watermark of the operators, None before the first.
    late_rows: rows dropped as late since the job began.
    state_rows: rows in the tables of the operators.
    rows_out: rows passed to the sinks in this run.
    """

    batch: int
    rows: int
    rows_per_second: float
    watermark_ms: int | None
    late_rows: int
    state_rows: int
    rows_out: int


@dataclass(slots=True)
class Reports:
    """The totals of the newest reports of all buckets of all operators."""

    late_rows: int = 0
    state_rows: int = 0
    watermark_ms: int | None = None
    ignored_rows: int = 0
    _totals: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def take(self, stats: Iterable[Stats]) -> None:
        """Add the reports of a batch.

        Every bucket of an operator reports in every batch, so a batch replaces the previous one.
        """
        batch: dict[str, tuple[int, int, int, int]] = {}
        for each in stats:
            late, rows, watermark, ignored = batch.get(each.operator, (0, 0, NO_WATERMARK, 0))
            batch[each.operator] = (
                late + each.late_rows,
                rows + each.state_rows,
                max(watermark, each.watermark_ms),
                ignored + each.ignored_rows,
            )
        self._totals.update(batch)
        self.late_rows = sum(late for late, _, _, _ in self._totals.values())
        self.state_rows = sum(rows for _, rows, _, _ in self._totals.values())
        self.ignored_rows = sum(ignored for _, _, _, ignored in self._totals.values())
        marks = [watermark for _, _, watermark, _ in self._totals.values()]
        self.watermark_ms = min(marks) if marks and min(marks) > NO_WATERMARK else None
