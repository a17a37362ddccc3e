"""`everfold state` on jobs that Spark has run: the numbers that it shows, and that it leaves
the job directory unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from manifests import newest_manifest
from spark.running import Done, Run, runner

from everfold.cli.state import _SPARK_CONF
from everfold.jobs.job_dir import JobDir
from everfold.storage import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = """
CREATE TABLE t (k STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
"""
SINK = "CREATE TABLE {} (k STRING, s INT) WITH ('connector' = 'blackhole');\n"
State = Callable[..., Done]


@pytest.fixture
def state(run: Run, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> State:
    """Run `everfold state job` with additional arguments.

    No file of the job directory may change, nor its time.
    """
    run = runner(spark, monkeypatch, capsys, ("state", "job"), _SPARK_CONF)

    def show(*arguments: str) -> Done:
        before = list_files(Path("job"))
        done = run(*arguments)
        assert list_files(Path("job")) == before
        return done

    return show


def list_files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(each): (each.stat().st_mtime_ns, each.stat().st_size) for each in [folder, *folder.rglob("*")]}


def put(name: str, *rows: tuple[str, int, str]) -> None:
    Path("in").mkdir(exist_ok=True)
    lines = (json.dumps({"k": k, "x": x, "ts": f"2020-01-01 {at}"}) for k, x, at in rows)
    file = Path("in") / f"{name}.json"
    file.write_text("\n".join(lines) + "\n")
    # Files are read in the order of their modification times.
    os.utime(file, (int(name), int(name)))


def run_query(run: Run, query: str, *options: str) -> None:
    Path("job.sql").write_text(TABLE + query)
    found = run("--state", "job", "--format", "json", *options)
    assert found.code == 0, found.err


def read_tables(found: Done, operator: str = "w1") -> dict[str, list[dict[str, Any]]]:
    assert found.code == 0, found.err
    operators = {each["name"]: each for each in json.loads(found.out)["operators"]}
    return {table["table"]: table["rows"] for table in operators[operator]["tables"]}


@pytest.mark.slow
def test_groups_of_a_changed_query_are_shown(run: Run, state: State, tmp_path: Path) -> None:
    put("1", ("a", 1, "00:00:01"), ("b", 9, "00:00:02"))
    put("2", ("a", 5, "00:00:03"), ("a", 5, "00:00:03"))
    run_query(run, "SELECT k, SUM(x) AS s, MAX(x) AS m, COUNT(DISTINCT x) AS d FROM t GROUP BY k;")
    assert read_tables(state("--format", "json")) == {
        "groups": [
            {"k": "a", "SUM(x) sum": 11, "MAX(x)": 5, "COUNT(DISTINCT x)": 2},
            {"k": "b", "SUM(x) sum": 9, "MAX(x)": 9, "COUNT(DISTINCT x)": 1},
        ],
        "values t.x": [{"k": "a", "x": 1, "count": 1}, {"k": "a", "x": 5, "count": 1}, {"k": "b", "x": 9, "count": 1}],
    }
    put("3", ("a", 7, "00:00:04"), ("c", 2, "00:00:05"))
    run_query(
        run, "SELECT k, SUM(x) AS s, COUNT(*) AS n, COUNT(DISTINCT x) AS d FROM t GROUP BY k;", "--on-change", "accept"
    )
    shown = state()
    assert shown.code == 0, shown.err
    first, *lines = shown.out.splitlines()
    assert first.endswith("of version 1")
    assert lines[1:11] == [
        "w1  GROUP BY k",
        "groups",
        "+---+------------+----------+-------------------+",
        "| k | SUM(x) sum | COUNT(*) | COUNT(DISTINCT x) |",
        "+---+------------+----------+-------------------+",
        "| a |         18 |        1 |                 3 |",
        "| b |          9 |   <NULL> |                 1 |",
        "| c |          2 |        1 |                 1 |",
        "+---+------------+----------+-------------------+",
        "3 rows in set",
    ]
    created = [each["created"] for each in json.loads(newest_manifest(Path("job")).read_text())["versions"]]
    assert lines[-3:] == [
        f"  SUM(x): since the beginning, {created[0]}",
        f"  COUNT(*): since version 1, {created[1]}",
        f"  COUNT(DISTINCT x): since the beginning, {created[0]}",
    ]
    assert read_tables(state("--format", "json", "--where", '"COUNT(*)" IS NULL'))["groups"] == [
        {"k": "b", "SUM(x) sum": 9, "COUNT(*)": None, "COUNT(DISTINCT x)": 1}
    ]
    sizes = json.loads(state("--format", "json").out)["operators"][0]["sizes"]
    assert (sizes["parts"]["SUM(x)"] >= 48, sizes["parts"]["COUNT(*)"] >= 16) == (True, True)
    assert sizes["parts"]["aggregates that are gone"] > 0
    assert sum(sizes["parts"].values()) == sizes["bytes"]
    out = tmp_path / "files"
    assert state("--format", "parquet", "--out", str(out)).code == 0
    assert pq.read_table(out / "w1-groups.parquet").to_pylist()[0] == {
        "k": "a",
        "SUM(x) sum": 18,
        "COUNT(*)": 1,
        "COUNT(DISTINCT x)": 3,
    }
    wrong = state("--operator", "w2")
    assert (wrong.code, wrong.first) == (2, "error[no-operator]: the job has no operator `w2`")
    # A reset discards all of that.
    put("4", ("a", 3, "00:00:06"))
    run_query(run, "SELECT x, COUNT(*) AS n FROM t GROUP BY x;", "--on-change", "reset")
    assert read_tables(state("--format", "json")) == {"groups": [{"x": 3, "COUNT(*)": 1}]}


@pytest.mark.slow
def test_open_windows_and_pending_rows_are_shown(run: Run, state: State) -> None:
    put("1", ("a", 1, "00:00:10"), ("b", 9, "00:00:20"), ("a", 2, "00:00:30"))
    put("2", ("a", 4, "00:01:10"), ("b", 3, "00:00:50"))
    put("3", ("c", 8, "00:02:10"), ("a", 5, "00:02:10"))
    hop = "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)"
    window = f"SELECT k, SUM(x) FROM {hop} GROUP BY window_start, window_end, k"
    over = "SELECT k, MAX(x) OVER (PARTITION BY k ORDER BY ts ROWS 1 PRECEDING) FROM t"
    sinks = SINK.format("sums") + SINK.format("greatest")
    inserts = f"INSERT INTO sums {window};\nINSERT INTO greatest {over};"
    run_query(run, f"{sinks}EXECUTE STATEMENT SET BEGIN\n{inserts}\nEND;", "--suspend")
    folder = JobDir(local(Path("job").absolute()))
    folder.lock()
    try:
        found = state("--format", "json")
    finally:
        folder.release()

    def minute(at: int) -> dict[str, str]:
        return {"slice_start": f"2020-01-01 00:0{at}:00.000", "slice_end": f"2020-01-01 00:0{at + 1}:00.000"}

    assert read_tables(found) == {
        "slices": [
            {**minute(0), "k": "a", "SUM(x) sum": 3},
            {**minute(0), "k": "b", "SUM(x) sum": 12},
            {**minute(1), "k": "a", "SUM(x) sum": 4},
            {**minute(2), "k": "a", "SUM(x) sum": 5},
            {**minute(2), "k": "c", "SUM(x) sum": 8},
        ]
    }
    # The watermark equals the time of the last row: it has reached all rows, but a row of the same
    # time may still come.
    rows = read_tables(found, "w2")
    assert rows["waiting"] == []
    assert [(row["k"], row["ts"][11:19], row["MAX(x)"]) for row in rows["rows"]] == [
        ("a", "00:02:10", 5),
        ("b", "00:00:50", 3),
        ("c", "00:02:10", 8),
    ]
    one = state("--operator", "OVER, PARTITION BY k", "--where", "k = 'c'")
    assert "slices" not in one.out
    assert "w2  OVER, PARTITION BY k" in one.out
    assert one.out.count("| c |") == 1


def test_damaged_state_is_reported(run: Run, state: State) -> None:
    put("1", ("a", 1, "00:00:01"))
    run_query(run, "SELECT k, SUM(x) AS s FROM t GROUP BY k;")
    (checkpoint,) = Path("job/checkpoints").iterdir()
    for changelog in checkpoint.glob("state/0/*/*.changelog"):
        changelog.write_bytes(changelog.read_bytes()[:-9])
    for snapshot in checkpoint.glob("state/0/*/*.zip"):
        snapshot.write_bytes(snapshot.read_bytes()[:20])
    found = state()
    assert found.code == 1
    assert found.first.startswith(f"error[damaged-checkpoint]: `{checkpoint.absolute()}/")
    assert found.out == ""
