"""Several INSERTs without end in one script run at the same time, each as its own job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

TABLES = """
CREATE TABLE t (k STRING, x INT) WITH (
    'connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '1 s'
);
CREATE TABLE a (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'debezium-json');
CREATE TABLE c (k STRING, y INT) WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json');
"""
SCRIPT = f"""{TABLES}
INSERT INTO a SELECT k, x FROM t;
INSERT INTO b SELECT k, COUNT(*) FROM t GROUP BY k;
INSERT INTO c SELECT k, 10 / x FROM t;
"""
PATIENCE_S = 300


def put(folder: Path, number: int, x: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    made = folder / f"{number}.json"
    made.write_text(json.dumps({"k": f"k{number}", "x": x}) + "\n")
    made.rename(folder / "in" / made.name)


def start(folder: Path) -> subprocess.Popen[str]:
    (folder / "script.sql").write_text(SCRIPT)
    command = [sys.executable, "-m", "everfold", "run", "script.sql", "--state", "state", "--master", "local[2]"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def wait_until(job: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not reached():
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < ends, "the job makes no progress"
        time.sleep(0.1)


def read(folder: Path) -> list[Any]:
    visible = (each for each in folder.rglob("*") if each.is_file() and not each.name.startswith((".", "_")))
    return [json.loads(line) for each in visible for line in each.read_text().splitlines()]


def states(folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "everfold", "jobs", "state", "--format", "json"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {each["name"]: each["state"] for each in json.loads(done.stdout)}


def test_all_run_stop_together_and_resume(tmp_path: Path) -> None:
    put(tmp_path, 1, 1)
    job = start(tmp_path)
    try:
        wait_until(job, lambda: all(len(read(tmp_path / name)) == 1 for name in "abc"))
        assert states(tmp_path) == {"a": "running", "b": "running", "c": "running"}
        subprocess.run([sys.executable, "-m", "everfold", "stop", "state/jobs/b"], cwd=tmp_path, check=True)
        put(tmp_path, 2, 2)
        wait_until(job, lambda: all(len(read(tmp_path / name)) == 2 for name in "ac"))
        assert states(tmp_path) == {"a": "running", "b": "stopped", "c": "running"}
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=PATIENCE_S)[0]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, output
    assert "a: stopped; 2 rows in, 2 rows out" in output
    assert "c: stopped; 2 rows in, 2 rows out" in output
    assert states(tmp_path) == {"a": "stopped", "b": "stopped", "c": "stopped"}
    assert len(read(tmp_path / "b")) == 1

    put(tmp_path, 3, 0)  # the division fails in `c`, and all jobs stop
    job = start(tmp_path)
    output = job.communicate(timeout=PATIENCE_S)[0]
    assert job.returncode == 1, output
    assert "division-by-zero" in output
    assert states(tmp_path) == {"a": "stopped", "b": "stopped", "c": "failed"}
    assert {each["k"] for each in read(tmp_path / "a")} <= {"k1", "k2", "k3"}
