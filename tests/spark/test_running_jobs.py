"""Jobs that run in the background: status, stop and wait."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from everfold import TableEnvironment
from everfold.cli.main import everfold
from everfold.errors import ConnectorError, StateError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
CREATE TABLE src (k INT, v INT) WITH ('connector' = 'filesystem', 'path' = '{source}', 'format' = 'json'{watched});
CREATE TABLE {target} (k INT, v INT) WITH ('connector' = 'filesystem', 'path' = '{target}', 'format' = 'csv');
"""
WATCHED = ", 'source.monitor-interval' = '100 ms'"
PATIENCE_S = 120.0


def put(folder: Path, name: str, *rows: tuple[int, int]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in rows))
    (folder / f".{name}").rename(folder / name)


def read(folder: Path) -> list[str]:
    return sorted(line for file in folder.glob("part-*") for line in file.read_text().splitlines())


def wait_until(done: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline, "the job does not get there"
        time.sleep(0.05)


def declare(environment: TableEnvironment, target: str, source: str = "in", watched: str = WATCHED) -> None:
    for name in ("src", target):
        environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
    environment.execute_sql(TABLES.format(source=source, target=target, watched=watched))


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Iterator[TableEnvironment]:
    environment = TableEnvironment(spark, base_folder=tmp_path)
    yield environment
    environment.close()


def invoke(*arguments: str) -> str:
    """Run a command, and return what it prints."""
    done = CliRunner().invoke(everfold, arguments)
    assert done.exception is None, done.exception
    return done.output


def test_a_job_is_seen_and_stopped_from_outside(environment: TableEnvironment, tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path / "in", str(number), (number, 10))
    declare(environment, "out", watched=f"{WATCHED}, 'scan.max-files-per-batch' = '1'")
    job = environment.execute_sql("INSERT INTO out SELECT * FROM src", wait=False)
    wait_until(lambda: job.status().progress is not None)
    folder = str(job.folder)
    found = json.loads(invoke("status", folder, "--format", "json"))
    assert (found["state"], found["version"], found["name"], found["end"]) == ("running", 0, "out", None)
    assert "| .everfold/out |  out | running |       0 |" in invoke("jobs", str(tmp_path))
    assert "has stopped; it was run by process" in invoke("stop", folder)
    job.wait(60)
    assert job.status().state == "stopped"
    assert invoke("status", folder).startswith("out: stopped\nversion 0, since ")
    assert "is not running: stopped at " in invoke("stop", folder)
    planned, done = (
        {each.name for each in (tmp_path / ".everfold" / "out" / "checkpoints" / "0" / log).glob("[0-9]*")}
        for log in ("offsets", "commits")
    )
    assert planned == done  # the stop leaves no batch to replay
    assert len(read(tmp_path / "out")) == len(done)


def test_stop_and_resume(environment: TableEnvironment, tmp_path: Path) -> None:
    put(tmp_path / "in", "a", (1, 10), (2, 20))
    declare(environment, "out")
    job = environment.execute_sql("INSERT INTO out SELECT * FROM src WHERE v > 10", wait=False)
    assert (job.name, job.folder) == ("out", tmp_path / ".everfold" / "out")
    assert job.status().state == "running"
    with pytest.raises(TimeoutError, match=r"job `out` still runs after 0\.1 s"):
        job.wait(0.1)
    wait_until(lambda: job.status().progress is not None)
    with pytest.raises(StateError, match="is being run by"):
        environment.execute_sql("INSERT INTO out SELECT * FROM src WHERE v > 10", wait=False)
    assert job.stop().message == "2 rows in, 1 rows out"
    assert job.status().state == "stopped"
    put(tmp_path / "in", "b", (3, 30))
    again = environment.execute_sql("INSERT INTO out SELECT * FROM src WHERE v > 10", wait=False)
    wait_until(lambda: again.status().progress is not None)
    progress = again.status().progress
    assert progress is not None
    assert (progress.rows, progress.rows_out) == (1, 1)
    environment.close()
    assert again.status().state == "stopped"
    assert read(tmp_path / "out") == ["2,20", "3,30"]


def test_two_jobs_at_once(environment: TableEnvironment, tmp_path: Path) -> None:
    put(tmp_path / "in", "a", (1, 10), (2, 20))
    declare(environment, "first", watched="")
    first = environment.execute_sql("INSERT INTO first SELECT k, v + 1 FROM src", wait=False)
    declare(environment, "second", watched="")
    second = environment.execute_sql("INSERT INTO second SELECT k, v + 2 FROM src", wait=False)
    assert first.wait().message == second.wait().message == "2 rows in, 2 rows out"
    assert first.status().state == second.status().state == "finished"
    assert (read(tmp_path / "first"), read(tmp_path / "second")) == (["1,11", "2,21"], ["1,12", "2,22"])


def test_a_failure_while_the_job_runs(environment: TableEnvironment, tmp_path: Path) -> None:
    put(tmp_path / "in", "a", (1, 10))
    declare(environment, "out")
    job = environment.execute_sql("INSERT INTO out SELECT * FROM src", wait=False)
    wait_until(lambda: job.status().progress is not None)
    (tmp_path / "in" / "b").write_text("nothing\n")
    with pytest.raises(ConnectorError) as caught:
        job.wait(PATIENCE_S)
    status = job.status()
    assert (status.state, status.error) == ("failed", caught.value)
    with pytest.raises(ConnectorError):
        job.stop()


def test_what_is_wrong_before_the_start_is_raised_at_once(environment: TableEnvironment, tmp_path: Path) -> None:
    put(tmp_path / "in", "a", (1, 10))
    declare(environment, "out", watched="")
    environment.execute_sql("INSERT INTO out SELECT k, CAST(COUNT(*) OVER (ORDER BY PROCTIME()) AS INT) FROM src")
    with pytest.raises(StateError):
        environment.execute_sql(
            "INSERT INTO out SELECT k, CAST(MAX(v) OVER (ORDER BY PROCTIME()) AS INT) FROM src", wait=False
        )


@pytest.mark.parametrize(
    "script", ["SELECT 1", "SHOW TABLES", "INSERT INTO out SELECT 1, 2; INSERT INTO out SELECT 3, 4"]
)
def test_a_script_that_is_not_one_job(environment: TableEnvironment, script: str) -> None:
    declare(environment, "out")
    with pytest.raises(UsageError, match="its only job") as caught:
        environment.execute_sql(script, wait=False)
    assert caught.value.code == "not-a-job"


@pytest.mark.slow
def test_the_process_may_end_at_any_time(tmp_path: Path) -> None:
    put(tmp_path / "in", "a", (1, 10))
    script = TABLES.format(source="in", target="out", watched=WATCHED) + "INSERT INTO out SELECT * FROM src"
    (tmp_path / "start.py").write_text(
        "import sys, time\nfrom everfold import TableEnvironment\n"
        f"job = TableEnvironment(master='local[2]').execute_sql({script!r}, wait=False)\n"
        "while job.status().progress is None and sys.argv[1:] == ['wait']: time.sleep(0.05)\n"
        "print(job.status().state)\n"
    )
    for arguments in ([], ["wait"]):
        command = [sys.executable, "start.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
        assert (done.returncode, done.stdout, done.stderr) == (0, "running\n", "")
    assert read(tmp_path / "out") == ["1,10"]
