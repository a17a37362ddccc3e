"""The number of partitions belongs to a job.

Another `parallelism.default` at a later start changes neither the number nor the result, and the
job says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manifests import newest_manifest
from spark.running import runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SCRIPT = """
SET 'parallelism.default' = '{parallelism}';
CREATE TABLE t (at_time TIMESTAMP(3), k INT, WATERMARK FOR at_time AS at_time)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE totals (k INT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO totals SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(at_time), INTERVAL '1' DAY) GROUP BY window_start, window_end, k;
"""


def test_another_parallelism_at_each_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(spark, monkeypatch, capsys)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    starts = (2, 5, 3)
    for at, parallelism in enumerate(starts):
        rows = ({"at_time": f"2020-01-01 0{at}:00:{k:02}", "k": k} for k in range(50))
        (tmp_path / "in" / f"{at}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "job.sql").write_text(SCRIPT.format(parallelism=parallelism))
        done = run(*["--suspend"] * (at < len(starts) - 1))
        assert done.code == 0, done.err
        note = f"note: `parallelism.default` is {parallelism}, but the job keeps its {starts[0]} partitions"
        assert (note in done.err) == (parallelism != starts[0])
    manifest = json.loads(newest_manifest(tmp_path / ".everfold" / "job").read_text())
    assert manifest["partitions"] == starts[0]
    found = sorted(
        (row["k"], row["n"])
        for file in (tmp_path / "out").glob("part-*")
        for row in map(json.loads, file.read_text().splitlines())
    )
    assert found == [(k, len(starts)) for k in range(50)]
