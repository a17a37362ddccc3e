"""Jobs where Spark's default file system is another one, as on a cluster with HDFS."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

NOBODY_ANSWERS = "spark.hadoop.fs.defaultFS=hdfs://127.0.0.1:9"
ROWS = ({"k": 1, "v": 10}, {"k": 2, "v": 20}, {"k": 1, "v": 30})
NAMES = ({"k": 1, "name": "one"}, {"k": 2, "name": "two"})
SCRIPT = """
CREATE TABLE src (k INT, v INT, pt AS PROCTIME())
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE dim (k INT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'dim', 'format' = 'json');
CREATE TABLE snk (k INT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
CREATE TABLE counts ({columns}) WITH ('connector' = 'print');
BEGIN STATEMENT SET;
INSERT INTO snk SELECT src.k, name FROM src JOIN dim FOR SYSTEM_TIME AS OF src.pt ON src.k = dim.k;
INSERT INTO counts SELECT k, {calls} FROM src GROUP BY k;
END;
"""


def everfold(folder: Path, *arguments: str) -> str:
    """Run a command in the folder and return its output."""
    command = [sys.executable, "-m", "everfold", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_path_that_spark_gets_is_local(tmp_path: Path) -> None:
    for name, rows in (("in", ROWS), ("dim", NAMES)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = ("run", "job.sql", "--state", "job", "--conf", NOBODY_ANSWERS)
    (tmp_path / "job.sql").write_text(SCRIPT.format(columns="k INT, n BIGINT", calls="COUNT(*)"))
    assert sorted(everfold(tmp_path, *run).splitlines()) == ["+I[1, 2]", "+I[2, 1]"]
    (tmp_path / "job.sql").write_text(SCRIPT.format(columns="k INT, n BIGINT, s INT", calls="COUNT(*), SUM(v)"))
    changes = everfold(tmp_path, *run, "--on-change", "backfill").splitlines()
    assert [each for each in changes if each.startswith("+")] == ["+U[1, 2, 40]", "+U[2, 1, 20]"]
    written = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(written) == ["1,one", "1,one", "2,two"]
