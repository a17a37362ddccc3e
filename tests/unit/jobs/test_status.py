"""The status of a job directory: running or not, why it ended, and its newest batches."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.job_dirs import start_job
from unit.jobs.test_progress_log import BATCH, RUN

from everfold.compat.serde import to_json
from everfold.errors import StateError, UsageError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest
from everfold.jobs.ownership import LocalOwnership
from everfold.jobs.progress_log import ProgressLog, RunEnd
from everfold.jobs.run_record import find_column_starts, record_run
from everfold.jobs.spec import JobSpec
from everfold.jobs.status import read_status
from everfold.sql.planner import Session, Submit
from everfold.sql.settings import Settings
from everfold.storage import local

OWN = replace(RUN, pid=os.getpid(), host=socket.gethostname())
SCRIPT = """CREATE TABLE t (k INT, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE o (k INT, total INT) WITH ('connector' = 'blackhole');
INSERT INTO o SELECT k, SUM(v) FROM t GROUP BY k"""


def make_job(folder: Path) -> Any:
    *_, submit = Session().run(SCRIPT)
    assert isinstance(submit, Submit)
    return start_job(folder, submit.roots)


def test_a_folder_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_status(local(tmp_path))
    assert caught.value.code == "no-job"


def test_a_job_of_an_earlier_release(tmp_path: Path) -> None:
    make_job(tmp_path)
    status = read_status(local(tmp_path))
    assert (status.state, status.version, status.epoch, status.run) == ("not running", 0, 0, None)
    assert not status.is_running


def test_a_job_from_its_start_to_its_end(tmp_path: Path) -> None:
    make_job(tmp_path)
    log = ProgressLog(tmp_path / "progress")
    owner = LocalOwnership(local(tmp_path))
    owner.claim()
    assert read_status(local(tmp_path)).state == "starting"
    log.begin(OWN)
    assert read_status(local(tmp_path)).state == "starting"
    log.begin(replace(OWN, is_under_way=True))
    owner.record_batch(0, 7)
    log.add(replace(BATCH, watermark_ms=5000))
    status = read_status(local(tmp_path))
    assert (status.state, status.name, status.last_batch, status.batches) == (
        "running",
        "orders",
        7,
        (replace(BATCH, watermark_ms=5000),),
    )
    assert status.owner is not None
    assert status.owner.startswith(f"process {os.getpid()} on ")
    assert status.lag_ms(7000) == 2000
    log.end(RunEnd(how="failed", ended_ms=9, error="disk-full", message="the disk is full"))
    owner.release()
    status = read_status(local(tmp_path))
    assert status.state == "failed"
    assert status.end is not None
    assert status.to_json()["end"]["error"] == "disk-full"
    owner.claim()
    assert read_status(local(tmp_path)).state == "starting"  # the end is that of the run before
    owner.release()


def test_a_killed_job(tmp_path: Path) -> None:
    make_job(tmp_path)
    log = ProgressLog(tmp_path / "progress")
    log.begin(replace(OWN, is_under_way=True))
    log.close()  # as the kernel does
    assert read_status(local(tmp_path)).state == "killed"


EXIT_ON_REQUEST = """
import os, sys
from pathlib import Path

from everfold.jobs.job_dir import JobDir
from everfold.jobs.open_runs import stop_open_runs
from everfold.jobs.run_record import record_run
from everfold.jobs.spec import JobSpec
from everfold.sql.settings import Settings
from everfold.storage import local

folder = Path(sys.argv[1])
with record_run(JobDir(local(folder)), JobSpec(roots=(), settings=Settings.of({}), base_folder=folder, name="orders")):
    stop_open_runs()
    os._exit(130)
"""
"""What SIGTERM does while Spark starts."""


def test_a_job_that_exits_on_request_is_stopped(tmp_path: Path) -> None:
    make_job(tmp_path)
    assert subprocess.run([sys.executable, "-c", EXIT_ON_REQUEST, tmp_path]).returncode == 130
    status = read_status(local(tmp_path))
    assert (status.state, status.end is not None and status.end.error) == ("stopped", None)


def test_asking_never_keeps_a_job_from_starting(tmp_path: Path) -> None:
    make_job(tmp_path)
    with (tmp_path / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as `read_status` does for an instant
        threading.Timer(0.1, lambda: fcntl.flock(lock, fcntl.LOCK_UN)).start()
        owner = LocalOwnership(local(tmp_path))
        owner.claim()
        owner.release()


def test_a_run_is_recorded(tmp_path: Path) -> None:
    def specify(**options: Any) -> JobSpec:
        return JobSpec(roots=(), settings=Settings.of({}), base_folder=tmp_path, name="orders", **options)

    job_dir = JobDir(local(tmp_path))
    make_job(tmp_path)
    with record_run(job_dir, specify()):
        pass
    assert read_status(local(tmp_path)).state == "finished"
    with record_run(job_dir, specify(stopping=lambda: True)):
        pass
    assert read_status(local(tmp_path)).state == "stopped"
    with record_run(job_dir, specify(suspend=True)):
        pass
    assert read_status(local(tmp_path)).state == "suspended"
    error = StateError.of("no-batch", "connecting with password=hunter2")
    with pytest.raises(StateError), record_run(job_dir, specify()):
        raise error
    end = read_status(local(tmp_path)).end
    assert end is not None
    assert (end.how, end.error, end.message) == ("failed", "no-batch", "connecting with password=*******")


def test_a_column_starts_with_its_newest_aggregate(tmp_path: Path) -> None:
    manifest = make_job(tmp_path)
    (version,) = manifest.versions
    first = replace(version, created="2026-01-01T00:00:00Z")
    shape = first.query_shapes[0]

    def add_version(counts_since: int) -> Manifest:
        operators = tuple(
            replace(each, calls=tuple(replace(call, since=1, counts_since=counts_since) for call in each.calls))
            for each in shape.operators
        )
        shapes = (to_json(replace(shape, operators=operators)),)
        second = replace(first, number=1, epoch=1, shapes=shapes, created="2026-01-02T00:00:00Z")
        return Manifest(job=manifest.job, buckets=8, partitions=2, current=1, versions=(first, second))

    day_ms, new_year_ms = 86_400_000, 1_767_225_600_000
    assert find_column_starts(add_version(1)) == {"o.k": new_year_ms, "o.total": new_year_ms + day_ms}
    assert find_column_starts(add_version(0)) == {"o.k": new_year_ms, "o.total": new_year_ms}
