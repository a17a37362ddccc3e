"""The tables that a job writes under another name, at another location, or by another INSERT: on
Spark.

A table that is said to be kept has the rows of a job that was never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manifests import newest_manifest
from spark.running import Done, Run, runner

from everfold import TableEnvironment
from everfold.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
INPUT = "CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');\n"
SUMS = "SELECT k, SUM(x) AS v FROM t GROUP BY k"
MOST = "SELECT k, MAX(x) AS v FROM t GROUP BY k"
CASCADE = f"SELECT CAST(v AS STRING) AS k, COUNT(*) AS v FROM ({MOST}) GROUP BY v"
Inserts = Sequence[tuple[str, str]]
"""The INSERTs of a job: each with its table and its query."""


class Job:
    """A job in a project folder, and all rows that it has read.

    is_set: whether its INSERTs are a statement set; each is a job otherwise.
    """

    def __init__(self, run: Run, project: Path, *, is_set: bool = True) -> None:
        self._run, self.project, self._is_set = run, project, is_set
        self.rows: list[tuple[str, int]] = []
        self._files = 0
        (project / "in").mkdir()

    def put(self, *rows: tuple[str, int]) -> None:
        """Write a file."""
        self._files += 1
        lines = (json.dumps({"k": key, "x": value}) + "\n" for key, value in rows)
        (self.project / "in" / f"{self._files}.json").write_text("".join(lines))
        self.rows += rows

    def run(self, inserts: Inserts, *options: str, folders: dict[str, str] | None = None) -> Done:
        """Run the job to the end of its input. folders: of tables, if not their names."""
        tables = "".join(
            f"CREATE TABLE {name} (k STRING, v BIGINT) WITH ('connector' = 'filesystem',"
            f" 'path' = '{(folders or {}).get(name, name)}', 'format' = 'debezium-json');\n"
            for name in dict.fromkeys(name for name, _ in inserts)
        )
        texts = "\n".join(f"INSERT INTO {name} {query};" for name, query in inserts)
        texts = f"EXECUTE STATEMENT SET BEGIN\n{texts}\nEND;" if self._is_set else texts
        (self.project / "job.sql").write_text(f"{INPUT}{tables}{texts}\n")
        return self._run("run", "job.sql", "--suspend", *options)

    def run_ok(self, inserts: Inserts, *options: str, folders: dict[str, str] | None = None) -> str:
        """Run the job and check that it succeeds. Return what was printed."""
        done = self.run(inserts, *options, folders=folders)
        assert done.code == 0, done.err
        return done.err

    def check(self, *options: str) -> Done:
        """Check the script against the job."""
        return self._run("check", "job.sql", "--state", ".everfold/job", *options)

    def read(self, folder: str) -> dict[str, int]:
        """Return the current rows of a table."""
        rows: dict[str, int] = {}
        files = (file for file in (self.project / folder).iterdir() if file.name[0] not in "._")
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
            for change in map(json.loads, file.read_text().splitlines()):
                if change["before"] is not None and change["after"] is None:
                    rows.pop(change["before"]["k"], None)
                if change["after"] is not None:
                    rows[change["after"]["k"]] = change["after"]["v"]
        return rows

    @property
    def sums(self) -> dict[str, int]:
        """The sum of each key over all rows."""
        return {key: sum(value for other, value in self.rows if other == key) for key, _ in self.rows}

    @property
    def most(self) -> dict[str, int]:
        """The greatest value of each key over all rows."""
        return {key: max(value for other, value in self.rows if other == key) for key, _ in self.rows}

    @property
    def cascade(self) -> dict[str, int]:
        """How many keys have each greatest value."""
        values = [*self.most.values()]
        return {str(value): values.count(value) for value in values}


@pytest.fixture
def job(spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(runner(spark, monkeypatch, capsys, command=()), project)


def test_a_moved_table_receives_what_the_user_says(job: Job) -> None:
    both = [("sums", SUMS), ("most", MOST)]
    job.put(("a", 1), ("b", 2))
    job.run_ok(both)
    job.put(("a", 5))
    moved = {"sums": "sums2"}
    asked = job.run(both, folders=moved)
    old, new = (f"`{job.project / folder}` (filesystem)" for folder in ("sums", "sums2"))
    message = f"error[changed-sink]: table `sums`: the job has written {old}, but the table is now at {new}"
    assert (asked.code, asked.first) == (1, message)
    for answer in ("refresh", "empty", "rebuild"):
        assert f"--sink sums={answer}" in asked.err
    assert job.check().code == 2
    assert job.check("--sink", "sums=refresh").code == 0
    said = job.run_ok(both, "--sink", "sums=refresh", folders=moved)
    assert "`sums`: its present location receives the current result" in said
    assert job.read("sums2") == job.sums
    # The other table received only what has changed: a removed row and a new one.
    assert job.read("most") == job.most
    assert sum(len(file.read_text().splitlines()) for file in (job.project / "most").glob("[!._]*")) == 4
    # The location is known now.
    job.put(("c", 3))
    assert "has no effect" in job.run_ok(both, "--sink", "sums=refresh", folders=moved)
    assert job.read("sums2") == job.sums


@pytest.mark.slow
def test_a_moved_table_with_changes_only_or_with_everything(job: Job) -> None:
    job.put(("a", 1), ("b", 2))
    job.run_ok([("sums", SUMS)])
    job.put(("a", 5))
    said = job.run_ok([("sums", SUMS)], "--sink", "sums=empty", folders={"sums": "changes"})
    assert "`sums`: its present location receives only rows that change from now on" in said
    assert job.read("changes") == {"a": 6}
    job.put(("b", 7))
    job.run_ok([("sums", SUMS)], "--sink", "sums=rebuild", folders={"sums": "whole"})
    assert job.read("whole") == job.sums
    assert job.read("sums") == {"a": 1, "b": 2}


@pytest.mark.slow
def test_a_second_table_gets_a_copy_of_the_state(job: Job) -> None:
    old_inserts = [("most", MOST), ("deep", CASCADE)]
    job.put(("a", 1), ("b", 2), ("c", 2))
    job.run_ok(old_inserts)
    job.put(("a", 5), ("d", 5))
    two = [("other", CASCADE), *old_inserts]
    asked = job.run(two)
    assert (
        "error[changed-sink]: table `other`: the job has written the rows of this query into `deep` only" in asked.err
    )
    assert job.check().code == 2
    job.run_ok(two, "--sink", "other=refresh")
    expected = dict(job.cascade)
    assert {key: value for key, value in job.read("other").items() if value} == expected
    manifest = json.loads(newest_manifest(job.project / ".everfold/job").read_text())
    assert sorted(manifest["versions"][-1]["state_names"].items()) == [("w4", "w3"), ("w5", "w2")]
    job.put(("b", 9), ("e", 9))
    job.run_ok(two)
    # The operators of both tables go on by themselves, in any order, and also alone.
    job.put(("a", 9))
    job.run_ok([two[2], two[0], two[1]])
    for name in ("other", "deep"):
        assert job.read(name) == job.cascade, name
    job.put(("f", 1))
    job.run_ok([two[0]], "--conf", "everfold.compat.rules=extended")
    assert job.read("other") == job.cascade
    job.put(("g", 1))
    more = CASCADE.replace("COUNT(*) AS v", "COUNT(*) + MIN(0) AS v")
    job.run_ok([("other", more)], "--on-change", "backfill", "--conf", "everfold.compat.rules=extended")
    assert job.read("other") == job.cascade


@pytest.mark.slow
def test_a_renamed_table_keeps_its_rows(job: Job) -> None:
    job.put(("a", 1), ("b", 2))
    job.run_ok([("sums", SUMS), ("rows", "SELECT k, x AS v FROM t")])
    job.put(("a", 5))
    folders = {"totals": "sums", "all_rows": "rows"}
    said = job.run_ok([("all_rows", "SELECT k, x AS v FROM t"), ("totals", SUMS)], folders=folders)
    assert "changed-sink" not in said
    assert job.read("sums") == job.sums
    lines = [line for file in (job.project / "rows").glob("[!._]*") for line in file.read_text().splitlines()]
    assert len(lines) == len(job.rows)


@pytest.mark.slow
def test_inserts_into_one_table_are_told_apart(job: Job) -> None:
    """One of several INSERTs into the same table is removed, or they are in another order."""
    sums, most = (f"SELECT '{name}' || k AS k, v FROM ({query})" for name, query in (("s", SUMS), ("m", MOST)))
    job.put(("a", 1), ("b", 2))
    job.run_ok([("out", sums), ("out", most)])
    job.put(("a", 5))
    job.run_ok([("out", most), ("out", sums)])
    expected = {f"s{key}": value for key, value in job.sums.items()}
    expected |= {f"m{key}": value for key, value in job.most.items()}
    assert job.read("out") == expected
    job.put(("b", 3), ("c", 1))
    job.run_ok([("out", most)], "--conf", "everfold.compat.rules=extended")
    expected |= {f"m{key}": value for key, value in job.most.items()}
    assert job.read("out") == expected


@pytest.mark.slow
def test_the_python_api_has_the_answers(job: Job, spark: SparkSession) -> None:
    env = TableEnvironment(spark=spark, base_folder=job.project)
    job.put(("a", 1))
    env.execute_sql(INPUT)
    table = "CREATE TABLE s (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'debezium-json')"
    env.execute_sql(table.format("s1"))
    env.execute_sql(f"INSERT INTO s {SUMS}")
    env.execute_sql("DROP TABLE s")
    env.execute_sql(table.format("s2"))
    with pytest.raises(StateError, match="changed-sink") as error:
        env.execute_sql(f"INSERT INTO s {SUMS}")
    assert 'sinks={"s": "refresh"}' in str(error.value)
    env.execute_sql(f"INSERT INTO s {SUMS}", sinks={"s": "refresh"})
    assert job.read("s2") == job.sums


def test_each_statement_of_a_script_continues_its_job(
    spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Statements that are jobs of their own are in another order, removed, added, renamed, changed."""
    job = Job(runner(spark, monkeypatch, capsys, command=()), project, is_set=False)
    sums, most = ("sums", SUMS), ("most", MOST)
    job.put(("a", 1), ("b", 2))
    assert "new job" not in job.run_ok([sums, most])
    job.put(("a", 5))
    assert job.check().code == 0
    job.run_ok([most, sums])
    assert (job.read("sums"), job.read("most")) == (job.sums, job.most)
    job.put(("c", 3))
    before = job.sums
    job.run_ok([most])
    assert job.read("most") == job.most
    job.put(("b", 9))
    said = job.run_ok([("least", SUMS.replace("SUM", "MIN")), most])
    assert "continues the job in" in said
    assert "which writes `sums`, any more: it is left as it is" in said
    assert job.read("least") == {key: min(value for other, value in job.rows if other == key) for key in job.sums}
    assert job.read("most") == job.most
    assert job.read("sums") == {key: value for key, value in before.items() if key != "c"}
    # The removed statement comes back, under another name, after another one that has changed.
    job.put(("d", 4))
    changed = ("most", MOST.replace("MAX(x)", "MAX(x) + COUNT(*)"))
    done = job.run([changed, ("totals", SUMS)], folders={"totals": "sums"})
    assert done.first.startswith("error[partial-change]")
    assert job.check().code == 3
    job.run_ok([changed, ("totals", SUMS)], "--on-change", "backfill", folders={"totals": "sums"})
    assert job.read("sums") == job.sums
    counts = {key: sum(other == key for other, _ in job.rows) for key in job.most}
    assert job.read("most")["d"] == 4 + counts["d"]
    job.put(("a", 0), ("b", 0), ("c", 0))
    job.run_ok([("totals", SUMS), changed], folders={"totals": "sums"})
    assert job.read("sums") == job.sums
    counts = {key: sum(other == key for other, _ in job.rows) for key in job.most}
    assert job.read("most") == {key: value + counts[key] for key, value in job.most.items()}
    assert sorted(folder.name for folder in (project / ".everfold/job/jobs").iterdir()) == ["least", "most"]
