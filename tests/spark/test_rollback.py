"""Jobs that are rolled back to an earlier version of their query, or rebuilt: on Spark, into
files and PostgreSQL, and from Kafka.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import KafkaBroker
from click.testing import CliRunner
from postgres import Database
from spark.running import Done, Run

from everfold import TableEnvironment
from everfold.cli.main import everfold
from everfold.connectors.filesystem.sink import FileSink
from everfold.connectors.registry import apply_connector
from everfold.jobs.change import OnChange
from everfold.jobs.engine import Engine
from everfold.jobs.rewind import Consent
from everfold.jobs.spec import JobSpec
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[str, int, str]]
SOURCE = """
CREATE TABLE t (k STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
"""
IN_PIECES = SOURCE.replace("'format'", "'scan.max-files-per-batch' = '1', 'format'")


class Job:
    """A job in a separate folder, and the rows of its input."""

    def __init__(self, run: Run, tables: str, source: str = SOURCE) -> None:
        self._run, self._tables = run, source + tables
        self.rows: Rows = []
        self._files = 0

    def put(self, *rows: tuple[str, int, str]) -> None:
        """Write a file with rows; times are minutes and seconds."""
        Path("in").mkdir(exist_ok=True)
        lines = [json.dumps({"k": k, "x": x, "ts": f"2020-01-01 00:{at}"}) for k, x, at in rows]
        file = Path("in", f"{self._files}.json")
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (time.time() - 1000 + self._files,) * 2)
        self._files += 1
        self.rows += rows

    def run(self, query: str, *options: str, state: str = "state") -> Done:
        """Run a query to the end of its input."""
        Path("job.sql").write_text(self._tables + query)
        return self._run("--state", state, *options)

    def run_ok(self, query: str, *options: str, state: str = "state") -> str:
        """Run a query and check that it succeeds. Return what was printed."""
        done = self.run(query, *options, state=state)
        assert done.code == 0, done.err
        return done.err


def rollback(version: int, *options: str) -> str:
    """Roll the job back. Return what was printed."""
    done = CliRunner().invoke(everfold, ["rollback", "state", str(version), *options])
    assert done.exception is None, done.exception
    return done.stdout


# --- files ----------------------------------------------------------------------------------------

FILES = "CREATE TABLE o (w TIMESTAMP(3), k STRING, a BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'json');"
PER_MINUTE = (
    "INSERT INTO o SELECT window_start, k, {} FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    " GROUP BY window_start, window_end, k;"
)
SUMS = PER_MINUTE.format("SUM(CAST(x AS BIGINT))")
MORE_OPERATORS = (
    "INSERT INTO o SELECT w, k, COUNT(*) FROM (SELECT window_start AS w, window_time AS ts, k, x FROM TUMBLE(TABLE t, DESCRIPTOR(ts),"
    " INTERVAL '1' MINUTE) GROUP BY window_start, window_end, window_time, k, x) GROUP BY w, k, TUMBLE(ts, INTERVAL '1' MINUTE);"
)


def read_files(folder: str = "out") -> list[tuple[str, str, int]]:
    """Return the rows that any reader of the folder sees."""
    files = [file for file in Path(folder).rglob("*") if file.is_file() and file.name[0] not in "._"]
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted((row["w"], row["k"], row["a"]) for row in found)


def compute_sums(rows: Rows) -> list[tuple[str, str, int]]:
    """Return the sums per minute, computed one by one."""
    found: Counter[tuple[str, str]] = Counter()
    for k, x, at in rows:
        found[f"2020-01-01 00:{at[:2]}:00", k] += x
    return sorted((w, k, a) for (w, k), a in found.items())


def test_files_hold_each_row_once_after_a_rollback(run: Run) -> None:
    job = Job(run, FILES.format(out="out"))
    job.put(("a", 1, "00:01"), ("b", 2, "00:30"))
    job.put(("a", 3, "01:01"), ("b", 4, "02:30"))
    job.run_ok(SUMS)  # ends with the last windows, by a control file
    job.put(("a", 5, "03:01"), ("a", 6, "03:02"), ("c", 7, "04:00"))
    job.run_ok(PER_MINUTE.format("SUM(CAST(x AS BIGINT)) + COUNT(*)"), "--on-change", "accept")
    Path("out", "mine.json").write_text('{"w":"1999","k":"mine","a":0}\n')
    changed = read_files()
    assert changed != compute_sums(job.rows)
    printed = rollback(0)
    assert printed.splitlines() == [
        "`o` (filesystem): the job's files of later batches are withdrawn when it starts",
        "version 0 is current again, as version 2",
    ]
    assert read_files() == changed  # nothing changes before the job starts
    job.put(("c", 8, "05:00"), ("a", 9, "05:59"))
    job.run_ok(SUMS)
    assert read_files() == [("1999", "mine", 0), *compute_sums(job.rows)]
    rollback(1)  # and back again: the withdrawn rows are visible again
    job.run_ok(PER_MINUTE.format("SUM(CAST(x AS BIGINT)) + COUNT(*)"))
    of = Counter((f"2020-01-01 00:{at[:2]}:00", k) for k, _, at in job.rows)
    late = {(w, k) for w, k in of if w >= "2020-01-01 00:03"}
    assert read_files() == [
        ("1999", "mine", 0),
        *((w, k, a + of[w, k] * ((w, k) in late)) for w, k, a in compute_sums(job.rows)),
    ]


@pytest.mark.slow
def test_an_uncommitted_batch_of_the_old_query_is_repeated(run: Run) -> None:
    job = Job(run, FILES.format(out="out"), IN_PIECES)
    for minute in range(3):
        job.put(("a", minute, f"0{minute}:01"))
    job.run_ok(SUMS)
    job.run_ok(PER_MINUTE.format("SUM(CAST(x AS BIGINT)) + COUNT(*)"), "--on-change", "accept")
    commits = Path("state", "checkpoints", "0", "commits")
    newest = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    for name in (newest.name, f".{newest.name}.crc"):  # its rows are written, but Spark has not committed the batch
        (commits / name).unlink()
    rollback(0)
    job.put(("a", 7, "03:01"))
    job.run_ok(SUMS)
    assert read_files() == compute_sums(job.rows)


@pytest.mark.parametrize(
    "query",
    [
        PER_MINUTE.format("MAX(x)"),
        pytest.param(MORE_OPERATORS, marks=pytest.mark.slow),
    ],
    ids=["other aggregates", "more operators"],
)
def test_a_rebuilt_job_returns_the_rows_of_a_new_one(run: Run, query: str) -> None:
    job = Job(run, FILES.format(out="out"))
    job.put(("a", 1, "00:01"), ("b", 2, "00:30"), ("b", 2, "00:31"))
    job.put(("a", 3, "01:01"), ("b", 4, "02:30"))
    job.run_ok(SUMS)
    refused = job.run(query)
    assert refused.code == 1
    assert "--on-change rebuild" in refused.err
    assert read_files() == compute_sums(job.rows)
    job.put(("a", 9, "03:01"), ("a", 8, "03:01"))
    printed = job.run_ok(query, "--on-change", "rebuild")
    assert "note: `o` (filesystem): the job's files are withdrawn when it starts" in printed
    Job(run, FILES.format(out="fresh")).run_ok(query, state="fresh-state")
    assert read_files() == read_files("fresh") != []
    shown = CliRunner().invoke(everfold, ["history", "state"]).stdout
    assert "rebuilt from the beginning of the input" in shown


@pytest.mark.slow
def test_the_next_start_finishes_an_interrupted_rebuild(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(run, FILES.format(out="out"))
    job.put(("a", 1, "00:01"), ("b", 2, "00:30"))
    job.run_ok(SUMS)
    fewer = SUMS.replace("GROUP BY", "WHERE k <> 'b' GROUP BY")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FileSink, "undo_discarded_batches", die)
        assert job.run(fewer, "--on-change", "rebuild").code == 130
    assert read_files() == compute_sums(job.rows)  # the new version exists and has not run yet
    job.run_ok(fewer)
    assert read_files() == compute_sums([row for row in job.rows if row[0] != "b"])


# --- rows by key ----------------------------------------------------------------------------------


class Keyed:
    """A table with a primary key: `o` of PostgreSQL, or a topic."""

    def __init__(self, kind: str, request: pytest.FixtureRequest) -> None:
        self.kind = kind
        if kind == "jdbc":
            self._database: Database = request.getfixturevalue("database")
            self._database.run("CREATE TABLE o (k text PRIMARY KEY, a bigint)")
            options = self._database.options("o")
        else:
            self._broker: KafkaBroker = request.getfixturevalue("kafka_broker")
            self._topic = f"keyed-{time.time_ns()}"
            self._broker.create_topic(self._topic)
            servers = {"properties.bootstrap.servers": self._broker.bootstrap_servers}
            options = {"connector": kind, "topic": self._topic, "key.format": "raw", "value.format": "json", **servers}
        with_options = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        self.ddl = f"CREATE TABLE o (k STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({with_options});"

    def read_content(self) -> dict[str, int]:
        if self.kind == "jdbc":
            return dict(self._database.run("SELECT k, a FROM o"))
        newest = {each.key.decode(): each.value for each in self._broker.consume(self._topic) if each.key is not None}
        return {key: json.loads(value)["a"] for key, value in newest.items() if value is not None}


@pytest.fixture(
    params=[
        pytest.param("jdbc", marks=pytest.mark.slow),
        pytest.param("upsert-kafka", marks=[pytest.mark.kafka, pytest.mark.slow]),
    ]
)
def keyed(request: pytest.FixtureRequest) -> Keyed:
    return Keyed(request.param, request)


def test_a_table_is_overwritten_by_key(run: Run, keyed: Keyed) -> None:
    job = Job(run, keyed.ddl)
    query = "INSERT INTO o SELECT k, {} FROM t {}GROUP BY k{};"
    small = query.format("SUM(CAST(x AS BIGINT))", "", " HAVING SUM(x) < 500")
    job.put(("a", 1, "00:01"), ("b", 2, "00:30"))
    job.run_ok(small)
    job.put(("a", 3, "01:01"), ("c", 4, "02:30"), ("large", 500, "02:40"))
    job.run_ok(query.format("SUM(CAST(x AS BIGINT)) + 100 * COUNT(*)", "", ""), "--on-change", "accept")
    assert keyed.read_content() == {"a": 104, "b": 2, "c": 104, "large": 600}
    assert "keys that only later versions wrote are counted when the job has caught up" in rollback(0)
    job.put(("b", 5, "03:00"))
    printed = job.run_ok(small)
    later = "note: table `o`: keys that only later versions wrote and that did not reappear"
    assert f"{later}: 1 (large); --prune deletes their rows" in printed
    assert keyed.read_content() == {"a": 4, "b": 7, "c": 4, "large": 600}
    assert f"{later}, now deleted: 1" in job.run_ok(small, "--prune")
    assert keyed.read_content() == {"a": 4, "b": 7, "c": 4}

    largest = query.format("MAX(x)", "WHERE k <> 'a' ", " HAVING MAX(x) < 500")
    printed = job.run_ok(largest, "--on-change", "rebuild")
    assert (
        f"note: `o` ({keyed.kind}): replayed rows overwrite existing rows by PRIMARY KEY; keys that do not" in printed
    )
    assert "note: table `o`: keys that did not reappear: 1 (a); --prune deletes their rows" in printed
    assert keyed.read_content() == {"a": 4, "b": 5, "c": 4}
    assert "now deleted: 1" in job.run_ok(largest, "--prune")
    assert keyed.read_content() == {"b": 5, "c": 4}


@pytest.mark.slow
def test_an_unbounded_job_has_caught_up_at_its_earlier_position(
    spark: SparkSession, run: Run, database: Database
) -> None:
    database.run("CREATE TABLE o (k text PRIMARY KEY, a bigint)")
    options = ", ".join(f"'{key}' = '{value}'" for key, value in database.options("o").items())
    table = f"CREATE TABLE o (k STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({options});"
    job = Job(run, table)
    for at, k in enumerate("abc"):
        job.put((k, 1, f"0{at}:00"))
    job.run_ok("INSERT INTO o SELECT k, SUM(CAST(x AS BIGINT)) FROM t GROUP BY k;")
    watched = IN_PIECES.replace("'format'", "'source.monitor-interval' = '1 s', 'format'") + table
    (*_, submit) = Session(connected=apply_connector).run(
        watched + "INSERT INTO o SELECT k, MAX(x) FROM t WHERE k <> 'b' GROUP BY k;"
    )
    assert isinstance(submit, Submit)
    printed: list[str] = []
    deadline = time.monotonic() + 120
    Engine(session=spark).run(
        JobSpec(
            roots=submit.roots,
            settings=submit.settings,
            base_folder=Path.cwd(),
            state_dir=Path("state"),
            decide=lambda _: OnChange.REBUILD,
            consent=Consent(prune=True, note=printed.append),
            stopping=lambda: len(printed) > 1 or time.monotonic() > deadline,
        )
    )
    assert printed[1:] == ["table `o`: keys that did not reappear, now deleted: 1"]
    assert dict(database.run("SELECT k, a FROM o")) == {"a": 1, "c": 1}


# --- duplicate rows -------------------------------------------------------------------------------


def test_the_python_api_writes_duplicates_only_when_accepted(
    spark: SparkSession, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = "CREATE TABLE o (k STRING, a BIGINT) WITH ('connector' = 'print');"
    job = Job(run, printed)
    job.put(("a", 1, "00:01"), ("a", 2, "00:02"))
    env = TableEnvironment(spark, base_folder=Path.cwd())
    env.execute_sql(SOURCE + printed)
    env.execute_sql("INSERT INTO o SELECT k, SUM(CAST(x AS BIGINT)) FROM t GROUP BY k", state_dir="state")
    other = "INSERT INTO o SELECT k, CAST(MAX(x) AS BIGINT) FROM t GROUP BY k"
    refused = job.run(other, "--on-change", "rebuild")
    assert refused.code == 1
    assert "error[sink-duplicates]: `o` would hold duplicate rows: replayed rows are appended" in refused.err
    capsys.readouterr()
    done = env.execute_sql(other, state_dir="state", on_change="rebuild", sink_duplicates="accept")
    assert capsys.readouterr().out.splitlines() == ["+I[a, 2]"]
    assert done.message.splitlines() == ["2 rows in, 1 rows out", "`o` (print): replayed rows are duplicated"]


# --- a topic --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.kafka
def test_a_rebuild_reads_a_topic_from_where_the_job_began(run: Run, kafka_broker: KafkaBroker) -> None:
    topic = f"rebuild-{time.time_ns()}"
    kafka_broker.create_topic(topic)
    kafka_broker.produce(topic, [(None, json.dumps({"k": "before", "x": 1}))])
    table = f"""
    CREATE TABLE s (k STRING, x INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
      'properties.bootstrap.servers' = '{kafka_broker.bootstrap_servers}', 'properties.group.id' = '{topic}',
      'properties.auto.offset.reset' = 'earliest', 'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:1',
      'scan.bounded.mode' = 'latest-offset');
    """
    job = Job(run, table)

    def rows(done: Done) -> dict[str, int]:
        assert done.code == 0, done.err
        return {row["k"]: row["a"] for row in map(json.loads, done.out.splitlines()) if row["op"] in ("+I", "+U")}

    job.put()
    kafka_broker.produce(topic, [(None, json.dumps({"k": "a", "x": x})) for x in (1, 2, 3)])
    query = "SELECT k, {}(x) AS a FROM s GROUP BY k;"
    assert rows(job.run(query.format("SUM"), "--format", "json")) == {"a": 6}
    kafka_broker.produce(topic, [(None, json.dumps({"k": "b", "x": 4}))])
    # The group is now at the end, and so would be a rebuild that starts from the group.
    moved = table.replace(
        "'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:1'", "'group-offsets'"
    )
    rebuilt = Job(run, moved).run(query.format("MAX"), "--format", "json", "--on-change", "rebuild")
    assert rows(rebuilt) == {"a": 3, "b": 4}
    kafka_broker.produce(topic, [(None, json.dumps({"k": "c", "x": 5}))])
    rollback(0)
    assert rows(job.run(query.format("SUM"), "--format", "json")) == {}  # a bounded topic keeps its end
