"""The folders in which Spark keeps rows on their way between tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from everfold.spark.local_folders import private_local_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = """
CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
SELECT k, SUM(v) AS s FROM t GROUP BY k;
"""
DEADLINE_S = 30


def test_no_other_user_can_enter_them(spark: SparkSession) -> None:
    spark.range(8).repartition(2).collect()
    jvm: Any = spark.sparkContext._jvm
    folders = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    parents = [Path(folder.getPath()).parent for folder in folders]
    assert parents
    assert [parent.stat().st_mode & 0o777 for parent in parents] == [0o700] * len(parents)


@pytest.mark.slow
def test_they_are_where_spark_is_told_and_are_removed_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.json").write_text('{"k": "a", "v": 1}\n')
    (tmp_path / "job.sql").write_text(SCRIPT)
    for name, option in (("one", None), ("two", "spark.local.dir={}")):
        folder = tmp_path / name
        environment = os.environ | ({"SPARK_LOCAL_DIRS": str(folder)} if option is None else {})
        conf = [] if option is None else ["--conf", option.format(folder)]
        command = [sys.executable, "-m", "everfold", "run", "job.sql", *conf]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert folder.is_dir()
        until = time.monotonic() + DEADLINE_S
        while left := [*folder.iterdir()]:  # the JVM ends after the command
            assert time.monotonic() < until, left
            time.sleep(0.1)


@pytest.mark.parametrize("line", ["spark.local.dir {}", "  spark.local.dir = {}  ", "spark.local.dir: {}"])
def test_they_are_where_the_defaults_of_spark_say(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = f"# spark.local.dir /nowhere\nspark.local.dirs /nowhere\n{line.format(tmp_path / 'fast')}\n"
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    for conf, parent in (({}, "fast"), ({"spark.local.dir": str(tmp_path / "own")}, "own")):
        with private_local_folders(conf) as folders:
            assert [folder.parent for folder in folders] == [tmp_path / parent]
        assert "SPARK_LOCAL_DIRS" not in os.environ


def test_a_folder_that_cannot_be_made_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{file},{tmp_path}/b")
    with private_local_folders({}) as folders:
        assert [folder.parent for folder in folders] == [tmp_path / "b"]
        assert os.environ["SPARK_LOCAL_DIRS"] == f"{file},{folders[0]}"
    assert os.environ["SPARK_LOCAL_DIRS"] == f"{file},{tmp_path}/b"
