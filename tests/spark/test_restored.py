"""A job directory that was restored from an older copy, or lost a part, is refused before a row
is written, with options that lead to the correct rows.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broker import KafkaBroker
from click.testing import CliRunner, Result
from postgres import Database
from pyspark import SparkContext
from spark.running import Done, Run

from everfold.cli.main import everfold

if TYPE_CHECKING:
    pass

Rows = list[tuple[Any, ...]]
SOURCE = """
CREATE TABLE t (k STRING, x INT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
"""
EACH = "INSERT INTO o SELECT k, x FROM t;"
SUMS = "INSERT INTO o SELECT k, SUM(x) FROM t GROUP BY k;"


def files(_: pytest.FixtureRequest) -> tuple[str, str, Callable[[], Rows]]:
    """Return a folder: its declaration, the query that writes it, and a function that reads it."""

    def content() -> Rows:
        visible = [each for each in Path("out").rglob("*") if each.is_file() and each.name[0] not in "._"]
        rows = [json.loads(line) for file in visible for line in file.read_text().splitlines()]
        return sorted((row["k"], row["x"]) for row in rows)

    return (
        "CREATE TABLE o (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');",
        EACH,
        content,
    )


def jdbc(request: pytest.FixtureRequest, key: str = "") -> tuple[str, str, Callable[[], Rows]]:
    """Return a table of PostgreSQL."""
    database: Database = request.getfixturevalue("database")
    database.run(f"CREATE TABLE o (k text{' PRIMARY KEY' if key else ''}, x int)")
    options = ", ".join(f"'{name}' = '{value}'" for name, value in database.options("o").items())
    ddl = f"CREATE TABLE o (k STRING, x INT{key}) WITH ({options});"
    return ddl, SUMS if key else EACH, lambda: sorted(database.run("SELECT k, x FROM o"))


def jdbc_upsert(request: pytest.FixtureRequest) -> tuple[str, str, Callable[[], Rows]]:
    return jdbc(request, ", PRIMARY KEY (k) NOT ENFORCED")


def kafka(request: pytest.FixtureRequest, upsert: bool = False) -> tuple[str, str, Callable[[], Rows]]:
    """Return a topic: all its records, or the newest record of each key."""
    broker: KafkaBroker = request.getfixturevalue("kafka_broker")
    topic = f"restored-{time.time_ns()}"
    broker.create_topic(topic)
    of = (
        "'connector' = 'upsert-kafka', 'key.format' = 'raw', 'value.format' = 'json'"
        if upsert
        else "'connector' = 'kafka', 'format' = 'json'"
    )
    key = ", PRIMARY KEY (k) NOT ENFORCED" if upsert else ""
    ddl = f"CREATE TABLE o (k STRING, x INT{key}) WITH ({of}, 'topic' = '{topic}', 'properties.bootstrap.servers' = '{broker.bootstrap_servers}');"

    def content() -> Rows:
        rows = [json.loads(each.value) for each in broker.consume(topic) if each.value is not None]
        return sorted(
            {row["k"]: (row["k"], row["x"]) for row in rows}.values()
            if upsert
            else ((row["k"], row["x"]) for row in rows)
        )

    return ddl, SUMS if upsert else EACH, content


def upsert_kafka(request: pytest.FixtureRequest) -> tuple[str, str, Callable[[], Rows]]:
    return kafka(request, upsert=True)


class Job:
    """A job that reads a file per batch, and its table."""

    def __init__(self, run: Run, ddl: str, query: str, content: Callable[[], Rows]) -> None:
        self._run, self.query, self.content = run, query, content
        self.rows: Rows = []
        Path("job.sql").write_text(SOURCE + ddl + query)
        Path("in").mkdir()

    def put(self, count: int) -> None:
        """Add files with a few rows each."""
        for _ in range(count):
            number = len(self.rows) // 2
            rows = [(f"k{number % 3}", number), (f"k{number % 5}", 7)]
            file = Path("in", f"{number:03}.json")
            file.write_text("".join(json.dumps({"k": k, "x": x}) + "\n" for k, x in rows))
            os.utime(file, (time.time() - 1000 + number,) * 2)
            self.rows += rows

    def run(self, *options: str) -> Done:
        return self._run("--state", "state", *options)

    def run_ok(self, *options: str) -> str:
        done = self.run(*options)
        assert done.code == 0, done.err
        return done.err

    @property
    def expected(self) -> Rows:
        """Return the expected rows of the table, computed from the input."""
        if self.query == EACH:
            return sorted(self.rows)
        sums: Counter[str] = Counter()
        for k, x in self.rows:
            sums[k] += x
        return sorted(sums.items())


def rollback(*options: str) -> Result:
    return CliRunner().invoke(everfold, ["rollback", "state", "--restored", *options])


def restore(copy: str) -> None:
    """Put a copy of the job directory in place.

    Spark's state stores of earlier runs are stopped first: their threads upload snapshots to the
    directory under its name.
    """
    context = SparkContext._active_spark_context
    assert context is not None
    assert context._jvm is not None
    context._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    Path("state").rename(f"left-{time.time_ns()}")
    shutil.copytree(copy, "state", dirs_exist_ok=True)


def read_files(folder: str) -> dict[str, bytes]:
    """Return the files of a job directory that a refused start must not change.

    The log and the history record that it was refused.
    """
    found = (each for each in Path(folder).rglob("*") if each.is_file() and each.parent.name != "progress")
    return {str(each.relative_to(folder)): each.read_bytes() for each in found if each.name not in ("lock", "job.log")}


def find_error(done: Done) -> str:
    """Return the line with the error."""
    return next(line for line in done.err.splitlines() if line.startswith("error["))


def check_refused(job: Job, copy: str, held: int, known: int) -> None:
    """Start a restored copy and check that it is refused and that nothing is written."""
    before = job.content()
    restore(copy)
    done = job.run()
    what = f"it holds batch {held} of the job, and the job's checkpoint is only at batch {known}; nothing was written"
    assert (done.code, find_error(done)) == (1, f"error[sink-ahead]: table `o` is ahead of the job: {what}")
    assert "everfold rollback FOLDER --restored" in done.err
    assert job.content() == before
    assert read_files("state") == read_files(copy)


def test_a_restored_job_writes_no_row_twice(run: Run, request: pytest.FixtureRequest) -> None:
    job = Job(run, *files(request))
    job.put(2)
    job.run_ok()
    shutil.copytree("state", "older")
    job.put(1)
    job.run_ok()
    shutil.copytree("state", "newest")
    job.put(1)
    check_refused(job, "older", held=2, known=1)
    restore("older")
    assert (
        rollback().stdout.splitlines()[0]
        == "`o` (filesystem): the job's files of later batches are withdrawn when it starts"
    )
    job.run_ok()
    assert job.content() == job.expected


@pytest.mark.slow
@pytest.mark.parametrize("sink", [files, jdbc, jdbc_upsert, kafka, upsert_kafka])
def test_a_backup_of_1_2_and_20_batches_ago_is_refused(
    run: Run, request: pytest.FixtureRequest, sink: Callable[..., Any]
) -> None:
    job = Job(run, *sink(request))
    for count, copy in ((3, "20"), (18, "2"), (1, "1"), (1, "newest")):
        job.put(count)
        job.run_ok()
        shutil.copytree("state", copy)
    assert job.content() == job.expected
    job.put(1)  # new input, which a restored copy would read under a batch number that the table knows
    for back in (1, 2, 20):
        check_refused(job, str(back), held=22, known=22 - back)
    restore("newest")
    newest = max(Path("state/checkpoints/0/commits").glob("[0-9]*"), key=lambda each: int(each.name))
    newest.unlink()  # as if the job was killed after the sink's commit and before Spark's
    newest.with_name(f".{newest.name}.crc").unlink()
    job.run_ok()
    assert job.content() == job.expected
    before = job.content()
    restore("20")
    rolled_back = rollback()
    if sink in (jdbc, kafka):
        assert "error[sink-duplicates]" in str(rolled_back.exception)
        assert rollback("--sink-duplicates", "accept").exception is None
        job.run_ok()
        assert job.content() == sorted([*job.expected, *job.rows[6:46], *job.rows[46:]])
    else:
        assert rolled_back.exception is None
        job.run_ok()
        assert job.content() == before == job.expected


@pytest.mark.slow
@pytest.mark.parametrize("sink", [files, jdbc, kafka])
def test_a_batch_that_read_other_input_is_refused(
    run: Run, request: pytest.FixtureRequest, sink: Callable[..., Any]
) -> None:
    """As after running two copies of a job directory: the batch number is the same, and the
    file is not.
    """
    job = Job(run, *sink(request))
    job.put(2)
    job.run_ok()
    before = job.content()
    (log,) = Path("state/checkpoints/0/sources").glob("t_*/1")
    log.write_text(log.read_text().replace("001.json", "other.json"))
    log.with_name(".1.crc").unlink()
    done = job.run()
    assert done.code == 1
    assert (
        "table `o` is ahead of the job: its batch 1 read other input than batch 1 of the job's checkpoint"
        in find_error(done)
    )
    assert job.content() == before
    log.write_text(log.read_text().replace("other.json", "001.json"))
    job.run_ok()
    assert job.content() == before


@pytest.mark.slow
@pytest.mark.parametrize("sink", [files, jdbc_upsert, kafka])
def test_a_backup_from_before_a_change_is_refused(
    run: Run, request: pytest.FixtureRequest, sink: Callable[..., Any]
) -> None:
    job = Job(run, *sink(request))
    job.put(2)
    job.run_ok()
    shutil.copytree("state", "older")
    script = Path("job.sql").read_text()
    changed = (
        script.replace("FROM t", "FROM t WHERE x >= 0") if job.query == EACH else script.replace("SUM(x)", "MAX(x)")
    )
    Path("job.sql").write_text(changed)
    job.put(2)
    job.run_ok("--on-change", "reset")
    before = job.content()
    Path("job.sql").write_text(script)
    for text in (script, changed):  # a change does not bypass the check
        restore("older")
        Path("job.sql").write_text(text)
        done = job.run("--on-change", "reset")
        assert done.code == 1
        assert (
            "error[sink-ahead]: table `o` is ahead of the job: it holds batch 3 of epoch 1 of the job, and" in done.err
        )
        assert "only at batch 1 of epoch 0" in find_error(done)
        assert job.content() == before


# --- missing parts --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_directory_with_a_missing_part_is_refused(run: Run, request: pytest.FixtureRequest) -> None:
    job = Job(run, *files(request))
    job.put(3)
    job.run_ok()
    shutil.copytree("state", "kept")
    job.put(1)
    before = job.content()
    checkpoint = Path("state/checkpoints/0")
    for gone, code in (
        (["checkpoints/0"], "damaged-checkpoint"),
        (["checkpoints"], "damaged-checkpoint"),
        (["checkpoints/0/offsets", "checkpoints/0/commits"], "damaged-checkpoint"),
        (["checkpoints/0/commits/2", "checkpoints/0/commits/1"], "damaged-checkpoint"),
        (["checkpoints/0/commits/2", "checkpoints/0/offsets/2"], "damaged-checkpoint"),
        (["manifest", "checkpoints"], "damaged-manifest"),
        (["manifest", "checkpoints", "last_batch.json"], "damaged-manifest"),
        (["checkpoints", "last_batch.json", "sinks"], "sink-ahead"),
    ):
        restore("kept")
        for name in gone:
            file = Path("state", name)
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        done = job.run()
        assert (done.code, find_error(done).partition("]")[0]) == (1, f"error[{code}"), (gone, done.err)
        assert job.content() == before
    restore("kept")
    for name in ("2", ".2.crc"):  # of a batch that Spark runs again
        (checkpoint / "commits" / name).unlink()
    job.run_ok()
    assert job.content() == job.expected


# --- two ways to write rows twice -----------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_is_not_run_in_the_job_directory_of_a_stream(run: Run, request: pytest.FixtureRequest) -> None:
    job = Job(run, *files(request))
    job.put(1)
    job.run_ok()
    before = job.content()
    for way in (["--batch"], ["--conf", "execution.runtime-mode=batch"]):
        done = job.run(*way)
        assert (done.code, "error[streaming-job]: the job in `" in done.err) == (1, True), done.err
        assert job.content() == before
    job.run_ok()
    assert job.content() == before


@pytest.mark.slow
@pytest.mark.parametrize("sink", [files, jdbc, kafka])
def test_a_second_job_with_the_same_query_is_reported(
    run: Run, request: pytest.FixtureRequest, sink: Callable[..., Any]
) -> None:
    job = Job(run, *sink(request))
    job.put(1)
    assert "note:" not in job.run_ok()
    assert "note:" not in job.run_ok()
    shutil.move("state", "first")
    notes = job.run_ok()
    assert (
        f"note: table `o`: the job in `{Path('state').resolve()}` has written the result of the same query to it"
        in notes
    )
    assert job.content() == sorted(job.expected * 2)
    assert "note:" not in job.run_ok()
    Path("job.sql").write_text(Path("job.sql").read_text().replace("FROM t", "FROM t WHERE x > 100"))
    shutil.rmtree("state")
    assert "note:" not in job.run_ok()  # another query may write to the same table


@pytest.mark.slow
def test_a_file_sink_leaves_a_mark_that_is_checked(tmp_path: Path, run: Run, request: pytest.FixtureRequest) -> None:
    job = Job(run, *files(request))
    job.put(1)
    job.run_ok()
    (mark,) = Path("out").glob(".everfold-*")
    found = json.loads(mark.read_text())
    assert (found["epoch"], found["batch"], found["sink"]) == (0, 0, "0_o")
    mark.write_text("{")
    done = job.run()
    assert (done.code, find_error(done).startswith(f"error[damaged-record]: `{mark.resolve()}`")) == (1, True), done.err
    mark.unlink()  # as in files of earlier versions, which had no marks
    job.run_ok()
    job.put(1)
    job.run_ok()
    assert job.content() == job.expected
