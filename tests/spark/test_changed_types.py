"""A job whose state is older than a change of function types resumes with all of its state.

On Spark.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.running import runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parents[1] / "golden" / "state" / "job-v3-remainders.tar.gz"
"""Written at 37dde9e in /srv/remainders: three rows, with remainders 3 and 6 of `a` and 3 of
`b`, and open windows.
"""
MORE = """{"k":"a","d":16,"x":5,"ts":"2020-01-01 00:00:04"}
{"k":"b","d":20,"x":4,"ts":"2020-01-01 00:00:05"}
{"k":"c","d":9,"x":7,"ts":"2020-01-01 00:00:06"}
"""
CHANGES = {
    "sums> +U[a, 11, 3.000000, 2, 3, {1=1, 2=1, 5=1}, [1, 2, 5]]",
    "sums> +U[b, 9, 4.000000, 3, 2, {3=1, 4=1}, [3, 4]]",
    "sums> +I[c, 2, 2.000000, 2, 1, {7=1}, [7]]",
    "counts> +U[6, 2, 4]",
    "counts> +I[2, 2, 7]",
    "least> +U[a, 2, 5]",
    "least> +I[c, 2, 7]",
    "most> +U[6, 4]",
    "most> +I[2, 7]",
    "running> +I[a, 11]",
    "running> +I[b, 9]",
    "running> +I[c, 2]",
}
WINDOWS = {
    "hours> +I[2020-01-01T00:00, 2, 4, {5=1, 7=1}, [5, 7]]",
    "hours> +I[2020-01-01T00:00, 3, 6, {1=1, 3=1}, [1, 3]]",
    "hours> +I[2020-01-01T00:00, 6, 12, {2=1, 4=1}, [2, 4]]",
}


@pytest.mark.slow
def test_a_job_with_remainders_of_an_earlier_version_resumes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "remainders"
    monkeypatch.chdir(folder)
    (folder / "in" / "2.json").write_text(MORE)
    check = runner(spark, monkeypatch, capsys, command=("check", "job.sql"))("--state", ".everfold/job")
    assert (check.code, check.out.splitlines()[0]) == (0, "The change is fully compatible.")
    run = runner(spark, monkeypatch, capsys)
    done = run("--suspend")
    assert done.code == 0, done.err
    assert find_emitted_rows(done.out) == CHANGES
    done = run()
    assert done.code == 0, done.err
    assert find_emitted_rows(done.out) == WINDOWS


def find_emitted_rows(out: str) -> set[str]:
    """Return the printed rows, without those that are retracted."""
    return {line for line in out.splitlines() if "> +" in line}
