"""Processes that were believed dead, or that start at the same time: one job directory has one
writer, and what it committed counts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from faults.injection import Fault, Plan, start_job
from faults.test_each_step import FILES, ROUTER, TO_FILES, count_clicks, lay_out, visible_rows

pytestmark = [pytest.mark.slow, pytest.mark.spark]

STARTS = 4
STOPPED_S = 60.0
HALVES = """
SELECT strftime(time_bucket(INTERVAL 30 SECOND, clicked) + INTERVAL 30 SECOND, '%Y-%m-%d %H:%M:%S'), COUNT(*) FROM click GROUP BY ALL
"""


def assert_whole(folder: Path) -> None:
    assert visible_rows(folder, "per_half") == count_clicks(folder, HALVES)


def start_and_stop(folder: Path) -> tuple[subprocess.Popen[bytes], Plan]:
    """Start the job and wait until SIGSTOP has stopped it in its second batch."""
    plan = Plan(folder, ROUTER)
    plan.set(Fault(ROUTER, "before", 2, "stop"))
    job = start_job(folder, plan)
    deadline = time.monotonic() + 300
    while not plan.is_done and time.monotonic() < deadline:
        time.sleep(0.05)
    assert plan.is_done, (folder / "log.txt").read_text()
    return job, plan


def test_simultaneous_starts(tmp_path: Path) -> None:
    """Of several processes that start at once, each runs alone or is refused; each row is written
    once.
    """
    lay_out(tmp_path, TO_FILES)
    plan = Plan(tmp_path)
    jobs = [start_job(tmp_path, plan) for _ in range(STARTS)]
    codes = sorted(job.wait(timeout=600) for job in jobs)
    printed = (tmp_path / "log.txt").read_text()
    assert codes[0] == 0, printed
    assert set(codes) <= {0, 1}, printed
    assert printed.count("error[job-is-running]") == codes.count(1), printed
    assert "Traceback" not in printed
    assert_whole(tmp_path)


def test_a_stopped_job_keeps_its_lock_and_continues(tmp_path: Path) -> None:
    """SIGSTOP in the middle of a batch: a second process is refused, and the first one continues
    where it stopped.
    """
    lay_out(tmp_path, TO_FILES)
    first, _ = start_and_stop(tmp_path)
    stopped_at = time.monotonic()
    second = start_job(tmp_path, Plan(tmp_path))
    assert second.wait(timeout=300) == 1
    assert "error[job-is-running]" in (tmp_path / "log.txt").read_text()
    time.sleep(max(0.0, STOPPED_S - (time.monotonic() - stopped_at)))
    os.killpg(first.pid, signal.SIGCONT)
    assert first.wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()
    assert_whole(tmp_path)


def test_a_jvm_that_outlives_its_driver_keeps_the_job_locked(tmp_path: Path) -> None:
    """The driver is killed while its JVM is stopped: the JVM keeps the job locked until it ends."""
    lay_out(tmp_path, TO_FILES)
    first, plan = start_and_stop(tmp_path)
    os.kill(first.pid, signal.SIGKILL)
    first.wait(timeout=60)
    plan.clear()
    second = start_job(tmp_path, plan)
    assert second.wait(timeout=300) == 1, (tmp_path / "log.txt").read_text()
    assert "error[job-is-running]" in (tmp_path / "log.txt").read_text()
    subprocess.run(["pkill", "-CONT", "-g", str(first.pid)], check=False)
    time.sleep(5)
    third = start_job(tmp_path, plan)
    assert third.wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()
    assert_whole(tmp_path)


def test_uploads_of_an_uncommitted_attempt_are_ignored(tmp_path: Path) -> None:
    """State files of an uncommitted attempt are not read, even when they are newer than those of
    the committed one.
    """
    lay_out(tmp_path, TO_FILES)
    last = tmp_path / "in" / f"{FILES - 1}.json"
    content = last.read_bytes()
    last.unlink()
    plan = Plan(tmp_path)
    assert start_job(tmp_path, plan, "--suspend").wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()
    uploads = list((tmp_path / "state" / "checkpoints" / "0" / "state").rglob("*_*.changelog"))
    assert uploads, "the state has no changelog files of attempts"
    for upload in uploads:
        version = upload.name.partition("_")[0]
        zombie = upload.with_name(f"{version}_00000000-dead-beef-0000-000000000000.changelog")
        zombie.write_bytes(upload.read_bytes()[:-7])
    last.write_bytes(content)
    assert start_job(tmp_path, plan).wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()
    assert_whole(tmp_path)
