"""A real Kafka broker for tests: one process with one node.

The broker ends with the test process, however that ends.

The jars are fetched once from Maven through the Ivy that PySpark ships, into `$EVERFOLD_CACHE` or
`~/.cache/everfold`. After that a broker starts in about three seconds and needs only Java.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from operator import lt
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self, cast

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as ConsumedMessage
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic
from jvm import SHORT_LIVED
from maven import fetch_jars, java_program
from servers import end_server, free_ports, port_is_open, watchdog

KAFKA_VERSION = "4.1.0"
# Sixteen bytes in base64. A constant, not random: one in 64 would begin with a dash and be parsed
# as an option.
CLUSTER_ID = "ZXZlcmZvbGQtdGVzdGluZw"
START_TIMEOUT_S = 60.0  # usually seconds; a loaded machine takes longer
CLIENT_TIMEOUT_S = 30.0
ANY_PARTITION = -1

_JVM_FLAGS = ("-Xmx512m", *SHORT_LIVED, "-Djava.awt.headless=true")

Text = str | bytes
Headers = Sequence[tuple[str, bytes]]


class Message(NamedTuple):
    """A record to produce. Fields that are not set are chosen by the broker."""

    key: Text | None
    value: Text | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class Received(NamedTuple):
    """A committed record as a consumer sees it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaBroker:
    """A broker on a free port of 127.0.0.1 with its own data directory.

    `stop` and `start` keep port and data, so a client sees a broker that was down for a while.
    """

    def __init__(self, cluster_id: str = CLUSTER_ID) -> None:
        self._cluster_id = cluster_id
        self._home = Path(tempfile.mkdtemp(prefix="everfold-kafka-"))
        self._port, self._controller_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Return the value for `bootstrap.servers`. It stays the same across stops and starts."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Return whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process of the running broker."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker and return when it answers clients."""
        if self.running:
            return
        self._format_storage()
        with self._log() as log:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watchdog = watchdog(self._process, self._home)
        self._wait_until_ready()

    def stop(self) -> None:
        """Shut the broker down cleanly. Its topics stay for the next `start`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as a power cut would. Flushed data stays for the next `start`."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the broker and delete its data."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, guard = self._process, self._watchdog
        self._process = self._watchdog = None
        end_server(process, guard, how)

    def _format_storage(self) -> None:
        data = self._home / "data"
        if (data / "meta.properties").exists():
            return
        self._settings.write_text(_server_properties(data, self._port, self._controller_port))
        command = _java("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(self._settings))
        with self._log() as log:
            done = subprocess.run(command, check=False, stdout=log, stderr=log)
        if done.returncode != 0:
            raise RuntimeError(f"the Kafka broker cannot format its storage:\n{self.log_text()}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not port_is_open(self._port):
            if not self.running:
                raise RuntimeError(f"the Kafka broker ended at its start:\n{self.log_text()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the Kafka broker is not up after {START_TIMEOUT_S:.0f} s:\n{self.log_text()}")
            time.sleep(0.05)
        self._admin().list_topics(timeout=START_TIMEOUT_S)

    @property
    def _settings(self) -> Path:
        return self._home / "server.properties"

    def _log(self) -> IO[bytes]:
        return (self._home / "broker.log").open("ab")

    def log_text(self) -> str:
        """Return what the broker's JVM has printed so far."""
        path = self._home / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- topics and records ------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic and return when a client can see it."""
        admin = self._admin()  # keep the client: its pending requests are lost when it is collected
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(CLIENT_TIMEOUT_S)
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while len(admin.list_topics(name, timeout=CLIENT_TIMEOUT_S).topics[name].partitions) < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the topic {name} is not visible")
            time.sleep(0.05)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(CLIENT_TIMEOUT_S)

    def recreate_topic(self, name: str, partitions: int = 1) -> None:
        """Delete a topic, and create another one with the same name."""
        self.delete_topic(name)
        admin = self._admin()
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while name in admin.list_topics(timeout=CLIENT_TIMEOUT_S).topics:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the topic {name} is still there")
            time.sleep(0.05)
        self.create_topic(name, partitions)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records of a partition before an offset, as its retention would."""
        admin = self._admin()
        [deleted] = admin.delete_records([TopicPartition(topic, partition, before)]).values()
        deleted.result(CLIENT_TIMEOUT_S)

    def produce(self, topic: str, messages: Iterable[Sequence[object]]) -> None:
        """Write `(key, value[, partition[, timestamp_ms[, headers]]])` rows in order.

        All rows are acknowledged when it returns.
        """
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        failures: list[KafkaError] = []
        for row in messages:
            _produce_one(producer, topic, Message(*row), failures)  # type: ignore[arg-type]  # rows are checked by use
        unsent = producer.flush(CLIENT_TIMEOUT_S)
        if failures:
            raise KafkaException(failures[0])
        if unsent:
            raise TimeoutError(f"{unsent} records were not acknowledged within {CLIENT_TIMEOUT_S:.0f} s")

    def consume(self, topic: str) -> list[Received]:
        """Return all committed records of a topic, sorted by partition and offset.

        Waits for the end of transactions, so none must stay open.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"everfold-test-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=CLIENT_TIMEOUT_S).topics[topic].partitions
            self._await_commits([TopicPartition(topic, partition) for partition in partitions])
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            return sorted(_read_to_end(consumer, set(partitions)))
        finally:
            consumer.close()

    def _await_commits(self, partitions: Sequence[TopicPartition]) -> None:
        """Return when all transactions have ended in the partitions.

        The broker confirms a commit before it writes its end into the partitions, and until then
        readers do not see the records.
        """
        admin = self._admin()
        ends = _end_offsets(admin, partitions, IsolationLevel.READ_UNCOMMITTED)
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while any(map(lt, _end_offsets(admin, partitions, IsolationLevel.READ_COMMITTED), ends)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a transaction has not ended after {CLIENT_TIMEOUT_S:.0f} s")
            time.sleep(0.01)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """Start one broker for all tests of a session. Each test uses its own topic names."""
    with KafkaBroker() as broker:
        yield broker


# -- records ---------------------------------------------------------------------------------------


def _produce_one(producer: Producer, topic: str, message: Message, failures: list[KafkaError]) -> None:
    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    while True:
        try:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=ANY_PARTITION if message.partition is None else message.partition,
                timestamp=message.timestamp_ms or 0,  # to the client, 0 means now
                headers=list(message.headers),
                on_delivery=note,
            )
            break
        except BufferError:  # the client's queue is full: let it drain
            producer.poll(0.1)
    producer.poll(0)


def _end_offsets(admin: AdminClient, partitions: Sequence[TopicPartition], level: IsolationLevel) -> list[int]:
    latest = {each: OffsetSpec.latest() for each in partitions}  # type: ignore[no-untyped-call]  # the client has few types
    asked = admin.list_offsets(latest, isolation_level=level, request_timeout=CLIENT_TIMEOUT_S)
    return [asked[each].result().offset for each in partitions]


def _read_to_end(consumer: Consumer, open_partitions: set[int]) -> Iterator[Received]:
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while open_partitions:
        message = consumer.poll(0.2)
        if message is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end of partitions {sorted(open_partitions)} after {CLIENT_TIMEOUT_S:.0f} s")
            continue
        error = message.error()
        if error is None:
            yield _to_received(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            open_partitions.discard(_require(message.partition()))
        else:
            raise KafkaException(error)


def _to_received(message: ConsumedMessage) -> Received:
    headers = tuple((name, value) for name, value in cast(list[tuple[str, bytes | None]], message.headers() or []))
    return Received(
        _require(message.partition()),
        _require(message.offset()),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )


def _require(number: int | None) -> int:
    assert number is not None, "a consumed message has a partition and an offset"
    return number


# -- process ---------------------------------------------------------------------------------------


def _java(main_class: str, *arguments: str) -> list[str]:
    return [java_program(), *_JVM_FLAGS, "-cp", str(kafka_jars() / "*"), main_class, *arguments]


def _server_properties(data: Path, port: int, controller_port: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        # One node: no replication.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        # Small and quick: a restart after a kill waits for the old session to expire, and a group
        # for its members.
        "group.initial.rebalance.delay.ms": 0,
        "broker.heartbeat.interval.ms": 300,
        "broker.session.timeout.ms": 2000,
        "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "background.threads": 2,
        # Test records have fixed dates in the past: retention must not delete them.
        "log.retention.ms": -1,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


# -- jars ------------------------------------------------------------------------------------------


def kafka_jars() -> Path:
    """Return the directory with the broker's jars. The first call on a machine fetches them."""
    return fetch_jars(f"kafka-{KAFKA_VERSION}", [("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)])
