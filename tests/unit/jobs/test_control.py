"""Control files that a crash left: those of a planned batch stay, others are deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everfold.errors import StateError
from everfold.jobs.control import Control
from everfold.storage import local


def create_control(folder: Path, *, planned: int, logged: dict[str, int]) -> Control:
    """Create a checkpoint as Spark leaves it.

    logged: control files with their log offset. planned: the newest planned offset.
    """
    checkpoint = folder / "checkpoint"
    log = checkpoint / "sources" / "control_w1"
    log.mkdir(parents=True)
    (folder / "control").mkdir()
    for name, at in logged.items():
        entry = json.dumps({"path": f"file://{folder}/control/{name}", "timestamp": 1, "batchId": at})
        (log / str(at)).write_text(f"v1\n{entry}")
        (folder / "control" / name).write_text("flush\n")
    (checkpoint / "metadata").write_text('{"id":"19c7a3bf-22bc-4de0-ba9f-96c0caea76a0"}')
    offsets = checkpoint / "offsets"
    offsets.mkdir()
    (offsets / "7").write_text(
        f'v2\n{{"batchWatermarkMs":0}}\nbids_1:{{"logOffset":3}}\ncontrol_w1:{{"logOffset":{planned}}}'
    )
    return Control(local(folder / "control"), local(checkpoint))


def test_a_planned_control_file_stays(tmp_path: Path) -> None:
    create_control(tmp_path, planned=0, logged={"a-flush.txt": 0}).repair()
    assert (tmp_path / "control" / "a-flush.txt").exists()
    assert (tmp_path / "checkpoint" / "sources" / "control_w1" / "0").exists()


def test_a_control_file_that_no_batch_has_planned_is_deleted(tmp_path: Path) -> None:
    create_control(tmp_path, planned=0, logged={"a-tick.txt": 0, "b-flush.txt": 1}).repair()
    assert not (tmp_path / "control" / "b-flush.txt").exists()
    assert not (tmp_path / "checkpoint" / "sources" / "control_w1" / "1").exists()
    assert (tmp_path / "control" / "a-tick.txt").exists()


def test_a_control_file_that_spark_never_saw_is_deleted(tmp_path: Path) -> None:
    control = create_control(tmp_path, planned=-1, logged={})
    control.flush()
    control.repair()
    assert list((tmp_path / "control").iterdir()) == []


def test_half_written_files_of_spark_are_deleted(tmp_path: Path) -> None:
    control = create_control(tmp_path, planned=0, logged={})
    part = ".8.16575e12-bee4-47cf-8f4c-c59aa7079f54.tmp"
    for name in (part, f".{part}.crc"):
        (tmp_path / "checkpoint" / "offsets" / name).write_text("v2\n{")
    control.repair()
    assert [each.name for each in (tmp_path / "checkpoint" / "offsets").iterdir()] == ["7"]


def test_state_without_offsets_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "state" / "0").mkdir(parents=True)
    with pytest.raises(StateError, match="damaged-checkpoint"):
        Control(local(tmp_path / "control"), local(tmp_path / "checkpoint")).repair()


def test_a_new_job_has_nothing_to_repair(tmp_path: Path) -> None:
    Control(local(tmp_path / "control"), local(tmp_path / "checkpoint")).repair()
