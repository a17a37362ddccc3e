"""Tasks of a Kafka sink write their shards of a batch once, wherever an attempt ends.

The tasks run in this process. What readers with `read_committed` see is counted by hand.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from broker import KafkaBroker
from unit.connectors.tables import table

from everfold.connectors.applied import AppliedBatch, check_not_ahead
from everfold.connectors.contract import KIND, BatchId, Role, SinkContext
from everfold.connectors.kafka import sink as kafka_sink
from everfold.connectors.kafka.client import client_settings
from everfold.connectors.kafka.shards import ShardReport, ShardTask
from everfold.connectors.kafka.sink import KafkaSink
from everfold.connectors.kafka.transaction import OutgoingRecord, SinkFenced, TransactionalSink
from everfold.connectors.validate import check_table
from everfold.error_transport import TransportedError, extract_error
from everfold.errors import StateError
from everfold.plan.changelog import ORDER
from everfold.plan.nodes import Scan
from everfold.types import BIGINT, STRING

SINK = "0_totals"
FEW = 3
"""Rows of a task that it returns to the driver at most."""
Rows = list[tuple[int, str, int]]
"""Kind, key and number."""


@dataclass
class Packed:
    """Rows of an operator as a sink's task receives them. They are in the order of `__order`."""

    rows: Rows

    def count(self) -> int:
        return len(self.rows)

    def read(self, *, ordered: bool = False) -> pa.Table:
        kinds, keys, numbers = zip(*self.rows, strict=True)
        order = {ORDER: pa.array(range(len(keys)), pa.int64())} if ordered else {}
        kind = {KIND: pa.array(kinds, pa.int8())}
        return pa.table({"c0": pa.array(keys, pa.string()), "c1": pa.array(numbers, pa.int64()), **order, **kind})


def many(first: int, count: int = 5) -> Rows:
    return [(0, f"k{at}", at) for at in range(first, first + count)]


class Job:
    """A job that writes a topic; each `start` is a run of it."""

    def __init__(self, broker: KafkaBroker, topic: str, folder: Path, stack: ExitStack) -> None:
        self.broker, self.topic, self.folder, self._stack = broker, topic, folder, stack
        broker.create_topic(topic, 3)

    def start(self, servers: str | None = None, **more: str) -> KafkaSink:
        options = {
            "connector": "upsert-kafka", "topic": self.topic, "key.format": "raw", "value.format": "json",
            "properties.bootstrap.servers": servers or self.broker.bootstrap_servers, **more,
        }  # fmt: skip
        of = replace(table("totals", k=STRING, n=BIGINT).with_options(options), primary_key=("k",))
        context = SinkContext(name=SINK, base_folder=self.folder, table=of, plan=Scan(table=of))
        sink = check_table(of, Role.SINK).sink(context)
        assert isinstance(sink, KafkaSink)
        self._stack.callback(sink.close)
        if servers is None:
            sink.prepare()
        return sink

    def id(self, batch: int) -> BatchId:
        return BatchId(self.topic, SINK, 0, batch, f"digest{batch}")

    def run_task(self, sink: KafkaSink, task: object, shard: int, rows: Rows) -> ShardReport:
        assert isinstance(task, ShardTask)
        writer = task.open(shard, sink.worker_target)
        writer.write(Packed(rows))
        return ShardReport.decode(writer.close())

    def run(self, sink: KafkaSink, batch: int, shards: Mapping[int, Rows]) -> list[ShardReport]:
        task = sink.begin_batch(self.id(batch))
        reports = [self.run_task(sink, task, shard, rows) for shard, rows in shards.items()]
        assert sink.finish_batch([each.encode() for each in reports], self.id(batch)) == sum(map(len, shards.values()))
        return reports

    def crash_after(self, batch: int, shards: Mapping[int, Rows]) -> None:
        """Start the job, and end it after some tasks of a batch."""
        sink = self.start()
        task = sink.begin_batch(self.id(batch))
        for shard, rows in shards.items():
            self.run_task(sink, task, shard, rows)
        sink.abandon_batch()
        sink.close()

    def read(self) -> Counter[tuple[str, int | None]]:
        """Return how often readers see each record."""
        found = self.broker.consume(self.topic)
        return Counter(
            ((each.key or b"").decode(), None if each.value is None else json.loads(each.value)["n"]) for each in found
        )


def once(*rows: Rows) -> Counter[tuple[str, int | None]]:
    return Counter((key, number) for each in rows for _, key, number in each)


@pytest.fixture
def job(
    kafka_broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Job]:
    monkeypatch.setattr(kafka_sink, "_FEW_ROWS", FEW)
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60]
    with ExitStack() as stack:
        yield Job(kafka_broker, name, tmp_path, stack)


def test_only_the_rows_of_small_shards_reach_the_driver(job: Job) -> None:
    large, small = job.run(job.start(), 0, {0: many(0), 1: many(100, 2)})
    assert (large.rows, large.table, small.rows) == (5, None, 2)
    assert small.table is not None
    assert len(large.encode()) < 20
    assert job.read() == once(many(0), many(100, 2))


@pytest.mark.parametrize("written", [(), (0,), (0, 2), (0, 1, 2)])
def test_a_replay_leaves_out_the_shards_that_were_written(job: Job, written: tuple[int, ...]) -> None:
    job.run(job.start(), 0, {0: many(0), 1: many(10)})
    shards = {0: many(20), 1: many(30, 2), 2: many(40)}
    job.crash_after(1, {shard: shards[shard] for shard in written})
    again = job.start()
    job.run(again, 1, shards)
    job.run(again, 2, {0: many(50), 2: many(60, 1)})
    job.run(job.start(), 2, {0: many(50), 2: many(60, 1)})  # replayed as a whole
    assert job.read() == once(many(0), many(10), *shards.values(), many(50), many(60, 1))


def test_a_shard_that_is_small_in_the_replay_is_not_written_again(job: Job) -> None:
    """A lookup table can have changed: the rows that were committed count."""
    job.crash_after(0, {0: many(0), 1: many(10)})
    job.run(job.start(), 0, {0: many(0, 2), 1: many(10), 2: many(20, 2)})
    assert job.read() == once(many(0), many(10), many(20, 2))


def test_a_job_of_the_earlier_release_resumes(job: Job) -> None:
    """Its driver wrote whole batches; the last one was not committed in Spark's log."""
    earlier = job.start()
    for batch in (0, 1):
        earlier.write(Packed(many(10 * batch)).read(), job.id(batch))
    earlier.close()
    sink = job.start()
    assert sink.last_applied(job.topic, SINK) == applied(1)
    job.run(sink, 1, {0: many(10), 1: many(90, 1)})
    job.run(sink, 2, {0: many(20), 1: many(30)})
    assert job.read() == once(many(0), many(10), many(20), many(30))


def applied(batch: int) -> AppliedBatch:
    return AppliedBatch(0, batch, f"digest{batch}")


def test_an_earlier_attempt_of_a_shard_is_fenced(job: Job) -> None:
    """Its transaction has sent records and hangs, as in an executor that was cut off."""
    sink = job.start()
    task = sink.begin_batch(job.id(0))
    zombie = TransactionalSink(
        bootstrap_servers=job.broker.bootstrap_servers, topic=job.topic, job=job.topic, sink=SINK, shard=0,
        options=client_settings(sink.options),
    )  # fmt: skip

    def send_and_be_overtaken() -> Iterator[OutgoingRecord]:
        for _, key, number in many(0):
            yield OutgoingRecord(key.encode(), json.dumps({"k": key, "n": number}).encode())
        job.run_task(sink, task, 0, many(0))

    with pytest.raises(SinkFenced):
        zombie.apply(0, 0, send_and_be_overtaken(), "digest0")
    zombie.close()
    sink.finish_batch([ShardReport(0, 5).encode()], job.id(0))
    assert job.read() == once(many(0))


def test_the_last_change_of_a_key_counts_in_each_path(job: Job) -> None:
    sink = job.start()
    changes = [(0, "a", 1), (1, "a", 1), (2, "a", 2), (0, "b", 1), (3, "b", 1)]
    job.run(sink, 0, {0: changes})
    job.run(sink, 1, {0: [(1, "a", 2), (2, "a", 3)]})
    found = [(each.key, each.value and json.loads(each.value)["n"]) for each in job.broker.consume(job.topic)]
    assert [each for each in found if each[0] == b"a"] == [(b"a", 2), (b"a", 3)]
    assert [each for each in found if each[0] == b"b"] == [(b"b", None)]


def test_a_restored_job_directory_is_refused_by_the_mark_of_a_shard(job: Job) -> None:
    job.run(job.start(), 0, {0: many(0)})
    job.crash_after(1, {2: many(10)})
    last = job.start().last_applied(job.topic, SINK)
    assert last == applied(1)
    check_not_ahead("totals", job.id(1), last)  # it was planned: a crash
    with pytest.raises(StateError, match="it holds batch 1 of the job"):
        check_not_ahead("totals", job.id(0), last)


def test_marks_of_shards_are_not_another_job(job: Job) -> None:
    job.run(job.start(), 0, {0: many(0), 1: many(10)})
    assert job.start().find_other_job("another") is None


@pytest.mark.parametrize("code", ["kafka-unreachable"])
def test_an_error_of_a_task_is_one_of_the_table(job: Job, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everfold.connectors.kafka.transaction.REQUEST_TIMEOUT_S", 1.0)
    down = job.start("127.0.0.1:1", **{"properties.ssl.key.password": "hunter2-canary"})
    task = ShardTask(job.id(0), (0,), False, FEW, 1 << 20)
    with pytest.raises(TransportedError) as caught:
        job.run_task(down, task, 0, many(0))
    error = extract_error(str(caught.value))
    assert error is not None
    assert error.code == code
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(task)


def test_a_task_of_unordered_keys_returns_all_rows(job: Job) -> None:
    sink = job.start()
    sink.context = replace(sink.context, plan=None)
    [report] = job.run(sink, 0, {0: many(0, 50)})
    assert report.table is not None
    assert job.read() == once(many(0, 50))
