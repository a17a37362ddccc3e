"""A streaming job: start a Spark query from plans and a job directory, and watch it until it ends.

It ends at the end of its input, when the user stops it, or with a failure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everfold.activity import report_activity
from everfold.checkpoint.logs import (
    has_unfinished_batch,
    last_finished_batch,
    last_planned_batch,
    read_positions,
    remove_batches,
)
from everfold.connectors.skipped_rows import add_skipped_rows, find_skipped_rows
from everfold.errors import EverfoldError
from everfold.jobs.applied_batches import AppliedBatches
from everfold.jobs.batch_log import BatchLog, last_batch
from everfold.jobs.batch_report import SourceReports, read_reports, read_times
from everfold.jobs.control import Control
from everfold.jobs.failure import explain_failure, spark_may_be_gone
from everfold.jobs.foreach_batch import BatchCounts, Router, Target, combine_streams
from everfold.jobs.job_dir import JobDir
from everfold.jobs.lookup_tables import LookupTables
from everfold.jobs.manifest import Manifest
from everfold.jobs.packed_batch import combine_payloads, packed_rows
from everfold.jobs.progress import Progress, Reports, SinkProgress
from everfold.jobs.read_cost import find_read_rows
from everfold.jobs.rewind_progress import RewindProgress
from everfold.jobs.run_record import RunRecorder, operator_shapes
from everfold.jobs.sources import Sources
from everfold.jobs.spec import JobSpec
from everfold.plan.nodes import (
    GroupAggregate,
    InWindow,
    OverAggregate,
    Rank,
    Root,
    StatefulNode,
    TimeKind,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
    runs_on_arrival,
)
from everfold.plan.windows import Session, next_window_end
from everfold.spark.batch import BatchLowering
from everfold.spark.executors import read_peak_memory
from everfold.spark.spark_log import restore_log, silence_log
from everfold.spark.stream import StreamLowering
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.05
_CHECK_S = 60.0
"""How often a job with unbounded input checks whether data that it has read was changed."""
_MAX_CHECK_SHARE = 0.01
"""The share of time for which it also does so after a batch, to record what it has read."""
_LOOK_S = 5.0
"""How often a job without input checks whether Spark still looks for some."""
_MEASURE_S = 10.0
"""How often a job on a cluster reads the memory of its executors: as often as they report it."""
_TICK_DELAY_MS = 50
_MAY_BE_LOST_INPUT = ("job-failed", "kafka-data-lost", "no-such-topic")
"""Errors of failures whose cause may be that a source has lost input."""
_QUIET_S = 1.0
"""How long no batch has run before a job reports that it waits for records."""


class _Stopped(Exception):
    """The user wants the job to stop."""


@dataclass(slots=True)
class StreamJob:
    """One streaming query over a job directory that this process has locked.

    recorder: receives the record of each batch.
    roots: the plans of the manifest's current version.
    rewind_progress: set after a rewind.
    warn: called with warnings for the user.
    check_executors: called before and after each batch.
    is_stopped: whether it was stopped before the end of its input.
    """

    spark: SparkSession
    job_dir: JobDir
    manifest: Manifest
    spec: JobSpec
    recorder: RunRecorder
    roots: Sequence[Root]
    targets: Sequence[Target]
    sources: Sources
    rewind_progress: RewindProgress | None
    warn: Callable[[str], None]
    check_executors: Callable[[], None]
    is_stopped: bool = False
    _checked_at: float = field(default_factory=time.monotonic)
    _check_cost_s: float = field(default=0.0)
    _ticked_at: float = field(default=0.0)
    _had_data: bool = field(default=False)
    _reported: int = field(default=0)
    _is_waiting: bool = field(default=False)
    _looked_at: float = field(default_factory=time.monotonic)
    _measured_at: float = field(default=float("-inf"))
    _executor_bytes: dict[str, dict[str, int]] = field(default_factory=dict)
    _runtime: Any = field(init=False, repr=False)
    _earlier_rows: Mapping[str, int] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        jvm: Any = self.spark._jvm
        self._runtime = jvm.java.lang.Runtime.getRuntime()
        self._earlier_rows = find_read_rows(self.job_dir, self.manifest)

    def run(self) -> Router:
        """Run the job to its end, and return its router with the counts."""
        settings, checkpoint = self.spec.settings, self._checkpoint
        control = Control(self.job_dir.control, checkpoint)
        control.repair()
        if self.manifest.version.history is not None:
            control.link_backfill(self.job_dir.backfill_folder(self.manifest.version.history))
        lookup_tables = LookupTables(
            BatchLowering(self.spark, settings.local_time_zone, self.sources.read_scan),
            self.sources,
            self.job_dir.path / "beside",
            unfinished=has_unfinished_batch(checkpoint),
        )
        buckets = self.manifest.bucket_ids
        partitions = self.manifest.count_partitions(self.manifest.version)
        lowering = StreamLowering(
            spark=self.spark,
            zone=settings.local_time_zone,
            open_source=self.sources.stream,
            worker_sources=self.sources if settings.scan == "auto" else None,
            fused=settings.scan == "auto",
            control_folder=self.job_dir.control.uri,
            bucket_ids=buckets,
            idle_timeout_ms=settings.idle_timeout_ms,
            drop_null_rowtime=settings.null_rowtime == "drop",
            epoch=self.manifest.version.state_epoch,
            foreign_operators=self.manifest.foreign_operators,
            state_names=self.manifest.version.state_names,
            has_batch_time=True,
            has_reemitted_rows=bool(self.manifest.version.again),
            read_lookup_table=lookup_tables,
        )
        report_activity("planning the query")
        try:
            streams = [lowering.lower(root.input) for root in self.roots]
        except Exception as error:
            raise self._explain(error) from error
        if self.rewind_progress is not None:
            self.rewind_progress.report_lost_input(self.sources.opened)
        self._find_changes()
        router = Router(
            job=self.manifest.job,
            log=BatchLog(self.job_dir.ownership, checkpoint, self.manifest.current),
            record_applied=AppliedBatches.read(self.job_dir.path, self.manifest.version).add,
            targets=self.targets,
            has_operators=bool(lowering.operators),
            reports=Reports(operator_shapes(self.manifest.version.operators, self.manifest.version.query_shapes)),
            check_executors=self.check_executors,
            check_input=self._check_input,
            dropped=lookup_tables.skipped_rows,
            packed=packed_rows(streams, [target.sink for target in self.targets]),
        )
        if router.packed is None:
            # A replayed batch must have the same tasks: the split of files depends on this number.
            self.spark.conf.set("spark.sql.files.minPartitionNum", str(partitions))
            batches = combine_streams(streams)
        else:
            sinks = [target.sink for target in self.targets]
            batches = combine_payloads(streams, sinks, buckets, partitions)
        writer = batches.writeStream.foreachBatch(router).option("checkpointLocation", checkpoint.uri)
        writer = writer.queryName(self.spec.name or self.job_dir.path.name)
        wait_ms = 0 if self._bounded else settings.batch_latency_ms or 0
        last = last_finished_batch(checkpoint)
        report_activity("starting the query" if last < 0 else f"resuming after batch {last}")
        try:
            query = writer.trigger(processingTime=f"{wait_ms} milliseconds").start()
        except Exception as error:
            raise self._explain(error) from error
        self.recorder.describe(is_under_way=True)
        try:
            self._run_query(query, router, control, lowering.operators)
        except Exception as error:
            raise self._explain(router.failure or error) from error
        finally:
            with spark_may_be_gone():
                if query.isActive:
                    silence_log(self.spark)
                    query.stop()
                    if not router.is_interrupted:  # else its tasks are still ending
                        restore_log(self.spark)
                if self.is_stopped and has_unfinished_batch(checkpoint):
                    self._forget_planned_batch()
                self._observe(query, router)
                self._find_changes()
        return router

    def _explain(self, failure: BaseException) -> EverfoldError:
        """Return the error that a user sees for a failure.

        Input that went away while Spark read it fails in many ways, so the sources are asked.
        """
        explained = explain_failure(failure, self.sources.opened, self.job_dir.spark_log, self.job_dir.path)
        if explained.code in _MAY_BE_LOST_INPUT and explained is not failure:
            for source in self.sources.opened:
                with suppress(EverfoldError):
                    lost = source.find_lost(self._checkpoint)
                    if lost is not None:
                        return lost.error
        return explained

    # --- while it runs ----------------------------------------------------------------------------

    def _run_query(
        self, query: StreamingQuery, router: Router, control: Control, operators: Sequence[StatefulNode]
    ) -> None:
        """Watch the query until it ends; on a request to stop, let the running batch finish."""
        try:
            self._watch(query, router, control, operators)
        except _Stopped:
            self._finish_batch(query, router)

    def _watch(
        self, query: StreamingQuery, router: Router, control: Control, operators: Sequence[StatefulNode]
    ) -> None:
        if not self._bounded:
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
                self._check_stop()
                seen = router.seen_batch
                self._observe(query, router)
                self._look_for_idle_trigger(query, router)
                has_new_batch, waited_s = router.seen_batch != seen, time.monotonic() - self._checked_at
                is_time = waited_s > _CHECK_S
                if is_time or (has_new_batch and self._check_cost_s < waited_s * _MAX_CHECK_SHARE):
                    self._find_changes()
                if is_time or has_new_batch:
                    for source in self.sources.opened:
                        source.check_arrivals()
                self._tick(router, control, operators)
                self._report_waiting(query, router)
            return
        self._wait_until(query, router, self._all_read)
        if any(_leaves_open(node) for node in operators) and not self.spec.suspend:
            control.flush()
            self._wait_until(query, router, lambda: True)
        if self.rewind_progress is not None and not self.spec.suspend:
            self.rewind_progress.finish()

    @property
    def _bounded(self) -> bool:
        return all(source.is_bounded for source in self.sources.opened)

    def _wait_until(self, query: StreamingQuery, router: Router, reached: Callable[[], bool]) -> None:
        """Wait until all available data has been processed and `reached` returns True."""
        failure: list[BaseException] = []

        def wait() -> None:
            try:
                while True:
                    query.processAllAvailable()
                    if reached():
                        return
                    time.sleep(_POLL_S)
            except BaseException as error:
                failure.append(error)

        waiting = threading.Thread(target=wait, name="everfold-wait", daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(_POLL_S)
            self._check_stop()
            self._observe(query, router)
        if failure:
            raise failure[0]
        self._observe(query, router)

    def _check_input(self, batch: int) -> None:
        for source in self.sources.opened:
            source.check_batch(self._checkpoint, batch)

    def _check_stop(self) -> None:
        if self.spec.stopping():
            raise _Stopped

    def _all_read(self) -> bool:
        offsets = read_positions(self._checkpoint)
        return all(source.reached_end(offsets) for source in self.sources.opened)

    @property
    def _checkpoint(self) -> Location:
        return self.job_dir.checkpoint(self.manifest, self.manifest.current)

    def _observe(self, query: StreamingQuery, router: Router) -> None:
        """Process the batch reports of Spark that are new since the last call."""
        for report in read_reports(query, router.seen_batch) if router.batches > self._reported else ():
            batch = int(report.batchId)
            if batch <= router.seen_batch or batch not in router.counts or not report.durationMs.get("addBatch"):
                continue
            self._reported += 1
            router.seen_batch = batch
            counts, rows = router.take_batch(batch, self._source_reports.count_rows(report))
            self._had_data = rows > 0
            metrics = report.observedMetrics or {}
            add_skipped_rows(metrics, router.dropped)
            offsets = read_positions(self._checkpoint, batch)
            for source in self.sources.opened:
                source.after_batch(offsets)
            if self.rewind_progress is not None and not self._bounded:
                self.rewind_progress.check_position(self.sources.opened, offsets)
            self.recorder.add(self._describe_batch(report, router, counts, rows))
            skipped = [*counts.skipped_rows, *find_skipped_rows(metrics)]
            self.recorder.add_samples(batch, counts.late_rows, skipped)

    def _describe_batch(self, report: Any, router: Router, counts: BatchCounts, rows: int) -> Progress:
        """Return the record of a batch. rows: its input rows."""
        started_ms, ended_ms = read_times(report)
        heap = self._runtime
        return Progress(
            batch=int(report.batchId),
            epoch=self.manifest.current,
            rows=router.rows,
            rows_per_second=1000 * rows / max(ended_ms - started_ms, 1),
            watermark_ms=counts.watermark_ms,
            late_rows=sum(each.late_rows for each in counts.operators),
            state_rows=sum(each.state_rows for each in counts.operators),
            rows_out=sum(counts.sink_rows.values()),
            started_ms=started_ms,
            ended_ms=ended_ms,
            phases_ms={name: int(each) for name, each in report.durationMs.items()},
            sources=self._source_reports.describe(report, router.rows_in),
            sinks=tuple(SinkProgress(table=name, rows=rows) for name, rows in counts.sink_rows.items()),
            operators=counts.operators,
            skipped=dict(router.dropped),
            heap_bytes=heap.totalMemory() - heap.freeMemory(),
            heap_limit_bytes=heap.maxMemory(),
            executor_bytes=self._read_executor_bytes(),
        )

    def _read_executor_bytes(self) -> dict[str, dict[str, int]]:
        """Return the memory of the executors. They report it less often than batches may end."""
        if time.monotonic() - self._measured_at > _MEASURE_S:
            self._executor_bytes = read_peak_memory(self.spark)
            self._measured_at = time.monotonic()
        return self._executor_bytes

    @property
    def _source_reports(self) -> SourceReports:
        return SourceReports(self.sources.opened, self.job_dir.control, self._earlier_rows)

    def _look_for_idle_trigger(self, query: StreamingQuery, router: Router) -> None:
        """Report from time to time that Spark has looked for new input and has not found any.

        Spark reports that every ten seconds.
        """
        in_batch = router.batches > 0 and not router.idle.is_set()
        if in_batch or time.monotonic() - self._looked_at < _LOOK_S:
            return
        self._looked_at = time.monotonic()
        last = query.lastProgress
        if last is not None and not last.durationMs.get("addBatch"):
            self.spec.idle(read_times(last)[1])

    def _report_waiting(self, query: StreamingQuery, router: Router) -> None:
        """Report that the job waits for records, or that a batch has begun after it waited.

        Before the first batch of a run, Spark's status decides; later, the router knows.
        """
        quiet_s = time.monotonic() - router.last_batch_at
        if router.batches:
            is_waiting = router.idle.is_set() and quiet_s > _QUIET_S
        elif quiet_s > _QUIET_S and not self._is_waiting:
            is_waiting = "Waiting for" in query.status["message"]
        else:
            is_waiting = self._is_waiting
        if is_waiting != self._is_waiting:
            self._is_waiting = is_waiting
            report_activity("waiting for records" if is_waiting else "processing a batch")

    def _find_changes(self) -> None:
        """Warn of data that has changed since it was read."""
        begun = time.monotonic()
        for source in self.sources.opened:
            for text in source.find_changes(self._checkpoint):
                self.warn(text)
        self._checked_at = time.monotonic()
        self._check_cost_s = self._checked_at - begun

    def _finish_batch(self, query: StreamingQuery, router: Router) -> None:
        """Let the running batch commit, so that the next start need not repeat it.

        No other batch begins. After the time that the user allows, the batch is interrupted. Raises
        the failure of the batch.
        """
        self.is_stopped = True
        router.stopping.set()
        deadline = time.monotonic() + self.spec.stop_timeout_s
        while query.isActive and not router.is_held:
            if not router.is_running and not has_unfinished_batch(self._checkpoint):
                return
            if time.monotonic() > deadline:
                router.is_interrupted = True
                return
            time.sleep(_POLL_S)
        if router.failure is not None:
            raise router.failure

    def _forget_planned_batch(self) -> None:
        """Let Spark plan the batch again that it has planned and a stop has kept from beginning.

        A batch that sinks may have received, also in an earlier run, stays.
        """
        planned = last_planned_batch(self._checkpoint)
        if last_batch(self.job_dir.path) != (self.manifest.current, planned):
            remove_batches(self._checkpoint, last_finished_batch(self._checkpoint))

    @property
    def unfinished_batch(self) -> int | None:
        """The batch that a stop has interrupted, which the next start replays."""
        if self.is_stopped and has_unfinished_batch(self._checkpoint):
            return last_planned_batch(self._checkpoint)
        return None

    # --- ticks ------------------------------------------------------------------------------------

    def _tick(self, router: Router, control: Control, operators: Sequence[StatefulNode]) -> None:
        """Trigger a batch if time alone may change the result.

        This is so when a processing-time window has ended or a split has become idle.
        """
        if not router.batches or not router.idle.is_set() or self._ticked_at >= router.last_batch_at:
            return
        silent_ms = (time.monotonic() - router.last_batch_at) * 1000
        now_ms = time.time() * 1000
        last_batch_ms = int(now_ms - silent_ms)
        idle_ms = self.spec.settings.idle_timeout_ms
        idle = idle_ms is not None and self._had_data and silent_ms > idle_ms
        due = any(
            router.reports.has_state(node.operator_id) and now_ms > _next_end(node, last_batch_ms) + _TICK_DELAY_MS
            for node in operators
        )
        if idle or due:
            self._ticked_at = router.last_batch_at
            control.tick()


def _leaves_open(node: StatefulNode) -> bool:
    """Whether an operator may have results to emit when its input has ended."""
    if isinstance(node, OverAggregate):
        return node.time is TimeKind.ROWTIME
    if isinstance(node, Rank):
        return node.window is not None
    if isinstance(node, WindowEmit):
        return True
    return isinstance(node, WindowTableFunction | WindowAggregate)


def _next_end(node: StatefulNode, last_batch_ms: int) -> float:
    """Return when time alone may change the result after a batch at a time, in epoch milliseconds.

    This is the end of a processing-time window or of an emission delay; infinity if there is none.
    """
    if isinstance(node, WindowEmit):
        waits = [each for each in (node.early_ms, node.late_ms) if each]
        return min((last_batch_ms + each for each in waits), default=float("inf"))
    if isinstance(node, OverAggregate) or not runs_on_arrival(node):
        return float("inf")
    assert isinstance(node, WindowTableFunction | WindowAggregate | GroupAggregate | Rank)
    window = node.window.of if isinstance(node.window, InWindow) else node.window
    if isinstance(window, Session):
        return last_batch_ms + window.gap_ms
    assert window is not None
    return next_window_end(window, last_batch_ms)
