"""A job directory of an earlier release resumes, and its query can be changed.

`golden/state/job-v4.tar.gz` was written at the end of version 0.1's development, before plans had
named operators: two INSERTs, of which one got a new operator and the other a backfilled aggregate.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.running import Run, runner

from everfold.jobs.job_dir import load_manifest
from everfold.storage import local

GOLDEN = Path(__file__).parents[1] / "golden" / "state" / "job-v4.tar.gz"


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    Path("in/2.json").write_text('{"k":"b","x":2,"ts":"2020-01-01 00:05:00"}\n')
    return runner(spark, monkeypatch, capsys, command=("run", "job.sql", "--state", "state"))


def read_hours(*columns: str) -> list[tuple[object, ...]]:
    """Return the rows of the table `hours`."""
    files = (each for each in Path("out").iterdir() if each.name[0] not in "._")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(tuple(row.get(name) for name in columns) for row in rows)


def test_a_job_of_an_earlier_release_resumes(run: Run) -> None:
    done = run()
    assert done.code == 0, done.err
    assert set(done.out.split("\n")) >= {"-D[2, 1]", "+U[4, 3]"}
    assert read_hours("k", "total", "n") == [("a", 4, 2), ("b", 4, 2), ("c", 4, 1)]
    assert load_manifest(local(Path("state"))).version.operators == ("w1", "w3", "w2")


@pytest.mark.slow
def test_a_job_of_an_earlier_release_can_be_changed(run: Run) -> None:
    script = Path("job.sql").read_text()
    Path("job.sql").write_text(script.replace(", COUNT(*)\nFROM TUMBLE", ", MAX(x)\nFROM TUMBLE"))
    done = run("--on-change", "backfill")
    assert done.code == 0, done.err
    assert set(done.out.split("\n")) >= {"-D[2, 1]", "+U[4, 3]"}
    assert read_hours("k", "total", "n") == [("a", 4, 3), ("b", 4, 2), ("c", 4, 4)]
    assert [each.number for each in load_manifest(local(Path("state"))).versions] == [0, 1, 2]
