"""Source tables and columns that were renamed keep their state and their position: on Spark.

The result is that of a job that was never stopped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.running import Done, Run, runner

from everfold import TableEnvironment
from everfold.errors import UsageError
from everfold.jobs.rollback import roll_back
from everfold.storage import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MINUTES = "FROM TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
WINDOW = "SELECT {key} AS k, SUM({value}) AS v " + MINUTES + ", {key}"
GROUP = "SELECT {key} AS k, SUM({value}) AS v FROM {table} GROUP BY {key}"


class Job:
    """A job in a project folder."""

    def __init__(self, run: Run, project: Path) -> None:
        self._run, self.project = run, project
        self.rows: list[tuple[str, int, str]] = []
        self._files = 0

    def put(self, *rows: tuple[str, int, str], folder: str = "in", counted: bool = True) -> None:
        """Write a file. Its columns are found by position."""
        self._files += 1
        file = self.project / folder / f"{self._files}.csv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{key},{value},2020-01-01 00:{time}\n" for key, value, time in rows))
        self.rows += rows if counted else ()

    def write(self, query: str, table: str = "t", key: str = "k", value: str = "x", folder: str = "in") -> None:
        names = {"table": table, "key": key, "value": value}
        (self.project / "job.sql").write_text(
            f"CREATE TABLE {table} ({key} STRING, {value} INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"
            f" WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv');\n"
            "CREATE TABLE o (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'debezium-json');\n"
            f"INSERT INTO o {query.format(**names)};\n"
        )

    def run(self, *options: str, suspend: bool = True) -> Done:
        return self._run("run", "job.sql", *["--suspend"] * suspend, *options)

    def run_ok(self, *options: str, suspend: bool = True) -> str:
        done = self.run(*options, suspend=suspend)
        assert done.code == 0, done.err
        return done.err

    def check(self, *options: str) -> Done:
        return self._run("check", "job.sql", "--state", ".everfold/job", *options)

    def read(self) -> dict[str, int]:
        """Return the sums of the table, over the windows of a key."""
        sums: dict[str, int] = {}
        files = (file for file in (self.project / "out").iterdir() if file.name[0] not in "._")
        for change in (json.loads(line) for file in files for line in file.read_text().splitlines()):
            for row, sign in ((change["before"], -1), (change["after"], 1)):
                if row is not None and (change["after"] is None or sign > 0):
                    sums[row["k"]] = sums.get(row["k"], 0) + sign * row["v"]
        return sums

    @property
    def sums(self) -> dict[str, int]:
        return {key: sum(value for other, value, _ in self.rows if other == key) for key, _, _ in self.rows}


@pytest.fixture
def job(spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(runner(spark, monkeypatch, capsys, command=()), project)


RENAMED = ("--source", "t=bids", "--source", "t.k=who", "--source", "t.x=price")


@pytest.mark.parametrize("query", [WINDOW, pytest.param(GROUP, marks=pytest.mark.slow)], ids=["window", "group"])
def test_a_renamed_table_and_its_columns(job: Job, query: str) -> None:
    job.put(("a", 1, "00:01"), ("b", 2, "00:02"))
    job.write(query)
    job.run_ok()
    job.put(("a", 5, "00:30"))
    job.write(query, "bids", "who", "price")
    refused = job.run()
    assert "error[incompatible-change]" in refused.err
    assert "--source t=bids" in refused.err
    assert job.check().code == 5
    assert job.check(*RENAMED).code == 0
    job.run_ok(*RENAMED)
    # The names are known from now on.
    job.put(("b", 7, "00:40"))
    assert job.check().code == 0
    job.run_ok()
    job.put(("c", 3, "01:50"))
    job.run_ok(*RENAMED, suspend=False)
    assert job.read() == job.sums


@pytest.mark.slow
def test_a_renamed_table_at_another_location_needs_both_answers(job: Job) -> None:
    job.put(("a", 1, "00:01"))
    job.write(WINDOW)
    job.run_ok()
    job.put(("b", 2, "00:02"), folder="other")
    job.write(WINDOW, "bids", folder="other")
    asked = job.run("--source", "t=bids")
    assert "error[changed-source]: table `bids`" in asked.err
    assert job.check("--source", "t=bids").code == 2
    job.run_ok("--source", "t=bids", "--source", "bids=new", suspend=False)
    assert job.read() == job.sums


@pytest.mark.slow
def test_a_new_table_with_the_old_name_is_another_one(job: Job) -> None:
    job.put(("a", 1, "00:01"))
    job.write(GROUP)
    job.run_ok()
    job.write(GROUP, "bids")
    job.run_ok("--source", "t=bids")
    text = (job.project / "job.sql").read_text()
    table = text.splitlines()[0].replace("bids", "t").replace("'in'", "'second'")
    job.put(("a", 100, "00:01"), folder="second", counted=False)
    (job.project / "job.sql").write_text(f"{table}\n{text.replace('FROM bids', 'FROM t')}")
    asked = job.check()
    assert (asked.code, "changed-source: table `t`" in asked.out) == (2, True)
    both = f"{table}\n{text.replace('FROM bids', 'FROM (SELECT * FROM bids UNION ALL SELECT * FROM t)')}"
    (job.project / "job.sql").write_text(both)
    assert job.check().code == 5
    (job.project / "job.sql").write_text(text)
    job.put(("a", 4, "00:02"))
    job.run_ok()
    assert job.read() == job.sums


@pytest.mark.slow
def test_a_rollback_over_a_renaming(job: Job) -> None:
    job.put(("a", 1, "00:01"))
    job.write(WINDOW)
    job.run_ok()
    job.put(("a", 5, "00:30"))
    job.write(WINDOW.replace(" AS v", " + COUNT(*) - COUNT(*) AS v"), "bids", "who", "price")
    job.run_ok(*RENAMED, "--on-change", "accept")
    roll_back(local(job.project / ".everfold/job"), 0, duplicates=True, say=lambda _: None)
    job.write(WINDOW, "bids", "who", "price")
    job.put(("b", 2, "00:31"))
    job.run_ok(suspend=False)
    assert job.read() == job.sums


@pytest.mark.slow
def test_wrong_names_are_refused(job: Job, spark: SparkSession) -> None:
    job.put(("a", 1, "00:01"))
    job.write(WINDOW)
    job.run_ok()
    job.write(WINDOW, "bids", "who", "price")
    for option, message in (
        ("t=bid", "the script reads no table `bid`"),
        ("s=bids", "the job reads no table `s`"),
        ("t.k=whom", "the script reads no table `whom`"),
        ("t.y=who", "the state of the job has no column `y` of the table `t`"),
    ):
        for command in (job.run, job.check):
            done = (
                command("--source", "t=bids", "--source", option)
                if option[0:2] == "t."
                else command("--source", option)
            )
            assert (done.code, message in done.err) == (2, True), (option, done.err)
    env = TableEnvironment(spark=spark, base_folder=job.project)
    env.execute_sql((job.project / "job.sql").read_text().partition("INSERT")[0])
    for sources, message in (
        ({"s": "bids"}, "the job reads no table `s`"),
        ({"bids": "mooved"}, "the script reads no table `mooved`"),
        ({"bid": "moved"}, "the script reads no table `bid`"),
    ):
        with pytest.raises(UsageError, match=message):
            env.execute_sql(
                f"INSERT INTO o {WINDOW.format(table='bids', key='who', value='price')}",
                state_dir=job.project / ".everfold/job",
                sources=sources,
            )
