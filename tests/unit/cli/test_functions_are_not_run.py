"""Commands that judge a script do not run the modules that it names, and agree with `run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from unit.job_dirs import start_job

from everfold.cli.main import everfold
from everfold.errors import EverfoldError
from everfold.lsp.analysis import analyze
from everfold.sql.planner import Session, Submit
from everfold.storage import local
from everfold.web.jobs import JobView
from everfold.web.what_if import judge_script

SCRIPT = """CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
CREATE FUNCTION f AS 'mine.f' LANGUAGE PYTHON;
CREATE FUNCTION unused AS 'nested.other.f' LANGUAGE PYTHON;
INSERT INTO o SELECT k, SUM(f(x)) AS n FROM t GROUP BY k;
"""
MODULE = """
import mine_too
from everfold.udf import udf
open({marker!r}, 'a').close()
T = {type}

@udf(result_type=T)
def f(value):
    return {value}
"""
COMMANDS = (
    ("explain", "new.sql"),
    ("explain", "new.sql", "--format", "json"),
    ("check", "new.sql", "new.sql"),
    ("check", "new.sql", "--state", "job"),
    ("check", "undeclared.sql", "undeclared.sql"),
    ("check", "undeclared.sql", "new.sql"),
    ("translate", "--from", "flink", "--to", "lenses", "new.sql"),
    ("format", "new.sql"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a folder with a script, its modules, and a job that runs it."""
    monkeypatch.chdir(tmp_path)
    write_module("INT")
    Path("mine_too.py").write_text(f"open({str(tmp_path / 'has_run')!r}, 'a').close()\n")
    Path("nested").mkdir()
    Path("nested/__init__.py").write_text(Path("mine_too.py").read_text())
    Path("nested/other.py").write_text(Path("mine.py").read_text())
    Path("new.sql").write_text(SCRIPT)
    Path("undeclared.sql").write_text(SCRIPT[SCRIPT.index("CREATE FUNCTION") :])
    Path("select.sql").write_text(SCRIPT.replace("INSERT INTO o", ""))
    Path("t").mkdir()
    Path("t/1.json").write_text('{"k": "a", "x": 1}\n')
    *_, submit = Session(folder=tmp_path).run(SCRIPT)
    assert isinstance(submit, Submit)
    start_job(tmp_path / "job", submit.roots, sql=submit.text, folder=tmp_path)
    yield tmp_path
    for name in ("mine", "mine_too", "nested", "nested.other"):
        sys.modules.pop(name, None)


def write_module(type_: str, value: str = "value") -> None:
    """Write the module of the function. type_: Python that declares its result type."""
    Path("mine.py").write_text(MODULE.format(marker=str(Path("has_run").absolute()), type=repr(type_), value=value))
    sys.modules.pop("mine", None)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(everfold, arguments)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_runs_a_module(command: tuple[str, ...]) -> None:
    result = run(*command)
    assert not Path("has_run").exists()
    assert result.exit_code == 0 or isinstance(result.exception, EverfoldError), result.output
    assert result.exit_code == 0 or command[0] == "translate"
    assert not {"mine", "mine_too", "nested"} & sys.modules.keys()


def test_the_dashboard_and_editors_run_no_module(folder: Path) -> None:
    view = JobView.read("job", local(folder / "job"))
    assert judge_script(view, SCRIPT).change.judgement.verdict.value == "fully compatible"
    assert not analyze(SCRIPT, "new.sql", folder).errors
    assert not Path("has_run").exists()


def test_run_imports_modules() -> None:
    assert run("run", "select.sql", "--engine", "memory", "--batch").exit_code == 0
    assert Path("has_run").exists()


@pytest.mark.parametrize("command", [("explain", "new.sql"), ("check", "new.sql", "new.sql")], ids=" ".join)
def test_modules_are_imported_if_they_are_trusted(command: tuple[str, ...]) -> None:
    module = Path("mine.py").read_text()
    Path("mine.py").write_text(module.replace("T = 'INT'", "T = ','.join(['INT'])"))
    refused = run(*command)
    assert isinstance(refused.exception, EverfoldError)
    assert refused.exception.code == "unreadable-function"
    assert "mine.py:5 " in str(refused.exception)
    assert "new.sql:3:" in str(refused.exception)
    assert not Path("has_run").exists()
    assert run(*command, "--import-functions").exit_code == 0
    assert Path("has_run").exists()


@pytest.mark.parametrize(
    ("type_", "code"), [("INTT", "wrong-type"), ("STRING", "wrong-arguments"), ("DOUBLE", "type-mismatch")]
)
def test_check_refuses_what_run_refuses(type_: str, code: str) -> None:
    write_module(type_)
    checked, ran = run("check", "new.sql", "--state", "job"), run("run", "new.sql", "--engine", "memory", "--batch")
    assert isinstance(checked.exception, EverfoldError), checked.output
    assert isinstance(ran.exception, EverfoldError), ran.output
    assert checked.exception.diagnostics == ran.exception.diagnostics
    assert checked.exception.code == code


def test_check_reports_a_changed_body_without_running_it(folder: Path) -> None:
    assert "has changed" not in run("check", "new.sql", "--state", "job").output
    write_module("INT", "value + 1")
    assert "the code of the Python function `mine.f` has changed" in run("check", "new.sql", "--state", "job").output
    Path("mine.py").write_text(Path("mine.py").read_text().replace("def f", "@mine_too.missing\ndef f"))
    result = run("check", "new.sql", "--state", "job")
    assert "whether the code of the Python function `mine.f` has changed is not known" in result.output
    assert not Path("has_run").exists()
