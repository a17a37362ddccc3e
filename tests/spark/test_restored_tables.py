"""A table that was restored from an older copy lacks batches that the job has written to it.

The job is refused before a row is written, with answers that lead to the rows that a job without
the restore would have written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from click.testing import CliRunner
from postgres import Database
from spark.running import Done, Run

from everfold.cli.main import everfold
from everfold.connectors.delta.table import DELTA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]
SOURCE = """
CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
"""
EVENTS, COUNTS = "INSERT INTO ev SELECT k, n FROM t;", "INSERT INTO agg SELECT k, COUNT(*) FROM t GROUP BY k;"


class Tables(Protocol):
    """The tables `ev` and `agg` of a kind."""

    def declare(self) -> str: ...

    def dump(self) -> None: ...

    def restore(self) -> None: ...

    def read(self, table: str) -> Rows: ...


class DatabaseTables:
    """Tables of PostgreSQL, dumped and restored with everfold's own table."""

    COLUMNS = {"ev": "k STRING, n INT", "agg": "k STRING, c BIGINT, PRIMARY KEY (k) NOT ENFORCED"}
    NAMES = ("ev", "agg", "everfold_commits")

    def __init__(self, database: Database) -> None:
        self.database = database
        database.run("CREATE TABLE ev (k text, n int)")
        database.run("CREATE TABLE agg (k text PRIMARY KEY, c bigint)")

    def declare(self) -> str:
        ddl = ""
        for name, columns in self.COLUMNS.items():
            options = ", ".join(f"'{key}' = '{value}'" for key, value in self.database.options(name).items())
            ddl += f"CREATE TABLE {name} ({columns}) WITH ({options});\n"
        return ddl

    def dump(self) -> None:
        for name in self.NAMES:
            self.database.run(f"DROP TABLE IF EXISTS dump_{name}")
            self.database.run(f"CREATE TABLE dump_{name} AS TABLE {name}")

    def restore(self) -> None:
        for name in self.NAMES:
            self.database.run(f"TRUNCATE {name}")
            self.database.run(f"INSERT INTO {name} TABLE dump_{name}")

    def read(self, table: str) -> Rows:
        return sorted(self.database.run(f"TABLE {table}"))


class FolderTables:
    """Tables that are folders, copied and put back with all hidden files."""

    def __init__(self, ddl: str, read: Callable[[str], Rows]) -> None:
        self.declare = lambda: ddl
        self.read = read

    def dump(self) -> None:
        shutil.rmtree("copy", ignore_errors=True)
        shutil.copytree("out", "copy")

    def restore(self) -> None:
        shutil.rmtree("out")
        shutil.copytree("copy", "out")


def read_json(table: str) -> Rows:
    files = [file for file in Path("out", table).rglob("part-*") if file.is_file()]
    return sorted(tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines())


FILES = "CREATE TABLE ev (k STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'out/ev', 'format' = 'json');\n"
DELTA_TABLES = """
CREATE TABLE ev (k STRING, n INT) WITH ('connector' = 'delta', 'table-path' = 'out/ev');
CREATE TABLE agg (k STRING, c BIGINT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'delta', 'table-path' = 'out/agg');
"""


class Job:
    """A job that reads one file per run."""

    def __init__(self, run: Run, tables: Tables, *queries: str) -> None:
        self._run, self.tables, self.queries = run, tables, queries
        self.rows: Rows = []
        statements = queries[0] if len(queries) == 1 else f"EXECUTE STATEMENT SET BEGIN {' '.join(queries)} END;"
        Path("job.sql").write_text(SOURCE + tables.declare() + statements)
        Path("in").mkdir()

    def put(self, *rows: tuple[str, int]) -> None:
        file = Path("in", f"{len(self.rows):03}.json")
        file.write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in rows))
        os.utime(file, (time.time() - 1000 + len(self.rows),) * 2)
        self.rows += rows

    def run(self, *options: str) -> Done:
        return self._run("--state", "state", *options)

    def run_ok(self, *options: str) -> str:
        done = self.run(*options)
        assert done.code == 0, done.err
        return done.err

    def start(self) -> None:
        """Run two batches; the tables are then as they were after the first."""
        self.put(("a", 1), ("b", 10))
        self.run_ok()
        self.tables.dump()
        self.put(("a", 2), ("c", 5))
        self.run_ok()
        self.tables.restore()
        self.put(("z", 9))

    def refuse(self) -> str:
        """Run the job; it must be refused, and no table written."""
        before = self.read()
        done = self.run()
        assert (done.code, done.first.startswith("error[sink-behind]")) == (1, True), done.err
        assert self.read() == before
        return done.err

    def read(self) -> list[Rows]:
        return [self.tables.read("ev" if query == EVENTS else "agg") for query in self.queries]

    @property
    def expected(self) -> list[Rows]:
        counts = sorted(Counter(k for k, _ in self.rows).items())
        return [sorted(self.rows) if query == EVENTS else counts for query in self.queries]


def roll_back(message: str) -> None:
    """Run the rollback that an error names."""
    (command,) = set(re.findall(r"everfold (rollback .*?)  ", message))
    done = CliRunner().invoke(everfold, shlex.split(command))
    assert done.exception is None, done.output


@pytest.fixture
def tables(database: Database) -> DatabaseTables:
    return DatabaseTables(database)


def test_a_restored_database_is_refused_and_a_rollback_to_its_batch_loses_nothing(
    run: Run, tables: DatabaseTables
) -> None:
    job = Job(run, tables, EVENTS, COUNTS)
    job.start()
    message = job.refuse()
    for table in ("ev", "agg"):
        assert (
            f"error[sink-behind]: table `{table}` is behind the job: it holds batch 0 of the job, and the job has"
            " written batch 1 to it; nothing was written"
        ) in message
    folder = Path("state").resolve()
    assert f"everfold rollback {folder} 0 --batch 0 --sink-duplicates accept  resume after batch 0" in message
    assert "--sink ev=refresh" not in message  # no operator holds its rows
    assert "--sink agg=refresh" in message
    roll_back(message)
    job.run_ok()
    assert job.read() == job.expected
    job.put(("b", 3))
    assert "note" not in job.run_ok()
    assert job.read() == job.expected


@pytest.mark.slow
def test_the_other_answers_to_a_restored_database(run: Run, tables: DatabaseTables) -> None:
    job = Job(run, tables, COUNTS)
    job.start()
    refused = job.refuse()
    assert "--sink agg=refresh" in refused
    assert "--sink-duplicates" not in refused
    job.run_ok("--sink", "agg=refresh")
    assert job.read() == job.expected
    assert "has no effect" in job.run_ok("--sink", "agg=refresh")
    for answer in ("rebuild", "empty"):
        tables.dump()
        job.put(("b", 1), ("y", 1))
        job.run_ok()
        tables.restore()
        job.refuse()
        assert "no effect" not in job.run_ok("--sink", f"agg={answer}")
        assert (job.read() == job.expected) is (answer == "rebuild")
        job.run_ok()
    job.put(("b", 7), ("y", 7))  # what changes from now on
    job.run_ok()
    assert job.read() == job.expected


@pytest.mark.slow
def test_a_change_of_the_query_does_not_bypass_the_check(run: Run, tables: DatabaseTables) -> None:
    job = Job(run, tables, COUNTS)
    job.start()
    script = Path("job.sql").read_text()
    Path("job.sql").write_text(script.replace("FROM t", "FROM t WHERE n > 0"))
    done = job.run("--on-change", "reset")
    assert (done.code, done.first.startswith("error[sink-behind]")) == (1, True), done.err
    job.run_ok("--on-change", "rebuild")
    assert job.read() == job.expected


@pytest.mark.slow
def test_a_restored_database_after_a_change(run: Run, tables: DatabaseTables) -> None:
    """The table holds a batch of an earlier version, whose checkpoint is still there."""
    job = Job(run, tables, COUNTS)
    job.start()
    assert job.run_ok("--sink", "agg=refresh")
    script = Path("job.sql").read_text()
    job.put(("a", 5))
    Path("job.sql").write_text(script.replace("FROM t", "FROM t WHERE n > 0"))
    job.run_ok("--on-change", "reset")
    tables.restore()
    message = job.refuse()
    assert "it holds batch 0 of epoch 0 of the job, and the job has written batch " in message
    assert " of epoch 2 to it" in message
    Path("job.sql").write_text(script)
    roll_back(message)
    job.run_ok()
    assert job.read() == job.expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["filesystem", "delta"])
def test_a_restored_folder(run: Run, spark: SparkSession, kind: str) -> None:
    if kind == "delta":
        DELTA.add_to(spark)
        spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")

        def read(table: str) -> Rows:
            return sorted(map(tuple, spark.read.format("delta").load(str(Path("out", table).resolve())).collect()))

        job = Job(run, FolderTables(DELTA_TABLES, read), EVENTS, COUNTS)
    else:
        job = Job(run, FolderTables(FILES, read_json), EVENTS)
    job.start()
    message = job.refuse()
    assert "table `ev` is behind the job: it holds batch 0 of the job, and the job has written batch 1" in message
    roll_back(message)
    job.run_ok()
    assert job.read() == job.expected


@pytest.mark.slow
def test_what_is_not_refused(run: Run, tables: DatabaseTables) -> None:
    job = Job(run, tables, EVENTS, COUNTS.replace("GROUP", "WHERE n < 100 GROUP"))
    job.start()
    tables.database.run("TRUNCATE everfold_commits, ev, agg")  # emptied
    notes = job.run_ok()
    assert "note: table `ev` is behind the job: it has no record of the job, which has written batch 1 to it" in notes
    assert "it receives only what changes from now on; to write all rows to it: --sink agg=refresh" in notes
    assert job.read() == [[("z", 9)], [("z", 1)]]
    assert "note" not in job.run_ok()
    job.put(("z", 100))  # a batch without rows for one of the tables
    job.run_ok()
    newest = max(Path("state/checkpoints/0/commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()  # as if the job was killed after the commit of the sinks and before Spark's
    newest.with_name(f".{newest.name}.crc").unlink()
    assert "note" not in job.run_ok()
    assert job.read() == [[("z", 9), ("z", 100)], [("z", 1)]]
    tables.dump()
    job.put(("x", 1))
    job.run_ok()
    newest = newest.with_name(str(int(newest.name) + 1))
    newest.unlink()  # as if it was killed before the commit of the sinks
    newest.with_name(f".{newest.name}.crc").unlink()
    tables.restore()
    assert "note" not in job.run_ok()
    assert job.read() == [[("x", 1), ("z", 9), ("z", 100)], [("x", 1), ("z", 1)]]
    tables.database.run("CREATE TABLE ev2 AS TABLE ev")  # a new table
    Path("job.sql").write_text(Path("job.sql").read_text().replace("'table-name' = 'ev'", "'table-name' = 'ev2'"))
    job.put(("w", 1))
    assert "note: table" not in job.run_ok("--sink", "ev=empty")
    assert ("w", 1) in tables.read("ev2")
    shutil.rmtree("state")  # a new job
    job.run_ok()
