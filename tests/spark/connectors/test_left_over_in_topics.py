"""After a rewind a job finds the earlier keys that did not reappear, in topics of a real Kafka
broker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from broker import KafkaBroker
from unit.connectors.lineages import lineage_after_change, lineage_after_rebuild, lineage_after_rollback
from unit.connectors.tables import table

from everfold.connectors.contract import KIND, BatchId, Role, SinkContext
from everfold.connectors.kafka.sink import KafkaSink
from everfold.connectors.replay import JobLineage
from everfold.connectors.validate import check_table
from everfold.plan.changelog import RowKind
from everfold.storage import local
from everfold.types import BIGINT, STRING

TOTALS = table("totals", k=STRING, n=BIGINT)
KINDS = {kind.short: kind.value for kind in RowKind}
REBUILT = "table `totals`: keys that did not reappear"
LATER = "table `totals`: keys that only later versions wrote and that did not reappear"
Rows = list[tuple[str, str, int]]


class Run:
    """A run of a job into a topic."""

    def __init__(self, sink: KafkaSink, past: JobLineage | None) -> None:
        self.sink, self.epoch = sink, 0 if past is None else past.epoch
        sink.prepare()
        if past is not None:
            sink.undo_discarded_batches(past)

    def write(self, batch: int, rows: Rows) -> None:
        kinds, keys, numbers = zip(*rows, strict=True)
        found = pa.table(
            {
                "c0": pa.array(keys, pa.string()),
                "c1": pa.array(numbers, pa.int64()),
                KIND: pa.array([KINDS[kind] for kind in kinds], pa.int8()),
            }
        )
        self.sink.write(found, BatchId("job", self.sink.context.name, self.epoch, batch))


Start = Callable[..., Run]


class Topic:
    """A topic of two partitions."""

    def __init__(self, broker: KafkaBroker, name: str) -> None:
        self.broker, self.name = broker, name
        broker.create_topic(name, 2)

    def content(self) -> dict[str, int]:
        """Return the newest row of each key."""
        found = {record.key: record.value for record in self.broker.consume(self.name)}
        return {
            json.loads(key)["k"]: json.loads(value)["n"]
            for key, value in found.items()
            if key is not None and value is not None
        }


@pytest.fixture
def topic(kafka_broker: KafkaBroker, request: pytest.FixtureRequest) -> Topic:
    return Topic(kafka_broker, request.node.name.replace("test_", "").replace("_", "-")[:60])


@pytest.fixture
def start(topic: Topic, tmp_path: Path) -> Iterator[Start]:
    """Start runs of a job in an epoch; each later run is the next start."""
    with ExitStack() as stack:

        def run(past: JobLineage | None, name: str = "0_totals") -> Run:
            options = {
                "connector": "upsert-kafka", "topic": topic.name, "properties.bootstrap.servers": topic.broker.bootstrap_servers,
                "key.format": "json", "value.format": "json",
            }  # fmt: skip
            of = replace(TOTALS.with_options(options), primary_key=("k",))
            sink = check_table(of, Role.SINK).sink(
                SinkContext(name=name, base_folder=tmp_path, table=of, job_folder=local(tmp_path))
            )
            assert isinstance(sink, KafkaSink)
            stack.callback(sink.close)
            return Run(sink, past)

        yield run


@pytest.fixture
def written(start: Start) -> Start:
    """Run a job that has written eight keys and deleted one of them."""
    run = start(None)
    run.write(0, [("+I", f"k{at}", at) for at in range(9)])
    run.write(1, [("-D", "k8", 8)])
    return start


def test_keys_that_did_not_reappear_are_counted_and_pruned(written: Start, topic: Topic) -> None:
    run = written(lineage_after_rebuild(1))
    run.write(0, [("+I", "k0", 10), ("+I", "new", 1)])
    first = ", ".join(f'{{"k":"k{at}"}}' for at in range(1, 6))
    assert run.sink.report_leftovers(prune=False) == f"{REBUILT}: 7 ({first}, …); --prune deletes their rows"
    assert topic.content() == {**{f"k{at}": at for at in range(8)}, "k0": 10, "new": 1}
    again = written(lineage_after_rebuild(1))  # after a stop
    again.write(1, [("+U", "k1", 11), ("-D", "k2", 2)])
    assert again.sink.report_leftovers(prune=True) == f"{REBUILT}, now deleted: 5"
    assert topic.content() == {"k0": 10, "k1": 11, "new": 1}
    assert again.sink.report_leftovers(prune=True) is None
    again.write(2, [("+I", "k7", 7)])  # the sink continues
    assert topic.content()["k7"] == 7
    assert written(lineage_after_rebuild(2, origin=1)).sink.report_leftovers(prune=True) is None


@pytest.mark.slow
def test_keys_of_later_versions_are_counted_and_pruned(written: Start, topic: Topic) -> None:
    written(lineage_after_change(1)).write(
        2, [("+U", "k0", 10), ("-D", "k7", 7), ("+I", "new", 1), ("+I", "more", 1), ("+I", "most", 1)]
    )
    written(lineage_after_change(2)).write(3, [("+I", "last", 1), ("+I", "gone", 1)])
    run = written(lineage_after_rollback(3, to=0))
    run.write(2, [("+I", "more", 2), ("-D", "gone", 1)])
    keys = '3 ({"k":"last"}, {"k":"most"}, {"k":"new"})'
    assert run.sink.report_leftovers(prune=False) == f"{LATER}: {keys}; --prune deletes their rows"
    again = written(lineage_after_rollback(4, to=0, since=3))  # the query has changed since
    again.write(3, [("+I", "most", 2)])
    assert again.sink.report_leftovers(prune=True) == f"{LATER}, now deleted: 2"
    assert topic.content() == {**{f"k{at}": at for at in range(1, 7)}, "k0": 10, "more": 2, "most": 2}


@pytest.mark.slow
def test_keys_from_before_a_version_are_not_counted_as_its_own(written: Start) -> None:
    written(lineage_after_change(1)).write(2, [("+I", "new", 1)])
    written(lineage_after_change(2)).write(3, [("+I", "last", 1)])
    run = written(lineage_after_rollback(3, to=1))
    assert '1 ({"k":"last"})' in str(run.sink.report_leftovers(prune=False))


def test_without_a_key_snapshot_nothing_is_reported(written: Start, tmp_path: Path) -> None:
    """A version from before key snapshots existed, or whose key snapshots were deleted."""
    written(lineage_after_change(1)).write(2, [("+I", "new", 1)])
    for note in (tmp_path / "sinks").rglob("*.arrow"):
        note.unlink()
    assert written(lineage_after_rollback(2, to=0)).sink.report_leftovers(prune=True) is None


def test_an_epoch_that_has_written_takes_no_key_snapshot(written: Start, tmp_path: Path) -> None:
    written(lineage_after_rebuild(1)).write(0, [("+I", "k0", 0)])
    for note in (tmp_path / "sinks").rglob("*.arrow"):
        note.unlink()
    run = written(lineage_after_rebuild(1))
    run.write(1, [("+I", "k1", 1)])
    assert run.sink.report_leftovers(prune=True) is None


def test_two_sinks_of_one_topic_share_its_keys(start: Start) -> None:
    start(None).write(0, [("+I", "a", 1), ("+I", "b", 1), ("+I", "c", 1)])
    first = start(lineage_after_rebuild(1))
    first.write(0, [("+I", "a", 2)])
    second = start(lineage_after_rebuild(1), "1_totals")
    second.write(0, [("+I", "b", 2)])
    for run in (first, second):
        assert '1 ({"k":"c"})' in str(run.sink.report_leftovers(prune=False))
