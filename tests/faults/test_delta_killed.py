"""Kill a job between the commit of a Delta table and that of Spark, and start it again.

The table is read from its log and its files, without Spark.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from faults.injection import Fault, Plan, start_job

pytestmark = [pytest.mark.spark, pytest.mark.slow]
WRITE = "everfold.connectors.delta.sink:DeltaSink.write"
FILES = 3
SCRIPT = """
CREATE TABLE t (k STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE result (k STRING, n BIGINT{key}) WITH ('connector' = 'delta', 'table-path' = 'result');
INSERT INTO result {query};
"""
QUERIES = {
    "appended": ("", "SELECT k, n FROM t"),
    "merged": (", PRIMARY KEY (k) NOT ENFORCED", "SELECT k, SUM(n) FROM t GROUP BY k"),
}


def put_files(folder: Path) -> list[tuple[str, int]]:
    (folder / "in").mkdir()
    rows = [[(f"k{(file + at) % 5}", file * 10 + at) for at in range(8)] for file in range(FILES)]
    for file, of in enumerate(rows):
        path = folder / "in" / f"{file}.json"
        path.write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in of))
        os.utime(path, (time.time() - 1000 + file,) * 2)
    return [row for of in rows for row in of]


def read_table(folder: Path) -> Counter[tuple[str, int]]:
    """Return the rows of the files that the log has added and not removed."""
    files: set[str] = set()
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                files.add(action["add"]["path"])
            if "remove" in action:
                files.remove(action["remove"]["path"])
    tables = [pq.read_table(folder / unquote(file), partitioning=None) for file in files]
    return Counter((row["k"], row["n"]) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_each_row_is_written_once(query: str, when: str, tmp_path: Path) -> None:
    rows = put_files(tmp_path)
    key, select = QUERIES[query]
    (tmp_path / "job.sql").write_text(SCRIPT.format(key=key, query=select))
    plan = Plan(tmp_path, WRITE)
    plan.set(Fault(WRITE, when, call=2))
    first = start_job(tmp_path, plan, "--master", "local[2]")
    first.wait(timeout=600)
    printed = (tmp_path / "log.txt").read_text()
    assert plan.is_done, printed
    assert first.returncode == -9, printed
    plan.clear()
    last = start_job(tmp_path, plan, "--master", "local[2]")
    assert last.wait(timeout=600) == 0, (tmp_path / "log.txt").read_text()
    totals: Counter[str] = Counter()
    for name, number in rows:
        totals[name] += number
    assert read_table(tmp_path / "result") == (Counter(rows) if query == "appended" else Counter(totals.items()))
