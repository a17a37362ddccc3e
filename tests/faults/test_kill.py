"""A job that is killed with SIGKILL repeatedly ends with the rows of an uninterrupted job."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import duckdb
import pytest
from killing import run_with_kills, seed_random

FILES, ROWS_A_FILE, KILLS = 16, 200, 5
SCRIPT = """
CREATE TABLE click (clicked TIMESTAMP(3), page STRING, n INT, WATERMARK FOR clicked AS clicked - INTERVAL '30' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE per_minute (window_start TIMESTAMP(3), page STRING, clicks BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO per_minute
SELECT window_start, page, COUNT(*), SUM(CAST(n AS BIGINT))
FROM HOP(TABLE click, DESCRIPTOR(clicked), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)
GROUP BY window_start, window_end, page;
"""


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


def lay_out(folder: Path) -> None:
    (folder / "in").mkdir()
    for number in range(FILES):
        lines = "\n".join(json.dumps(row) for row in rows_of(number))
        (folder / "in" / f"{number:03}.json").write_text(lines + "\n")
        stamp = time.time() - 1000 + number
        os.utime(folder / "in" / f"{number:03}.json", (stamp, stamp))
    (folder / "job.sql").write_text(SCRIPT)


def visible_rows(folder: Path) -> list[tuple[object, ...]]:
    """Return the rows that any reader of the folder sees: those of files that are not hidden."""
    files = [file for file in (folder / "out").rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted((row["window_start"], row["page"], row["clicks"], row["n"]) for row in found)


def reference(folder: Path) -> list[tuple[object, ...]]:
    """Return the same rows, computed by DuckDB from the raw files."""
    rows = duckdb.execute(
        f"""
        WITH click AS (SELECT CAST(clicked AS TIMESTAMP) AS clicked, page, n FROM read_json('{folder}/in/*.json')),
        hopped AS (
          SELECT time_bucket(INTERVAL 1 MINUTE, clicked) - back * INTERVAL 1 MINUTE AS window_start, page, n
          FROM click, range(3) AS hops(back))
        SELECT strftime(window_start, '%Y-%m-%d %H:%M:%S'), page, COUNT(*), SUM(n)::BIGINT FROM hopped GROUP BY ALL
        """
    ).fetchall()
    return sorted(rows)


@pytest.mark.spark
@pytest.mark.slow
def test_a_killed_job_returns_the_rows_of_an_uninterrupted_one(tmp_path: Path) -> None:
    lay_out(tmp_path)
    killed = run_with_kills(tmp_path, "job.sql", kills=KILLS, within_s=2, chance=seed_random())
    assert killed >= 2, "the job ended before it could be killed"
    got = [
        (str(at).replace("T", " ").removesuffix(".000"), page, clicks, n)
        for at, page, clicks, n in visible_rows(tmp_path)
    ]
    assert got == reference(tmp_path)
