"""The shell on Spark: queries on a warm engine, Ctrl-C, and jobs in the background."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from shell_screen import Screen, open_session

from everfold.jobs.engine import Engine
from everfold.shell.session import ShellSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
PATIENCE_S = 180.0
TABLES = """
CREATE TABLE src (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE ends (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'ends', 'format' = 'json');
CREATE TABLE out (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'print');
""".replace("'path' = 'in'", "'path' = 'in', 'source.monitor-interval' = '100 ms'")
INSERT = "INSERT INTO out SELECT k, COUNT(*) AS n FROM src GROUP BY k;"


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it does not get there"
        time.sleep(0.05)


@pytest.fixture
def shell(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[ShellSession, Screen]]:
    for folder in ("in", "ends"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text('{"k": "a", "v": 1}\n{"k": "b", "v": 2}\n{"k": "a", "v": 3}\n')
    session, screen = open_session(tmp_path)
    session.engines._spark = Engine(session=spark)
    assert session.run(TABLES), screen.errors
    yield session, screen
    session.stop_jobs()


def test_queries_run_on_the_engine_that_can(shell: tuple[ShellSession, Screen]) -> None:
    """The second query on Spark asks no more; Ctrl-C ends a query without end."""
    session, screen = shell

    def cancel_after_rows() -> None:
        screen.written.wait(PATIENCE_S)
        session.cancel()

    screen.answers = ["yes"]
    assert session.run("SELECT k, SUM(v) AS s FROM ends GROUP BY k;")
    assert not session.engines.is_spark_ready
    for _ in range(2):
        screen.written.clear()
        session.start_input()
        canceling = threading.Thread(target=cancel_after_rows)
        canceling.start()
        assert not session.run("SELECT k, SUM(v) AS s FROM src GROUP BY k;")
        canceling.join()
        assert screen.messages[-1] == "The query was canceled."
    assert len(screen.questions) == 1
    session.choose_engine("spark")
    session.start_input()
    assert session.run("SELECT k, SUM(v) AS s FROM ends GROUP BY k;"), screen.errors
    assert screen.results == [[("a", "4"), ("b", "2")]] * 4
    assert session.engines.is_spark_ready
    assert "Spark starts in the background." not in screen.messages, "it runs already"


def test_a_job_is_stopped_changed_and_resumed(shell: tuple[ShellSession, Screen]) -> None:
    session, screen = shell

    def rows_out() -> str:
        ((_, _, _, rows, *_),) = session.jobs.details()
        return rows

    assert session.run(INSERT), screen.errors
    wait_until(lambda: rows_out() == "2")
    assert not session.run(INSERT)
    assert screen.codes == ["job-is-running"]
    changed = INSERT.replace("COUNT(*)", "SUM(v)")
    screen.answers = ["no", "rebuild", "yes"]
    assert session.run(changed)
    assert screen.messages[-1] == "Job `out` is unchanged."
    assert session.run(changed)
    assert "The change is incompatible" in "\n".join(screen.messages)
    duplicates = "`out` would hold duplicate rows: replayed rows are appended. Accept this?"
    assert screen.questions == ["Change the job?", "Change the job?", duplicates]
    wait_until(lambda: rows_out() == "2")
    session.run("SHOW JOBS;")
    ((identifier, name, status, _),) = screen.tables[-1][1]
    assert (name, status) == ("out", "RUNNING")
    assert session.run(f"STOP JOB '{identifier}' WITH SAVEPOINT;"), screen.errors
    assert screen.tables[-1] == (("savepoint path",), [(str(session.jobs.directory("out")),)])
    session.run("SHOW JOBS;")
    assert screen.tables[-1][1][0][2] == "STOPPED"
    assert session.run(changed), screen.errors
    wait_until(lambda: session.jobs.show().rows[0][2] == "RUNNING")
    assert session.run("STOP JOB 'out';"), screen.errors
    assert screen.messages[-1].startswith("Job `out` has stopped: 0 rows in")


def test_a_job_of_another_process_is_listed_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"k": "a", "v": 1}\n')
    (tmp_path / "job.sql").write_text(TABLES + INSERT)
    session, screen = open_session(tmp_path)
    folder = str(session.jobs.directory("out"))
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--master", "local[2]", "--state", folder]
    job = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: [row[:4] for row in session.jobs.details()] == [("out", "RUNNING", "1", "1")])
        session.run("SHOW JOBS;")
        ((identifier, name, status, _),) = screen.tables[-1][1]
        assert (name, status) == ("out", "RUNNING")
        assert not session.run("STOP JOB 'out' WITH SAVEPOINT WITH DRAIN;")
        assert screen.codes == ["unsupported-clause"]
        assert session.run(f"STOP JOB '{identifier}' WITH SAVEPOINT;"), screen.errors
        assert screen.tables[-1] == (("savepoint path",), [(folder,)])
        out, err = job.communicate(timeout=PATIENCE_S)
    finally:
        job.kill()
    assert (job.returncode, "out: stopped; 1 row in, 1 row out" in err) == (0, True), out + err
    session.run("DESCRIBE JOB 'out';")
    assert screen.tables[-1][1][0][2] == "STOPPED"
    assert not session.run("STOP JOB 'out';")
    assert screen.codes[-1] == "unknown-job"
