"""A job directory of an earlier release resumes, and its query can be changed.

`golden/state/job-v4.tar.gz` was written at the end of version 0.1's development, before plans had
named operators: two INSERTs, of which one got a new operator and the other a backfilled aggregate.
`job-v6-sessions.tar.gz` has groups of sessions, which are no longer kept.
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

GOLDEN = Path(__file__).parents[1] / "golden" / "state"


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(spark, monkeypatch, capsys, command=("run", "job.sql", "--state", "state"))


@pytest.fixture
def run_hours(run: Run) -> Run:
    extract("job-v4.tar.gz")
    Path("in/2.json").write_text('{"k":"b","x":2,"ts":"2020-01-01 00:05:00"}\n')
    return run


def extract(name: str) -> None:
    with tarfile.open(GOLDEN / name) as archive:
        archive.extractall(filter="data")


def read_hours(*columns: str) -> list[tuple[object, ...]]:
    """Return the rows of the table `hours`."""
    files = (each for each in Path("out").iterdir() if each.name[0] not in "._")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(tuple(row.get(name) for name in columns) for row in rows)


def test_a_job_of_an_earlier_release_resumes(run_hours: Run) -> None:
    done = run_hours()
    assert done.code == 0, done.err
    assert set(done.out.split("\n")) >= {"-D[2, 1]", "+U[4, 3]"}
    assert read_hours("k", "total", "n") == [("a", 4, 2), ("b", 4, 2), ("c", 4, 1)]
    assert load_manifest(local(Path("state"))).version.operators == ("w1", "w3", "w2")


@pytest.mark.slow
def test_a_job_of_an_earlier_release_can_be_changed(run_hours: Run) -> None:
    script = Path("job.sql").read_text()
    Path("job.sql").write_text(script.replace(", COUNT(*)\nFROM TUMBLE", ", MAX(x)\nFROM TUMBLE"))
    done = run_hours("--on-change", "backfill")
    assert done.code == 0, done.err
    assert set(done.out.split("\n")) >= {"-D[2, 1]", "+U[4, 3]"}
    assert read_hours("k", "total", "n") == [("a", 4, 3), ("b", 4, 2), ("c", 4, 4)]
    assert [each.number for each in load_manifest(local(Path("state"))).versions] == [0, 1, 2]


def test_groups_of_sessions_of_an_earlier_release_become_final(run: Run) -> None:
    """The sessions that were open are complete; nothing is emitted again, and no state is left."""
    extract("job-v6-sessions.tar.gz")
    rows = [("22", "y", 2, 6), ("23", "x", 2, 7), ("01", "x", 1, 100), ("50", "x", 1, 8)]
    Path("in/2.json").write_text(
        "".join(f'{{"ts":"2020-01-01 00:00:{second}","a":"{a}","b":{b},"v":{v}}}\n' for second, a, b, v in rows)
    )
    done = run()
    assert done.code == 0, done.err
    assert sorted(line for line in done.out.splitlines() if line[:3] in ("key", "end")) == [
        "end> +I[2020-01-01T00:00:20, 12, 1]",
        "end> +I[2020-01-01T00:00:22, 6, 1]",
        "end> +I[2020-01-01T00:00:50, 8, 1]",
        "key> +I[2020-01-01T00:00:20, 2020-01-01T00:00:28, null, 12, 2]",
        "key> +I[2020-01-01T00:00:20, 2020-01-01T00:00:28, x, 12, 2]",
        "key> +I[2020-01-01T00:00:22, 2020-01-01T00:00:27, null, 6, 1]",
        "key> +I[2020-01-01T00:00:22, 2020-01-01T00:00:27, y, 6, 1]",
        "key> +I[2020-01-01T00:00:50, 2020-01-01T00:00:55, null, 8, 1]",
        "key> +I[2020-01-01T00:00:50, 2020-01-01T00:00:55, x, 8, 1]",
    ]
    version = load_manifest(local(Path("state"))).version
    assert (version.number, version.operators) == (1, ("w5", "w1", "w6", "w3"))
    again = run()
    assert (again.code, [line for line in again.out.splitlines() if "+I" in line]) == (0, [])
