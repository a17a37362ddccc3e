"""A job that is killed with SIGKILL repeatedly ends with the rows of an uninterrupted job."""

from __future__ import annotations

import json
import os
import random
import time
from datetime import datetime
from pathlib import Path

import duckdb
import pytest
from killing import run_with_kills, seed_random

FILES, ROWS_A_FILE, KILLS = 16, 200, 5
SCRIPT = """
CREATE TABLE click (clicked TIMESTAMP(3), page STRING, n INT, WATERMARK FOR clicked AS clicked - INTERVAL '30' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE totals (window_start TIMESTAMP(3), grp STRING, clicks BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO totals
"""
QUERIES = {
    "HOP": (
        """
        SELECT window_start, page, COUNT(*), SUM(CAST(n AS BIGINT))
        FROM HOP(TABLE click, DESCRIPTOR(clicked), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)
        GROUP BY window_start, window_end, page
        """,
        """
        SELECT time_bucket(INTERVAL 1 MINUTE, clicked) - back * INTERVAL 1 MINUTE AS window_start, page, COUNT(*), SUM(n)::BIGINT
        FROM click, range(3) AS hops(back) GROUP BY ALL
        """,
    ),
    "groups of sessions": (
        """
        SELECT window_start, CAST(MOD(n, 3) AS STRING), COUNT(*), SUM(CAST(n AS BIGINT))
        FROM SESSION(TABLE click PARTITION BY page, DESCRIPTOR(clicked), INTERVAL '5' SECOND)
        GROUP BY window_start, window_end, ROLLUP (MOD(n, 3))
        """,
        """
        WITH cut AS (SELECT *, clicked > LAG(clicked) OVER w + INTERVAL 5 SECOND AS begins FROM click WINDOW w AS (PARTITION BY page ORDER BY clicked)),
        numbered AS (SELECT *, SUM(COALESCE(begins, TRUE)::INT) OVER (PARTITION BY page ORDER BY clicked) AS number FROM cut),
        bounded AS (
          SELECT *, MIN(clicked) OVER w AS window_start, MAX(clicked) OVER w AS window_end FROM numbered WINDOW w AS (PARTITION BY page, number))
        SELECT window_start, (n % 3)::VARCHAR AS grp, COUNT(*), SUM(n)::BIGINT FROM bounded
        GROUP BY window_start, window_end, ROLLUP (n % 3)
        """,
    ),
}
"""For each query: its SQL, and DuckDB's for the same rows."""


def rows_of(number: int) -> list[dict[str, object]]:
    """Return the rows of a file: two minutes of event time, with disorder within the watermark
    delay.
    """
    made = random.Random(number)
    seconds = sorted(made.randrange(120) for _ in range(ROWS_A_FILE))
    stamps = [number * 120 + second - made.randrange(15) for second in seconds]
    return [
        {"clicked": f"2020-01-01 {10 + at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}.{made.randrange(1000):03}",
         "page": f"p{made.randrange(9)}", "n": made.randrange(1000)}
        for at in (max(0, stamp) for stamp in stamps)
    ]  # fmt: skip


def lay_out(folder: Path, query: str) -> None:
    (folder / "in").mkdir()
    for number in range(FILES):
        lines = "\n".join(json.dumps(row) for row in rows_of(number))
        (folder / "in" / f"{number:03}.json").write_text(lines + "\n")
        stamp = time.time() - 1000 + number
        os.utime(folder / "in" / f"{number:03}.json", (stamp, stamp))
    (folder / "job.sql").write_text(SCRIPT + query)


def visible_rows(folder: Path) -> list[tuple[object, ...]]:
    """Return the rows that any reader of the folder sees: those of files that are not hidden."""
    files = [file for file in (folder / "out").rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    rows = ((datetime.fromisoformat(row["window_start"]), row.get("grp"), row["clicks"], row["n"]) for row in found)
    return sorted(rows, key=repr)


def reference(folder: Path, query: str) -> list[tuple[object, ...]]:
    """Return the same rows, computed by DuckDB from the raw files."""
    duckdb.execute(
        "CREATE OR REPLACE TEMP VIEW click AS SELECT CAST(clicked AS TIMESTAMP) AS clicked, page, n"
        f" FROM read_json('{folder}/in/*.json')"
    )
    return sorted(duckdb.execute(query).fetchall(), key=repr)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_a_killed_job_returns_the_rows_of_an_uninterrupted_one(query: str, tmp_path: Path) -> None:
    sql, expected = QUERIES[query]
    lay_out(tmp_path, sql)
    killed = run_with_kills(tmp_path, "job.sql", kills=KILLS, within_s=2, chance=seed_random())
    assert killed >= 2, "the job ended before it could be killed"
    assert visible_rows(tmp_path) == reference(tmp_path, expected)
