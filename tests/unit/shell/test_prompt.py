"""Keys at the prompt: what they insert, complete, recall and run."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from everfold.files import cache_folder
from everfold.shell.commands import Shell
from everfold.shell.history import PrivateHistory
from everfold.shell.options import ShellOptions
from everfold.shell.prompt import Loading, Prompt
from everfold.shell.session import ShellSession
from everfold.shell.terminal import Terminal

TABLE = "CREATE TABLE t (k INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1', 'fields.k.kind' = 'sequence', 'fields.k.start' = '7', 'fields.k.end' = '7');"
ALT_ENTER, CTRL_C, CTRL_D = "\x1b\r", "\x03", "\x04"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))


@contextmanager
def open_prompt(folder: Path, keys: str) -> Iterator[tuple[Prompt, Shell, io.StringIO]]:
    with create_pipe_input() as pipe:
        pipe.send_text(keys)
        with create_app_session(input=pipe, output=DummyOutput()):
            out = io.StringIO()
            prompts: list[Prompt] = []
            terminal = Terminal(out, lambda *asked: prompts[0].ask(*asked))
            shell = Shell(ShellSession(terminal, ShellOptions(folder=folder)), terminal)
            loading = Loading(lambda: shell)
            loading.get()
            prompts.append(Prompt(loading, pipe, DummyOutput()))
            yield prompts[0], shell, out


def type_keys(folder: Path, keys: str, prepare: Callable[[Shell], None] = lambda _: None) -> str:
    """Type keys, which leave the shell at their end; return what the shell prints."""
    with open_prompt(folder, keys) as (prompt, shell, out):
        prepare(shell)
        prompt.run()
        return out.getvalue()


def test_enter_continues_a_statement_until_it_ends(tmp_path: Path) -> None:
    shown = type_keys(tmp_path, "SELECT 1 AS one,\r2 AS two\r;\r\\q\r")
    assert "| one | two |" in shown
    assert "1 row in set" in shown


def test_enter_runs_commands_and_empty_inputs_at_once(tmp_path: Path) -> None:
    assert type_keys(tmp_path, "\r\\x\rquit\r") == "Expanded display is on.\n"


def test_alt_enter_runs_what_is_not_complete(tmp_path: Path) -> None:
    assert "| one |" in type_keys(tmp_path, f"SELECT 1 AS one{ALT_ENTER}\\q\r")


def test_ctrl_c_clears_the_input_and_ctrl_d_leaves(tmp_path: Path) -> None:
    shown = type_keys(tmp_path, f"SELECT nonsense{CTRL_C}SELECT 2 AS two;\r{CTRL_D}")
    assert "two" in shown
    assert "error" not in shown


def test_the_history_is_private_and_has_no_secrets(tmp_path: Path) -> None:
    sql = "CREATE TABLE p (a INT) WITH ('connector' = 'jdbc', 'password' = 'geheim');"
    type_keys(tmp_path, f"{sql}\r\\q\r")
    file = cache_folder() / "shell" / "history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    stored = list(PrivateHistory(file).load_history_strings())
    assert stored == ["\\q", sql.replace("geheim", "******")]


def test_a_question_takes_the_start_of_an_answer(tmp_path: Path) -> None:
    answers = {"accept": "keep", "backfill": "compute", "no": "stay"}
    for keys, wanted in (("b\r", "backfill"), ("x\rno\r", "no"), ("\r", "no"), (CTRL_C, "no"), ("ACC\r", "accept")):
        with open_prompt(tmp_path, keys) as (prompt, _, _):
            assert prompt.ask("What?", answers, "no") == wanted


def test_leaving_asks_while_jobs_run(tmp_path: Path) -> None:
    running = [1]

    def prepare(shell: Shell) -> None:
        shell.session.jobs.count_running = lambda: running[0]  # type: ignore[method-assign]

    shown = type_keys(tmp_path, f"\\q\rno\rSELECT 3 AS three;\r{CTRL_D}yes\r", prepare)
    assert "three" in shown
    assert shown.endswith("Stopping after the running batches …\n")


def test_a_failure_of_the_start_is_raised(tmp_path: Path) -> None:
    def fail() -> Shell:
        raise ValueError("no")

    loading = Loading(fail)
    with pytest.raises(ValueError, match="no"):
        loading.get()
    assert not loading.is_ready
