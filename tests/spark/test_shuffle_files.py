"""Files in which rows wait between the tasks of a batch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from spark.running import Run

JOB = """
CREATE TABLE src (a BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE snk (a BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO snk SELECT a, COUNT(*) OVER (PARTITION BY a ORDER BY ts) FROM src;
"""
DEADLINE_S = 30


def test_the_files_of_a_batch_are_removed_after_it(spark: SparkSession, run: Run) -> None:
    """By default, they remain until the JVM of the driver collects garbage: for up to 30 minutes."""
    Path("in").mkdir()
    for number in range(4):
        rows = [{"a": row % 7, "ts": f"2026-01-01 00:00:0{number}.{row:03}"} for row in range(100)]
        Path(f"in/{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("job.sql").write_text(JOB)
    others = _shuffle_files(spark)
    callers_frame = spark.range(8).repartition(2)
    callers_frame.collect()
    before = _shuffle_files(spark)
    kept = before - others
    assert kept, "a caller's session has its own settings"
    assert run("--state", "state").code == 0
    until = time.monotonic() + DEADLINE_S
    while remaining := _shuffle_files(spark) - before:
        assert time.monotonic() < until, remaining
        time.sleep(0.1)
    assert kept <= _shuffle_files(spark)


def _shuffle_files(spark: SparkSession) -> set[Path]:
    jvm: Any = spark.sparkContext._jvm
    folders = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    return {file for folder in folders for file in Path(folder.getPath()).rglob("shuffle_*")}
