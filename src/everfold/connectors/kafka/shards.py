"""The tasks of a Kafka sink: each writes its rows, a shard of the batch, in one transaction.

Runs in Spark's Python workers. A task keeps its rows in Arrow until it has them all. If they are
few, it returns them to the driver, whose transaction is cheaper than one more for the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from everfold.connectors.contract import BatchId, PackedRows, RowWriter
from everfold.connectors.kafka.client import kafka_error
from everfold.connectors.kafka.records import RecordEncoder
from everfold.connectors.kafka.table_options import SERVERS, topics
from everfold.connectors.kafka.transaction import SinkFenced, TransactionalSink
from everfold.connectors.sink_changelog import sort_changes
from everfold.error_transport import transport_errors
from everfold.errors import ConnectorError, StateError
from everfold.plan.changelog import ORDER

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ShardTarget:
    """What the tasks of a sink need in all batches. settings: of the client; they can be secret."""

    encoder: RecordEncoder
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What a task reports. rows: their number. table: the rows, if the driver must write them."""

    shard: int
    rows: int
    table: pa.Table | None = None

    def encode(self) -> bytes:
        """Return the report as bytes: a line, and the table as an Arrow IPC stream."""
        import pyarrow as pa

        line = json.dumps([self.shard, self.rows]).encode() + b"\n"
        if self.table is None:
            return line
        page = pa.BufferOutputStream()
        with pa.ipc.new_stream(page, self.table.schema) as out:
            out.write_table(self.table)
        return line + bytes(page.getvalue())

    @classmethod
    def decode(cls, blob: bytes) -> ShardReport:
        """Return the report of a task."""
        import pyarrow as pa

        line, _, page = blob.partition(b"\n")
        shard, rows = json.loads(line)
        return cls(shard, rows, pa.ipc.open_stream(page).read_all() if page else None)


@dataclass(frozen=True, slots=True)
class ShardTask:
    """The work of the tasks on a batch.

    partitions: of the topic. is_applied: whether the topic has the batch, so that the rows are
    dropped. few_rows, few_bytes: at most so much of a task is returned to the driver; None for
    everything.
    """

    batch: BatchId
    partitions: tuple[int, ...]
    is_applied: bool
    few_rows: int | None
    few_bytes: int

    def open(self, shard: int, target: object) -> RowWriter:
        """Begin the work of one Spark task."""
        assert isinstance(target, ShardTarget)
        return ShardWriter(self, shard, target)

    def are_few(self, rows: pa.Table) -> bool:
        """Return whether the driver writes the rows of a task."""
        if self.few_rows is None:
            return True
        # A retried task finds out whether its first attempt has written the shard.
        return rows.num_rows <= self.few_rows and rows.nbytes <= self.few_bytes and not _is_retry()


class ShardWriter:
    """The work of one Spark task."""

    def __init__(self, task: ShardTask, shard: int, target: ShardTarget) -> None:
        self._task, self._shard, self._target = task, shard, target
        self._rows = 0
        self._tables: list[pa.Table] = []

    def write(self, rows: PackedRows) -> None:
        """Keep rows until the shard is complete."""
        if self._task.is_applied:
            self._rows += rows.count()
            return
        table = rows.read(ordered=True)
        self._rows += table.num_rows
        if table.num_rows:
            self._tables.append(table)

    def close(self) -> bytes:
        """Write the shard unless the topic has it, or return its rows."""
        import pyarrow as pa

        table = pa.concat_tables(self._tables) if self._tables else None
        self._tables.clear()
        if table is not None and not self._task.are_few(table):
            with transport_errors():
                write_shard(self._task, self._shard, self._target, table)
            table = None
        return ShardReport(self._shard, self._rows, table).encode()

    def abort(self) -> None:
        """Drop the rows. A transaction that failed is aborted already."""
        self._tables.clear()


def write_shard(task: ShardTask, shard: int, target: ShardTarget, rows: pa.Table) -> None:
    """Write a shard and its mark in one transaction, unless the topic has it.

    Raises ConnectorError, StateError.
    """
    encoder, batch = target.encoder, task.batch
    if ORDER in rows.column_names:
        rows = sort_changes(rows, ties=False)
    with convert_errors(encoder):
        sink = TransactionalSink(
            bootstrap_servers=encoder.options.string(SERVERS),
            topic=topics(encoder.options)[0],
            job=batch.job,
            sink=batch.sink,
            options=target.settings,
            prefix=encoder.options.string("sink.transactional-id-prefix"),
            shard=shard,
        )
        try:
            sink.apply(batch.epoch, batch.batch, encoder.encode(rows, task.partitions), batch.digest)
        finally:
            sink.close()


@contextmanager
def convert_errors(encoder: RecordEncoder) -> Iterator[None]:
    """Return a context that converts errors of the client to those of a table."""
    table, options = encoder.table, encoder.options
    try:
        yield
    except SinkFenced as fenced:
        raise StateError.of(
            "sink-taken-over",
            f"table `{table.name}`: another run of this job writes to `{topics(options)[0]}` now",
        ) from fenced
    except KafkaException as wrong:
        raise kafka_error(table, options, wrong) from None
    except TimeoutError as wrong:
        raise ConnectorError.of("kafka-unreachable", f"table `{table.name}`: {wrong}") from None


def _is_retry() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
