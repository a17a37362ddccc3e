"""Old versions of a job expire: what no kept version needs is removed, and nothing else.

A process that is killed at any step leaves a job that resumes, and the next expiry finishes.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner
from manifests import newest_manifest
from unit.connectors.lineages import lineage_after_rebuild, lineage_after_rollback
from unit.job_dirs import start_job
from unit.jobs.test_folder import MORE, QUERY, add_checkpoint, open_job

from everfold.checkpoint.damage import find_damaged_file
from everfold.checkpoint.logs import read_positions
from everfold.cli.main import everfold
from everfold.connectors.filesystem.withdrawn import identify_sink
from everfold.errors import StateError
from everfold.jobs.change import OnChange
from everfold.jobs.expire import Expiry, expire
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest
from everfold.jobs.rollback import roll_back
from everfold.sql.planner import Session, Submit
from everfold.storage import Location, local

OTHER = QUERY.replace("SUM(n)", "MAX(n)")
QUERIES = (QUERY, MORE, MORE.replace("COUNT(*)", "COUNT(*), MAX(n)"), MORE.replace("COUNT(*)", "COUNT(*), MIN(n)"))


class Killed(BaseException):
    """The process is killed."""


def expire_job(path: Path, keep: int, *, dry_run: bool = False) -> Expiry:
    return expire(local(path), keep, lambda folder: local(Path(folder)), dry_run=dry_run)


def create_job(path: Path, versions: int = 4) -> Manifest:
    """Create a job with some versions, each of which has finished a batch, and has grown a file."""
    manifest = open_job(path, QUERIES[0])
    (add_checkpoint(path) / "state" / "0" / "_metadata" / "v2" / ".0.crc").unlink()
    for number in range(versions):
        if number:
            manifest = open_job(path, QUERIES[number], how=OnChange.ACCEPT)
        checkpoint = path / "checkpoints" / str(number)
        for log in ("offsets", "commits"):
            (checkpoint / log / str(number + 4)).write_text(f'v1\n{{}}\nt_1:{{"at":{number}}}')
        content = b"x" * 1000 * (number + 1)
        (checkpoint / "state" / "0" / f"{number}.sst").write_bytes(content)
        checksum = b"crc\0" + len(content).to_bytes(4, "big") + zlib.crc32(content).to_bytes(4, "big")
        (checkpoint / "state" / "0" / f".{number}.sst.crc").write_bytes(checksum)
        (checkpoint / "sources" / "t_1").mkdir(parents=True, exist_ok=True)
        (checkpoint / "sources" / "t_1" / str(number)).write_text("v1")
    return manifest


def list_files(path: Path) -> set[str]:
    """Return the files of a job, but those that a lock or a manifest adds."""
    found = (each.relative_to(path) for each in path.rglob("*") if each.is_file())
    return {str(each) for each in found if each.parts[0] not in ("manifest", "lock")}


def count_bytes(path: Path) -> int:
    """Return the space that the files take, each counted once."""
    files = [each.stat() for each in (path / "checkpoints").rglob("*") if each.is_file()]
    return sum({each.st_ino: each.st_size for each in files}.values())


def test_the_newest_versions_are_kept(tmp_path: Path) -> None:
    create_job(tmp_path)
    before, size = list_files(tmp_path), count_bytes(tmp_path)
    planned = expire_job(tmp_path, 2, dry_run=True)
    assert list_files(tmp_path) == before
    found = expire_job(tmp_path, 2)
    assert found == planned
    assert (found.kept, found.expired) == ((2, 3), (0, 1))
    assert [each.what for each in found.removed] == ["state of version 0", "state of version 1"]
    assert before - list_files(tmp_path) == {
        each
        for each in before
        if each.startswith(("checkpoints/0/", "checkpoints/1/"))
        and not each.endswith(("/metadata", "0/offsets/4", "0/commits/4", "1/offsets/5", "1/commits/5"))
    }
    assert found.files == len(before - list_files(tmp_path))
    assert found.bytes == size - count_bytes(tmp_path)
    assert find_damaged_file(local(tmp_path)) is None
    assert expire_job(tmp_path, 2).removed == ()
    assert open_job(tmp_path, QUERIES[3]).version.number == 3


def test_a_position_in_the_input_outlives_its_version(tmp_path: Path) -> None:
    """A source that a later query reads again continues there, not at the beginning of its input."""
    manifest = create_job(tmp_path)
    checkpoint = JobDir(local(tmp_path)).checkpoint(manifest, 1)
    before = read_positions(checkpoint)
    assert before == {"t_1": '{"at":1}'}
    expire_job(tmp_path, 1)
    assert read_positions(checkpoint) == before


def test_kept_versions_can_be_restored_and_expired_ones_cannot(tmp_path: Path) -> None:
    create_job(tmp_path)
    expire_job(tmp_path, 2)
    with pytest.raises(StateError, match=r"(?s)expired-version.*can restore: 2;"):
        roll_back(local(tmp_path), 1, duplicates=True, say=lambda _: None)
    made = roll_back(local(tmp_path), 2, duplicates=True, say=lambda _: None)
    assert (made.number, made.back_to, made.back_after) == (4, 2, 6)
    assert (tmp_path / "checkpoints" / "4" / "state" / "0" / "2.sst").is_file()
    assert open_job(tmp_path, QUERIES[2]).version == made


def test_the_files_of_a_rewind_stay_while_its_version_does(tmp_path: Path) -> None:
    """The job compares its position with those of the versions that it left."""
    create_job(tmp_path)
    open_job(tmp_path, OTHER, how=OnChange.REBUILD)
    expire_job(tmp_path, 1)
    assert (tmp_path / "checkpoints" / "0" / "sources" / "t_1" / "0").is_file()
    assert not (tmp_path / "checkpoints" / "0" / "state").exists()
    manifest = open_job(tmp_path, QUERY, how=OnChange.RESET)
    assert [each.number for each in manifest.abandoned_versions] == [0, 1, 2, 3]
    expire_job(tmp_path, 1)
    manifest = open_job(tmp_path, QUERY)
    assert manifest.abandoned_versions == ()
    assert not (tmp_path / "checkpoints" / "0").exists()  # no kept version has its batches


def test_backfill_and_copied_rows_of_expired_versions_are_removed(tmp_path: Path) -> None:
    create_job(tmp_path)
    manifest = open_job(tmp_path, OTHER, how=OnChange.REBUILD)
    for name in ("backfill/1/part-0", "sources/t.rows/x", f"sources/{manifest.current}/t.rows/x", "checkpoints/9/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
    records = tmp_path / "sinks" / "0_o"
    records.mkdir(parents=True)
    for name, done in (("0-3", True), ("1-4", False), (f"{manifest.current}-0", True)):
        (records / f"{name}.json").write_text(json.dumps({"done": done}))
    expire_job(tmp_path, 1)
    there = list_files(tmp_path)
    assert {each for each in there if not each.startswith("checkpoints/")} == {
        f"sources/{manifest.current}/t.rows/x",
        "sinks/0_o/1-4.json",  # its files are not visible yet
        f"sinks/0_o/{manifest.current}-0.json",
    }
    assert "checkpoints/9/x" not in there


def test_withdrawn_files_that_no_rollback_shows_are_removed(tmp_path: Path) -> None:
    job, table = tmp_path / "job", tmp_path / "out"
    script = (
        "CREATE TABLE s (k STRING) WITH ('connector' = 'datagen');"
        "CREATE TABLE o (k STRING, a BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'debezium-json');"
        "INSERT INTO o SELECT k, {} FROM s GROUP BY k"
    )

    def run(aggregate: str) -> Manifest:
        (*_, last) = Session().run(script.format(aggregate))
        assert isinstance(last, Submit)
        return start_job(job, last.roots, how=OnChange.ACCEPT, folder=tmp_path)

    run("COUNT(*)")
    add_checkpoint(job)
    run("COUNT(*) + 1")
    roll_back(local(job), 0, duplicates=False, say=lambda _: None)
    manifest = run("COUNT(*)")
    table.mkdir()
    own, other = identify_sink(manifest.job, "0_o"), identify_sink("other", "0_o")
    names = [f".part-{own}-{epoch}-4-00000.json.withdrawn" for epoch in (0, 1)]
    others = [f".part-{other}-1-4-00000.json.withdrawn", f"part-{own}-1-4-00000.json", "mine.json"]
    for name in (*names, *others):
        (table / name).write_text("x")
    assert [each.what for each in expire_job(job, 2).removed] == ["state of version 0"]
    found = expire_job(job, 1)
    assert [each.what for each in found.removed] == ["state of version 1", "withdrawn files of `o`"]
    assert {each.name for each in table.iterdir()} == {names[0], *others}


def test_an_expiry_that_is_killed_at_any_step_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, backup = tmp_path / "job", tmp_path / "backup"
    create_job(job, 3)
    shutil.copytree(job, backup)
    expire_job(job, 1)
    expected = list_files(job)
    delete = Location.delete
    for step in count():
        shutil.rmtree(job)
        shutil.copytree(backup, job)
        left = iter(range(step))

        def delete_some(self: Location, left: Iterator[int] = left) -> None:
            if '"expired": true' in newest_manifest(job).read_text() and next(left, None) is None:
                raise Killed
            delete(self)

        with monkeypatch.context() as patch:
            patch.setattr(Location, "delete", delete_some)
            try:
                expire_job(job, 1)
                break
            except Killed:
                pass
        assert find_damaged_file(local(job)) is None
        assert open_job(job, QUERIES[2]).version.number == 2
        with pytest.raises(StateError, match="expired-version"):
            roll_back(local(job), 0, duplicates=True, say=lambda _: None)
        expire_job(job, 1)
        assert list_files(job) == expected
    assert step > 10


def test_a_running_job_does_not_expire(tmp_path: Path) -> None:
    create_job(tmp_path)
    running = JobDir(local(tmp_path))
    running.lock()
    before = list_files(tmp_path)
    assert expire_job(tmp_path, 1, dry_run=True).files > 0
    with pytest.raises(StateError, match="job-is-running"):
        expire_job(tmp_path, 1)
    assert list_files(tmp_path) == before
    running.release()
    expire_job(tmp_path, 1)


def test_key_snapshots_that_no_rewind_needs(tmp_path: Path) -> None:
    back = replace(lineage_after_rollback(5, 1), oldest_epoch=4)  # epochs 2 to 4 are discarded
    assert back.find_expired_snapshots([1, 2, 3, 4, 5]) == [1, 3]
    assert back.find_expired_snapshots([1, 3, 4, 5]) == [1]
    later = replace(back, epoch=8, oldest_epoch=7)  # the version of the rewind is expired
    assert later.find_expired_snapshots([1, 2, 3, 4, 5, 7, 8]) == [1, 2, 3, 4, 5]
    rebuilt = replace(lineage_after_rebuild(5), oldest_epoch=4)
    assert rebuilt.find_expired_snapshots([1, 4, 5]) == [1]
    create_job(tmp_path)
    folder = tmp_path / "sinks" / "keys-topic"
    folder.mkdir(parents=True)
    for epoch in range(1, 4):
        (folder / f"{epoch}.arrow").write_text("x")
    assert expire_job(tmp_path, 2).removed[-1].what == "key snapshots"
    assert sorted(each.name for each in folder.iterdir()) == ["2.arrow", "3.arrow"]


def test_the_command(tmp_path: Path) -> None:
    create_job(tmp_path)

    def invoke(*arguments: str) -> str:
        done = CliRunner().invoke(everfold, arguments)
        assert done.exception is None, done.exception
        return done.stdout

    planned = json.loads(invoke("expire", str(tmp_path), "--keep", "3", "--dry-run", "--format", "json"))
    assert (planned["dry_run"], planned["kept"], planned["expired"]) == (True, [1, 2, 3], [0])
    assert [each["what"] for each in planned["removed"]] == ["state of version 0"]
    printed = invoke("expire", str(tmp_path), "--keep", "3").splitlines()
    assert printed[-1] == f"{planned['files']} files with {planned['bytes']} bytes were removed; kept versions: 1, 2, 3"
    assert "| state of version 0 |" in printed[3]
    assert invoke("expire", str(tmp_path), "--keep", "3") == "nothing to remove; kept versions: 1, 2, 3\n"
    assert invoke("history", str(tmp_path)).startswith("version 0 (expired), since ")
    found = json.loads(invoke("history", str(tmp_path), "--format", "json"))
    assert [each["expired"] for each in found] == [True, False, False, False]
