"""Jobs that get another number of partitions: they continue as if nothing had happened."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manifests import newest_manifest
from spark.running import Done, runner

from everfold.checkpoint.logs import newest_entry
from everfold.jobs.job_dir import JobDir, load_manifest
from everfold.jobs.manifest import Manifest
from everfold.storage import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
SET 'parallelism.default' = '2';
CREATE TABLE t (k STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '2');
CREATE TABLE groups (k STRING, n BIGINT, least INT, various BIGINT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = '{out}/groups', 'format' = 'debezium-json');
CREATE TABLE windows (w TIMESTAMP(3), k STRING, s INT)
WITH ('connector' = 'filesystem', 'path' = '{out}/windows', 'format' = 'json');
CREATE TABLE overs (k STRING, x INT, s INT)
WITH ('connector' = 'filesystem', 'path' = '{out}/overs', 'format' = 'json');
"""
GROUPS = "INSERT INTO groups SELECT k, COUNT(*), MIN(x), COUNT(DISTINCT x) FROM t GROUP BY k;"
WINDOWS = """INSERT INTO windows SELECT window_start, k, SUM(x)
FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE) GROUP BY window_start, window_end, k;"""
OVERS = """INSERT INTO overs SELECT k, x, SUM(x) OVER (
PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t;"""
ALL = f"EXECUTE STATEMENT SET BEGIN {GROUPS} {WINDOWS} {OVERS} END;"


class Jobs:
    """Commands in the folder of the test, and the input of all jobs there."""

    def __init__(self, run: Callable[..., Done]) -> None:
        self.run_command = run
        self._files = 0
        Path("in").mkdir()

    def put(self) -> None:
        """Write three more files with rows of 40 keys, each with later times than the one before."""
        for _ in range(3):
            of = self._files
            rows = [
                {"k": f"k{at * 7 % 40}", "x": at * 31 % 17, "ts": f"2020-01-01 {of:02}:{at // 2:02}:{at % 60:02}"}
                for at in range(100)
            ]
            file = Path("in", f"{of}.json")
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            os.utime(file, (time.time() - 1000 + of,) * 2)
            self._files += 1

    def run(self, state: str, query: str = ALL, *options: str) -> None:
        """Run a query to the end of its input, but leave windows open."""
        Path("job.sql").write_text(TABLES.format(out=f"{state}-out") + query)
        done = self.run_command("run", "job.sql", "--state", state, "--suspend", *options)
        assert done.code == 0, done.err

    def rescale(self, state: str, partitions: int) -> str:
        """Give a job another number of partitions. Return what was printed."""
        done = self.run_command("rescale", state, str(partitions))
        assert done.code == 0, done.err
        return done.out


@pytest.fixture
def jobs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Jobs:
    monkeypatch.chdir(tmp_path)
    return Jobs(runner(spark, monkeypatch, capsys, ()))


def manifest_of(state: str) -> Manifest:
    return load_manifest(local(Path(state).absolute()))


def read_rows(state: str) -> dict[str, list[str]]:
    """Return the visible rows of each table, sorted."""
    found: dict[str, list[str]] = {}
    for folder in sorted(Path(f"{state}-out").iterdir()):
        files = [file for file in folder.rglob("*") if file.is_file() and file.name[0] not in "._"]
        found[folder.name] = sorted(line for file in files for line in file.read_text().splitlines())
    return found


def count_state_partitions(state: str) -> int:
    """Return the number of partitions that the first operator has in the current checkpoint."""
    manifest = manifest_of(state)
    folder = JobDir(local(Path(state).absolute())).checkpoint(manifest, manifest.current) / "state" / "0"
    return sum(each.name.isdigit() for each in folder.iterdir())


@pytest.mark.slow
def test_a_rescaled_job_continues_as_if_it_had_not_been_rescaled(jobs: Jobs) -> None:
    jobs.put()
    jobs.run("never")
    jobs.run("state")
    for partitions in (8, 3):
        printed = jobs.rescale("state", partitions)
        shares = {8: "8 partitions of 1 buckets each", 3: "3 partitions of 2 to 3 buckets"}
        assert printed.startswith(shares[partitions])
        jobs.put()
        jobs.run("never")
        jobs.run("state")
        assert count_state_partitions("state") == max(partitions, 8)
        assert read_rows("state") == read_rows("never")
    assert len(read_rows("state")["windows"]) > 100
    shown = jobs.run_command("history", "state").out
    assert ", with 8 partitions\n" in shown
    assert ", with 3 partitions\n" in shown


@pytest.mark.slow
def test_a_rollback_undoes_it(jobs: Jobs) -> None:
    jobs.put()
    jobs.run("never", GROUPS)
    jobs.run("state", GROUPS)
    jobs.rescale("state", 1)
    jobs.put()
    jobs.run("state", GROUPS)
    assert jobs.run_command("rollback", "state", "0").code == 0
    jobs.run("state", GROUPS)
    jobs.run("never", GROUPS)
    assert read_rows("state") == read_rows("never")
    manifest = manifest_of("state")
    assert [manifest.count_partitions(each) for each in manifest.versions] == [2, 1, 2]


@pytest.mark.slow
def test_a_changed_query_keeps_the_partitions(jobs: Jobs) -> None:
    sums = GROUPS.replace("COUNT(*)", "SUM(x)")
    both = f"EXECUTE STATEMENT SET BEGIN {WINDOWS} {sums} END;"
    jobs.put()
    for state in ("never", "state"):
        jobs.run(state, GROUPS)
    jobs.rescale("state", 8)
    for state in ("never", "state"):
        jobs.run(state, sums, "--on-change", "backfill")
    jobs.rescale("state", 4)
    for state in ("never", "state"):  # adds an operator, and moves the other
        jobs.run(state, both, "--on-change", "accept", "--conf", "everfold.compat.rules=extended")
    jobs.put()
    for state in ("never", "state"):
        jobs.run(state, both)
    jobs.rescale("state", 2)
    jobs.put()
    for state in ("never", "state"):
        jobs.run(state, both)
    assert read_rows("state") == read_rows("never")
    manifest = manifest_of("state")
    assert [manifest.count_partitions(each) for each in manifest.versions] == [2, 8, 8, 4, 4, 2]


def test_what_cannot_be_rescaled_is_refused(jobs: Jobs) -> None:
    jobs.put()
    jobs.run("state", GROUPS)
    before = newest_manifest(Path("state")).read_bytes()
    done = jobs.run_command("rescale", "state", "9")
    assert (done.code, done.first) == (
        2,
        "error[too-many-partitions]: the job has 8 buckets, so more partitions would have no state",
    )
    assert jobs.run_command("rescale", "state", "0").code == 2
    assert "error[no-job]" in jobs.run_command("rescale", "missing", "2").err
    assert jobs.rescale("state", 2) == "version 0 has 2 partitions\n"
    running = JobDir(local(Path("state").absolute()))
    running.lock()
    assert "error[job-is-running]" in jobs.run_command("rescale", "state", "4").err
    running.release()
    commit = newest_entry(local(Path("state/checkpoints/0/commits").absolute()))
    assert commit is not None
    commit.delete()
    assert "error[unfinished-batch]" in jobs.run_command("rescale", "state", "4").err
    assert newest_manifest(Path("state")).read_bytes() == before


@pytest.mark.slow
def test_an_interrupted_rescale_changes_nothing_and_is_repeated(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.put()
    jobs.run("never", GROUPS)
    jobs.run("state", GROUPS)
    with monkeypatch.context() as patch:
        patch.setattr(
            JobDir, "write_manifest", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        assert jobs.run_command("rescale", "state", "4").code == 1
    jobs.rescale("state", 8)
    jobs.put()
    for state in ("never", "state"):
        jobs.run(state, GROUPS)
    assert read_rows("state") == read_rows("never")
