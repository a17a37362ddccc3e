"""A script with its own Spark session: its output has only what the script and its Spark print.

The environment of the script is not activated, so `python3` in PATH is another Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SCRIPT = """
from pyspark.sql import SparkSession
from everfold import TableEnvironment

conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
environment = TableEnvironment(spark)
environment.execute_sql(
    "CREATE TABLE src (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json')"
)
query = "SELECT k, SUM(v) AS s FROM src GROUP BY k"
plan = environment.execute_sql(f"EXPLAIN {query}").collect()[0][0]
print(plan.splitlines()[-1].strip())
print(sorted(tuple(row) for row in environment.sql_query(query).execute().collect()))
"""
START_OF_SPARK = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: ",
    "Your hostname, ",
    "Set SPARK_LOCAL_IP ",
    'Setting default log level to "WARN".',
    "To adjust logging level use ",
    "Unable to load native-hadoop library ",
)
"""What Spark prints when a session starts, with or without everfold."""


def test_a_query_prints_nothing_into_the_process_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"k": "a", "v": 1}\n{"k": "b", "v": 2}\n{"k": "a", "v": 3}\n')
    (tmp_path / "own.py").write_text(SCRIPT)
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o700)
    environment = {**os.environ, "PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(
        [sys.executable, "own.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    unexpected = [line for line in done.stderr.splitlines() if not any(each in line for each in START_OF_SPARK)]
    assert (done.returncode, unexpected) == (0, [])
    assert done.stdout == "src -> GroupAggregate: Python workers\n[('a', 4), ('b', 2)]\n"
