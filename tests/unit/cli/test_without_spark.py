"""Without the extra `spark`, most commands work, and the others say what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from unit.job_dirs import start_job

from everfold.jobs.change import OnChange
from everfold.sql.planner import Session, Submit

ROOT = Path(__file__).parents[3]
TOPICS = """
CREATE TABLE points (_key STRING, n INT)
WITH ('connector' = 'topic', 'properties.bootstrap.servers' = 'localhost:9092', 'key.format' = 'string',
      'value.format' = 'json', 'scan.startup.mode' = 'earliest-offset');
SELECT _key, n FROM points;
"""
_BLOCK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyspark", "py4j", "pandas"} or name.startswith("google.protobuf"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
"""Makes the packages of the extra look as if they were not installed."""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BLOCK + code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def everfold(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python("from everfold.cli.main import main; main()", *arguments)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", "examples/changes/orders.sql", "examples/changes/orders-next.sql"], 3),
        (["explain", "examples/bids/tumble.sql"], 0),
        (["run", "examples/bids/tumble.sql", "--engine", "memory"], 0),
        (["run", "examples/functions/orders.sql", "--engine", "memory"], 0),
        (["test", "tests/cases/window/cumulate.case.yaml"], 0),
        (["translate", "--from", "flink", "--to", "lenses", "TOPICS"], 0),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_the_command_works(arguments: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "topics.sql").write_text(TOPICS)
    done = everfold(*(str(tmp_path / "topics.sql") if each == "TOPICS" else each for each in arguments))
    assert done.returncode == code, done.stderr
    assert done.stdout


def assert_missing(error: str) -> None:
    assert "error[engine-missing]: this needs Spark, and the Python package `pyspark` is not installed" in error
    assert "= help: pip install 'everfold[spark]'" in error


def test_commands_that_need_spark_name_the_extra(tmp_path: Path) -> None:
    tables = "CREATE TABLE t (k STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');"
    (*_, submit) = Session().run(tables + "SELECT k, COUNT(*) AS n FROM t GROUP BY k")
    assert isinstance(submit, Submit)
    job = str(tmp_path / "job")
    start_job(tmp_path / "job", submit.roots, sql=submit.text, how=OnChange.REFUSE)
    for arguments in (
        ["run", "examples/bids/tumble.sql"],
        ["test", "tests/cases/window/cumulate.case.yaml", "--engine", "spark"],
        ["rescale", job, "4"],
        ["history", "hdfs://namenode:8020/job"],
    ):
        done = everfold(*arguments)
        assert done.returncode == 2, done.stderr
        assert_missing(done.stderr)
    assert everfold("history", job).returncode == 0


def test_the_python_api_names_the_extra() -> None:
    done = python(
        "from everfold.errors import EverfoldError\n"
        "try:\n    from everfold import TableEnvironment\n"
        "except EverfoldError as error:\n    print(error)"
    )
    assert_missing(done.stdout)
