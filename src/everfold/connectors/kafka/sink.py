"""Write to a topic exactly once.

The driver writes a batch and the mark that records it in one Kafka transaction (`transaction`).
Tasks with many rows write them before that, each in a transaction with a mark too (`shards`). The
driver's mark is the last one: it records that the whole batch is in the topic.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from everfold.connectors.applied import is_applied
from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.contract import (
    AppliedBatch,
    BatchId,
    JobLineage,
    OptionValues,
    ShardedSink,
    SinkContext,
    WorkerTask,
)
from everfold.connectors.kafka.client import Client, client_settings, consumer_group
from everfold.connectors.kafka.key_snapshot import KeySnapshot
from everfold.connectors.kafka.records import RecordEncoder
from everfold.connectors.kafka.shards import ShardReport, ShardTarget, ShardTask, convert_errors
from everfold.connectors.kafka.table_options import SERVERS, topics
from everfold.connectors.kafka.transaction import (
    OutgoingRecord,
    TransactionalSink,
    Writer,
    fence,
    find_other_writer,
    find_shards,
    group_name,
    read_applied,
    read_shard_marks,
)
from everfold.connectors.sink_changelog import sort_changes
from everfold.plan.changelog import ORDER
from everfold.plan.colocation import are_colocated

if TYPE_CHECKING:
    import pyarrow as pa


_EXAMPLES = 5
_FEW_ROWS = 40_000
"""Rows of a batch that the driver writes at most, while tasks return theirs."""
_FEW_BYTES = 32 << 20
_PARTITIONS = "spark.sql.shuffle.partitions"


class KafkaSink(ShardedSink):
    """A sink that writes one topic.

    upsert: write only the last row of each key in a batch, as a tombstone if it is a retraction.
    """

    is_record_lasting = False  # brokers forget the offsets of a group that nobody uses

    def __init__(
        self,
        context: SinkContext,
        options: OptionValues,
        *,
        upsert: bool = False,
        encoder: RecordEncoder | None = None,
    ) -> None:
        super().__init__(context, options)
        self.upsert = upsert
        self.encoder = RecordEncoder(context.table, options, upsert) if encoder is None else encoder
        self._transactional: TransactionalSink | None = None
        self._partition_list: list[int] = [0]
        self._past: JobLineage | None = None
        self._lock = threading.Lock()
        self._is_first = True

    def prepare(self) -> None:
        """Check that the brokers answer and the topic exists."""
        client = Client(self.table, self.options)
        try:
            [self._partition_list] = client.partitions().values()
        finally:
            client.close()

    def write(self, rows: pa.Table, batch: BatchId) -> None:
        """Write the batch, unless the topic has it."""
        with self._lock, self._convert_errors():
            self._apply(rows, batch)

    @property
    def worker_target(self) -> ShardTarget:
        """The encoder and the settings of the client."""
        return ShardTarget(self.encoder, client_settings(self.options))

    def begin_batch(self, batch: BatchId) -> WorkerTask:
        """Return the task that writes a shard. It drops the rows of a batch that the topic has.

        No key is deleted by `report_leftovers` before the batch has ended.
        """
        self._lock.acquire()
        try:
            with self._convert_errors():
                is_whole = self._open_sink(batch).has_applied(batch.epoch, batch.batch, batch.digest)
            few = max(_FEW_ROWS // self._task_count, 1) if self._keeps_order_in_shards else None
            few_bytes = _FEW_BYTES // self._task_count
            return ShardTask(batch, tuple(self._partition_list), is_whole, few, few_bytes)
        except BaseException:
            self._lock.release()
            raise

    def finish_batch(self, reports: Sequence[bytes], batch: BatchId) -> int:
        """Write the rows that tasks have returned, and record that the topic has the batch."""
        import pyarrow as pa

        try:
            with self._convert_errors():
                found = [ShardReport.decode(each) for each in reports]
                returned = {each.shard: each.table for each in found if each.table is not None}
                if self._is_first and returned:
                    written = self._find_written(returned, batch)
                    returned = {shard: table for shard, table in returned.items() if shard not in written}
                self._apply(pa.concat_tables(returned.values()) if returned else None, batch)
                self._is_first = False
        finally:
            self._lock.release()
        return sum(each.rows for each in found)

    def abandon_batch(self) -> None:
        """Let `report_leftovers` continue. Written shards stay: the next run finds them."""
        self._lock.release()

    def _apply(self, rows: pa.Table | None, batch: BatchId) -> None:
        """Write rows and the mark of the batch, unless the topic has the batch."""
        if rows is not None and ORDER in rows.column_names:
            rows = sort_changes(rows)
        records = () if rows is None else self.encoder.encode(rows, self._partition_list)
        self._open_sink(batch).apply(batch.epoch, batch.batch, records, batch.digest)
        self.applied = (batch.epoch, batch.batch)

    def _find_written(self, shards: Iterable[int], batch: BatchId) -> set[int]:
        """Return the shards that an earlier run of the batch has written.

        A shard that was large then can be small now, if the query is not deterministic.
        """
        group = self._group(batch.job, batch.sink)
        servers, settings, (topic,) = self.options.string(SERVERS), client_settings(self.options), topics(self.options)
        marks = read_shard_marks(servers, topic, group, shards, settings)
        return {shard for shard, mark in marks.items() if is_applied(topic, batch, mark)}

    @property
    def _task_count(self) -> int:
        """How many tasks a batch has, if its rows are from an operator."""
        spark = self.context.spark
        return 1 if spark is None else max(int(spark.conf.get(_PARTITIONS) or 1), 1)

    @cached_property
    def _keeps_order_in_shards(self) -> bool:
        """Whether one task emits all rows of a key of the topic, in their order."""
        keys = frozenset(self.encoder.locate(column.position) for column in self.encoder.keys)
        return self.context.plan is not None and (not keys or are_colocated(self.context.plan, keys))

    def last_applied(self, job: str, sink: str) -> AppliedBatch | None:
        """Return the last batch of the job of which the topic has rows, from the marks."""
        group, (topic,) = self._group(job, sink), topics(self.options)
        servers, settings = self.options.string(SERVERS), client_settings(self.options)
        with self._convert_errors():
            shards = find_shards(servers, group, settings)
            marks = list(read_shard_marks(servers, topic, group, shards, settings).values())
            whole = read_applied(servers, topic, group, settings)
        return max([whole, *marks] if whole else marks, key=lambda each: (each.epoch, each.batch), default=None)

    def _group(self, job: str, sink: str) -> str:
        return group_name(self.options.string("sink.transactional-id-prefix"), job, sink)

    def find_other_job(self, job: str) -> str | None:
        """Return the folder of another job that wrote the same query, from the committed marks.

        None for an upsert sink: newer records of a key replace older ones.
        """
        if self.upsert or not self.context.query:
            return None
        prefix, query = self.options.string("sink.transactional-id-prefix"), self._writer.query
        servers, (topic, *_) = self.options.string(SERVERS), topics(self.options)
        with self._convert_errors():
            return find_other_writer(servers, topic, prefix, job, query, client_settings(self.options))

    @property
    def _writer(self) -> Writer:
        folder = self.context.job_folder
        return Writer(self.context.query[:16], "" if folder is None else str(folder))

    def undo_discarded_batches(self, past: JobLineage) -> None:
        """Remember the past.

        Newer records of a key replace older ones, so nothing is retracted here. The key snapshot is
        stored before the first batch.
        """
        self._past = past

    def report_leftovers(self, *, prune: bool) -> str | None:
        """Return a message about the pending keys, which the job did not write again.

        prune: write a tombstone for each of them.
        """
        past = self._past
        before = None if past is None else self._key_snapshot(past)
        if past is None or before is None:
            return None
        with self._lock, self._convert_errors():  # no batch is written between finding and pruning
            sink = self._open_sink(BatchId(past.job, self.context.name, past.epoch, 0))
            pending = before.find_pending()
            if prune and pending:
                sink.add(OutgoingRecord(each.key, None, each.partition) for each in pending)
        first = [each.key.decode(errors="replace") for each in pending[:_EXAMPLES]]
        return past.report_leftovers(self.table.name, len(pending), first, pruned=prune)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Return a context that converts errors to those of this table and closes the sink."""
        try:
            with convert_errors(self.encoder):
                yield
        except OSError as wrong:
            self.close()
            raise file_system_error(
                wrong,
                f"table `{self.table.name}`: the key snapshot of its topic cannot be stored",
                "run the same command again",
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._transactional is not None:
            self._transactional.close()
            self._transactional = None
        self._is_first = True

    def _open_sink(self, batch: BatchId) -> TransactionalSink:
        if self._transactional is None:
            self._transactional = self._connect(batch)
            before = None if self._past is None else self._key_snapshot(self._past)
            if before is not None and (
                self._transactional.last_applied is None or self._transactional.last_applied.epoch < batch.epoch
            ):
                self._fence_shards(batch)
                before.begin()
        return self._transactional

    def _fence_shards(self, batch: BatchId) -> None:
        """End the transactions of an earlier epoch, which would hide records from the snapshot."""
        group, settings = self._group(batch.job, batch.sink), client_settings(self.options)
        servers = self.options.string(SERVERS)
        for shard in sorted({*find_shards(servers, group, settings), *range(self._task_count)}):
            fence(servers, f"{group}.shard-{shard}", settings)

    def _key_snapshot(self, past: JobLineage) -> KeySnapshot | None:
        """Return the key snapshots; None without keys or a job directory."""
        folder = self.context.job_folder
        if not self.upsert or folder is None:
            return None
        (topic,) = topics(self.options)
        settings = {**client_settings(self.options), "group.id": consumer_group(self.options)}
        return KeySnapshot(topic, tuple(self._partition_list), settings, folder / "sinks" / f"keys-{topic}", past)

    def _connect(self, batch: BatchId) -> TransactionalSink:
        return TransactionalSink(
            bootstrap_servers=self.options.string(SERVERS),
            topic=topics(self.options)[0],
            job=batch.job,
            sink=batch.sink,
            options=client_settings(self.options),
            prefix=self.options.string("sink.transactional-id-prefix"),
            writer=self._writer if self.context.query else None,
        )
