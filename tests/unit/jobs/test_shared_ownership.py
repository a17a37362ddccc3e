"""Ownership without locks: one owner at a time, signs of life, takeover, and the late comer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from everfold.errors import StateError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.ownership import LocalOwnership
from everfold.jobs.shared_ownership import (
    SharedOwnership,
    is_dead,
    list_numbers,
    read_newest,
    read_shared_record,
)
from everfold.storage import Location, local

LEASE_S = 0.6


def own(folder: Location, **members: Any) -> SharedOwnership:
    """Return an ownership with a short lease; its notes are dropped."""
    return SharedOwnership(folder, lease_s=LEASE_S, **members)


def stop_beating(owner: SharedOwnership) -> None:
    """Pause an owner: it gives no sign of life any more."""
    owner._stopping.set()


def test_the_first_owner_takes_over_nothing(tmp_path: Path) -> None:
    owner = own(local(tmp_path))
    owner.claim()
    owner.check()
    assert not owner.was_taken_over
    assert read_shared_record(local(tmp_path)) is None


def test_a_running_job_is_not_claimed(tmp_path: Path) -> None:
    notes: list[str] = []
    owner, other = own(local(tmp_path)), own(local(tmp_path), note=notes.append)
    owner.claim()
    with pytest.raises(StateError, match=r"being run by process \d+ on") as raised:
        other.claim()
    assert raised.value.code == "job-is-running"
    assert "waiting up to" in notes[0]
    owner.record_batch(0, 1)


def test_an_owner_that_has_ended_leaves_its_record(tmp_path: Path) -> None:
    notes: list[str] = []
    owner, other = own(local(tmp_path)), own(local(tmp_path), note=notes.append)
    owner.claim()
    owner.record_batch(3, 7)
    owner.release()
    other.claim()
    assert not notes, "it did not wait"
    assert not other.was_taken_over
    assert read_shared_record(local(tmp_path)) == (3, 7)
    assert [each.name for each in (tmp_path / "owner").glob("*.beat")] == [f"{other._entry.token}.beat"]  # type: ignore[union-attr]


def test_a_paused_owner_loses_the_job_and_begins_no_batch(tmp_path: Path) -> None:
    owner, other = own(local(tmp_path)), own(local(tmp_path))
    owner.claim()
    owner.record_batch(0, 4)
    stop_beating(owner)
    other.claim()
    assert other.was_taken_over
    assert read_shared_record(local(tmp_path)) == (0, 4)
    for action in (owner.check, lambda: owner.record_batch(0, 5)):
        with pytest.raises(StateError) as raised:
            action()
        assert raised.value.code == "job-taken-over"
    other.record_batch(0, 5)
    owner.release()
    other.check()


def test_a_failure_after_a_takeover_is_explained_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner moves and deletes files that the old one still reads."""

    def fail() -> None:
        with JobDir(local(tmp_path / "job")).locked():
            raise StateError.of("damaged-checkpoint", "a file is missing")

    owner, other = own(local(tmp_path)), own(local(tmp_path))
    owner.claim()
    monkeypatch.setattr(LocalOwnership, "check", lambda _: owner.check())
    with pytest.raises(StateError, match="damaged-checkpoint"):
        fail()
    stop_beating(owner)
    other.claim()
    with pytest.raises(StateError, match="job-taken-over"):
        fail()


def test_a_paused_owner_loses_although_its_entry_was_deleted(tmp_path: Path) -> None:
    """Its next entry is one that the new owner had created and deleted long ago."""
    owner, other = own(local(tmp_path)), own(local(tmp_path))
    owner.claim()
    stop_beating(owner)
    other.claim()
    for batch in range(100):
        other.record_batch(0, batch)
    assert min(list_numbers(local(tmp_path) / "owner")) > 2
    with pytest.raises(StateError) as raised:
        owner.record_batch(0, 1)
    assert raised.value.code == "job-taken-over"
    assert read_shared_record(local(tmp_path)) == (0, 99)


def test_the_job_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    code = (
        "import os, sys; from everfold.jobs.shared_ownership import SharedOwnership; from everfold.storage import local;"
        "SharedOwnership(local(sys.argv[1])).claim(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    newest = read_newest(local(tmp_path))
    assert newest is not None
    assert is_dead(newest[1])
    notes: list[str] = []
    other = SharedOwnership(local(tmp_path), note=notes.append)
    other.claim()
    assert other.was_taken_over
    assert not notes


def test_of_many_starts_exactly_one_gets_the_job(tmp_path: Path) -> None:
    for number in range(8):
        folder = local(tmp_path / str(number))
        outcomes: list[str] = []
        barrier = threading.Barrier(4)

        def start(folder: Location = folder, outcomes: list[str] = outcomes, barrier: Any = barrier) -> None:
            barrier.wait()
            try:
                SharedOwnership(folder, lease_s=1.0).claim()
                outcomes.append("runs")
            except StateError as error:
                outcomes.append(error.code)

        threads = [threading.Thread(target=start) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(outcomes) == ["job-is-running"] * 3 + ["runs"]


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    file = tmp_path / "owner" / "3.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"token": 1}))
    with pytest.raises(StateError, match=r"owner/3\.json") as raised:
        own(local(tmp_path)).claim()
    assert raised.value.code == "damaged-checkpoint"
