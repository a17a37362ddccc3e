"""The `foreachBatch` function of a job: route rows to their sinks and reports to the progress.

A batch's frame is run exactly once, because a second action would run the stateful operators again.
A batch that was applied before a crash is run in full too, because only then can Spark commit it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everfold.connectors.contract import KIND, BatchId, ClusterSink, LocalSink, ShardedSink, WorkerTask
from everfold.connectors.sink_changelog import sort_changes
from everfold.connectors.skipped_rows import SkippedRow
from everfold.errors import ConnectorError, EverfoldError
from everfold.jobs.batch_log import BatchLog
from everfold.jobs.packed_batch import TARGET, PackedBatch, run_packed_batch, run_typed_batch
from everfold.jobs.progress import OperatorProgress, Reports
from everfold.operators.protocol import LateRow, Stats
from everfold.plan.changelog import ORDER, REEMIT, REEMIT_DELETE, RowKind
from everfold.spark.delivery import empty_rows, find_failed_sink
from everfold.spark.output_rows import OutputRows
from everfold.spark.stream import Stream, union_all
from everfold.spark.task_input import BATCH_TIME, FORWARDED, READ, STATS, TaskReads
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_FEW_ROWS = 10_000
"""A batch is small up to here: to start Python workers for it takes longer than to write it."""
_LONG_MS = 24 * 3600 * 1000
_KIND = (
    f"CAST(CASE {KIND} WHEN {REEMIT} THEN {RowKind.UPDATE_AFTER.value}"
    f" WHEN {REEMIT_DELETE} THEN {RowKind.DELETE.value} ELSE {KIND} END AS TINYINT) AS {KIND}"
)
"""The row kind for sinks: re-emitted rows become +U, and re-emitted deletes become -D."""


class _Interrupted(Exception):
    """A batch that ends because its query is stopped.

    Spark takes only an exception with this text for that, and not for a failure. It searches the
    text with a recursive expression, which overflows the stack on a long one.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A sink of a job. name: within the job. width: number of columns."""

    name: str
    sink: LocalSink | ClusterSink
    width: int


def combine_streams(streams: Sequence[Stream]) -> DataFrame:
    """Return the rows of all branches in one frame.

    `__target` is the branch of a row. Each branch has its own columns, NULL in rows of the others.
    """
    frames = []
    for at, stream in enumerate(streams):
        kind = _KIND if stream.has_row_kinds else f"CAST(0 AS TINYINT) AS {KIND}"
        columns = [f"{at} AS {TARGET}", kind, FORWARDED, ORDER]
        for other, of in enumerate(streams):
            for position, column in enumerate(of.schema):
                own = physical_name(position) if other == at else f"CAST(NULL AS {column.type.spark})"
                columns.append(f"{own} AS t{other}_{physical_name(position)}")
        kept = f"{FORWARDED} IS NOT NULL OR __keep" if stream.is_guarded else "TRUE"
        frames.append(stream.frame.where(kept).selectExpr(*columns))
    return union_all(frames)


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The counts after a batch; the next one may change those of the router at any time.

    reads: rows that tasks have decoded in this batch by table, less what Spark counts. late_rows,
    skipped_rows: examples of those of this batch. The others are those of the run.
    """

    reads: Mapping[str, int]
    sink_rows: Mapping[str, int]
    operators: tuple[OperatorProgress, ...]
    watermark_ms: int | None
    late_rows: Sequence[tuple[str, LateRow]] = ()
    skipped_rows: Sequence[SkippedRow] = ()


@dataclass(slots=True)
class Router:
    """The `foreachBatch` function of a job.

    job, log: identify the batch for the sinks. check_executors: raises EverfoldError for executors
    that cannot run the job. check_input: raises ConnectorError for a batch with input that Spark
    would not read right, by its number. record_applied: called with the sinks, and the epoch and
    the number of a batch that they have received. packed: how to unpack the rows of each sink if
    the batches have payloads; None if they have typed rows. failure: the exception of a sink; Spark
    would keep only its message. counts: of batches that Spark has not reported yet, by number.
    stopping: set so that no further batch begins. is_held: whether Spark has planned a batch since,
    and waits. is_running: whether a batch runs. is_interrupted: whether the query is stopped in the
    middle of a batch.
    """

    job: str
    log: BatchLog
    targets: Sequence[Target]
    has_operators: bool
    check_executors: Callable[[], None] = lambda: None
    check_input: Callable[[int], None] = lambda batch: None
    record_applied: Callable[[Sequence[Target], int, int], None] = lambda targets, epoch, batch: None
    packed: Sequence[OutputRows] | None = None
    failure: BaseException | None = None
    reports: Reports = field(default_factory=Reports)
    rows_in: dict[str, int] = field(default_factory=dict)
    sink_rows: dict[str, int] = field(default_factory=dict)
    counts: dict[int, BatchCounts] = field(default_factory=dict)
    batches: int = 0
    seen_batch: int = -1
    digest: str = ""
    dropped: dict[str, int] = field(default_factory=dict)
    last_batch_at: float = field(default_factory=time.monotonic)
    idle: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    is_held: bool = False
    is_running: bool = False
    is_interrupted: bool = False
    _reads: dict[str, int] = field(default_factory=dict)
    _skipped: list[SkippedRow] = field(default_factory=list)
    _last_rows: int = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.stopping.is_set():
            self._wait_for_stop(frame)
        self.is_running = True
        self.idle.clear()
        rows_before = self.rows_out
        try:
            self.check_executors()
            self.check_input(batch)
            self.digest = self.log.begin(batch)
            if self.has_operators:
                self._set_batch_time(frame, batch)
            if self.packed is not None:
                self._deliver(frame, self.packed, batch)
            elif all(isinstance(target.sink, ShardedSink) for target in self.targets) and not self._expects_few():
                self._deliver(frame, None, batch)
            elif all(isinstance(target.sink, LocalSink) for target in self.targets):
                self._collect(frame, batch)
            elif len(self.targets) == 1 and not self.has_operators:
                self._write_cluster(frame, self.targets[0], 0, batch)
            else:
                self._cache(frame, batch)
            self.record_applied(self.targets, self.log.epoch, batch)
            self.counts[batch] = self._take_counts()
            # Spark has not committed the batch yet: its state may be on the disk of an executor
            # that has joined meanwhile.
            self.check_executors()
        except BaseException as error:
            if self.is_interrupted:
                self.failure = error
                raise _Interrupted from None
            self.failure = (isinstance(error, Exception) and self._find_wrong_executor()) or error
            raise
        finally:
            self._last_rows = self.rows_out - rows_before
            self.last_batch_at = time.monotonic()
            self.batches += 1
            self.is_running = False
            self.idle.set()

    def _wait_for_stop(self, frame: DataFrame) -> None:
        """Wait until Spark stops the query, in its thread, which ends by the interruption."""
        from py4j.protocol import Py4JJavaError

        self.is_held = True
        jvm: Any = frame.sparkSession._jvm
        with suppress(Py4JJavaError):
            jvm.java.lang.Thread.sleep(_LONG_MS)
        raise _Interrupted

    def _find_wrong_executor(self) -> EverfoldError | None:
        """Return the error of an executor that has joined and cannot run the job.

        It is why the batch failed: without the job's folders, state seems to be damaged there, and
        written files are missing.
        """
        try:
            self.check_executors()
        except EverfoldError as wrong:
            return wrong
        except Exception:  # Spark is gone, and the failure of the batch tells why
            return None
        return None

    def _expects_few(self) -> bool:
        """Return whether the driver can write a batch of typed rows: the previous one was small.

        The first batch of a run may be a replay, of which tasks have written shards.
        """
        return self.batches > 0 and self._last_rows <= _FEW_ROWS

    def _set_batch_time(self, frame: DataFrame, batch: int) -> None:
        """Tell the operators the processing time of the batch."""
        time_ms = self.log.read_time(batch)
        frame.sparkSession.sparkContext.setLocalProperty(BATCH_TIME, f"{batch} {time_ms}")

    def _deliver(self, frame: DataFrame, packed: Sequence[OutputRows] | None, batch: int) -> None:
        """Write a batch with a single run of its frame, for whose rows the tasks of sinks are run.

        packed: None for a batch of typed rows, all of whose sinks are sharded.
        """
        import pyarrow as pa

        begun: list[ShardedSink] = []
        try:
            found = self._run_tasks(frame, batch, begun, is_packed=packed is not None)
            self._report(found.forwarded)
            for at, target in enumerate(self.targets):
                if isinstance(target.sink, ShardedSink):
                    begun.remove(target.sink)
                if isinstance(target.sink, ClusterSink | ShardedSink):
                    self._count_out(target, target.sink.finish_batch(found.reports[at], self._id(target, batch)))
                else:
                    assert packed is not None
                    self._write_local(pa.concat_tables([empty_rows(packed[at]), *found.rows[at]]), target, batch)
        finally:
            for sink in begun:
                sink.abandon_batch()

    def _run_tasks(self, frame: DataFrame, batch: int, begun: list[ShardedSink], *, is_packed: bool) -> PackedBatch:
        """Run a batch with the tasks of its sinks. begun: receives the sharded ones."""
        tasks: list[WorkerTask | None] = []
        for target in self.targets:
            if isinstance(target.sink, ClusterSink | ShardedSink):
                tasks.append(target.sink.begin_batch(self._id(target, batch)))
            else:
                tasks.append(None)
            if isinstance(target.sink, ShardedSink):
                begun.append(target.sink)
        try:
            if is_packed:
                return run_packed_batch(frame, batch, tasks)
            widths = [target.width for target in self.targets]
            return run_typed_batch(frame, list(filter(None, tasks)), begun, widths, ordered=self.has_operators)
        except Exception as error:
            known = self._parse_failure(str(error))
            if known is not None:
                raise known from None
            raise

    def _parse_failure(self, error_text: str) -> ConnectorError | None:
        at = find_failed_sink(error_text)
        sink = None if at is None else self.targets[at].sink
        return sink.parse_failure(error_text) if isinstance(sink, ClusterSink) else None

    def _collect(self, frame: DataFrame, batch: int) -> None:
        """Write a batch whose sinks all run on the driver, with a single collect."""
        import pyarrow.compute as pc

        table: pa.Table = frame.toArrow()
        is_meta = pc.is_valid(table[FORWARDED])
        self._report(table.filter(is_meta)[FORWARDED].to_pylist())
        rows = table.filter(pc.invert(is_meta))
        for at, target in enumerate(self.targets):
            mine = rows if len(self.targets) == 1 else rows.filter(pc.equal(rows[TARGET], at))
            self._write_local(_select_columns(mine, target, at), target, batch)

    def _cache(self, frame: DataFrame, batch: int) -> None:
        """Write a batch for sinks of which some run in tasks; the batch is cached meanwhile."""
        frame = frame.persist()
        try:
            forwarded = frame.where(f"{FORWARDED} IS NOT NULL").select(FORWARDED).collect()
            self._report([bytes(row[0]) for row in forwarded])
            for at, target in enumerate(self.targets):
                mine = frame.where(f"{FORWARDED} IS NULL AND {TARGET} = {at}")
                if isinstance(target.sink, LocalSink):
                    self._write_local(_select_columns(mine.toArrow(), target, at), target, batch)
                else:
                    self._write_cluster(mine, target, at, batch)
        finally:
            frame.unpersist()

    def _write_local(self, rows: pa.Table, target: Target, batch: int) -> None:
        """Write the rows `c0…` of a sink, with their kind and order."""
        assert isinstance(target.sink, LocalSink)
        if self.has_operators:
            rows = sort_changes(rows)
        self._count_out(target, rows.num_rows)
        names = [physical_name(position) for position in range(target.width)]
        target.sink.write(rows.select([*names, KIND]), self._id(target, batch))

    def _write_cluster(self, frame: DataFrame, target: Target, at: int, batch: int) -> None:
        assert isinstance(target.sink, ClusterSink)
        columns = [f"t{at}_{physical_name(position)} AS {physical_name(position)}" for position in range(target.width)]
        written = target.sink.write(frame.selectExpr(*columns, KIND), self._id(target, batch))
        self._count_out(target, written)

    def _id(self, target: Target, batch: int) -> BatchId:
        return BatchId(self.job, target.name, self.log.epoch, batch, self.digest)

    def _report(self, forwarded: Sequence[bytes]) -> None:
        self.reports.take(Stats.decode(blob[1:]) for blob in forwarded if blob[:1] == STATS)
        for read in (TaskReads.decode(blob) for blob in forwarded if blob[:1] == READ):
            add_counts(self._reads, {read.table: read.rows - read.handles})
            add_counts(self.dropped, read.skipped)
            for reason in read.skipped:
                location, record = read.examples[reason]
                self._skipped.append(SkippedRow.at(location, reason, read.table, record))

    @property
    def rows(self) -> int:
        """Input rows of this run."""
        return sum(self.rows_in.values())

    @property
    def rows_out(self) -> int:
        """Rows passed to the sinks in this run."""
        return sum(self.sink_rows.values())

    def take_batch(self, batch: int, counted: Mapping[str, int]) -> tuple[BatchCounts, int]:
        """Return the counts after a batch, and the number of its input rows.

        counted: the rows that Spark has counted in the batch, by table.
        """
        counts = self.counts[batch]
        before = self.rows
        # Spark may have dropped reports of earlier batches.
        for each in [self.counts.pop(number).reads for number in sorted(self.counts) if number <= batch]:
            add_counts(self.rows_in, each)
        add_counts(self.rows_in, counted)
        return counts, self.rows - before

    def _take_counts(self) -> BatchCounts:
        reads, self._reads = self._reads, {}
        skipped, self._skipped = self._skipped, []
        return BatchCounts(
            reads=reads,
            sink_rows=dict(self.sink_rows),
            operators=self.reports.list_operators(),
            watermark_ms=self.reports.watermark_ms,
            late_rows=self.reports.take_late_rows(),
            skipped_rows=skipped,
        )

    def _count_out(self, target: Target, rows: int | None) -> None:
        add_counts(self.sink_rows, {target.sink.table.name: rows or 0})


def add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add counts by name."""
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def _select_columns(rows: pa.Table, target: Target, at: int) -> pa.Table:
    """Return the columns of a sink under their own names, with the kind and order of the rows."""
    names = [physical_name(position) for position in range(target.width)]
    return rows.select([*(f"t{at}_{name}" for name in names), KIND, ORDER]).rename_columns([*names, KIND, ORDER])
