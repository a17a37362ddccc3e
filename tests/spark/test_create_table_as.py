"""CREATE TABLE … AS as a job: it fills the table, and the same script resumes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.running import runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
SCRIPT = """
CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE big WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json') AS
SELECT k, n * 2 AS twice FROM t WHERE n > ALL (1, 2);
"""


def test_the_same_script_resumes_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = runner(spark, monkeypatch, capsys)
    (tmp_path / "in").mkdir()
    (tmp_path / "job.sql").write_text(SCRIPT)

    def put(name: str, *numbers: int) -> None:
        (tmp_path / "in" / name).write_text("".join(json.dumps({"k": name, "n": n}) + "\n" for n in numbers))

    def read_numbers() -> list[tuple[str, int]]:
        files = [file for file in (tmp_path / "out").rglob("*.json") if not file.name.startswith((".", "_"))]
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return sorted((row["k"], row["twice"]) for row in rows)

    put("a", 1, 3, 4)
    done = run()
    assert done.code == 0, done.err
    assert read_numbers() == [("a", 6), ("a", 8)]
    put("b", 2, 5)
    done = run()
    assert done.code == 0, done.err
    assert read_numbers() == [("a", 6), ("a", 8), ("b", 10)]
