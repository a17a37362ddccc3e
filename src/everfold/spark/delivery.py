"""Delivery: how the rows of a branch's last operator reach their sink.

The worker that runs the operator also evaluates what is above it (`output_rows`), and runs the task
of a sink that writes in workers. Only reports cross to the JVM, or the rows as Arrow blobs if the
sink runs on the driver.
"""

from __future__ import annotations

import pickle
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.contract import RowWriter, WorkerTask
from everfold.plan.changelog import KIND, ORDER, REEMIT, REEMIT_DELETE, RowKind
from everfold.spark.buckets import count_buckets, find_partition
from everfold.spark.exchange import encode_table
from everfold.spark.output_rows import OutputRows
from everfold.spark.task_input import ROWS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

REPORT = b"W"
"""Kind of a payload: the report of a sink's task."""
SINK_TASKS = "everfold.sinkTasks"
"""Local property of Spark's tasks: the number of the batch, and the tasks of its sinks."""
_FAILED = "sink {}: "
_FAILURE = re.compile(r"RuntimeError: sink (\d+): ")


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where the rows of an operator go.

    rows: what is evaluated above the operator. target: the position of the sink in the job.
    bucket_ids, partitions: see `buckets`; they show which bucket is the last one of a Spark task.
    worker_target: of the sink (`ShardedSink`).
    """

    rows: OutputRows
    target: int
    bucket_ids: tuple[int, ...]
    partitions: int
    worker_target: object = None

    def begin(self) -> TaskDelivery:
        """Begin the work of one Spark task."""
        return TaskDelivery(self)


class TaskDelivery:
    """The delivery of the rows of one Spark task."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._buckets = 0
        self._task: WorkerTask | None = None
        self._writer: RowWriter | None = None

    def deliver(self, bucket: int, frames: Iterable[pl.DataFrame]) -> Iterator[bytes]:
        """Deliver the rows of a bucket, and yield the payloads for the driver.

        A failure removes what the sink has written.
        """
        if not self._buckets:
            self._task = _read_sink_tasks()[self._delivery.target]
        self._buckets += 1
        try:
            for frame in frames:
                if frame.height and self._task is None:
                    yield encode_table(convert_rows(self._delivery.rows, frame.to_arrow()), ROWS).to_pybytes()
                elif frame.height:
                    self._write(bucket, frame)
            partition = find_partition(bucket, self._delivery.partitions)
            of_task = count_buckets(self._delivery.bucket_ids, self._delivery.partitions)[partition]
            if self._writer is not None and self._buckets == of_task:
                with name_sink(self._delivery.target):
                    yield REPORT + self._writer.close()
        except BaseException:
            if self._writer is not None:
                self._writer.abort()
            raise

    def _write(self, bucket: int, frame: pl.DataFrame) -> None:
        assert self._task is not None
        of = self._delivery
        with name_sink(of.target):
            if self._writer is None:
                self._writer = self._task.open(find_partition(bucket, of.partitions), of.worker_target)
            self._writer.write(_Rows(of.rows, frame))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of an operator, in a worker."""

    rows: OutputRows
    frame: pl.DataFrame

    def count(self) -> int:
        return self.rows.count(self.frame.to_arrow())

    def read(self, *, ordered: bool = False) -> pa.Table:
        return convert_rows(self.rows, self.frame.to_arrow(), ordered=ordered)


def encode_sink_tasks(batch: int, tasks: Sequence[WorkerTask | None]) -> str:
    """Return the local property of a batch. tasks: of each sink, None for a sink of the driver."""
    return f"{batch} {b64encode(pickle.dumps(tuple(tasks))).decode()}"


def _read_sink_tasks() -> tuple[WorkerTask | None, ...]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    batch, tasks = (context.getLocalProperty(SINK_TASKS) or " ").split(" ")
    assert batch == context.getLocalProperty("streaming.sql.batchId"), "the tasks are those of another batch"
    found: tuple[WorkerTask | None, ...] = pickle.loads(b64decode(tasks))
    return found


@contextmanager
def name_sink(at: int) -> Iterator[None]:
    """Return a context that adds the position of the sink to an error."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{_FAILED.format(at)}{error}") from error


def find_failed_sink(error_text: str) -> int | None:
    """Return the position of the sink whose task failed, None if the text of the error has none."""
    found = _FAILURE.search(error_text)
    return None if found is None else int(found[1])


# --- rows for sinks -------------------------------------------------------------------------------


def convert_rows(rows: OutputRows, table: pa.Table, *, ordered: bool = True) -> pa.Table:
    """Return the rows of an operator for a sink: `c0…`, `__kind`, and `__order` if `ordered`."""
    hidden = (*[ORDER] * ordered, *[KIND] * rows.has_row_kinds)
    return _set_kinds(rows.read(table, hidden))


def empty_rows(rows: OutputRows) -> pa.Table:
    """Return no rows, with the columns of those of a sink of the driver."""
    return _set_kinds(rows.null_row((ORDER, *[KIND] * rows.has_row_kinds)).slice(0, 0))


def _set_kinds(rows: pa.Table) -> pa.Table:
    """Return the rows with kinds for sinks: re-emitted rows are +U, re-emitted deletes are -D."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if KIND not in rows.column_names:
        inserts = pa.repeat(pa.scalar(RowKind.INSERT.value, pa.int8()), rows.num_rows)
        return rows.append_column(KIND, inserts)
    kinds = rows[KIND]
    for internal, shown in ((REEMIT, RowKind.UPDATE_AFTER), (REEMIT_DELETE, RowKind.DELETE)):
        kinds = pc.if_else(pc.equal(kinds, internal), pa.scalar(shown.value, pa.int8()), kinds)
    return rows.set_column(rows.column_names.index(KIND), KIND, kinds)
