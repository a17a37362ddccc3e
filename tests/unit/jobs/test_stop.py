"""A job stops on the request of another process, and only the one that was running then."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from unit.jobs.test_folder import open_job

from everfold.errors import StateError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.job_list import find_jobs
from everfold.jobs.stop import REQUEST, StopSignal, request_stop
from everfold.storage import Location, local
from everfold.storage.local_store import LocalStore

PROGRAM = """
import sys, time
from everfold.jobs.job_dir import JobDir
from everfold.jobs.stop import StopSignal
from everfold.storage import local

folder = local(sys.argv[1])
with JobDir(folder).locked() as job:
    stop = StopSignal(folder, job.ownership.process, lambda: False, print)
    print("runs", flush=True)
    while not stop():
        time.sleep(0.01)
"""


class OtherStore(LocalStore):
    """A store without locks, like S3, in a local folder."""

    is_local = False


def test_another_process_is_stopped(tmp_path: Path) -> None:
    open_job(tmp_path)
    assert request_stop(local(tmp_path), 60) is None
    job = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "runs\n"
    owner = request_stop(local(tmp_path), 60)
    assert owner is not None
    assert owner.startswith(f"process {job.pid} on ")
    printed, _ = job.communicate(timeout=60)
    assert printed.startswith("stopping after the running batch, on request of process ")
    assert job.returncode == 0
    assert not (tmp_path / REQUEST).exists()
    assert request_stop(local(tmp_path), 60) is None


def test_a_request_that_comes_too_late_stops_no_later_run(tmp_path: Path) -> None:
    open_job(tmp_path)
    (tmp_path / REQUEST).write_text(json.dumps({"owner": "process 1 on vm", "requested_by": "somebody"}))
    with JobDir(local(tmp_path)).locked() as job:
        signal = StopSignal(local(tmp_path), job.ownership.process, lambda: False, print)
        assert not signal()
        with pytest.raises(StateError, match="stop-timeout"):  # this process does not look again
            request_stop(local(tmp_path), 0)
        signal._looked_at = 0
        assert signal()
        assert signal()  # from now on
    (tmp_path / REQUEST).write_text("{")
    assert not StopSignal(local(tmp_path), "x", lambda: False, print)()


def test_a_job_in_another_store_is_stopped(tmp_path: Path) -> None:
    folder = Location(str(tmp_path), OtherStore())
    notes: list[str] = []
    with JobDir(folder).locked() as job:
        signal = StopSignal(folder, job.ownership.process, lambda: False, notes.append)
        stopped: list[str | None] = []
        waiting = threading.Thread(target=lambda: stopped.append(request_stop(folder, 60)))
        waiting.start()
        while not signal():
            signal._looked_at = 0
        owner = job.ownership.process
    waiting.join(60)
    assert stopped == [owner]
    assert len(notes) == 1
    assert request_stop(folder, 60) is None


def test_jobs_are_found_below_a_folder(tmp_path: Path) -> None:
    for name in (".everfold/orders", ".everfold/orders/jobs/b", "c"):
        (tmp_path / name).mkdir(parents=True)
        open_job(tmp_path / name)
    (tmp_path / "c" / "checkpoints" / "manifest").mkdir(parents=True)
    (tmp_path / "c" / "checkpoints" / "manifest" / "1.json").write_text("{}")  # within a job
    (tmp_path / "d" / "manifest").mkdir(parents=True)
    found = [each.relative_to(local(tmp_path)) for each in find_jobs(local(tmp_path))]
    assert found == [".everfold/orders", ".everfold/orders/jobs/b", "c"]
    assert [str(each) for each in find_jobs(local(tmp_path / "c"))] == [str(tmp_path / "c")]
