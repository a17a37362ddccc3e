"""What the tasks of a batch send to the buckets of an operator: each bucket learns the time of all
tasks, with one meta row per task and partition.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from property.harness import Runner, aggregate_of
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from everfold.operators.protocol import Meta, Stats
from everfold.plan.windows import Tumble
from everfold.spark import exchange
from everfold.spark.buckets import bucket_ids, choose_modulus, find_partition
from everfold.spark.exchange import Pack, from_ipc
from everfold.spark.processor import BucketProcessor
from everfold.spark.task_input import CALL, META, ROWS, STATS, Chunk

Rows: TypeAlias = Sequence[tuple[Any, ...]]
Wire: TypeAlias = list[tuple[int, bytes]]
NODE = aggregate_of(Tumble(size_ms=10))


@dataclass(frozen=True, slots=True)
class Given:
    """A task's input: rows (time, key, value); none if it reads nothing."""

    rows: Rows

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        if self.rows:
            meta = Meta(0, {"t": max(row[0] for row in self.rows)})
            yield Chunk(Runner(NODE).frame(self.rows), meta, [], [])


class Job:
    """An operator behind its exchange, as Spark runs it.

    partitions: of the shuffle. known: what tasks take for their number.
    """

    def __init__(self, buckets: int, partitions: int, known: int | None) -> None:
        self.ids, self.known = bucket_ids(buckets, choose_modulus(buckets, partitions)), known
        self.operator = Runner(NODE).operator
        processors = [BucketProcessor("w1", pickle.dumps(self.operator), self.ids[0]) for _ in range(partitions)]
        self.partitions = [TwsTester(each) for each in processors]
        self.sent: Counter[bytes] = Counter()

    def batch(self, tasks: Sequence[Rows], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Row]]:
        """Run a batch; return the output of the buckets."""
        wire: Wire = []
        monkeypatch.setattr(exchange, "count_partitions", lambda: self.known)
        for at, rows in enumerate(tasks):
            monkeypatch.setattr(exchange, "task_number", lambda number=at: number)
            for batch in Pack(self.operator, self.ids, Given(rows))(iter(())):
                wire += zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        self.sent = Counter(blob[:1] for _, blob in wire)
        return [each for at in reversed(range(len(self.partitions))) for each in self._run_task(at, wire)]

    def _run_task(self, partition: int, wire: Wire) -> Iterator[tuple[int, Row]]:
        """Run the buckets of a partition in the order of their ids, with the last rows first."""
        tester = self.partitions[partition]
        tester.processor.init(tester.handle)
        for bucket in sorted({bucket for bucket, _ in wire}):
            if find_partition(bucket, len(self.partitions)) == partition:
                mine = [Row(payload=blob) for to, blob in reversed(wire) if to == bucket]
                yield from ((bucket, row) for row in tester.test(bucket, mine))


def payloads(output: Sequence[tuple[int, Row]], kind: bytes) -> list[bytes]:
    return [row.payload for _, row in output if row.payload[:1] == kind]


BATCHES: list[list[Rows]] = [
    [[(1, "a", 1), (3, "b", 2)], [(12, "a", 4)], [(5, "c", 8)]],
    [[], [(4, "a", 16)], [(19, "d", 32), (13, "a", 64)]],  # the first task reads nothing; a row is late
    [[], [], []],
    [[(35, "e", 1)], [], [(21, "b", 2)]],
    [[(70, "e", 1)]],
]


@pytest.mark.parametrize(
    ("buckets", "partitions", "known"), [(2, 2, 2), (8, 3, 3), (64, 4, 4), (64, 7, 7), (2, 3, 3), (8, 3, None)]
)
def test_every_bucket_learns_the_time_of_all_tasks(
    buckets: int, partitions: int, known: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, direct = Job(buckets, partitions, known), Runner(NODE)
    leaders = buckets if known is None else min(buckets, partitions)
    for tasks in BATCHES:
        output = job.batch(tasks, monkeypatch)
        reading = sum(bool(rows) for rows in tasks)
        assert job.sent[META] == reading * leaders
        assert job.sent[CALL] == buckets
        if not reading:
            assert output == []
            continue
        expected = direct.batch(tasks)
        found = [row for blob in payloads(output, ROWS) for row in from_ipc(blob).rows()]
        assert sorted(found) == sorted(expected)
        stats = [Stats.decode(blob[1:]) for blob in payloads(output, STATS)]
        assert [each.watermark_ms for each in stats] == [direct.watermark] * buckets
        assert sum(each.late_rows for each in stats) == direct.late
        (meta,) = payloads(output, META)
        assert direct.meta is not None
        assert Meta.decode(meta[1:]).watermarks == direct.meta.watermarks


@pytest.mark.parametrize("tasks", [1, 16])
@pytest.mark.parametrize("buckets", [2, 64, 1024])
def test_meta_traffic_does_not_grow_with_the_product_of_tasks_and_buckets(
    tasks: int, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(buckets, 2, 2)
    monkeypatch.setattr(exchange, "count_partitions", lambda: 2)
    for at in range(tasks):
        monkeypatch.setattr(exchange, "task_number", lambda number=at: number)
        for batch in Pack(job.operator, job.ids, Given([(at, "a", 1)]))(iter(())):
            job.sent.update(blob[:1] for blob in batch.column(1).to_pylist())
    assert job.sent == {ROWS: tasks, META: 2 * tasks, CALL: buckets}


def test_a_wrong_number_of_partitions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for partitions, known in ((2, 3), (3, 2), (4, 2)):
        with pytest.raises(AssertionError, match="has no meta rows"):
            Job(8, partitions, known).batch(BATCHES[0], monkeypatch)
