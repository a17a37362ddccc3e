"""ORDER BY time in a stream on Spark: files are in order, over several runs of a job."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.running import runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SCRIPT = """
CREATE TABLE t (at BIGINT, id INT, ts AS TO_TIMESTAMP_LTZ(at, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
CREATE TABLE s (at BIGINT, id INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
INSERT INTO s SELECT at, id FROM t ORDER BY ts, id DESC;
"""


def test_files_of_several_runs_are_in_order(
    spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(spark, monkeypatch, capsys)
    (project / "job.sql").write_text(SCRIPT)
    (project / "in").mkdir()
    drawn = random.Random(1)
    rows = [(nth * 5 + drawn.randint(0, 500) // 100 * 100, nth) for nth in range(3000)]
    for nth in range(3):
        lines = (f"{time},{number}\n" for time, number in rows[nth * 1000 : nth * 1000 + 1000])
        (project / "in" / f"{nth}.csv").write_text("".join(lines))
        done = run(*(["--suspend"] if nth < 2 else []))
        assert done.code == 0, done.err
    files = sorted((project / "out").glob("*.csv"), key=lambda file: file.stat().st_mtime_ns)
    written = [tuple(map(int, line.split(","))) for file in files for line in file.read_text().splitlines()]
    assert len(files) > 2
    assert written == sorted(rows, key=lambda row: (row[0], -row[1]))
