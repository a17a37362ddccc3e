"""Operate a job from other processes: show it, stop it, change it, expire its versions, go back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everfold.checkpoint.logs import has_unfinished_batch
from everfold.storage import local

pytestmark = [pytest.mark.slow, pytest.mark.spark]

TABLES = """
CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json',
  'source.monitor-interval' = '100 ms', 'scan.max-files-per-batch' = '1');
CREATE TABLE o (k STRING, a BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'debezium-json');
"""
COUNTS = "INSERT INTO o SELECT k, COUNT(*) FROM t GROUP BY k;"
SUMS = "INSERT INTO o SELECT k, SUM(CAST(x AS BIGINT)) FROM t GROUP BY k;"
SLOW = """
from everfold.udf import udf
import time

@udf(input_types=["INT"], result_type="INT")
def slowly(x):
    time.sleep(x)
    return x
"""


def put(folder: Path, number: int, x: int = 1) -> None:
    """Write a file with one row; its name tells its time."""
    (folder / "in").mkdir(exist_ok=True)
    file = folder / "in" / f".{number}.json"
    file.write_text(json.dumps({"k": "a", "x": x}) + "\n")
    os.utime(file, (time.time() - 10_000 + number,) * 2)
    file.rename(folder / "in" / f"{number}.json")


def start(folder: Path, query: str, *options: str, tables: str = TABLES) -> subprocess.Popen[str]:
    """Start a job in a process of its own."""
    (folder / "job.sql").write_text(tables + query)
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "job", "--master", "local[2]", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def command(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run a command in another process, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "everfold", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def finish(job: subprocess.Popen[str]) -> None:
    """Wait until a job that was stopped has ended."""
    _, err = job.communicate()
    assert job.returncode == 0, err


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(folder, "status", "job", "--format", "json"))
    return found


def wait_until(job: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    while not reached():
        assert job.poll() is None, job.communicate()
        time.sleep(0.1)


def commits(folder: Path, epoch: int) -> list[str]:
    """Return the names of the finished batches of an epoch."""
    log = folder / "job" / "checkpoints" / str(epoch) / "commits"
    return [each.name for each in log.iterdir() if each.name.isdigit()] if log.is_dir() else []


def read_record(folder: Path) -> str:
    """Return the record of the last batch that has begun."""
    record = folder / "job" / "last_batch.json"
    return record.read_text() if record.exists() else ""


def value(folder: Path) -> int:
    """Return the current value of the only group, by the changes that any reader of the files sees."""
    files = (folder / "out").glob("part-*")
    changes = (json.loads(line) for file in files for line in file.read_text().splitlines())
    found = 0
    for change in changes:
        found -= change["before"]["a"] if change["before"] else 0
        found += change["after"]["a"] if change["after"] else 0
    return found


def find_traces(text: str) -> list[str]:
    """Return the lines of a log that tell of a failure or warn of something."""
    return [line for line in text.splitlines() if re.search("Exception|Traceback|\tat | WARN | ERROR ", line)]


def test_a_job_is_watched_stopped_changed_expired_and_rolled_back(tmp_path: Path) -> None:
    for number in range(200):  # more than it reads before it is stopped
        put(tmp_path, number, x=2)
    job = start(tmp_path, COUNTS)
    wait_until(job, lambda: len(commits(tmp_path, 0)) > 2)
    found = status(tmp_path)
    assert (found["state"], found["version"], found["name"]) == ("running", 0, "o")
    assert f"process {job.pid} on " in found["owner"]
    assert "job-is-running" in command(tmp_path, "expire", "job", "--keep", "1", code=1)
    assert "| job |    o | running |       0 |" in command(tmp_path, "jobs")
    stopped = command(tmp_path, "stop", "job")
    assert f"has stopped; it was run by process {job.pid} " in stopped
    _, err = job.communicate()
    assert job.returncode == 0, err
    assert "note: stopping after the running batch, on request of process " in err
    read = len(commits(tmp_path, 0))
    assert read < 200
    assert value(tmp_path) == read
    checkpoint = local(tmp_path / "job" / "checkpoints" / "0")
    assert not has_unfinished_batch(checkpoint)  # so that the query can be changed
    assert find_traces((tmp_path / "job" / "job.log").read_text()) == []
    assert status(tmp_path)["state"] == "stopped"
    assert "is not running: stopped at " in command(tmp_path, "stop", "job")

    for epoch, query in ((1, SUMS), (2, COUNTS)):
        job = start(tmp_path, query, "--on-change", "reset")
        wait_until(job, lambda epoch=epoch: len(commits(tmp_path, epoch)) > read + 2)  # type: ignore[misc]
        command(tmp_path, "stop", "job")
        finish(job)
    assert command(tmp_path, "history", "job", "--sql", "1").strip() == (TABLES + SUMS).strip()
    planned = json.loads(command(tmp_path, "expire", "job", "--keep", "2", "--dry-run", "--format", "json"))
    assert (planned["kept"], planned["expired"]) == ([1, 2], [0])
    before = sum(each.stat().st_size for each in (tmp_path / "job" / "checkpoints" / "0").rglob("*"))
    assert json.loads(command(tmp_path, "expire", "job", "--keep", "2", "--format", "json"))["bytes"] > 0
    after = sum(each.stat().st_size for each in (tmp_path / "job" / "checkpoints" / "0").rglob("*"))
    assert after < before / 2
    assert "version 0 (expired)" in command(tmp_path, "history", "job")
    assert "expired-version" in command(tmp_path, "rollback", "job", "0", code=1)
    command(tmp_path, "rollback", "job", "1")

    job = start(tmp_path, SUMS)  # resumes the version that was kept
    wait_until(job, lambda: status(tmp_path)["state"] == "running" and bool(status(tmp_path)["batches"]))
    wait_until(job, lambda: len(commits(tmp_path, 3)) > len(commits(tmp_path, 1)))
    os.killpg(job.pid, signal.SIGKILL)
    job.communicate()
    found = status(tmp_path)
    assert (found["state"], found["owner"], found["version"]) == ("killed", None, 3)
    assert "its process was killed" in command(tmp_path, "stop", "job")
    command(tmp_path, "expire", "job", "--keep", "1")
    job = start(tmp_path, SUMS)
    wait_until(job, lambda: status(tmp_path)["state"] == "running")
    command(tmp_path, "stop", "job")
    finish(job)


def test_a_batch_that_takes_too_long_is_interrupted_and_replayed(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    tables = "CREATE FUNCTION slowly AS 'slow.slowly' LANGUAGE PYTHON;" + TABLES
    query = "INSERT INTO o SELECT k, SUM(CAST(slowly(x) AS BIGINT)) FROM t GROUP BY k;"
    put(tmp_path, 0)
    put(tmp_path, 1, x=60)
    options = ("--stop-timeout", "1", "--log", "stderr")
    job = start(tmp_path, query, *options, tables=tables)
    wait_until(job, lambda: '"batch": 1' in read_record(tmp_path))  # the batch has begun
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate()
    assert (job.returncode, out) == (130, ""), err
    assert "stopping after the running batch, in at most 1 s; Ctrl-C again stops at once\n" in err
    assert "batch 1 did not end within 1 s and was interrupted; the next start replays it\n" in err
    assert find_traces(err) == []
    assert "WARNING: Using incubator modules" in err  # the output of the JVM
    assert not (tmp_path / "job" / "job.log").exists()
    assert value(tmp_path) == 1
    job = start(tmp_path, query, tables=tables)
    wait_until(job, lambda: "1" in commits(tmp_path, 0))
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate()
    assert job.returncode == 0, err
    assert value(tmp_path) == 61
