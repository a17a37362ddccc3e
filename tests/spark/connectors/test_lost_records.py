"""Topics that have lost records which a job has not read, and topics that were created again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from broker import KafkaBroker
from click.testing import CliRunner
from manifests import newest_manifest, replace_manifest
from spark.running import Done, Run

from everfold.cli.main import everfold
from everfold.connectors.contract import Position, Role, SourceContext
from everfold.connectors.kafka import lost_records
from everfold.connectors.kafka.client import Client, Offsets
from everfold.connectors.kafka.lost_records import JobOffsets, read_ids
from everfold.connectors.kafka.source import KafkaSource
from everfold.connectors.lost_input import Gap, LostInput
from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import check_table
from everfold.jobs import stream_job
from everfold.jobs.foreach_batch import BatchCounts, Router
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = """
CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'kafka', {}, 'format' = 'json',
  'properties.bootstrap.servers' = '{}', 'scan.startup.mode' = 'earliest-offset');
"""


def open_client(broker: KafkaBroker, topics: str) -> Client:
    """Return the client of a table. topics: an option, `'topic' = '…'` or a pattern."""
    script = TABLE.format(topics, broker.bootstrap_servers) + "SELECT * FROM t"
    [submit] = [action for action in Session({}, connected=apply_connector).run(script) if isinstance(action, Submit)]
    checked = check_table(submit.sources[0], Role.SOURCE)
    return Client(checked.table, checked.options)


def put(broker: KafkaBroker, topic: str, numbers: Iterable[int], *, key: str = "a", partition: int = 0) -> None:
    broker.produce(topic, [(None, json.dumps({"k": key, "n": number}), partition) for number in numbers])


class Loss(NamedTuple):
    """How records of a topic `in` with two partitions of five records are lost.

    The job has read three records of the first partition and all of the second one.
    """

    lose: Callable[[KafkaBroker, str], None]
    gaps: Sequence[tuple[int, int, int | None]]
    """Partition, position and where the job can continue."""
    recreated: bool = False


def recreate(partitions: int, *sizes: int) -> Callable[[KafkaBroker, str], None]:
    def lose(broker: KafkaBroker, topic: str) -> None:
        broker.recreate_topic(topic, partitions)
        for partition, size in enumerate(sizes):
            put(broker, topic, range(size), partition=partition)

    return lose


LOSSES = {
    "nothing": Loss(lambda broker, topic: None, []),
    "records that were read": Loss(lambda broker, topic: broker.delete_records(topic, 3), []),
    "one unread record": Loss(lambda broker, topic: broker.delete_records(topic, 4), [(0, 3, 4)]),
    "all records of a partition": Loss(lambda broker, topic: broker.delete_records(topic, 5), [(0, 3, 5)]),
    "created again, longer": Loss(recreate(2, 9, 9), [(0, 3, 0), (1, 5, 0)], recreated=True),
    "created again, same size": Loss(recreate(2, 3, 5), [(0, 3, 0), (1, 5, 0)], recreated=True),
    "created again, shorter": Loss(recreate(2, 1, 1), [(0, 3, 0), (1, 5, 0)], recreated=True),
    "created again, empty": Loss(recreate(2), [(0, 3, 0), (1, 5, 0)], recreated=True),
    "created again, one partition": Loss(recreate(1, 9), [(0, 3, 0), (1, 5, None)], recreated=True),
    "created again, more partitions": Loss(recreate(3, 9, 9, 9), [(0, 3, 0), (1, 5, 0)], recreated=True),
}


QUICK = ("nothing", "one unread record", "created again, one partition")


@pytest.mark.parametrize(
    "loss", [loss if loss in QUICK else pytest.param(loss, marks=pytest.mark.slow) for loss in LOSSES]
)
def test_every_loss_is_found(loss: str, kafka_broker: KafkaBroker) -> None:
    topic = f"lost-{list(LOSSES).index(loss)}-{time.time_ns()}"
    kafka_broker.create_topic(topic, 2)
    for partition in range(2):
        put(kafka_broker, topic, range(5), partition=partition)
    client = open_client(kafka_broker, f"'topic' = '{topic}'")
    ids = read_ids(client.describe_topics([topic]))
    LOSSES[loss].lose(kafka_broker, topic)
    job = JobOffsets({topic: {0: 3, 1: 5}}, {topic: {0: 5, 1: 5}}, ids)
    for found in (job.find_loss(client), job.find_loss_in_batch(client)):
        if not LOSSES[loss].gaps:
            assert found is None
            continue
        assert found is not None
        gaps = [(f"topic `{topic}` partition {partition}", *offsets) for partition, *offsets in LOSSES[loss].gaps]
        assert [(gap.split, gap.position, gap.resumed) for gap in found.gaps] == gaps
        assert found.code == ("changed-source" if LOSSES[loss].recreated else "kafka-data-lost")
        resumed = {str(partition): offset for partition, _, offset in LOSSES[loss].gaps if offset is not None}
        kept = {} if LOSSES[loss].recreated else {"1": 5}
        assert json.loads(found.line) == {topic: resumed | kept}
    client.close()


def test_a_topic_that_ends_earlier_is_found_without_ids(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers before Kafka 2.8 know no ids. A position after the end is as after a lost leader."""
    monkeypatch.setattr(lost_records, "_WAIT_S", 0)
    topic = f"truncated-{time.time_ns()}"
    kafka_broker.create_topic(topic)
    put(kafka_broker, topic, range(7))
    client = open_client(kafka_broker, f"'topic' = '{topic}'")

    def find(position: int, planned: Offsets | None = None) -> LostInput | None:
        return JobOffsets({topic: {0: position}}, planned, {}).find_loss(client)

    found = find(10)
    assert found is not None
    assert found.gaps == (Gap(f"topic `{topic}` partition 0", 10, 7),)
    assert "ends at offset 7, but the job has read it up to offset 10" in found.message
    assert find(7) is None
    found = find(5, {topic: {0: 9}})
    assert found is not None
    assert json.loads(found.line) == {topic: {"0": 5}}
    assert find(5, {topic: {0: 7}}) is None
    client.close()


def test_topics_of_a_pattern_may_come_and_not_go(kafka_broker: KafkaBroker) -> None:
    name = f"pattern-{time.time_ns()}"
    for number in (1, 2):
        kafka_broker.create_topic(f"{name}-{number}")
        put(kafka_broker, f"{name}-{number}", range(3))
    client = open_client(kafka_broker, f"'topic-pattern' = '{name}-.'")
    ids = read_ids(client.describe_topics([f"{name}-1", f"{name}-2"]))
    job = JobOffsets({f"{name}-1": {0: 3}, f"{name}-2": {0: 3}}, None, ids)
    kafka_broker.create_topic(f"{name}-3")
    put(kafka_broker, f"{name}-3", range(3))
    assert job.find_loss(client) is None
    kafka_broker.delete_records(f"{name}-3", 2)
    found = job.find_loss(client)
    assert found is not None
    assert found.gaps == (Gap(f"topic `{name}-3` partition 0", 0, 2),)
    kafka_broker.delete_topic(f"{name}-1")
    found = job.find_loss(client)
    assert found is not None
    assert f"topic `{name}-1` partition 0 no longer exists" in found.message
    assert json.loads(found.line) == {f"{name}-2": {"0": 3}, f"{name}-3": {"0": 2}}
    client.close()


# --- jobs -----------------------------------------------------------------------------------------

SOURCE = """
CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
  'properties.bootstrap.servers' = '{servers}', 'scan.startup.mode' = '{start}', {more});
"""
BOUNDED = "'scan.bounded.mode' = 'latest-offset'"
SUMS = "SELECT k, COUNT(*) AS c, SUM(n) AS s FROM t GROUP BY k;"
FILES = """
CREATE TABLE o (k STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO o SELECT k, n FROM t;
"""


class Job:
    """A job in the test's folder that reads a topic."""

    def __init__(
        self,
        run: Run,
        broker: KafkaBroker,
        query: str = SUMS,
        start: str = "earliest-offset",
        more: str = BOUNDED,
    ) -> None:
        self._run, self.broker = run, broker
        self.topic = f"job-{time.time_ns()}"
        script = SOURCE.format(topic=self.topic, servers=broker.bootstrap_servers, start=start, more=more)
        Path("job.sql").write_text(script + query)
        broker.create_topic(self.topic)

    def run(self, *options: str, keep_ends: bool = False) -> Done:
        # A bounded topic keeps the end that it had when the job began; here it needs a new end.
        for ends in [] if keep_ends else Path("state").rglob("*.ends.json"):
            ends.unlink()
        return self._run("--state", "state", *options)

    def sums(self, *options: str, keep_ends: bool = False) -> list[tuple[str, int, int]]:
        """Run the job and return the groups that have changed, with count and sum."""
        done = self.run("--format", "json", *options, keep_ends=keep_ends)
        assert done.code == 0, done.err
        rows = [json.loads(line) for line in done.out.splitlines()]
        return sorted((row["k"], row["c"], row["s"]) for row in rows if row["op"] in ("+I", "+U"))

    def lost(self, first: int, last: int) -> str:
        """Return the first line of the error about lost records."""
        gap = f"topic `{self.topic}` partition 0 offsets {first} to {last}"
        return f"error[kafka-data-lost]: table `t`: records that were not read yet are gone: {gap}"

    @property
    def recreated(self) -> str:
        """The first line of the error about a topic that was created again."""
        what = f"`{self.topic}` was deleted and created again since the job has read it"
        return f"error[changed-source]: table `t`: {what}"


def written() -> list[tuple[str, int]]:
    """Return the rows of the files that a job has written."""
    files = [file for file in Path("out").rglob("*") if file.is_file() and file.name[0] not in "._"]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted((row["k"], row["n"]) for row in rows)


def list_versions() -> list[dict[str, Any]]:
    return list(json.loads(newest_manifest(Path("state")).read_text())["versions"])


def show(*command: str) -> str:
    return CliRunner().invoke(everfold, command).stdout


def test_a_job_skips_lost_records_with_its_state(run: Run, kafka_broker: KafkaBroker) -> None:
    job = Job(run, kafka_broker)
    put(kafka_broker, job.topic, range(5))
    assert job.sums() == [("a", 5, 10)]
    put(kafka_broker, job.topic, range(5, 20))
    kafka_broker.delete_records(job.topic, 12)
    refused = job.run()
    assert (refused.code, refused.first) == (1, job.lost(5, 11))
    assert "--source t=skip" in refused.err
    assert job.run("--source", "t=new").first == refused.first
    assert "--source t=skip" in show("check", "job.sql", "--state", "state")
    assert job.sums("--source", "t=skip") == [("a", 13, 10 + sum(range(12, 20)))]
    split = f"topic `{job.topic}` partition 0"
    [_, version] = list_versions()
    assert version["gaps"] == [{"table": "t", "split": split, "position": 5, "resumed": 12, "is_new": False}]
    skipped = f"table `t`: skipped {split} offsets 5 to 11\n"
    assert f"continued after lost input\n  {skipped}" in show("history", "state")
    assert f"lost input: {skipped}" in show("status", "state")


@pytest.mark.slow
def test_a_gap_is_skipped_once(run: Run, kafka_broker: KafkaBroker) -> None:
    job = Job(run, kafka_broker)
    put(kafka_broker, job.topic, range(5))
    assert job.sums() == [("a", 5, 10)]
    put(kafka_broker, job.topic, range(5, 20))
    kafka_broker.delete_records(job.topic, 20)
    done = job.run("--source", "t=skip")
    assert f"note: version 1: table `t`: skipped topic `{job.topic}` partition 0 offsets 5 to 19" in done.err
    put(kafka_broker, job.topic, [100])
    assert "has no effect" in (done := job.run("--source", "t=skip")).err
    assert done.code == 0, done.err
    put(kafka_broker, job.topic, [200])
    assert job.sums() == [("a", 7, 310)]
    assert len(list_versions()) == 2
    # The version before the gap has its position again.
    assert CliRunner().invoke(everfold, ["rollback", "state", "0", "--sink-duplicates", "accept"]).exit_code == 0
    assert job.run().first == job.lost(5, 19)
    assert job.sums("--source", "t=skip") == [("a", 7, 310)]
    assert [len(version["gaps"]) for version in list_versions()] == [0, 1, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["earliest-offset", "latest-offset"])
@pytest.mark.parametrize("count", [3, 5, 8])
def test_a_topic_that_was_created_again_is_asked_about(
    start: str, count: int, run: Run, kafka_broker: KafkaBroker
) -> None:
    job = Job(run, kafka_broker, start=start)
    assert job.sums() == []
    put(kafka_broker, job.topic, range(5))
    assert job.sums() == [("a", 5, 10)]
    kafka_broker.recreate_topic(job.topic)
    put(kafka_broker, job.topic, range(count), key="b")
    refused = job.run()
    assert (refused.code, refused.first) == (1, job.recreated)
    assert ("t=moved" in refused.err, "t=new" in refused.err) == (count >= 5, True)
    # A new topic has a new end.
    assert job.sums("--source", "t=new", keep_ends=True) == [("b", count, sum(range(count)))]
    put(kafka_broker, job.topic, [100], key="b")
    assert job.sums() == [("b", count + 1, sum(range(count)) + 100)]


@pytest.mark.slow
def test_a_new_topic_with_fewer_partitions_is_backfilled_from_its_start(run: Run, kafka_broker: KafkaBroker) -> None:
    job = Job(run, kafka_broker, SUMS.replace(", SUM(n) AS s", ""), start="latest-offset")
    kafka_broker.recreate_topic(job.topic, 2)
    put(kafka_broker, job.topic, range(7), key="z")
    assert job.run().code == 0
    for partition in range(2):
        put(kafka_broker, job.topic, range(5), partition=partition)
    assert job.run().code == 0
    kafka_broker.recreate_topic(job.topic)
    put(kafka_broker, job.topic, range(3), key="b")
    assert job.run().first == job.recreated
    assert job.run("--source", "t=new").code == 0
    put(kafka_broker, job.topic, [100], key="b")
    Path("job.sql").write_text(Path("job.sql").read_text().replace("COUNT(*) AS c", "COUNT(*) AS c, SUM(n) AS s"))
    done = job.run("--format", "json", "--on-change", "backfill")
    assert done.code == 0, done.err
    assert "was created again: new aggregates do not count what was read of the one before" in done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    changes = [(row["k"], row["c"], row["s"]) for row in rows if row["op"] == "+U"]
    assert changes == [("b", 3, 3), ("b", 4, 103)], "the backfill, and the new record"


@pytest.mark.slow
def test_a_changed_query_skips_lost_records_at_once(run: Run, kafka_broker: KafkaBroker) -> None:
    job = Job(run, kafka_broker)
    put(kafka_broker, job.topic, range(5))
    assert job.sums() == [("a", 5, 10)]
    put(kafka_broker, job.topic, range(5, 20))
    kafka_broker.delete_records(job.topic, 12)
    Path("job.sql").write_text(Path("job.sql").read_text().replace("SUM(n) AS s", "SUM(n) AS s, MAX(n) AS m"))
    assert job.lost(5, 11) in job.run("--on-change", "accept").err
    assert len(list_versions()) == 1
    assert job.sums("--on-change", "accept", "--source", "t=skip") == [("a", 13, 10 + sum(range(12, 20)))]
    assert [(len(version["gaps"]), version["decision"]) for version in list_versions()] == [
        (0, ""),
        (1, ""),
        (0, "accept"),
    ]


@pytest.mark.slow
def test_a_rebuilt_job_reads_the_new_topic(run: Run, kafka_broker: KafkaBroker) -> None:
    job = Job(run, kafka_broker)
    put(kafka_broker, job.topic, range(5))
    assert job.sums() == [("a", 5, 10)]
    kafka_broker.recreate_topic(job.topic)
    put(kafka_broker, job.topic, range(8), key="b")
    Path("job.sql").write_text(Path("job.sql").read_text().replace("GROUP BY k", "WHERE n > 0 GROUP BY k"))
    assert job.sums("--on-change", "rebuild", "--sink-duplicates", "accept") == [("b", 7, 28)]
    put(kafka_broker, job.topic, [9], key="b")
    assert job.sums() == [("b", 8, 37)]


@pytest.mark.slow
def test_a_start_at_records_that_are_gone_is_reported(run: Run, kafka_broker: KafkaBroker) -> None:
    more = f"'scan.startup.specific-offsets' = 'partition:0,offset:3', {BOUNDED}"
    job = Job(run, kafka_broker, start="specific-offsets", more=more)
    put(kafka_broker, job.topic, range(20))
    kafka_broker.delete_records(job.topic, 12)
    for _ in range(2):
        assert job.run().first == job.lost(3, 11)
    assert job.sums("--source", "t=skip") == [("a", 8, sum(range(12, 20)))]
    assert job.sums() == []


@pytest.mark.slow
def test_a_topic_that_was_restored_is_read_on(run: Run, kafka_broker: KafkaBroker) -> None:
    job = Job(run, kafka_broker)
    put(kafka_broker, job.topic, range(5))
    assert job.sums() == [("a", 5, 10)]
    kafka_broker.recreate_topic(job.topic)
    put(kafka_broker, job.topic, range(8))
    assert job.sums("--source", "t=moved") == [("a", 8, 28)]
    kafka_broker.recreate_topic(job.topic)
    put(kafka_broker, job.topic, range(12))
    kafka_broker.delete_records(job.topic, 10)
    refused = job.run("--source", "t=moved")
    assert (refused.first, "t=moved" in refused.err, "t=skip" in refused.err) == (job.recreated, False, True)
    assert job.sums("--source", "t=skip") == [("a", 10, 28 + 10 + 11)]
    assert len(list_versions()) == 2


@pytest.mark.slow
def test_a_job_of_an_earlier_version_resumes_without_an_id(run: Run, kafka_broker: KafkaBroker) -> None:
    job = Job(run, kafka_broker)
    put(kafka_broker, job.topic, range(5))
    assert job.sums() == [("a", 5, 10)]
    manifest = json.loads(newest_manifest(Path("state")).read_text())
    del manifest["versions"][0]["gaps"]
    del manifest["versions"][0]["sources"][0]["identity"]
    # Without a checksum, as an early release wrote it.
    replace_manifest(Path("state"), manifest | {"format": 3})
    put(kafka_broker, job.topic, [5])
    assert job.sums() == [("a", 6, 15)]
    assert job.topic in list_versions()[0]["sources"][0]["identity"]


@pytest.mark.slow
def test_records_that_go_away_while_they_are_read_are_reported(
    run: Run, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception of a task has a class that Spark's driver does not know."""
    job = Job(run, kafka_broker, FILES)
    put(kafka_broker, job.topic, range(5))
    assert job.run().code == 0
    put(kafka_broker, job.topic, range(5, 20))
    check = KafkaSource.check_batch

    def lose(source: KafkaSource, since: Position | None, until: Position) -> None:
        check(source, since, until)
        kafka_broker.delete_records(job.topic, 12)

    with monkeypatch.context() as patched:
        patched.setattr(KafkaSource, "check_batch", lose)
        failed = job.run()
    assert (failed.code, failed.first) == (1, job.lost(5, 11))
    assert job.run().first == job.lost(5, 11)
    assert job.run("--source", "t=skip").code == 0
    assert written() == [("a", n) for n in [*range(5), *range(12, 20)]]
    assert [version["back_to"] for version in list_versions()] == [None, None]


@pytest.mark.slow
def test_a_batch_that_was_written_and_not_finished_is_taken_back(
    run: Run, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(run, kafka_broker, FILES)
    put(kafka_broker, job.topic, range(5))
    assert job.run().code == 0
    put(kafka_broker, job.topic, range(5, 20))

    def fail(router: Router) -> BatchCounts:
        raise OSError(5, "killed here")

    with monkeypatch.context() as patched:
        patched.setattr(Router, "_take_counts", fail)
        assert job.run().code == 1
    kafka_broker.delete_records(job.topic, 12)
    assert job.run().first == job.lost(5, 11)
    done = job.run("--source", "t=skip")
    assert done.code == 0, done.err
    assert written() == [("a", n) for n in [*range(5), *range(12, 20)]]
    assert [version["back_to"] for version in list_versions()] == [None, 0]


@pytest.mark.slow
def test_a_running_job_notices_a_new_topic_with_as_many_records(
    run: Run, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_job, "_CHECK_S", 1.0)
    job = Job(run, kafka_broker, FILES, more="'scan.max-records-per-batch' = '100'")
    put(kafka_broker, job.topic, range(5))

    def recreate_when_read() -> None:
        while len(written()) < 5:
            time.sleep(0.1)
        kafka_broker.recreate_topic(job.topic)
        put(kafka_broker, job.topic, range(5), key="b")

    other = threading.Thread(target=recreate_when_read)
    other.start()
    failed = job.run()
    other.join()
    # Between the two, Spark or the check may find no topic.
    absent = f"no topic `{job.topic}`" in failed.first or "does not exist any more" in failed.first
    assert failed.first == job.recreated or absent
    assert job.run().first == job.recreated
    assert written() == [("a", n) for n in range(5)]


@pytest.mark.slow
def test_a_batch_query_reports_records_that_go_away(
    run: Run, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(run, kafka_broker, f"SET 'execution.runtime-mode' = 'batch'; {SUMS}")
    put(kafka_broker, job.topic, range(20))
    read = KafkaSource._read_between

    def lose(source: KafkaSource, context: SourceContext, starts: Offsets, ends: Offsets) -> DataFrame:
        kafka_broker.delete_records(job.topic, 12)
        return read(source, context, starts, ends)

    monkeypatch.setattr(KafkaSource, "_read_between", lose)
    assert job.run().first == job.lost(0, 11)
