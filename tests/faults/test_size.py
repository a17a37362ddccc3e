"""Skew and size: one key with all rows, ten million keys, huge rows, 100,000 open windows.

The job ends with the correct rows and within a memory limit.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from faults.sampling import Sampler

pytestmark = [pytest.mark.slow, pytest.mark.spark]

HEAP = "1g"
FILES = 4
SCRIPT = """
CREATE TABLE t (ts TIMESTAMP(3), k STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '99' DAY)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'scan.max-files-per-batch' = '1');
CREATE TABLE result (k STRING, n BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO result {query};
"""


@dataclass(frozen=True)
class Load:
    """An input of `rows` rows, made by DuckDB from their number `i`; a window, a condition, and the
    memory limit of all processes.
    """

    rows: int
    key: str
    seconds: str
    window: str
    having: str
    limit_mb: int


LOADS = {
    "one key has all rows": Load(4_000_000, "'k'", "i % 600", "1 MINUTE", "COUNT(*) > 0", 4000),
    "100,000 open windows of a key": Load(400_000, "'k'", "60 * (i % 100000)", "1 MINUTE", "COUNT(*) > 0", 4000),
    "ten million keys": Load(10_000_000, "'customer ' || i", "i % 600", "1 DAY", "MOD(SUM(v), 100000) = 0", 6500),
    "keys of ten megabytes": Load(
        16, "repeat('x', 10000000) || i", "i", "1 DAY", "CHAR_LENGTH(k) > 10000000 AND SUM(v) = 7", 4500
    ),
}


@pytest.mark.parametrize("name", LOADS)
def test_a_load_stays_within_its_memory_limit(name: str, tmp_path: Path) -> None:
    load = LOADS[name]
    (tmp_path / "in").mkdir()
    columns = f"TIMESTAMP '2020-01-01' + to_seconds({load.seconds}) AS ts, {load.key} AS k, i AS v"
    for file in range(FILES):
        start, end = (load.rows * each // FILES for each in (file, file + 1))
        duckdb.execute(f"COPY (SELECT {columns} FROM range({start}, {end}) AS r(i)) TO '{tmp_path}/in/{file}.parquet'")
    number, unit = load.window.split()
    window = f"TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{number}' {unit})"
    query = f"SELECT k, COUNT(*), SUM(v) FROM {window} GROUP BY window_start, window_end, k HAVING {load.having}"
    (tmp_path / "job.sql").write_text(SCRIPT.format(query=query))
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "state", "--master", "local[2]"]
    with (tmp_path / "log.txt").open("wb") as log:
        job = subprocess.Popen(
            [*command, "--conf", f"spark.driver.memory={HEAP}"], cwd=tmp_path, stdout=log, stderr=log
        )
        with Sampler(job.pid) as sampler:
            code = job.wait(timeout=1800)
    assert code == 0, (tmp_path / "log.txt").read_text()
    print(f"{name}: at most {sampler.peak_mb:,.0f} MB")
    having = load.having.replace("CHAR_LENGTH", "length").replace("MOD(SUM(v), 100000)", "SUM(v) % 100000")
    expected = duckdb.execute(
        f"""SELECT md5(k), COUNT(*), SUM(v)::BIGINT FROM '{tmp_path}/in/*.parquet'
        GROUP BY k, time_bucket(INTERVAL {load.window}, ts) HAVING {having} ORDER BY ALL"""
    ).fetchall()
    files = [str(file) for file in (tmp_path / "out").glob("part-*")]
    connection = duckdb.connect()
    reader = f"read_json({files}, columns = {{k: 'VARCHAR', n: 'BIGINT', v: 'BIGINT'}}, maximum_object_size = 50000000)"
    assert connection.sql(f"SELECT md5(k), n, v FROM {reader} ORDER BY ALL").fetchall() == expected
    assert sampler.peak_mb < load.limit_mb
