"""Kill the Spark JVM or one of its Python workers while a job runs: one sentence reports it, and
the same command resumes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from faults.sampling import find_jvm

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SCRIPT = """
CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '50', 'fields.a.min' = '1', 'fields.a.max' = '5');
CREATE TABLE s (a INT, n BIGINT) WITH ('connector' = 'print');
INSERT INTO s SELECT a, COUNT(*) FROM t GROUP BY a;
"""
WITHIN_S = 180


def find_children(process: int) -> list[int]:
    """Return the child processes of a process."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(each) for each in found.stdout.split() if Path(f"/proc/{each}").exists()]


def start_job(folder: Path) -> subprocess.Popen[bytes]:
    """Start a job and wait for its first rows."""
    out, err = folder / "out.txt", folder / "err.txt"
    command = [sys.executable, "-m", "everfold", "run", "q.sql", "--state", "job", "--master", "local[2]"]
    with out.open("wb") as to, err.open("wb") as errors:
        job = subprocess.Popen(command, cwd=folder, stdout=to, stderr=errors, start_new_session=True)
    deadline = time.monotonic() + WITHIN_S
    while out.stat().st_size == 0 and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert out.stat().st_size > 0, err.read_text()
    return job


def find_workers(jvm: int) -> list[int]:
    """Return the Python workers of a JVM: the processes that its daemons have forked."""
    return [worker for daemon in find_children(jvm) for worker in find_children(daemon)]


@pytest.mark.parametrize("what", ["jvm", "worker"])
def test_a_killed_jvm_or_worker_is_reported(what: str, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SCRIPT)
    job = start_job(tmp_path)
    try:
        jvm = find_jvm(job.pid)
        deadline = time.monotonic() + WITHIN_S
        while job.poll() is None and time.monotonic() < deadline:
            # An idle worker is replaced; a busy one takes the job with it.
            for each in [jvm] if what == "jvm" else find_workers(jvm):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.1)
        assert job.wait(timeout=WITHIN_S) == 1
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    err = (tmp_path / "err.txt").read_text()
    assert "error[spark-died]" in err
    assert "Traceback" not in err
    assert "Connection refused" not in err
    again = start_job(tmp_path)
    os.kill(again.pid, signal.SIGINT)
    assert again.wait(timeout=WITHIN_S) == 0, (tmp_path / "err.txt").read_text()
