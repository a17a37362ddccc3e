"""Jobs whose directory and tables are in S3 or HDFS: taken over from a paused process, started
twice at once, and killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from faults.injection import Fault, Plan
from faults.test_each_step import COPY, RECORD, ROUTER
from s3 import S3Server
from totals import (
    COUNTS,
    TIMEOUT_S,
    Folder,
    compute_totals,
    make_folder_in_s3,
    start_endless,
    stop,
    wait_for_batch,
)

pytestmark = [pytest.mark.slow, pytest.mark.spark]
PAUSES = {
    "before its tasks": Fault(ROUTER, "before", 1, "stop"),
    "before the record": Fault(RECORD, "before", 1, "stop"),
    "during publishing": Fault(COPY, "before", 1, "stop"),
}
"""Where a process is paused for longer than its lease."""


def take_over(folder: Folder, first: subprocess.Popen[str]) -> None:
    """Start the job of a process that stands still. The first one ends when it continues,
    and writes nothing.
    """
    folder.add_orders(1)
    second = folder.run_totals(COUNTS)
    assert "did not say that it had ended" in second.stderr
    assert folder.read_totals() == compute_totals(0, 1, sums=False)
    before = sorted(each.path for each in (folder.location / "totals").walk())
    folder.add_orders(2)
    os.killpg(first.pid, signal.SIGCONT)
    _, error = first.communicate(timeout=TIMEOUT_S)
    assert first.returncode != 0
    assert "error[job-taken-over]" in error
    assert "Traceback" not in error
    assert sorted(each.path for each in (folder.location / "totals").walk()) == before


def test_a_paused_job_is_taken_over(folder: Folder) -> None:
    """The first process stands still, the second takes over; the first ends and writes nothing."""
    folder.add_orders(0)
    first = start_endless(folder)
    try:
        wait_for_batch(folder, first)
        os.killpg(first.pid, signal.SIGSTOP)
        take_over(folder, first)
    finally:
        stop([first])
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)


@pytest.mark.parametrize("step", PAUSES)
def test_a_job_paused_within_a_batch_is_taken_over(
    step: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process finishes the batch; the first one adds nothing to it, and ends."""
    folder, fault = make_folder_in_s3(s3_server, tmp_path.name), PAUSES[step]
    plan = Plan(tmp_path, fault.function)
    plan.set(fault)
    folder.add_orders(0)
    for name, value in plan.environment.items():
        monkeypatch.setenv(name, value)
    first = start_endless(folder)
    try:
        plan.wait(TIMEOUT_S, first)
        take_over(folder, first)
    finally:
        stop([first])
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)


def test_of_two_starts_one_runs(folder: Folder) -> None:
    folder.add_orders(0)
    processes = [start_endless(folder) for _ in range(2)]
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while all(each.poll() is None for each in processes):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        (loser,) = (each for each in processes if each.poll() is not None)
        (winner,) = (each for each in processes if each is not loser)
        assert "error[job-is-running]" in loser.communicate()[1]
        wait_for_batch(folder, winner)
    finally:
        stop(processes)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, sums=False)


def test_a_killed_job_resumes(folder: Folder) -> None:
    folder.add_orders(0)
    first = start_endless(folder)
    try:
        wait_for_batch(folder, first)
    finally:
        stop([first])
    folder.add_orders(1)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, sums=False)
