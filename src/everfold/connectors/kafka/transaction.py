"""Write a batch, or a shard of it, to Kafka exactly once.

The records of a batch and the mark that records the batch are one Kafka transaction. The mark is
the committed offset of a consumer group without consumers: `batch + 1` at partition 0 of the sink's
topic, with the epoch, the digest of the batch and the writer in its metadata. After a crash the
next producer with the same `transactional.id` fences the last one, which ends an open transaction,
and then reads the mark: the batch that it names is in the topic completely, later batches not at
all. Readers need `isolation.level = read_committed`.

The broker deletes the mark after `offsets.retention.minutes` without a commit (7 days by default):
a batch that was committed here but not in Spark's log, and is replayed later than that, would be
written twice.

A shard is the part of a batch that one task writes (`shards`). It has its own transactional id and
mark, named after those of the sink.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from everfold.connectors.applied import AppliedBatch, BatchId, is_applied

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS = 300_000
REQUEST_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 5.0
TOPIC_TIMEOUT_S = 3.0
ANY_PARTITION = -1
_METADATA_CHARACTERS = 1000
"""Limit of the metadata of a mark; brokers accept 4,096 bytes."""
_CONSUMER_ONLY = ("isolation.level",)
"""Properties of consumers only; a producer warns about them."""
_POLL_RECORDS = 1000
_SHARD = re.compile(r"\.shard-(\d+)")

Headers = Sequence[tuple[str, str | bytes | None]]


class OutgoingRecord(NamedTuple):
    """One record for a topic; value None is a tombstone."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class Writer(NamedTuple):
    """Identifies a writer: a hash of the query, without spaces, and the job directory."""

    query: str
    folder: str


class SinkFenced(Exception):
    """Another process writes for this job and sink.

    This process must stop; its open transaction is void.
    """


class TransactionalSink:
    """One sink of one job, writing to one topic, or one shard of it.

    Opening it fences a process that still writes with the same job, sink and shard.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        topic: str,
        job: str,
        sink: str,
        options: Mapping[str, str] | None = None,
        prefix: str = "everfold",
        writer: Writer | None = None,
        shard: int | None = None,
    ) -> None:
        self._topic, self._writer = topic, writer
        self._job, self._sink = job, sink
        name = group_name(prefix, job, sink, shard)
        common = {**_drop_consumer_only(options or {}), "bootstrap.servers": bootstrap_servers}
        self._producer = Producer(
            {
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 20,
                "partitioner": "murmur2_random",  # assigns keys to the same partitions as Java's producer
                **common,
                "transactional.id": name,
            },
            logger=log,
        )
        self._group = Consumer(
            {**common, "group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}, logger=log
        )
        self._failed = False
        try:
            self._await_topic()
            _retry(self._producer.init_transactions)
            self._applied = _read_mark(self._group, topic)
        except BaseException:
            self._group.close()
            raise

    def close(self) -> None:
        """Close the connections; an unfinished transaction is left to be fenced."""
        self._group.close()

    @property
    def last_applied(self) -> AppliedBatch | None:
        """The last batch in the topic; None if there is none.

        As reported by the broker at the start, or committed since.
        """
        return self._applied

    def apply(self, epoch: int, batch: int, records: Iterable[OutgoingRecord], digest: str = "") -> bool:
        """Write the batch unless the topic has it; return whether it was written.

        When this returns, the transaction is committed; `read_committed` readers see all records as
        soon as the broker has written its end into the partitions, some milliseconds later. If the
        process dies before, they see none. When it raises, the outcome may be unknown (a commit
        without an answer): the sink cannot be used any more, and the next one that is opened reads
        how it ended. Raises StateError `sink-ahead` if the topic has a later batch, or one of the
        same number with other input.
        """
        if self.has_applied(epoch, batch, digest):
            return False
        mark = AppliedBatch(epoch, batch, digest)
        self._commit(records, mark)
        self._applied = mark
        return True

    def has_applied(self, epoch: int, batch: int, digest: str = "") -> bool:
        """Return whether the topic has the batch. Raises as `apply` does."""
        assert not self._failed, "a sink that failed must be opened again"
        if self._applied is not None and self._applied.epoch > epoch:
            raise SinkFenced(f"epoch {epoch} writes to a sink that epoch {self._applied.epoch} has taken over")
        return is_applied(self._topic, BatchId(self._job, self._sink, epoch, batch, digest), self._applied)

    def add(self, records: Iterable[OutgoingRecord]) -> None:
        """Write records that belong to no batch; all or none, as in `apply`."""
        assert not self._failed, "a sink that failed must be opened again"
        self._commit(records, None)

    def _await_topic(self) -> None:
        """Fail early if the topic does not exist: a producer would hold its records for a minute.

        A broker may create the topic when its metadata is requested.
        """
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while True:
            error = self._producer.list_topics(self._topic, REQUEST_TIMEOUT_S).topics[self._topic].error
            if error is None:
                return
            if time.monotonic() > deadline:
                raise KafkaException(error)
            time.sleep(0.2)

    def _commit(self, records: Iterable[OutgoingRecord], mark: AppliedBatch | None) -> None:
        try:
            self._producer.begin_transaction()
            self._produce(records)
            if mark is not None:
                self._mark(mark)
            _retry(self._producer.commit_transaction)
        except BaseException as failure:
            self._failed = True
            self._abort()
            if isinstance(failure, KafkaException):
                raise _convert_error(failure) from failure
            raise

    # -- the parts of a transaction ----------------------------------------------------------------

    def _produce(self, records: Iterable[OutgoingRecord]) -> None:
        """Send all records.

        A record that the broker rejects fails the transaction, so deliveries need not be checked.
        """
        for at, record in enumerate(records):
            self._enqueue(record)
            if at % _POLL_RECORDS == 0:
                self._producer.poll(0)
        unsent = self._producer.flush(REQUEST_TIMEOUT_S)
        if unsent:
            raise TimeoutError(f"{unsent} records for topic {self._topic} were not acknowledged")

    def _enqueue(self, record: OutgoingRecord) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    partition=ANY_PARTITION if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,  # 0 means now in the client
                    headers=list(record.headers),
                )
                return
            except BufferError:  # the client's queue is full: let it drain
                self._producer.poll(0.1)

    def _mark(self, mark: AppliedBatch) -> None:
        """Add the mark to the open transaction."""
        writer = "" if self._writer is None else f" {self._writer.query} {self._writer.folder}"
        metadata = f"{mark.epoch} {mark.digest}{writer}".rstrip()[:_METADATA_CHARACTERS]
        offset = TopicPartition(self._topic, 0, mark.batch + 1, metadata)
        group = self._group.consumer_group_metadata()
        _retry(lambda timeout: self._producer.send_offsets_to_transaction([offset], group, timeout))

    def _abort(self) -> None:
        """Abort the transaction if the broker answers.

        Then readers need not wait for the timeout of the transaction.
        """
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(ABORT_TIMEOUT_S)


def group_name(prefix: str, job: str, sink: str, shard: int | None = None) -> str:
    """Return the consumer group whose committed offset is the mark; also the transactional id."""
    return f"{prefix}.{job}.{sink}" + ("" if shard is None else f".shard-{shard}")


def fence(bootstrap_servers: str, name: str, options: Mapping[str, str]) -> None:
    """End the open transaction of a transactional id. Raises KafkaException."""
    common = {**_drop_consumer_only(options), "bootstrap.servers": bootstrap_servers}
    _retry(Producer({**common, "transactional.id": name}, logger=log).init_transactions)


def _drop_consumer_only(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key not in _CONSUMER_ONLY}


def read_applied(bootstrap_servers: str, topic: str, group: str, options: Mapping[str, str]) -> AppliedBatch | None:
    """Return the last batch that a topic certainly has, without fencing another writer.

    A batch that a killed run has sent but not yet committed does not count. Raises KafkaException.
    """
    settings = {**options, "bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"}, logger=log)
    try:
        return _read_mark(consumer, topic)
    finally:
        consumer.close()


def _read_mark(group: Consumer, topic: str) -> AppliedBatch | None:
    [committed] = _retry(lambda timeout: group.committed([TopicPartition(topic, 0)], timeout=timeout))
    return _parse_mark(committed)


def _parse_mark(committed: TopicPartition) -> AppliedBatch | None:
    if committed.error is not None:
        raise KafkaException(committed.error)
    if committed.offset < 0:
        return None
    epoch, digest, *_ = [*(committed.metadata or "0").split(" "), ""]
    return AppliedBatch(int(epoch), committed.offset - 1, digest)


def find_shards(bootstrap_servers: str, group: str, options: Mapping[str, str]) -> list[int]:
    """Return the shards of a sink that have a mark. group: of the sink. Raises KafkaException."""
    admin = _connect_admin(bootstrap_servers, options)
    listed = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
    names = [each.group_id.removeprefix(group) for each in listed.valid if each.group_id.startswith(group)]
    return sorted(int(found[1]) for name in names if (found := _SHARD.fullmatch(name)) is not None)


def read_shard_marks(
    bootstrap_servers: str, topic: str, group: str, shards: Iterable[int], options: Mapping[str, str]
) -> dict[int, AppliedBatch]:
    """Return the last batches of shards of a sink, by shard. Raises KafkaException.

    A transaction that is committing is waited for.
    """
    admin = _connect_admin(bootstrap_servers, options)
    names = {shard: f"{group}.shard-{shard}" for shard in shards}
    found = {shard: _retry(partial(_ask_for_mark, admin, topic, name)) for shard, name in names.items()}
    return {shard: mark for shard, mark in found.items() if mark is not None}


def _ask_for_mark(admin: AdminClient, topic: str, group: str, timeout: float) -> AppliedBatch | None:
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    answer = admin.list_consumer_group_offsets([request], require_stable=True, request_timeout=timeout)
    [found] = answer.values()
    return next((_parse_mark(each) for each in found.result().topic_partitions), None)


def _connect_admin(bootstrap_servers: str, options: Mapping[str, str]) -> AdminClient:
    return AdminClient({**_drop_consumer_only(options), "bootstrap.servers": bootstrap_servers}, logger=log)


def find_other_writer(
    bootstrap_servers: str, topic: str, prefix: str, job: str, query: str, options: Mapping[str, str]
) -> str | None:
    """Return the folder of another job that has written the same query to a topic, from the marks.

    None if there is none, or if the brokers do not permit listing consumer groups.
    """
    admin = AdminClient({**options, "bootstrap.servers": bootstrap_servers}, logger=log)
    with contextlib.suppress(KafkaException):
        groups = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result().valid
        names = [each.group_id for each in groups if each.group_id.startswith(f"{prefix}.")]
        for name in names:
            if name.startswith(f"{prefix}.{job}.") or _SHARD.search(name):
                continue
            request = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0)])
            (answer,) = admin.list_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S).values()
            for each in answer.result().topic_partitions:
                parts = (each.metadata or "").split(" ", 3)
                if each.offset >= 0 and len(parts) == 4 and parts[2] == query:
                    return str(parts[3])
    return None


def _retry(step: Callable[[float], T]) -> T:
    """Run a step until it succeeds or fails for good.

    step: takes its timeout in seconds.
    """
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return step(max(deadline - time.monotonic(), 1.0))
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if not (error.retriable() or error.code() in _TRANSIENT) or time.monotonic() > deadline:
                raise _convert_error(failure) from failure
            time.sleep(0.1)


# Errors of a coordinator that starts, moves or settles. The client marks only its own transaction
# calls as retriable.
_TRANSIENT = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def _convert_error(failure: KafkaException) -> Exception:
    error: KafkaError = failure.args[0]
    return SinkFenced(error.str()) if error.code() in _FENCED else failure
