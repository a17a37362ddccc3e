"""What is known about a run of a job and about each of its batches.

The records are plain data: the progress line, the history in the job directory, `jobs.status` and
the metrics are made from them, and all of them can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from everfold.operators.protocol import NO_WATERMARK, LateRow, Stats

if TYPE_CHECKING:
    from everfold.compat.shape import OperatorShape

WHOLE_BATCH = "triggerExecution"
"""Spark's name of the phase that is the whole batch."""
_Record = TypeVar("_Record", bound="Record")


class Record:
    """A record that is written as a JSON object.

    Reading ignores members that this release does not know, so an older release can read the
    records of a newer one.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON members."""
        found: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return found

    @classmethod
    def from_json(cls: type[_Record], members: Mapping[str, Any]) -> _Record:
        """Return the record of JSON members. Raises TypeError, KeyError or ValueError."""
        known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in members.items() if name in known})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo(Record):
    """A run of a job: what does not change while it lasts.

    name: of the job, for people. job: its id. pid, host, started_ms: the process that runs it, and
    when it began to. everfold: the release. streaming: False for a job in batch mode, which has no
    versions. version, epoch: of the query, None until the job directory was opened. operators:
    their labels by name. column_since_ms: when the state behind each column of the result began, by
    column. jvm_pid: the process of Spark's driver, None if it is unknown. is_under_way: whether the
    query of the job runs; False while it starts.
    """

    name: str
    pid: int
    host: str
    started_ms: int
    everfold: str
    job: str = ""
    streaming: bool = True
    version: int | None = None
    epoch: int | None = None
    operators: Mapping[str, str] = field(default_factory=dict)
    column_since_ms: Mapping[str, int] = field(default_factory=dict)
    jvm_pid: int | None = None
    is_under_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress(Record):
    """The progress of a table that the job reads.

    rows: read in this run. total_rows: read since the job began at the beginning of its input, None
    if that is not known. lag: how many records each split had, when the batch was planned, after
    the last one that the batch reads; None if the source does not report it.
    """

    table: str
    rows: int
    total_rows: int | None = None
    lag: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress(Record):
    """The progress of a table that the job writes. rows: passed to it in this run."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProgress(Record):
    """The progress of a stateful operator.

    watermark_ms: None before the first. splits: watermarks by split of the tables that it reads, of
    splits that had rows in this run. rows_out, retractions: rows that it emitted in this run, and
    how many of them retract an earlier one. late_rows, ignored_rows: dropped as late, and
    retractions of rows that do not exist, since the job began. state_rows: rows in its tables.
    state_bytes: an estimate of their size, from the pages that were written in this run; None
    before the first page. aggregate_bytes: the part of it that belongs to each aggregate.
    """

    name: str
    watermark_ms: int | None = None
    splits: Mapping[str, int] = field(default_factory=dict)
    rows_out: int = 0
    retractions: int = 0
    late_rows: int = 0
    ignored_rows: int = 0
    state_rows: int = 0
    state_bytes: int | None = None
    aggregate_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Record):
    """The progress of a job after a batch.

    batch: its number. epoch: of its checkpoint; None in records of an earlier release.
    rows: input rows of this run so far.
    rows_per_second: input rate of the batch.
    watermark_ms: lowest watermark of the operators, None before the first.
    late_rows: rows dropped as late since the job began.
    state_rows: rows in the tables of the operators.
    rows_out: rows passed to the sinks in this run.
    started_ms, ended_ms: when the batch began, and when it was committed.
    phases_ms: duration of each phase of the batch, by Spark's names; `triggerExecution` is the
        whole batch.
    skipped: rows that options allow to skip, of this run, by reason.
    heap_bytes, heap_limit_bytes: memory in use in the JVM of the driver, and its limit.
    executor_bytes: the greatest memory that each executor of a cluster has reported, by kind.
    """

    batch: int
    rows: int
    rows_per_second: float
    watermark_ms: int | None
    late_rows: int
    state_rows: int
    rows_out: int
    epoch: int | None = None
    started_ms: int = 0
    ended_ms: int = 0
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[SourceProgress, ...] = ()
    sinks: tuple[SinkProgress, ...] = ()
    operators: tuple[OperatorProgress, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    heap_bytes: int | None = None
    heap_limit_bytes: int | None = None
    executor_bytes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Progress:
        """Return the record of JSON members. Raises TypeError, KeyError or ValueError."""
        parts: tuple[tuple[str, type[Record]], ...] = (
            ("sources", SourceProgress),
            ("sinks", SinkProgress),
            ("operators", OperatorProgress),
        )
        found = {name: tuple(of.from_json(each) for each in members.get(name, ())) for name, of in parts}
        return super(Progress, cls).from_json({**members, **found})


@dataclass(slots=True)
class _Totals:
    """What the buckets of an operator have reported.

    page_rows, page_bytes, column_bytes: of the pages that were written in this run.
    """

    watermark_ms: int = NO_WATERMARK
    late_rows: int = 0
    state_rows: int = 0
    ignored_rows: int = 0
    rows_out: int = 0
    retractions: int = 0
    page_rows: int = 0
    page_bytes: int = 0
    column_bytes: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Reports:
    """The totals of the reports of all buckets of all operators.

    shapes: of the operators, by name.
    """

    shapes: Mapping[str, OperatorShape] = field(default_factory=dict)
    _totals: dict[str, _Totals] = field(default_factory=dict)
    _late: list[tuple[str, LateRow]] = field(default_factory=list)

    def take(self, stats: Iterable[Stats]) -> None:
        """Add the reports of a batch.

        Every bucket of an operator reports in every batch. Its totals replace the previous ones;
        what happened in the batch is added.
        """
        seen: set[str] = set()
        for each in stats:
            of = self._totals.setdefault(each.operator, _Totals())
            if each.operator not in seen:
                seen.add(each.operator)
                of.watermark_ms, of.late_rows, of.state_rows, of.ignored_rows = NO_WATERMARK, 0, 0, 0
            of.watermark_ms = max(of.watermark_ms, each.watermark_ms)
            of.late_rows += each.late_rows
            of.state_rows += each.state_rows
            of.ignored_rows += each.ignored_rows
            of.rows_out += each.rows_out
            of.retractions += each.retractions
            of.page_rows += each.page_rows
            of.page_bytes += each.page_bytes
            for column, size in each.column_bytes.items():
                of.column_bytes[column] = of.column_bytes.get(column, 0) + size
            for split, at in each.splits.items():
                of.splits[split] = max(of.splits.get(split, NO_WATERMARK), at)
            self._late += ((each.operator, row) for row in each.late)

    def take_late_rows(self) -> list[tuple[str, LateRow]]:
        """Return the examples of late rows since the last call, with their operators."""
        found, self._late = self._late, []
        return found

    @property
    def late_rows(self) -> int:
        """Rows that were dropped as late since the job began."""
        return sum(each.late_rows for each in self._totals.values())

    @property
    def state_rows(self) -> int:
        """Rows in the tables of all operators."""
        return sum(each.state_rows for each in self._totals.values())

    def has_state(self, operator: str) -> bool:
        """Whether an operator has rows in its tables."""
        return operator in self._totals and self._totals[operator].state_rows > 0

    @property
    def ignored_rows(self) -> int:
        """Retractions that matched no row, since the job began."""
        return sum(each.ignored_rows for each in self._totals.values())

    @property
    def watermark_ms(self) -> int | None:
        """The lowest watermark of the operators, None before the first."""
        lowest = min((each.watermark_ms for each in self._totals.values()), default=NO_WATERMARK)
        return None if lowest == NO_WATERMARK else lowest

    def list_operators(self) -> tuple[OperatorProgress, ...]:
        """Return the progress of the operators that have reported."""
        return tuple(self._describe(name, of) for name, of in self._totals.items())

    def _describe(self, name: str, of: _Totals) -> OperatorProgress:
        shape = self.shapes.get(name)
        state_bytes, of_aggregates = None, {}
        if of.page_rows:
            share = of.state_rows / of.page_rows
            state_bytes = round(of.page_bytes * share)
            for call in () if shape is None else shape.calls:
                columns = call.find_slots(of.column_bytes).values()
                of_aggregates[call.label] = round(sum(of.column_bytes[each] for each in columns) * share)
        return OperatorProgress(
            name=name,
            watermark_ms=None if of.watermark_ms == NO_WATERMARK else of.watermark_ms,
            # The clock also has the operators below it as splits.
            splits={split: at for split, at in of.splits.items() if split not in self._totals},
            rows_out=of.rows_out,
            retractions=of.retractions,
            late_rows=of.late_rows,
            ignored_rows=of.ignored_rows,
            state_rows=of.state_rows,
            state_bytes=state_bytes,
            aggregate_bytes=of_aggregates,
        )
