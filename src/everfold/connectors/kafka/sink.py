"""Write to a topic exactly once.

A batch and the mark that records it are one Kafka transaction (`transaction`).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaException

from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.contract import (
    KIND,
    AppliedBatch,
    BatchId,
    JobLineage,
    LocalSink,
    OptionValues,
    Role,
    SinkContext,
    columns_of,
)
from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.kafka.client import Client, client_settings, consumer_group, kafka_error
from everfold.connectors.kafka.key_snapshot import KeySnapshot
from everfold.connectors.kafka.table_options import (
    SERVERS,
    key_columns,
    key_format,
    topics,
    value_columns,
    value_format,
)
from everfold.connectors.kafka.transaction import (
    OutgoingRecord,
    SinkFenced,
    TransactionalSink,
    Writer,
    find_other_writer,
    group_name,
    read_applied,
)
from everfold.connectors.sink_changelog import last_by_key
from everfold.errors import ConnectorError, StateError
from everfold.plan.changelog import RETRACTIONS
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa


_T = TypeVar("_T")
_EXAMPLES = 5
_NO_HEADERS: Sequence[tuple[str, bytes | None]] = ()


class KafkaSink(LocalSink):
    """A sink that writes one topic.

    upsert: write only the last row of each key in a batch, as a tombstone if it is a retraction.
    """

    def __init__(self, context: SinkContext, options: OptionValues, *, upsert: bool = False) -> None:
        super().__init__(context, options)
        self.upsert = upsert
        self._transactional: TransactionalSink | None = None
        self._partition_list: list[int] = [0]
        self._past: JobLineage | None = None
        self._lock = threading.Lock()

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
            self._open_sink(batch).apply(batch.epoch, batch.batch, self._records(rows), batch.digest)

    def last_applied(self, job: str, sink: str) -> AppliedBatch | None:
        """Return the last batch of the job, from its committed mark."""
        with self._convert_errors():
            group = group_name(self.options.string("sink.transactional-id-prefix"), job, sink)
            return read_applied(
                self.options.string(SERVERS), topics(self.options)[0], group, client_settings(self.options)
            )

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
        """Return a context that converts errors to those of this table and then closes the sink."""
        try:
            yield
        except SinkFenced as fenced:
            self.close()
            raise StateError.of(
                "sink-taken-over",
                f"table `{self.table.name}`: another run of this job writes to `{topics(self.options)[0]}` now",
            ) from fenced
        except KafkaException as wrong:
            self.close()
            raise kafka_error(self.table, self.options, wrong) from None
        except TimeoutError as wrong:
            self.close()
            raise ConnectorError.of("kafka-unreachable", f"table `{self.table.name}`: {wrong}") from None
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

    def _open_sink(self, batch: BatchId) -> TransactionalSink:
        if self._transactional is None:
            self._transactional = self._connect(batch)
            before = None if self._past is None else self._key_snapshot(self._past)
            if before is not None and (
                self._transactional.last_applied is None or self._transactional.last_applied.epoch < batch.epoch
            ):
                before.begin()
        return self._transactional

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

    def _records(self, rows: pa.Table) -> Iterator[OutgoingRecord]:
        keys = key_columns(self.table, self.options, Role.SINK)
        if self.upsert:
            rows = last_by_key(rows, [physical_name(column.position) for column in keys])
        form = key_format(self.table, self.options)
        written = self._encode(
            rows, value_format(self.table, self.options), value_columns(self.table, self.options, Role.SINK)
        )
        if self.upsert:
            kinds = rows.column(KIND).to_pylist()
            written = [None if kind in RETRACTIONS else value for kind, value in zip(kinds, written, strict=True)]
        return map(
            OutgoingRecord,
            itertools.repeat(None) if form is None else self._encode(rows, form, keys),
            written,
            self._partitions(rows),
            self._metadata(rows, "timestamp", _millis, None),
            self._metadata(rows, "headers", _headers, _NO_HEADERS),
        )

    @staticmethod
    def _encode(rows: pa.Table, form: Format, columns: Sequence[RecordColumn]) -> list[bytes | None]:
        import pyarrow as pa

        records: list[bytes | None] = form.encode(rows, columns).cast(pa.large_binary()).to_pylist()
        return records

    def _partitions(self, rows: pa.Table) -> Iterable[int | None]:
        match self.options.string("sink.partitioner"):
            case "fixed":
                return itertools.repeat(self._partition_list[0])
            case "round-robin":
                return itertools.cycle(self._partition_list)
            case _:
                return itertools.repeat(None)

    def _metadata(self, rows: pa.Table, key: str, convert: Callable[[Any], _T], missing: _T) -> Iterable[_T]:
        """Yield the METADATA of each record, `missing` if the table or the row has none."""
        columns = columns_of(self.table, Role.SINK)
        at = next((at for at, column in enumerate(columns) if column.metadata_key == key), None)
        if at is None:
            return itertools.repeat(missing)
        values = rows.column(physical_name(at)).to_pylist()
        return (missing if value is None else convert(value) for value in values)


def _millis(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


def _headers(entries: Sequence[tuple[str, bytes | None]]) -> Sequence[tuple[str, bytes | None]]:
    return [(str(key), value) for key, value in entries]
