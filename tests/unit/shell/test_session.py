"""The session of the shell, without a terminal and without Spark."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from shell_screen import Screen, open_session

from everfold.jobs.spec import Finished, JobSpec
from everfold.plan.size import ScriptSize
from everfold.shell.session import ShellSession

TABLE = "CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');"
OUT = "CREATE TABLE o (k STRING, v INT) WITH ('connector' = 'print');"
STREAM = TABLE.replace("t (", "s (").replace("'path'", "'source.monitor-interval' = '1 s', 'path'")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    rows = [{"k": "ab"[at % 2], "v": at} for at in range(4)]
    (tmp_path / "in" / "a").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def wait_for_jobs(session: ShellSession) -> None:
    while session.jobs.count_running():
        time.sleep(0.02)


def test_statements_of_one_input_run_in_order(folder: Path) -> None:
    session, screen = open_session(folder)
    assert session.run(TABLE + "SELECT k, SUM(v) AS s FROM t GROUP BY k; SHOW TABLES; SELECT 1 AS a;")
    assert screen.results == [[("a", "2"), ("b", "4")], [("1",)]]
    assert screen.tables == [(("table name",), [("t",)])]
    assert screen.messages == ["Table t created."]


def test_an_error_stops_the_input_and_keeps_the_session(folder: Path) -> None:
    session, screen = open_session(folder)
    assert not session.run("SELECT 1 AS a; SELECT x FROM nowhere; SELECT 2 AS b;")
    assert screen.codes == ["unknown-table"]
    assert "   ^^^^^^^" in screen.errors[0].diagnostics[0].render()
    assert session.run("SELECT 2 AS b;")
    assert screen.results == [[("1",)], [("2",)]]


def test_a_syntax_error_runs_nothing(folder: Path) -> None:
    session, screen = open_session(folder)
    assert not session.run("SELECT 1 AS a; SELEC 2;")
    assert (screen.codes, screen.results) == (["syntax"], [])


def test_a_query_that_memory_cannot_read_offers_spark(folder: Path) -> None:
    session, screen = open_session(folder, "no")
    session.run(STREAM)
    assert not session.run("SELECT * FROM s;")
    assert screen.questions == [
        "the memory engine reads bounded input only, and table `s` is unbounded. Run the query on Spark?"
    ]
    assert screen.messages[-1] == "The query was canceled."
    assert session.engines.spark_state == "off"


def test_a_chosen_memory_engine_is_not_replaced(folder: Path) -> None:
    session, screen = open_session(folder)
    session.run(STREAM)
    session.choose_engine("memory")
    assert not session.run("SELECT * FROM s;")
    assert screen.codes == ["not-in-memory"]
    assert "SET 'everfold.engine' = 'spark'" in screen.errors[0].diagnostics[0].render()
    session.choose_engine("auto")
    assert session.settings.engine is None


def test_a_script_may_be_as_long_as_a_day(folder: Path) -> None:
    """The limits of scripts hold for each input, not for all inputs of a session."""
    session, _ = open_session(folder)
    session.run("SELECT 1 AS a;")
    first = session.planner.catalog.work
    session.run("SELECT 1 AS a;")
    assert isinstance(first, ScriptSize)
    assert session.planner.catalog.work is not first


class SlowEngine:
    """An engine whose queries run until they are stopped, or without end."""

    def __init__(self, *, listens: bool) -> None:
        self.listens = listens
        self.started, self.ended = threading.Event(), threading.Event()

    def check_readable(self, spec: JobSpec) -> None:
        pass

    def is_bounded(self, spec: JobSpec) -> bool:
        return True

    def run(self, spec: JobSpec) -> Finished:
        self.started.set()
        while not (self.listens and spec.stopping()) and not self.ended.wait(0.01):
            pass
        return Finished()


@pytest.mark.parametrize("listens", [True, False])
def test_cancel_ends_the_query_and_not_the_session(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, listens: bool
) -> None:
    monkeypatch.setattr("everfold.shell.session._PATIENCE_S", 0.1)
    session, screen = open_session(folder)
    engine = SlowEngine(listens=listens)
    monkeypatch.setattr(session.engines, "memory", lambda: engine)

    def cancel_when_started() -> None:
        engine.started.wait()
        session.cancel()

    canceling = threading.Thread(target=cancel_when_started)
    canceling.start()
    assert not session.run("SELECT 1 AS a;")
    canceling.join()
    assert screen.messages == ["The query was canceled."]
    engine.ended.set()
    session.start_input()
    assert session.run("SHOW TABLES;")


# --- jobs -----------------------------------------------------------------------------------------


def run_job(folder: Path, *statements: str) -> tuple[ShellSession, Screen]:
    session, screen = open_session(folder, options={"everfold.engine": "memory"})
    assert session.run("".join([TABLE, OUT, *statements]))
    wait_for_jobs(session)
    session.report_jobs()
    return session, screen


def test_an_insert_runs_in_the_background(folder: Path) -> None:
    session, screen = run_job(folder, "INSERT INTO o SELECT * FROM t WHERE v > 1;")
    assert "Job `o` runs in the background. SHOW JOBS lists the jobs; STOP JOB 'o' stops it." in screen.messages
    assert screen.notes == ["job `o` has finished: 4 rows in, 2 rows out"]
    session.report_jobs()
    assert len(screen.notes) == 1
    session.run("SHOW JOBS; DESCRIBE JOB 'o';")
    (columns, ((_, name, status, _),)), (described, _) = screen.tables
    assert columns == ("job id", "job name", "status", "start time")
    assert (name, status) == ("o", "FINISHED")
    assert described == (*columns, "duration")


def test_the_name_of_the_pipeline_names_the_job(folder: Path) -> None:
    session, _ = run_job(folder, "SET 'pipeline.name' = 'up/../down'; INSERT INTO o SELECT * FROM t;")
    assert session.jobs.names() == ["up/../down"]
    assert session.jobs.directory("up/../down") == folder / ".everfold" / "jobs" / "up_.._down"
    assert session.jobs.directory("..") == folder / ".everfold" / "jobs" / "_.."


def test_a_failed_job_is_reported(folder: Path) -> None:
    (folder / "in" / "a").write_text("no JSON\n")
    session, screen = run_job(folder, "INSERT INTO o SELECT * FROM t;")
    assert screen.codes == ["bad-record"]
    session.run("SHOW JOBS;")
    assert screen.tables[-1][1][0][2] == "FAILED"


def test_statements_about_unknown_jobs_are_errors(folder: Path) -> None:
    session, screen = run_job(folder, "INSERT INTO o SELECT * FROM t;")
    for sql in ("STOP JOB 'x';", "DESCRIBE JOB 'x';", "STOP JOB 'o';", "STOP JOB 'o' WITH DRAIN;"):
        assert not session.run(sql)
    assert screen.codes == ["unknown-job", "unknown-job", "unknown-job", "unsupported-clause"]
    assert screen.errors[2].diagnostics[0].help == "its status is FINISHED; SHOW JOBS lists the jobs"
    drain = screen.errors[3].diagnostics[0]
    assert drain.span is not None
    assert (drain.span.column, drain.span.text[drain.span.start : drain.span.end]) == (14, "WITH DRAIN")


def test_an_insert_may_be_waited_for(folder: Path) -> None:
    session, _ = open_session(folder, options={"everfold.engine": "memory", "table.dml-sync": "true"})
    assert session.run(TABLE + OUT + "INSERT INTO o SELECT * FROM t;")
    assert session.jobs.count_running() == 0


def test_options_of_spark_are_not_set_in_the_session(folder: Path) -> None:
    session, _ = open_session(folder, options={"spark.driver.memory": "1g", "execution.runtime-mode": "batch"})
    assert dict(session.settings.options) == {"execution.runtime-mode": "batch"}
