"""The `foreachBatch` function of a job: route rows to their sinks and reports to the progress.

A batch's frame is run exactly once, because a second action would run the stateful operators again.
A batch that was applied before a crash is run in full too, because only then can Spark commit it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everfold.connectors.contract import KIND, BatchId, ClusterSink, LocalSink
from everfold.jobs.batch_log import BatchLog
from everfold.jobs.progress import Progress, Reports
from everfold.operators.protocol import Stats
from everfold.plan.changelog import ORDER, REEMIT, REEMIT_DELETE, RowKind
from everfold.spark.exchange import BATCH_TIME, FORWARDED, STATS
from everfold.spark.stream import Stream
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TARGET = "__target"
"""Column of a batch's rows: the index of the sink that a row is for."""

_KIND = (
    f"CAST(CASE {KIND} WHEN {REEMIT} THEN {RowKind.UPDATE_AFTER.value}"
    f" WHEN {REEMIT_DELETE} THEN {RowKind.DELETE.value} ELSE {KIND} END AS TINYINT) AS {KIND}"
)
"""The row kind for sinks: re-emitted rows become +U, and re-emitted deletes become -D."""


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
    first: DataFrame | None = None
    for at, stream in enumerate(streams):
        kind = _KIND if stream.has_row_kinds else f"CAST(0 AS TINYINT) AS {KIND}"
        columns = [f"{at} AS {TARGET}", kind, FORWARDED, ORDER]
        for other, of in enumerate(streams):
            for position, column in enumerate(of.schema):
                own = physical_name(position) if other == at else f"CAST(NULL AS {column.type.spark})"
                columns.append(f"{own} AS t{other}_{physical_name(position)}")
        kept = f"{FORWARDED} IS NOT NULL OR __keep" if stream.is_guarded else "TRUE"
        frame = stream.frame.where(kept).selectExpr(*columns)
        first = frame if first is None else first.union(frame)
    assert first is not None
    return first


@dataclass(slots=True)
class Router:
    """The `foreachBatch` function of a job.

    job, log: identify the batch for the sinks. progress: called after each batch.
    failure: the exception of a sink; Spark would keep only its message.
    """

    job: str
    log: BatchLog
    targets: Sequence[Target]
    has_operators: bool
    progress: Callable[[Progress], None] | None = None
    failure: BaseException | None = None
    reports: Reports = field(default_factory=Reports)
    rows: int = 0
    rows_out: int = 0
    batches: int = 0
    seen_batch: int = -1
    digest: str = ""
    dropped: dict[str, int] = field(default_factory=dict)
    last_batch_at: float = field(default_factory=time.monotonic)
    idle: threading.Event = field(default_factory=threading.Event)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.idle.clear()
        try:
            self.digest = self.log.begin(batch)
            if self.has_operators:
                self._set_batch_time(frame, batch)
            if all(isinstance(target.sink, LocalSink) for target in self.targets):
                self._collect(frame, batch)
            elif len(self.targets) == 1 and not self.has_operators:
                self._write_cluster(frame, self.targets[0], 0, batch)
            else:
                self._cache(frame, batch)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.last_batch_at = time.monotonic()
            self.batches += 1
            self.idle.set()

    def _set_batch_time(self, frame: DataFrame, batch: int) -> None:
        """Tell the operators the processing time of the batch."""
        time_ms = self.log.read_time(batch)
        frame.sparkSession.sparkContext.setLocalProperty(BATCH_TIME, f"{batch} {time_ms}")

    def _collect(self, frame: DataFrame, batch: int) -> None:
        """Write a batch whose sinks all run on the driver, with a single collect."""
        import pyarrow.compute as pc

        table: pa.Table = frame.toArrow()
        is_meta = pc.is_valid(table[FORWARDED])
        self._report(table.filter(is_meta)[FORWARDED].to_pylist())
        rows = table.filter(pc.invert(is_meta))
        for at, target in enumerate(self.targets):
            mine = rows if len(self.targets) == 1 else rows.filter(pc.equal(rows[TARGET], at))
            self._write_local(mine, target, at, batch)

    def _cache(self, frame: DataFrame, batch: int) -> None:
        """Write a batch for sinks of which some run in tasks; the batch is cached meanwhile."""
        frame = frame.persist()
        try:
            forwarded = frame.where(f"{FORWARDED} IS NOT NULL").select(FORWARDED).collect()
            self._report([bytes(row[0]) for row in forwarded])
            for at, target in enumerate(self.targets):
                mine = frame.where(f"{FORWARDED} IS NULL AND {TARGET} = {at}")
                if isinstance(target.sink, LocalSink):
                    self._write_local(mine.toArrow(), target, at, batch)
                else:
                    self._write_cluster(mine, target, at, batch)
        finally:
            frame.unpersist()

    def _write_local(self, rows: pa.Table, target: Target, at: int, batch: int) -> None:
        assert isinstance(target.sink, LocalSink)
        if rows.num_rows:
            rows = self._sort(rows, target, at) if self.has_operators else rows
        names = [f"t{at}_{physical_name(position)}" for position in range(target.width)]
        columns = [*(rows[name] for name in names), rows[KIND]]
        import pyarrow as pa

        table = pa.Table.from_arrays(
            columns, names=[*(physical_name(position) for position in range(target.width)), KIND]
        )
        self.rows_out += table.num_rows
        target.sink.write(table, self._id(target, batch))

    @staticmethod
    def _sort(rows: pa.Table, target: Target, at: int) -> pa.Table:
        """Sort rows for reading; a retracted row comes before the row that replaces it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        back = pa.array([RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value], pa.int8())
        rows = rows.append_column("__new", pc.invert(pc.is_in(rows[KIND], back)))
        ties = [(name, "ascending") for name in ("__new", *_sortable_columns(rows, target, at))]
        return rows.sort_by([(ORDER, "ascending"), *ties])

    def _write_cluster(self, frame: DataFrame, target: Target, at: int, batch: int) -> None:
        assert isinstance(target.sink, ClusterSink)
        columns = [f"t{at}_{physical_name(position)} AS {physical_name(position)}" for position in range(target.width)]
        written = target.sink.write(frame.selectExpr(*columns, KIND), self._id(target, batch))
        self.rows_out += written or 0

    def _id(self, target: Target, batch: int) -> BatchId:
        return BatchId(self.job, target.name, self.log.epoch, batch, self.digest)

    def _report(self, forwarded: Sequence[bytes]) -> None:
        self.reports.take(Stats.decode(blob[1:]) for blob in forwarded if blob[:1] == STATS)


def _sortable_columns(rows: pa.Table, target: Target, at: int) -> list[str]:
    """Return the columns that break ties of the emission order: all of a comparable type."""
    import pyarrow as pa

    names = [f"t{at}_{physical_name(position)}" for position in range(target.width)]
    return [name for name in names if not pa.types.is_nested(rows.schema.field(name).type)]
