"""A job directory of format 6 of the manifest resumes, also if a batch was planned, and also if its
query is changed before it resumes.

`golden/state/job-v6.tar.gz` was written at aff57a0a: eight INSERTs whose state has other names now.
They read a table in several branches, join a table twice, unnest a collection twice, nest windows,
call a Python function, and commute operands. `printed.txt` is what the release printed.
"""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.running import Done, Run, runner

from everfold.jobs.job_dir import load_manifest
from everfold.jobs.manifest import MANIFEST_FORMAT, Version
from everfold.storage import local

GOLDEN = Path(__file__).parents[1] / "golden" / "state" / "job-v6.tar.gz"
BRANCHES = "SELECT a, b AS v, c AS w, ts FROM t\nUNION ALL\nSELECT a, c AS v, b AS w, ts FROM t WHERE b > 2"


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return runner(spark, monkeypatch, capsys)


def find_current_rows(lines: Iterable[str]) -> Counter[tuple[str, str]]:
    """Return the current rows of the printed tables: a table and the values of a row."""
    rows: Counter[tuple[str, str]] = Counter()
    for line in lines:
        printed = re.fullmatch(r"(\w+)> ([+-])\w\[(.*)\]", line)
        if printed is not None:
            rows[printed[1], printed[3]] += 1 if printed[2] == "+" else -1
    return Counter({row: count for row, count in rows.items() if count})


def replace_in_script(old: str, new: str) -> None:
    script = Path("job.sql").read_text()
    assert old in script
    Path("job.sql").write_text(script.replace(old, new))


def add_input() -> None:
    Path("more.json").rename("in/2.json")


def check_rows(run: Run, done: Done) -> None:
    """Check the rows of the job against those of the same query as a batch."""
    assert done.code == 0, done.err
    printed = [*Path("printed.txt").read_text().splitlines(), *done.out.splitlines()]
    batch = run("--batch", "--state", "batch")
    assert batch.code == 0, batch.err
    assert find_current_rows(printed) == find_current_rows(batch.out.splitlines())


def read_version() -> Version:
    manifest = load_manifest(local(Path("job")))
    assert manifest.format == MANIFEST_FORMAT
    return manifest.version


def test_the_unchanged_query_resumes(run: Run) -> None:
    add_input()
    check_rows(run, run("--state", "job"))
    version = read_version()
    assert version.number == 0
    assert version.fingerprint.startswith("2:")
    operators = [operator for shape in version.query_shapes for operator in shape.operators]
    assert {operator.kind for operator in operators if operator.state_names} == {
        "GroupAggregate",
        "OverAggregate",
        "Rank",
    }


@pytest.mark.slow
def test_a_planned_batch_is_finished(run: Run) -> None:
    Path("job/checkpoints/0/commits/0").unlink()
    Path("job/checkpoints/0/commits/.0.crc").unlink(missing_ok=True)
    add_input()
    check_rows(run, run("--state", "job"))
    assert read_version().number == 0


@pytest.mark.slow
def test_a_query_of_the_same_meaning_resumes(run: Run) -> None:
    """The branches are in another order, and conditions and sums are spelled differently."""
    one, both, other = BRANCHES.partition("\nUNION ALL\n")
    replace_in_script(BRANCHES, other.replace("b > 2", "2 < b") + both + one)
    replace_in_script("SUM(c + b)", "SUM(b + c)")
    replace_in_script("w > 2 AND 9 > v", "v < 9 AND w > 2")
    add_input()
    check_rows(run, run("--state", "job"))
    assert read_version().number == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BRANCHES, BRANCHES.replace(" FROM t\n", " FROM t WHERE b > 2\n").removesuffix(" WHERE b > 2")),
        (
            "x.name, y.name, COUNT(*) FROM t JOIN names AS x ON t.b",
            "x.name, y.name, COUNT(*) FROM t JOIN names AS x ON t.a",
        ),
        ("GROUP BY x.name, y.name", "GROUP BY y.name, x.name"),
        ("SUM(y.e) FROM", "SUM(x.e) FROM"),
        ("PARTITION BY window_start, window_end ORDER", "PARTITION BY five, window_start, window_end ORDER"),
        ("AS 'functions.double'", "AS 'functions.triple'"),
    ],
    ids=["condition", "join", "keys", "value", "window", "function"],
)
def test_a_query_of_another_meaning_is_refused(run: Run, old: str, new: str) -> None:
    with open("functions.py", "a") as file:
        file.write("\n\ntriple = double\n")
    replace_in_script(old, new)
    refused = run("--state", "job", "--on-change", "accept")
    assert refused.code == 1
    assert re.search(r"error\[(incompatible|unknown)-change\]", refused.err), refused.err
