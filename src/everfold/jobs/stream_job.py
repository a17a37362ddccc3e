"""A streaming job: from its plan and its folder to a running Spark query, to its end, to its end by Ctrl-C, or to its failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.compat.operator_ids import operators_of
from everfold.connectors.skipped_rows import add_left_out
from everfold.jobs.batch_log import BatchLog
from everfold.jobs.control import Control
from everfold.jobs.failure import explained, spark_may_be_gone
from everfold.jobs.folder import JobFolder, Manifest
from everfold.jobs.foreach_batch import Router, Target, tagged
from everfold.jobs.lookup_tables import Beside
from everfold.jobs.progress import Progress
from everfold.jobs.rewind_progress import CatchingUp
from everfold.jobs.sources import Sources
from everfold.jobs.spark_checkpoint import positions, unfinished
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
from everfold.spark.buckets import bucket_ids
from everfold.spark.stream import StreamLowering

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.05
_LOOK_S = 60.0
"""How often a job without an end looks whether what it has read has changed."""
_STOP_PATIENCE_S = 120.0
_TICK_DELAY_MS = 50


class _Stopped(Exception):
    """The user wants the job to stop."""


@dataclass(slots=True)
class StreamJob:
    """One streaming query over a job folder that this process has locked.

    suspend: at the end of bounded input stop without emitting what is open. batch_latency_ms: how long a batch of unbounded input gathers rows.
    stopping: True when the job is to stop. catching_up: set for a job that went back. warn: told what the user should know, None if nobody asks.
    """

    spark: SparkSession
    folder: JobFolder
    manifest: Manifest
    roots: Sequence[Root]
    targets: Sequence[Target]
    sources: Sources
    zone: str
    idle_timeout_ms: int | None
    drop_null_rowtime: bool
    suspend: bool
    batch_latency_ms: int = 0
    progress: Callable[[Progress], None] | None = None
    stopping: Callable[[], bool] = lambda: False
    catching_up: CatchingUp | None = None
    warn: Callable[[str], None] | None = None
    _looked_at: float = field(default_factory=time.monotonic)
    _ticked_at: float = field(default=0.0)
    _had_data: bool = field(default=False)

    def run(self) -> Router:
        """Runs the job to its end; what it counted."""
        checkpoint = self._checkpoint
        control = Control(self.folder.control, checkpoint)
        control.repair()
        if self.manifest.version.history is not None:
            control.recall(self.folder.past(self.manifest.version.history))
        beside = Beside(
            BatchLowering(self.spark, self.zone, self.sources.scanned),
            self.sources,
            self.folder.path / "beside",
            unfinished=unfinished(checkpoint),
        )
        lowering = StreamLowering(
            spark=self.spark,
            zone=self.zone,
            open_source=self.sources.stream,
            control_folder=str(self.folder.control),
            bucket_ids=bucket_ids(self.manifest.buckets, self.manifest.partitions),
            idle_timeout_ms=self.idle_timeout_ms,
            drop_null_rowtime=self.drop_null_rowtime,
            epoch=self.manifest.version.state_epoch,
            names=self._names,
            source_names=(note["name"] for note in self.manifest.version.sources or ()),
            strangers=self.manifest.strangers,
            again=bool(self.manifest.version.again),
            read_beside=beside,
        )
        try:
            streams = [lowering.lower(root.input) for root in self.roots]
        except Exception as error:
            raise explained(error, self.sources.opened, self.folder.log_file) from error
        if self.catching_up is not None:
            self.catching_up.begin(self.sources.opened)
        self._find_changes()
        router = Router(
            job=self.manifest.job,
            log=BatchLog(self.folder.path, checkpoint, self.manifest.current),
            targets=self.targets,
            has_operators=bool(lowering.operators),
            progress=self.progress,
            dropped=beside.left_out,
        )
        writer = tagged(streams).writeStream.foreachBatch(router).option("checkpointLocation", str(checkpoint))
        wait_ms = 0 if self._bounded else self.batch_latency_ms
        query = writer.trigger(processingTime=f"{wait_ms} milliseconds").start()
        try:
            self._work(query, router, control, lowering.operators)
        except Exception as error:
            raise explained(router.failure or error, self.sources.opened, self.folder.log_file) from error
        finally:
            with spark_may_be_gone():
                if query.isActive:
                    query.stop()
                self._observe(query, router)
                self._find_changes()
        return router

    # --- while it runs ------------------------------------------------------------------------------------------------

    def _work(self, query: StreamingQuery, router: Router, control: Control, operators: Sequence[StatefulNode]) -> None:
        """Attends to the query until its end, or until it is asked to stop and the running batch is done."""
        try:
            self._attend(query, router, control, operators)
        except _Stopped:
            self._finish_batch(query, router)

    def _attend(
        self, query: StreamingQuery, router: Router, control: Control, operators: Sequence[StatefulNode]
    ) -> None:
        if not self._bounded:
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
                self._check_stop()
                seen = router.seen_batch
                self._observe(query, router)
                is_time = time.monotonic() - self._looked_at > _LOOK_S
                if is_time:
                    self._find_changes()
                if is_time or router.seen_batch != seen:
                    for source in self.sources.opened:
                        source.check_arrivals()
                self._tick(router, control, operators)
            return
        self._until(query, router, self._all_read)
        if any(_leaves_open(node) for node in operators) and not self.suspend:
            control.flush()
            self._until(query, router, lambda: True)
        if self.catching_up is not None and not self.suspend:
            self.catching_up.arrive()

    @property
    def _bounded(self) -> bool:
        return all(source.bounded for source in self.sources.opened)

    def _until(self, query: StreamingQuery, router: Router, reached: Callable[[], bool]) -> None:
        """Waits until all that is there has been processed and `reached` says that it was enough."""
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

    def _check_stop(self) -> None:
        if self.stopping():
            raise _Stopped

    def _all_read(self) -> bool:
        offsets = positions(self._checkpoint)
        return all(source.reached_end(offsets) for source in self.sources.opened)

    @property
    def _names(self) -> dict[int, str]:
        nodes = operators_of(self.roots)
        return {id(node): name for node, name in zip(nodes, self.manifest.version.operators, strict=True)}

    @property
    def _checkpoint(self) -> Path:
        return self.folder.checkpoint(self.manifest.current)

    def _observe(self, query: StreamingQuery, router: Router) -> None:
        """Takes over what Spark has reported since the last look."""
        for report in query.recentProgress:
            batch = int(report.batchId)
            if batch <= router.seen_batch or not report.durationMs.get("addBatch"):
                continue
            router.seen_batch = batch
            rows = _data_rows(report)
            router.rows += rows
            self._had_data = rows > 0
            add_left_out(report.observedMetrics or {}, router.dropped)
            offsets = positions(self._checkpoint, batch)
            for source in self.sources.opened:
                source.after_batch(offsets)
            if self.catching_up is not None and not self._bounded:
                self.catching_up.look(self.sources.opened, offsets)
            if self.progress is not None:
                self.progress(
                    Progress(
                        batch=batch,
                        rows=router.rows,
                        rows_per_second=float(report.processedRowsPerSecond or 0.0),
                        watermark_ms=router.reports.watermark_ms,
                        late_rows=router.reports.late_rows,
                        state_rows=router.reports.state_rows,
                        rows_out=router.rows_out,
                    )
                )

    def _find_changes(self) -> None:
        """Warns of data that was read and has changed since."""
        self._looked_at = time.monotonic()
        if self.warn is None:
            return
        for source in self.sources.opened:
            for text in source.find_changes(self._checkpoint):
                self.warn(text)

    def _finish_batch(self, query: StreamingQuery, router: Router) -> None:
        """Lets the running batch commit, so that the next start has nothing to do again."""
        deadline = time.monotonic() + _STOP_PATIENCE_S
        batches = router.batches
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            if router.batches > batches and not query.status["isDataAvailable"]:
                break
            if router.batches > batches + 1:
                break
            time.sleep(_POLL_S)

    # --- ticks --------------------------------------------------------------------------------------------------------

    def _tick(self, router: Router, control: Control, operators: Sequence[StatefulNode]) -> None:
        """Makes a batch run when time alone has something to say: a processing-time window is over, a split has gone silent."""
        if not router.batches or not router.idle.is_set() or self._ticked_at >= router.last_batch_at:
            return
        silent_ms = (time.monotonic() - router.last_batch_at) * 1000
        now_ms = time.time() * 1000
        last_batch_ms = int(now_ms - silent_ms)
        idle = self.idle_timeout_ms is not None and self._had_data and silent_ms > self.idle_timeout_ms
        due = router.reports.state_rows > 0 and any(
            now_ms > _next_end(node, last_batch_ms) + _TICK_DELAY_MS for node in operators
        )
        if idle or due:
            self._ticked_at = router.last_batch_at
            control.tick()


def _leaves_open(node: StatefulNode) -> bool:
    """Whether an operator may have something to emit when its input has ended."""
    if isinstance(node, OverAggregate):
        return node.time is TimeKind.ROWTIME
    if isinstance(node, Rank):
        return node.window is not None
    if isinstance(node, WindowEmit):
        return True
    return isinstance(node, WindowTableFunction | WindowAggregate)


def _next_end(node: StatefulNode, last_batch_ms: int) -> float:
    """When time alone may have something to say after a batch at that time: a window of processing time is over, or a delay of emission."""
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


def _data_rows(report: Any) -> int:
    """Input rows of a batch, control files not counted."""
    return sum(int(source.numInputRows) for source in report.sources if "/control" not in str(source.description))
