"""A job's folder that is damaged, cannot be written, or has a name that Spark reads as a pattern: said, and left as it is."""

from __future__ import annotations

import errno
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from everfold.errors import EverfoldError, StateError, UsageError
from everfold.jobs.control import Control
from everfold.jobs.failure import explained
from everfold.jobs.folder import JobFolder, Manifest, Version
from everfold.jobs.soundness import is_sound, unsound

MANIFEST = Manifest(
    job="abc",
    buckets=8,
    partitions=2,
    current=0,
    versions=(
        Version(
            number=0, epoch=0, fingerprint="f", zone="UTC", sql="q", plan="p", shapes=(), operators=(), created="now"
        ),
    ),
)


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder(tmp_path / "job")
    made.write_manifest(MANIFEST)
    return made


def changed(folder: JobFolder, **members: Any) -> bytes:
    found = json.loads(folder.manifest_path.read_text())
    return json.dumps({key: value for key, value in {**found, **members}.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"versions": []}, "it has no version with the current epoch 0"),
        ({"current": 7}, "it has no version with the current epoch 7"),
        ({"buckets": 0}, "a job has buckets and partitions"),
        ({"buckets": "8"}, "is no manifest"),
        (
            {"versions": [{"epoch": 0}]},
            "it is no object of again, back_after, back_to, created, epoch, filled, fingerprint, history, number, operators, plan, rebuilt, shapes, sinks, sources, sql, state_epoch, zone",
        ),
        ({"job": ...}, "it is no object of buckets, current, folder, format, job, partitions, versions"),
        ({"more": 1}, "it is no object of"),
        ({"format": "x"}, "is no manifest"),
    ],
)
def test_a_manifest_that_makes_no_sense(folder: JobFolder, members: dict[str, Any], words: str) -> None:
    folder.manifest_path.write_bytes(changed(folder, **members))
    with pytest.raises(StateError, match="damaged-manifest") as caught:
        folder.manifest()
    assert words in str(caught.value)
    assert f"`{folder.manifest_path}` is no manifest" in str(caught.value)
    assert "restore it from a backup, or start with a new --state folder" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_bytes_that_are_no_manifest(folder: JobFolder, content: bytes) -> None:
    folder.manifest_path.write_bytes(content)
    with pytest.raises(StateError, match="damaged-manifest"):
        folder.manifest()
    folder.manifest_path.unlink()
    folder.manifest_path.mkdir()
    with pytest.raises(StateError, match="damaged-manifest"):
        folder.manifest()


def test_a_manifest_of_a_newer_release_may_look_quite_different(folder: JobFolder) -> None:
    folder.manifest_path.write_bytes(changed(folder, format=99, more={}, versions=...))
    with pytest.raises(StateError, match="newer-manifest"):
        folder.manifest()


def test_checkpoints_without_a_manifest_are_not_taken_for_a_new_job(folder: JobFolder) -> None:
    folder.manifest_path.unlink()
    assert folder.manifest() is None
    folder.checkpoint(0).mkdir(parents=True)
    with pytest.raises(StateError, match=r"manifest\.json` is missing, and the job's checkpoints are there"):
        folder.manifest()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for place, code in ((tmp_path / "file" / "job", "not-a-folder"), (Path("/proc/nothing"), "file-system-error")):
        with pytest.raises(EverfoldError) as caught:
            JobFolder(place).lock()
        assert caught.value.code == code
        assert f"the job folder `{place}` cannot be written" in str(caught.value)
        assert "--state" in str(caught.value.diagnostics[0].help)
    for number, code in ((errno.ENOSPC, "disk-full"), (errno.EACCES, "no-permission"), (errno.EROFS, "no-permission")):

        def refuse(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, "refused")

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(EverfoldError) as caught:
            JobFolder(tmp_path / "job").lock()
        assert (caught.value.code, caught.value.exit_code) == (code, 1)


@pytest.mark.parametrize("character", [*"*?[]{}\\"])
def test_a_name_that_spark_takes_for_a_pattern_is_refused(tmp_path: Path, character: str) -> None:
    with pytest.raises(UsageError, match="folder-name") as caught:
        JobFolder(tmp_path / f"a{character}b").lock()
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_belong_into_the_control_folder_goes(tmp_path: Path) -> None:
    control = Control(tmp_path / "control", tmp_path / "checkpoint")
    control.repair()
    (control.folder / "junk" / "more").mkdir(parents=True)
    (control.folder / "junk" / "more" / "x").write_text("flush\n")
    (control.folder / "garbage.txt").write_bytes(b"\xff\0")
    (control.folder / "link").symlink_to(tmp_path)
    control.repair()
    assert list(control.folder.iterdir()) == []
    assert tmp_path.exists()


@pytest.mark.parametrize("content", ["v1\n{", "v1\n[]", 'v1\n{"path": 5}', "v1\n\xff"])
def test_a_damaged_log_of_control_files_is_named(tmp_path: Path, content: str) -> None:
    log = tmp_path / "checkpoint" / "sources" / "control_w1" / "0"
    log.parent.mkdir(parents=True)
    log.write_text(content, encoding="latin-1")
    with pytest.raises(StateError, match="damaged-checkpoint") as caught:
        Control(tmp_path / "control", tmp_path / "checkpoint").repair()
    assert f"`{log}` is damaged or missing" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("offsets/12", 'v2\n{}\ncontrol_w1:{"logOff'),
        ("offsets/12", 'v2\n{}\ncontrol_w1:{"x": 1}'),
        ("offsets/12", ""),
        ("offsets/12", "v2\n{}\n5"),
        ("offsets/12", "v2\n{}\ng_1:5,"),
        ("commits/11", "v1\n{"),
        ("commits/11", "{}"),
        ("metadata", '{"id":'),
        ("metadata", '{"id":"19c7a3bf-22bc-4de0-ba9f,96c0caea76a0"}'),
        ("metadata", None),
    ],
)
def test_a_damaged_file_that_a_start_goes_by_is_named_and_nothing_is_changed(
    tmp_path: Path, name: str, content: str | None
) -> None:
    checkpoint = tmp_path / "checkpoint"
    files = {
        "metadata": '{"id":"19c7a3bf-22bc-4de0-ba9f-96c0caea76a0"}',
        "offsets/9": "broken, but old",
        "offsets/12": 'v2\n{}\nt_1:{"in":{"0":5}}\ncontrol_w1:{"logOffset":0}',
        "commits/11": "v1\n{}",
        "sources/t_1/0": '\0v1\n{"in":{"0":0}}',
        "sources/control_w1/1": 'v1\n{"path":"file:/control/b-tick.txt","timestamp":1,"batchId":1}',
    }
    for file, text in files.items():
        (checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / file).write_text(text)
    control = Control(tmp_path / "control", checkpoint)
    if content is None:
        (checkpoint / name).unlink()
    else:
        (checkpoint / name).write_text(content)
    with pytest.raises(StateError, match="damaged-checkpoint") as caught:
        control.repair()
    assert f"`{checkpoint / name}` is damaged or missing" in str(caught.value)
    assert (checkpoint / "sources" / "control_w1" / "1").exists()
    (checkpoint / name).write_text(files[name])
    control.repair()
    assert not (checkpoint / "sources" / "control_w1" / "1").exists()


def test_the_offset_of_a_source_that_counts_seconds_is_sound(tmp_path: Path) -> None:
    log = tmp_path / "offsets" / "7"
    log.parent.mkdir()
    log.write_text('v2\n{"batchWatermarkMs":0}\ng_883ef9ab:17\ncontrol_w1:{"logOffset":0}')
    assert is_sound(log)


def test_a_file_that_is_not_what_its_checksum_says_is_found(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints" / "0" / "state" / "0" / "1.zip"
    file.parent.mkdir(parents=True)
    content = bytes(range(256)) * 5
    blocks = [content[at : at + 512] for at in range(0, len(content), 512)]
    crc = file.with_name(".1.zip.crc")
    crc.write_bytes(
        b"crc\0" + (512).to_bytes(4, "big") + b"".join(zlib.crc32(each).to_bytes(4, "big") for each in blocks)
    )
    file.write_bytes(content)
    assert unsound(tmp_path) is None
    for damaged in (content[:700], content[:-1] + b"x", b""):
        file.write_bytes(damaged)
        assert unsound(tmp_path) == file
    file.unlink()
    assert unsound(tmp_path) == file
    file.write_bytes(content)
    crc.write_bytes(b"")
    assert unsound(tmp_path) == file


def test_a_failure_that_names_no_file_is_traced_to_the_one_that_is_broken(tmp_path: Path) -> None:
    log = tmp_path / "checkpoints" / "0" / "sources" / "t_1" / "3"
    log.parent.mkdir(parents=True)
    log.write_text('v1\n{"path"')
    found = explained(RuntimeError("Unexpected end-of-input in field name"), (), tmp_path / "job.log")
    assert (found.code, f"`{log}`" in str(found)) == ("damaged-checkpoint", True)
    log.write_text('v1\n{"path":"file:/x"}')
    assert explained(RuntimeError("Unexpected end-of-input"), (), tmp_path / "job.log").code == "job-failed"
