"""A checkpoint with one damaged file: the job names the file or does without it, and never
returns another result.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.running import Run, runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SCRIPT = """
CREATE TABLE t (at_time TIMESTAMP(3), n INT, WATERMARK FOR at_time AS at_time)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv', 'scan.max-files-per-batch' = '1');
CREATE TABLE totals (window_end TIMESTAMP(3), total INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
INSERT INTO totals SELECT window_end, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(at_time), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;
"""
FILES = (
    "metadata",
    "offsets/[0-9]*",
    "commits/[0-9]*",
    "sources/t_*/[0-9]*",
    "state/0/0/*.changelog",
    "state/0/0/*.zip",
    "state/0/_stateSchema/default/[0-9]*",
)
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "cut off": lambda content: content[: len(content) // 2],
    "a bit wrong": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "gone": lambda _: None,
}
WHOLE = [sum(range(60))] * 3


def put(folder: Path, minute: int) -> None:
    lines = (f"2020-01-01 00:0{minute}:{second:02},{second}\n" for second in range(60))
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{minute}").write_text("".join(lines))


def totals(folder: Path) -> list[int]:
    files = [file for file in (folder / "out").rglob("*.csv") if not file.name.startswith((".", "_"))]
    return sorted(int(line.rpartition(",")[2]) for file in files for line in file.read_text().splitlines())


class Job:
    """A job that has run twice, each time over one file, and is about to run over a third file."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run, self._kept = folder, run, folder.with_name("kept")
        self.checkpoint = folder / ".everfold" / "job" / "checkpoints" / "0"
        (folder / "job.sql").write_text(SCRIPT)
        for minute in range(2):
            put(folder, minute)
            assert run("--suspend").code == 0
        put(folder, 2)
        shutil.copytree(folder, self._kept)

    def restore(self) -> None:
        """Restore the job directory."""
        for each in (*self.folder.iterdir(),):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.copytree(self._kept, self.folder, dirs_exist_ok=True)


@pytest.fixture
def job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Job:
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Job(folder, runner(spark, monkeypatch, capsys))


def test_every_kind_of_damage_to_each_file(job: Job) -> None:
    folder, run = job.folder, job.run
    checkpoint = job.checkpoint
    refused = 0
    misnamed = []
    for pattern in FILES:
        file = max(checkpoint.glob(pattern), key=lambda each: (len(each.name), each.name))
        for how, damage in DAMAGES.items():
            content = damage(file.read_bytes())
            file.unlink() if content is None else file.write_bytes(content)
            done = run()
            if done.code == 0:
                assert totals(folder) == WHOLE, (pattern, how)
            else:
                assert done.first.startswith(f"error[damaged-checkpoint]: `{checkpoint}/"), (pattern, how, done.err)
                assert totals(folder) == WHOLE[1:2] or pattern.startswith("sources"), (pattern, how)
                if how == "gone" and f"`{file}`" not in done.first:
                    misnamed.append((str(file), done.first))
                refused += 1
            job.restore()
    assert refused >= len(FILES)
    assert misnamed == []
    assert run().code == 0
    assert totals(folder) == WHOLE


def test_metadata_with_another_id(job: Job) -> None:
    metadata = job.checkpoint / "metadata"
    content = metadata.read_text()
    metadata.write_text(content[:-3] + ("0" if content[-3] != "0" else "1") + content[-2:])
    assert job.run().first == f"error[damaged-checkpoint]: `{metadata}` is damaged or missing"


LOST = {
    "the newest commit": ("commits/1",),
    "all commits but the first": ("commits/1", "commits/2"),
    "the newest batch": ("offsets/1", "commits/1"),
    "the tail of a source's log": ("sources/t_*/1",),
    "the commits": ("commits",),
    "the offsets": ("offsets",),
    "the sources": ("sources",),
    "the state": ("state",),
    "the state of a partition": ("state/0/0",),
    "the checkpoint": (".",),
    "the control files": ("../../control",),
    "the records of the sinks": ("../../sinks",),
    "the last batch": ("../../last_batch.json",),
    "the manifest": ("../../manifest",),
}
"""Parts of a job directory that may be lost entirely, relative to its checkpoint."""


def test_missing_folders_and_truncated_logs(job: Job) -> None:
    folder, run = job.folder, job.run
    checkpoint = job.checkpoint
    before, refused = totals(folder), 0
    for what, patterns in LOST.items():
        for pattern in patterns:
            for found in [checkpoint] if pattern == "." else [*checkpoint.glob(pattern)]:
                shutil.rmtree(found) if found.is_dir() else found.unlink()
                found.with_name(f".{found.name}.crc").unlink(missing_ok=True)
        done = run()
        if done.code == 0:
            assert totals(folder) == WHOLE, what
        else:
            assert done.first.startswith("error[damaged-") or done.first.startswith("error[sink-ahead]"), (
                what,
                done.err,
            )
            assert totals(folder) == before, what
            refused += 1
        job.restore()
    assert refused >= len(LOST) // 2
    assert run().code == 0
    assert totals(folder) == WHOLE


def test_killed_while_the_first_batch_was_being_planned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(spark, monkeypatch, capsys)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(SCRIPT)
    (tmp_path / "in").mkdir()
    assert run("--suspend").code == 0
    offsets = tmp_path / ".everfold" / "job" / "checkpoints" / "0" / "offsets"
    assert not list(offsets.glob("[0-9]*"))
    part = ".0.16575e12-bee4-47cf-8f4c-c59aa7079f54.tmp"
    for name in (part, f".{part}.crc"):
        (offsets / name).write_text("v2")
    put(tmp_path, 0)
    assert run().code == 0
    assert totals(tmp_path) == WHOLE[:1]
