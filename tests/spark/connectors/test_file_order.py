"""The files of a batch are read oldest first, files of the same age by their names, on each engine
and scan path: Spark itself reads the largest files first.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.running import run_script

from everfold.plan.changelog import KIND, RETRACTIONS
from everfold.spark.session import create_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = {"z": (1, 1), "m": (400, 2), "c": (1, 3), "d": (3000, 3), "e": (2, 3), "a": (5, 4)}
"""The files in the order in which they are read: their numbers of rows and modification times."""
TABLE = """
    CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
    WITH ('connector' = 'filesystem', 'path' = 'files', 'format' = '{format}');
"""
LAST = sum(rows for rows, _ in FILES.values()) - 1
STARTS = "0,1,401,402,3402,3404"
QUERIES = {
    "SELECT FIRST_VALUE(v), LAST_VALUE(v), COUNT(*) FROM t": (0, LAST, LAST + 1),
    "SELECT LISTAGG(CAST(v AS STRING)) FROM t WHERE k <> ''": (STARTS,),
    "SELECT FIRST_VALUE(v), LAST_VALUE(v) FROM (SELECT * FROM t UNION ALL SELECT * FROM t)": (0, LAST),
    "SELECT LAST_VALUE(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
    "GROUP BY window_start, window_end": (LAST,),
    "SELECT MAX(n) FROM (SELECT v - COUNT(*) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) AS n FROM t)": (-1,),
}
"""Queries over `v`, which numbers the rows in their order, and their only row."""
NEWEST = "SELECT v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY 1 ORDER BY ts DESC) AS n FROM t) WHERE n = 1"
OPTIONS: dict[str, dict[str, str]] = {
    "worker": {},
    "Catalyst": {"everfold.scan": "catalyst"},
    "batch": {"execution.runtime-mode": "batch"},
}
CHANGES = """
    CREATE TABLE t (k INT, v INT) WITH ('connector' = 'filesystem', 'path' = 'files', 'format' = 'debezium-json');
"""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """Each file of at least 1 KB is read by its own task."""
    session = create_session(spark, 2)
    session.conf.set("spark.sql.files.maxPartitionBytes", "1k")
    session.conf.set("spark.sql.files.openCostInBytes", "0")
    return session


def write_files(folder: Path, form: str) -> None:
    folder.mkdir()
    number = 0
    for name, (count, time) in FILES.items():
        numbers = range(number, number + count)
        rows = [{"k": "" if v > number else "first", "v": v, "ts": "2026-01-01 00:00:00"} for v in numbers]
        number += count
        path = folder / name
        if form == "json":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            path.write_text("".join(f"{row['k']},{row['v']},{row['ts']}\n" for row in rows))
        os.utime(path, (1_000_000 + time, 1_000_000 + time))


def run(spark: SparkSession, folder: Path, script: str, options: dict[str, str]) -> Counter[Any]:
    """Return the rows of the result."""
    rows: Counter[Any] = Counter()
    for table in run_script(spark, script, options, folder, folder / "job"):
        for row in table.to_pylist():
            kind = row.pop(KIND, 0)
            rows[tuple(row.values())] += -1 if kind in RETRACTIONS else 1
    return +rows


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(
    ("options", "form"),
    [
        pytest.param("worker", "json", marks=pytest.mark.slow),
        pytest.param("batch", "json", marks=pytest.mark.slow),
        pytest.param("Catalyst", "json", marks=pytest.mark.slow),
        pytest.param("worker", "csv", marks=pytest.mark.slow),
        pytest.param("batch", "csv", marks=pytest.mark.slow),
    ],
)
def test_the_oldest_file_is_first(session: SparkSession, tmp_path: Path, query: str, options: str, form: str) -> None:
    write_files(tmp_path / "files", form)
    script = f"{TABLE.replace('{format}', form)}{query}"
    assert run(session, tmp_path, script, OPTIONS[options]) == Counter([QUERIES[query]])


@pytest.mark.parametrize("options", ["worker", "batch"])
def test_the_oldest_file_is_first_in_a_group(session: SparkSession, tmp_path: Path, options: str) -> None:
    write_files(tmp_path / "files", "json")
    query, row = next(iter(QUERIES.items()))
    script = f"{TABLE.replace('{format}', 'json')}{query}"
    assert run(session, tmp_path, script, OPTIONS[options]) == Counter([row])


@pytest.mark.parametrize("options", [pytest.param("worker", marks=pytest.mark.slow), "Catalyst"])
def test_the_newest_row_is_in_the_newest_file(session: SparkSession, tmp_path: Path, options: str) -> None:
    write_files(tmp_path / "files", "json")
    script = f"{TABLE.replace('{format}', 'json')}{NEWEST}"
    assert run(session, tmp_path, script, OPTIONS[options]) == Counter([(LAST,)])


@pytest.mark.parametrize("query", ["SELECT SUM(v), COUNT(*) FROM t", "SELECT COUNT(DISTINCT v), MIN(v), MAX(v) FROM t"])
def test_a_row_is_added_before_it_is_retracted(session: SparkSession, tmp_path: Path, query: str) -> None:
    """A group whose rows are in several files must not seem to be empty in between."""
    folder = tmp_path / "files"
    folder.mkdir()
    versions = [{key: key * 10 + number for key in range(keys)} for number, keys in enumerate([400, 400, 400, 3])]
    before: dict[int, int] = {}
    files = [("b", 1), ("c", 1), ("a", 2), ("x", 3), ("y", 3)]
    for (name, time), version in zip(files, [*versions, versions[0]], strict=True):
        lines = [
            json.dumps(
                {"before": _row(before, key), "after": _row(version, key), "op": _operation(before, version, key)}
            )
            for key in sorted(before.keys() | version.keys())
        ]
        (folder / name).write_text("\n".join(lines))
        os.utime(folder / name, (1_000_000 + time, 1_000_000 + time))
        before = version
    values = list(before.values())
    expected = (sum(values), len(values)) if "SUM" in query else (len(set(values)), min(values), max(values))
    assert run(session, tmp_path, f"{CHANGES}{query}", {}) == Counter([expected])


def _row(rows: dict[int, int], key: int) -> dict[str, int] | None:
    return {"k": key, "v": rows[key]} if key in rows else None


def _operation(before: dict[int, int], after: dict[int, int], key: int) -> str:
    return "d" if key not in after else "u" if key in before else "c"
