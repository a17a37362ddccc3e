"""A full disk, a job directory in use, a job directory of another query: a clear error, and no row
is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from manifests import newest_manifest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SCRIPT = """
CREATE TABLE t (at_time TIMESTAMP(3), n INT, WATERMARK FOR at_time AS at_time)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1'{more});
CREATE TABLE totals (window_end TIMESTAMP(3), total INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO totals SELECT window_end, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(at_time), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;
"""


def lay_out(folder: Path, more: str = "") -> None:
    (folder / "in").mkdir()
    for minute in range(4):
        rows = ({"at_time": f"2020-01-01 00:0{minute}:{second:02}", "n": second} for second in range(60))
        file = folder / "in" / f"{minute}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        stamp = time.time() - 100 + minute
        os.utime(file, (stamp, stamp))
    (folder / "job.sql").write_text(SCRIPT.format(more=more))


def command(state: Path) -> list[str]:
    return [sys.executable, "-m", "everfold", "run", "job.sql", "--state", str(state), "--master", "local[2]"]


def run(folder: Path, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(state), cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def totals(folder: Path) -> list[int]:
    files = [file for file in (folder / "out").rglob("*.json") if not file.name.startswith((".", "_"))]
    return sorted(json.loads(line)["total"] for file in files for line in file.read_text().splitlines())


WHOLE = [sum(range(60))] * 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system with almost no free space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_job_stopped_by_a_full_disk_resumes_when_there_is_space(tmp_path: Path, small_disk: Path) -> None:
    lay_out(tmp_path)
    failed = run(tmp_path, small_disk / "job")
    assert failed.returncode == 1, failed.stderr
    assert "error[disk-full]" in failed.stderr
    assert "Exception" not in failed.stderr
    assert "Traceback" not in failed.stderr
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    again = run(tmp_path, small_disk / "job")
    assert again.returncode == 0, again.stderr
    assert totals(tmp_path) == WHOLE


def fill(disk: Path) -> Path:
    """Fill a disk with one file and return it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(bytes(4096))
    return filler


def test_a_sink_on_a_full_or_read_only_disk(tmp_path: Path, small_disk: Path) -> None:
    lay_out(tmp_path)
    (small_disk / "out").mkdir()
    (tmp_path / "out").symlink_to(small_disk / "out")
    filler = fill(small_disk)
    failed = run(tmp_path, tmp_path / "job")
    assert failed.returncode == 1, failed.stderr
    assert "error[disk-full]: table `totals`: cannot write to `out`: the disk is full" in failed.stderr
    assert "Exception" not in failed.stderr
    assert totals(tmp_path) == []
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    failed = run(tmp_path, tmp_path / "job")
    assert failed.returncode == 1
    assert "error[no-permission]: table `totals`: cannot write to `out`: " in failed.stderr
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    again = run(tmp_path, tmp_path / "job")
    assert again.returncode == 0, again.stderr
    assert totals(tmp_path) == WHOLE


def test_a_job_directory_on_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    lay_out(tmp_path)
    (small_disk / "job").mkdir()
    filler = fill(small_disk)
    failed = run(tmp_path, small_disk / "job")
    assert failed.returncode == 1
    assert (
        f"error[disk-full]: the job directory `{small_disk}/job` cannot be written: the disk is full" in failed.stderr
    )
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    again = run(tmp_path, small_disk / "job")
    assert again.returncode == 0, again.stderr
    assert totals(tmp_path) == WHOLE


def test_a_job_directory_in_use_and_one_of_another_query(tmp_path: Path) -> None:
    lay_out(tmp_path, ", 'source.monitor-interval' = '1 s'")
    running = subprocess.Popen(
        command(tmp_path / "job"), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not newest_manifest(tmp_path / "job").exists():
            assert running.poll() is None
            time.sleep(0.1)
        second = run(tmp_path, tmp_path / "job")
    finally:
        running.kill()
        running.wait()
    assert second.returncode == 1
    assert "error[job-is-running]" in second.stderr
    script = (tmp_path / "job.sql").read_text()
    (tmp_path / "job.sql").write_text(script.replace("SUM(n)", "MAX(n)"))
    changed = run(tmp_path, tmp_path / "job")
    assert changed.returncode == 1
    assert "error[incompatible-change]" in changed.stderr
    assert "AGG004" in changed.stderr
