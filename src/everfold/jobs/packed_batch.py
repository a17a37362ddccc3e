"""A batch whose rows are delivered to their sinks in the step of the operators.

If workers evaluate everything above the operators (`spark.tail`), the batch's frame has the
payloads that are left for the driver, and no row passes through Catalyst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.contract import ClusterSink, LocalSink, ShardedSink, WorkerTask, as_spark_function
from everfold.spark.delivery import REPORT, SINK_TASKS, Delivery, encode_sink_tasks
from everfold.spark.frame_delivery import FrameDelivery
from everfold.spark.output_rows import OutputRows, decode_rows, read_payloads
from everfold.spark.stream import Stream, union_all
from everfold.spark.task_input import ROWS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TARGET = "__target"
"""Column of a batch: the index of the sink that a row or payload is for."""


@dataclass(slots=True)
class PackedBatch:
    """The parts of a batch on the driver.

    forwarded: meta and statistics rows. rows: of each sink of the driver, with `__order` and
    `__kind`. reports: of the tasks of each other sink.
    """

    forwarded: list[bytes]
    rows: list[list[pa.Table]]
    reports: list[list[bytes]]


def packed_rows(streams: Sequence[Stream], sinks: Sequence[LocalSink | ClusterSink]) -> list[OutputRows] | None:
    """Return how to evaluate the rows of each sink, None if Catalyst is needed for one of them."""
    if not all(isinstance(sink, LocalSink) or sink.takes_packed_rows for sink in sinks):
        return None
    tails = [stream.tail.rows for stream in streams if stream.tail is not None]
    return tails if len(tails) == len(streams) else None


def combine_payloads(
    streams: Sequence[Stream],
    sinks: Sequence[LocalSink | ClusterSink],
    bucket_ids: tuple[int, ...],
    partitions: int,
) -> DataFrame:
    """Return the payloads of all branches in one frame; `__target` is the branch of a payload."""
    frames = []
    for at, (stream, sink) in enumerate(zip(streams, sinks, strict=True)):
        assert stream.tail is not None
        target = sink.worker_target if isinstance(sink, ShardedSink) else None
        stepped = stream.tail.step(Delivery(stream.tail.rows, at, bucket_ids, partitions, target))
        frames.append(stepped.selectExpr(f"{at} AS {TARGET}", "payload"))
    return union_all(frames)


def run_packed_batch(frame: DataFrame, batch: int, tasks: Sequence[WorkerTask | None]) -> PackedBatch:
    """Run a batch once: the tasks of its sinks, and the transfer of rows to the driver.

    tasks: of each sink, None for a sink of the driver.
    """
    frame.sparkSession.sparkContext.setLocalProperty(SINK_TASKS, encode_sink_tasks(batch, tasks))
    return _run(frame, len(tasks))


def run_typed_batch(
    frame: DataFrame, tasks: Sequence[WorkerTask], sinks: Sequence[ShardedSink], widths: Sequence[int], *, ordered: bool
) -> PackedBatch:
    """Run a batch of typed rows once, with the tasks of its sinks.

    widths: the numbers of their columns. ordered: whether the rows are in the order of `__order`.
    """
    targets = tuple(sink.worker_target for sink in sinks)
    deliver = FrameDelivery(tuple(tasks), targets, tuple(widths), TARGET, ordered)
    return _run(frame.mapInArrow(as_spark_function(deliver), f"{TARGET} INT, payload BINARY"), len(tasks))


def _run(frame: DataFrame, sinks: int) -> PackedBatch:
    """Run the frame of a batch's payloads."""
    table = frame.toArrow()
    found = PackedBatch([], [[] for _ in range(sinks)], [[] for _ in range(sinks)])
    targets = table.column(0).to_pylist()
    payloads = (each for chunk in table.column(1).chunks for each in read_payloads(chunk))
    for at, (kind, payload) in zip(targets, payloads, strict=True):
        if kind == ROWS:
            found.rows[at].append(decode_rows(payload))
        elif kind == REPORT:
            found.reports[at].append(payload[1:].to_pybytes())
        else:
            found.forwarded.append(payload.to_pybytes())
    return found
