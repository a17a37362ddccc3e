"""A job directory that is damaged, cannot be written, or has a name that Spark reads as a pattern.

Each is reported, and the directory is left unchanged.
"""

from __future__ import annotations

import errno
import json
import random
import shutil
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from manifests import newest_manifest, replace_manifest
from unit.jobs.test_folder import MORE, add_checkpoint, open_job

from everfold.checkpoint.damage import find_damaged_file, is_sound
from everfold.errors import EverfoldError, StateError, UsageError
from everfold.jobs.batch_log import BatchLog
from everfold.jobs.change import OnChange
from everfold.jobs.control import Control
from everfold.jobs.failure import explain_failure
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import MANIFEST_FORMAT, Manifest, Version, compute_checksum
from everfold.jobs.ownership import LocalOwnership
from everfold.jobs.rollback import roll_back
from everfold.storage import local

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
def folder(tmp_path: Path) -> JobDir:
    made = JobDir(local(tmp_path / "job"))
    made.write_manifest(MANIFEST)
    return made


def change_manifest(folder: JobDir, **members: Any) -> bytes:
    found = json.loads(newest_manifest(Path(folder.path.path)).read_text())
    made = {key: value for key, value in {**found, **members}.items() if value is not ...}
    return json.dumps({**made, "checksum": compute_checksum(made)}).encode()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"versions": []}, "it has no version with the current epoch 0"),
        ({"current": 7}, "it has no version with the current epoch 7"),
        ({"buckets": 0}, "`buckets` and `partitions` must be positive"),
        ({"buckets": "8"}, "is not a valid manifest"),
        (
            {"versions": [{"epoch": 0}]},
            "it is not an object with the fields again, back_after, back_to, checkpoint, created, decision, epoch, expired, filled, fingerprint, functions, gaps, history, ignores_filters, known_names, number, operators, partitions, plan, rebuilt, rules, script, shapes, sinks, sources, sql, state_epoch, state_names, zone",
        ),
        (
            {"job": ...},
            "it is not an object with the fields buckets, current, folder, format, job, modulus, partitions, versions",
        ),
        ({"versions": [{**asdict(MANIFEST.version), "expired": True}]}, "its current version is expired"),
        ({"more": 1}, "it is not an object with the fields"),
        ({"format": "x"}, "is not a valid manifest"),
    ],
)
def test_an_invalid_manifest_is_refused(folder: JobDir, members: dict[str, Any], words: str) -> None:
    newest_manifest(Path(folder.path.path)).write_bytes(change_manifest(folder, **members))
    with pytest.raises(StateError, match="damaged-manifest") as caught:
        folder.read_manifest()
    assert words in str(caught.value)
    assert f"`{newest_manifest(Path(folder.path.path))}` is not a valid manifest" in str(caught.value)
    assert "restore it from a backup, or start with a new --state folder" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_malformed_json_in_the_manifest_is_refused(folder: JobDir, content: bytes) -> None:
    newest_manifest(Path(folder.path.path)).write_bytes(content)
    with pytest.raises(StateError, match="damaged-manifest"):
        folder.read_manifest()
    newest_manifest(Path(folder.path.path)).unlink()
    newest_manifest(Path(folder.path.path)).mkdir()
    with pytest.raises(StateError, match="damaged-manifest"):
        folder.read_manifest()


def test_a_manifest_of_a_newer_release_may_have_any_fields(folder: JobDir) -> None:
    newest_manifest(Path(folder.path.path)).write_bytes(change_manifest(folder, format=99, more={}, versions=...))
    with pytest.raises(StateError, match="newer-manifest"):
        folder.read_manifest()


def test_checkpoints_without_a_manifest_are_not_a_new_job(folder: JobDir) -> None:
    newest_manifest(Path(folder.path.path)).unlink()
    assert folder.read_manifest() is None
    folder.checkpoint(MANIFEST, 0).make_folder()
    with pytest.raises(StateError, match=r"manifest\.json` is missing, but the job's `checkpoints` exists"):
        folder.read_manifest()


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for place, code in ((tmp_path / "file" / "job", "not-a-folder"), (Path("/proc/nothing"), "file-system-error")):
        with pytest.raises(EverfoldError) as caught:
            JobDir(local(place)).lock()
        assert caught.value.code == code
        assert f"the job directory `{place}` cannot be written" in str(caught.value)
        assert "--state" in str(caught.value.diagnostics[0].help)
    for number, code in ((errno.ENOSPC, "disk-full"), (errno.EACCES, "no-permission"), (errno.EROFS, "no-permission")):

        def refuse(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, "refused")

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(EverfoldError) as caught:
            JobDir(local(tmp_path / "job")).lock()
        assert (caught.value.code, caught.value.exit_code) == (code, 1)


@pytest.mark.parametrize("character", [*"*?[]{}\\"])
def test_a_name_that_spark_reads_as_a_pattern_is_refused(tmp_path: Path, character: str) -> None:
    with pytest.raises(UsageError, match="folder-name") as caught:
        JobDir(local(tmp_path / f"a{character}b")).lock()
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_in_the_control_directory_are_deleted(tmp_path: Path) -> None:
    control = Control(local(tmp_path / "control"), local(tmp_path / "checkpoint"))
    control.repair()
    (control.folder / "junk" / "more" / "x").write("flush\n")
    (control.folder / "garbage.txt").write(b"\xff\0")
    (tmp_path / "control" / "link").symlink_to(tmp_path)
    control.repair()
    assert list(control.folder.iterdir()) == []
    assert tmp_path.exists()


@pytest.mark.parametrize("content", ["v1\n{", "v1\n[]", 'v1\n{"path": 5}', "v1\n\xff"])
def test_a_damaged_log_of_control_files_is_reported(tmp_path: Path, content: str) -> None:
    log = tmp_path / "checkpoint" / "sources" / "control_w1" / "0"
    log.parent.mkdir(parents=True)
    log.write_text(content, encoding="latin-1")
    with pytest.raises(StateError, match="damaged-checkpoint") as caught:
        Control(local(tmp_path / "control"), local(tmp_path / "checkpoint")).repair()
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
def test_a_damaged_file_that_a_start_reads_is_reported_and_nothing_is_changed(
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
    control = Control(local(tmp_path / "control"), local(checkpoint))
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


def test_the_offset_of_a_source_that_counts_seconds_is_valid(tmp_path: Path) -> None:
    log = tmp_path / "offsets" / "7"
    log.parent.mkdir()
    log.write_text('v2\n{"batchWatermarkMs":0}\ng_883ef9ab:17\ncontrol_w1:{"logOffset":0}')
    assert is_sound(local(log))


def test_a_file_that_does_not_match_its_checksum_is_found(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints" / "0" / "state" / "0" / "1.zip"
    file.parent.mkdir(parents=True)
    content = bytes(range(256)) * 5
    blocks = [content[at : at + 512] for at in range(0, len(content), 512)]
    crc = file.with_name(".1.zip.crc")
    crc.write_bytes(
        b"crc\0" + (512).to_bytes(4, "big") + b"".join(zlib.crc32(each).to_bytes(4, "big") for each in blocks)
    )
    file.write_bytes(content)
    assert find_damaged_file(local(tmp_path)) is None
    for damaged in (content[:700], content[:-1] + b"x", b""):
        file.write_bytes(damaged)
        assert find_damaged_file(local(tmp_path)) == local(file)
    file.unlink()
    assert find_damaged_file(local(tmp_path)) == local(file)
    file.write_bytes(content)
    crc.write_bytes(b"")
    assert find_damaged_file(local(tmp_path)) == local(file)


@pytest.mark.parametrize("task", ["", ".TID17"])
def test_a_half_written_file_of_a_killed_process_is_not_damage(tmp_path: Path, task: str) -> None:
    half = tmp_path / "checkpoints" / "0" / "sources" / "t_1" / f".2.0c266d02-2982-4814-81b9-7703e0f5932e{task}.tmp"
    half.parent.mkdir(parents=True)
    half.write_text("v1")
    half.with_name(f".{half.name}.crc").write_bytes(b"crc\0\0\0\2\0")
    assert find_damaged_file(local(tmp_path)) is None


def test_a_failure_without_a_file_name_is_traced_to_the_damaged_file(tmp_path: Path) -> None:
    log = tmp_path / "checkpoints" / "0" / "sources" / "t_1" / "3"
    log.parent.mkdir(parents=True)
    log.write_text('v1\n{"path"')
    found = explain_failure(
        RuntimeError("Unexpected end-of-input in field name"), (), tmp_path / "job.log", local(tmp_path)
    )
    assert (found.code, f"`{log}`" in str(found)) == ("damaged-checkpoint", True)
    log.write_text('v1\n{"path":"file:/x"}')
    assert (
        explain_failure(RuntimeError("Unexpected end-of-input"), (), tmp_path / "job.log", local(tmp_path)).code
        == "job-failed"
    )


# --- the checksum of the manifest -----------------------------------------------------------------

QUERY = "SELECT window_end, SUM(n) AS s FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"


def real_manifest(tmp_path: Path) -> tuple[JobDir, Manifest]:
    """Create a manifest with several versions, as jobs write it."""
    for query, how in (
        (QUERY, OnChange.REFUSE),
        (QUERY.replace("SUM(n) AS s", "SUM(n) AS s, COUNT(*)"), OnChange.ACCEPT),
    ):
        open_job(tmp_path, query, how=how)
    folder = JobDir(local(tmp_path))
    found = folder.read_manifest()
    assert found is not None
    return folder, found


def check_flips(folder: JobDir, whole: Manifest, bits: Iterable[int]) -> None:
    content = newest_manifest(Path(folder.path.path)).read_bytes()
    codes: set[str] = set()
    for bit in bits:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        newest_manifest(Path(folder.path.path)).write_bytes(flipped)
        try:
            found = folder.read_manifest()
        except StateError as refused:
            codes.add(refused.code)
        else:
            assert found == whole, bit
    newest_manifest(Path(folder.path.path)).write_bytes(content)
    assert folder.read_manifest() == whole
    assert codes <= {"damaged-manifest", "newer-manifest"}


def test_a_flipped_bit_in_a_manifest_is_refused_or_has_no_effect(tmp_path: Path) -> None:
    folder, whole = real_manifest(tmp_path)
    bits = newest_manifest(Path(folder.path.path)).stat().st_size * 8
    check_flips(folder, whole, random.Random(7).sample(range(bits), 300))


@pytest.mark.slow
def test_every_flipped_bit_in_a_manifest_is_refused_or_has_no_effect(tmp_path: Path) -> None:
    folder, whole = real_manifest(tmp_path)
    check_flips(folder, whole, range(newest_manifest(Path(folder.path.path)).stat().st_size * 8))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all leaves in parsed JSON: scalars and empty containers."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, each in inside:
        found = True
        yield from leaves(each, (*path, key))
    if not found:
        yield path


def test_every_changed_field_of_a_manifest_is_refused(tmp_path: Path) -> None:
    folder, _ = real_manifest(tmp_path)
    text = newest_manifest(Path(folder.path.path)).read_text()
    paths = list(leaves(json.loads(text)))
    members = {
        "job",
        "buckets",
        "partitions",
        "current",
        "versions",
        "format",
        "folder",
        "modulus",
        "checksum",
        "writer",
    }
    assert {path[0] for path in paths} == members
    for path in paths:
        for change in (_change_value, lambda _: ..., lambda _: None, lambda value: [value]):
            found = json.loads(text)
            *way, last = path
            holder = found
            for key in way:
                holder = holder[key]
            changed_value = change(holder[last])
            if changed_value == holder[last]:
                continue
            if changed_value is ...:
                del holder[last]
            else:
                holder[last] = changed_value
            newest_manifest(Path(folder.path.path)).write_text(json.dumps(found))
            with pytest.raises(StateError) as caught:
                folder.read_manifest()
            assert caught.value.code in ("damaged-manifest", "newer-manifest"), path


def _change_value(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [*value, 1]
        case dict():
            return {**value, "x": 1}
        case _:
            return 0


def test_a_manifest_without_a_checksum_is_accepted_in_formats_that_had_none(folder: JobDir) -> None:
    members = json.loads(newest_manifest(Path(folder.path.path)).read_text())
    del members["checksum"]
    newest_manifest(Path(folder.path.path)).write_text(json.dumps(members))
    with pytest.raises(StateError, match="its checksum does not match"):
        folder.read_manifest()
    replace_manifest(Path(folder.path.path), {**members, "format": 3})
    assert folder.read_manifest() == MANIFEST


# --- a checkpoint that lost batches ---------------------------------------------------------------


def test_files_that_only_a_streaming_job_writes_are_not_a_new_job(tmp_path: Path) -> None:
    for name in ("last_batch.json", "sinks/0_t/0-7.json"):
        folder = JobDir(local(tmp_path / name.replace("/", "_")))
        (folder.path / name).write("{}")
        with pytest.raises(StateError, match=rf"damaged-manifest.*is missing, but the job's `{name}` exists"):
            folder.read_manifest()
    batch = JobDir(local(tmp_path / "batch"))
    (batch.path / "sinks" / "0_t" / "1700000000000000000-0.json").write("{}")  # a batch query ran here
    assert batch.read_manifest() is None


def expect_damaged_start(path: Path, query: str = QUERY, how: OnChange = OnChange.REFUSE) -> str:
    """Return the error of a start that is refused, and check that the job is unchanged."""
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(StateError) as caught:
        open_job(path, query, how=how)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    assert caught.value.code == "damaged-checkpoint"
    return str(caught.value)


@pytest.mark.parametrize(
    "change", [QUERY, QUERY.replace("SUM(n) AS s", "SUM(n) AS s, COUNT(*)")], ids=["same", "changed"]
)
def test_a_checkpoint_that_lost_batches_is_refused(tmp_path: Path, change: str) -> None:
    open_job(tmp_path, QUERY)
    checkpoint = add_checkpoint(tmp_path)
    BatchLog(LocalOwnership(local(tmp_path)), local(checkpoint), 0).begin(3)
    for names, missing in (
        (["commits/3", "commits/2"], "commits/2"),
        (["commits/3", "offsets/3"], "offsets/3"),
        (["offsets"], "offsets/3"),
        ([""], "offsets/3"),
    ):
        shutil.copytree(tmp_path, tmp_path.with_suffix(".kept"))
        for name in names:
            file = checkpoint / name
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        assert f"`{checkpoint}/{missing}` is missing: the job has run batch" in expect_damaged_start(
            tmp_path, change, OnChange.ACCEPT
        )
        shutil.rmtree(tmp_path)
        tmp_path.with_suffix(".kept").rename(tmp_path)
    open_job(tmp_path, change, how=OnChange.ACCEPT)


def test_a_rebuild_needs_no_complete_checkpoint(tmp_path: Path) -> None:
    open_job(tmp_path, QUERY)
    checkpoint = add_checkpoint(tmp_path)
    BatchLog(LocalOwnership(local(tmp_path)), local(checkpoint), 0).begin(3)
    shutil.rmtree(checkpoint)
    assert open_job(tmp_path, QUERY.replace("SUM", "MAX"), how=OnChange.REBUILD).version.rebuilt


def test_a_job_that_was_killed_before_or_between_batches_starts(tmp_path: Path) -> None:
    manifest = open_job(tmp_path, QUERY)
    assert open_job(tmp_path, QUERY) == manifest  # nothing was planned
    checkpoint = add_checkpoint(tmp_path, begun=0, done=-1)
    assert open_job(tmp_path, QUERY) == manifest  # the first batch was planned
    BatchLog(LocalOwnership(local(tmp_path)), local(checkpoint), 0).begin(0)
    assert open_job(tmp_path, QUERY) == manifest  # and the sinks received it
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    assert open_job(tmp_path, QUERY) == manifest  # it is committed
    (checkpoint / "offsets" / "1").write_text("v1\n{}")
    assert open_job(tmp_path, QUERY) == manifest  # the next one was planned


def test_a_copied_checkpoint_has_all_batches(tmp_path: Path) -> None:
    more = QUERY.replace("SUM(n) AS s", "SUM(n) AS s, COUNT(*)")
    open_job(tmp_path, QUERY)
    checkpoint = add_checkpoint(tmp_path)
    BatchLog(LocalOwnership(local(tmp_path)), local(checkpoint), 0).begin(3)
    open_job(tmp_path, more, how=OnChange.ACCEPT)
    open_job(tmp_path, more)
    shutil.rmtree(tmp_path / "checkpoints" / "1")
    assert "checkpoints/1/offsets/3` is missing: the job has run batch 3" in expect_damaged_start(tmp_path, more)
    roll_back(local(tmp_path), 0, duplicates=True, say=lambda _: None)
    open_job(tmp_path, QUERY)
    shutil.rmtree(tmp_path / "checkpoints" / "2")
    assert "checkpoints/2/offsets/3` is missing" in expect_damaged_start(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"epoch": 0}', '{"epoch": 0, "batch": "1"}'])
def test_a_damaged_record_of_the_last_batch_is_reported(tmp_path: Path, content: str) -> None:
    open_job(tmp_path, QUERY)
    (tmp_path / "last_batch.json").write_text(content)
    assert "last_batch.json` is damaged or missing" in expect_damaged_start(tmp_path)


@pytest.mark.parametrize("number", [3, 4, 5, 6, 7, 8])
def test_manifests_of_earlier_formats_are_readable(tmp_path: Path, number: int) -> None:
    golden = Path(__file__).parents[2] / "golden" / "state" / f"manifest-v{number}.json"
    (tmp_path / "manifest.json").write_bytes(golden.read_bytes())
    found = JobDir(local(tmp_path)).read_manifest()
    assert found is not None
    assert [(each.number, each.epoch, each.operators) for each in found.versions] == [(0, 0, ("w1",)), (1, 1, ("w1",))]
    again = open_job(tmp_path, MORE)
    assert (again.format, again.version.number) == (MANIFEST_FORMAT, 1), "its query has not changed"
