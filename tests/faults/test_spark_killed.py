"""Spark's JVM or one of its Python workers is killed in the middle of a job: one sentence says so, and the same command resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SCRIPT = """
CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '50', 'fields.a.min' = '1', 'fields.a.max' = '5');
CREATE TABLE s (a INT, n BIGINT) WITH ('connector' = 'print');
INSERT INTO s SELECT a, COUNT(*) FROM t GROUP BY a;
"""
WITHIN_S = 180


def children(process: int) -> list[int]:
    """The processes that a process started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(each) for each in found.stdout.split() if Path(f"/proc/{each}").exists()]


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A job that has given its first rows."""
    out, err = folder / "out.txt", folder / "err.txt"
    command = [sys.executable, "-m", "everfold", "run", "q.sql", "--state", "job", "--master", "local[2]"]
    with out.open("wb") as to, err.open("wb") as errors:
        job = subprocess.Popen(command, cwd=folder, stdout=to, stderr=errors, start_new_session=True)
    deadline = time.monotonic() + WITHIN_S
    while out.stat().st_size == 0 and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert out.stat().st_size > 0, err.read_text()
    return job


def workers_of(jvm: int) -> list[int]:
    """The Python workers of a JVM: what its daemons have forked."""
    return [worker for daemon in children(jvm) for worker in children(daemon)]


@pytest.mark.parametrize("what", ["jvm", "worker"])
def test_killed_and_said_so(what: str, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SCRIPT)
    job = started(tmp_path)
    try:
        (jvm,) = (each for each in children(job.pid) if "java" in Path(f"/proc/{each}/comm").read_text())
        deadline = time.monotonic() + WITHIN_S
        while job.poll() is None and time.monotonic() < deadline:
            # An idle worker is replaced; one at work takes the job with it.
            for each in [jvm] if what == "jvm" else workers_of(jvm):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.1)
        assert job.wait(timeout=WITHIN_S) == 1
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    said = (tmp_path / "err.txt").read_text()
    assert "error[spark-died]" in said
    assert "Traceback" not in said
    assert "Connection refused" not in said
    again = started(tmp_path)
    os.kill(again.pid, signal.SIGINT)
    assert again.wait(timeout=WITHIN_S) == 0, (tmp_path / "err.txt").read_text()
