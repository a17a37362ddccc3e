"""The shell in a real terminal: a process types keys and reads the screen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
import record_shell
from click.testing import CliRunner
from terminal import CTRL_C, CTRL_D, CTRL_R, TAB, UP, TerminalScreen

from everfold.cli.main import everfold
from everfold.errors import UsageError


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[TerminalScreen]:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("".join(f'{{"id": {at}}}\n' for at in range(50)))
    found = TerminalScreen(tmp_path, tmp_path / "cache")
    yield found
    found.close()


def test_a_session_in_a_terminal(screen: TerminalScreen) -> None:
    screen.wait_for("everfold>")
    screen.type("CREATE TABLE orders (id INT)\rWITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');\r")
    screen.wait_for("Table orders created.")

    screen.type("SELECT id, 'x' AS x FROM ord")
    screen.wait_for("  table")  # the menu of completions
    screen.type(TAB)
    screen.wait_for("FROM orders")
    row = next(at for at, line in enumerate(screen.screen.display) if "FROM orders" in line)
    colors = {screen.screen.buffer[row][at].fg for at in range(len("everfold> SELECT id, 'x' AS x FROM orders"))}
    assert len(colors) > 2, "keywords, strings and names have different colors"
    screen.type(f"{CTRL_C}SELECT id FROM nowhere;\r")
    lines = screen.wait_for("error[unknown-table]")
    marked = next(at for at, line in enumerate(lines) if "SELECT id FROM nowhere" in line and "1 |" in line)
    assert lines[marked + 1].index("^^^^^^^") == lines[marked].index("nowhere")

    screen.type("SELECT 'found' AS a;\r")
    screen.wait_for("1 row in set")
    screen.type("\\clear\r")
    screen.wait_for("row in set", absent=True)
    screen.type(f"{CTRL_R}found")
    screen.wait_for("SELECT 'found' AS a;")
    screen.type("\r\r")
    screen.wait_for("1 row in set")
    screen.type("\\clear\r")
    screen.wait_for("row in set", absent=True)
    screen.type(f"{UP}{UP}\r")
    screen.wait_for("1 row in set")

    screen.type("\\watch 0.1\r")
    screen.wait_for("Ctrl-C ends it")
    screen.type(CTRL_C)
    screen.type("SELECT 'still here' AS b;\r")
    screen.wait_for("| still here |")

    screen.type("SELECT id, REPEAT('abc', 10) AS a, REPEAT('def', 10) AS b, REPEAT('ghi', 10) AS c FROM orders;\r")
    screen.wait_for("abcabc")
    assert not any("everfold>" in line for line in screen.read()), "the pager has the screen"
    assert len([line for line in screen.read() if line.startswith("| ")]) > 12, "lines are not wrapped"
    screen.type("q")
    screen.wait_for("everfold>")
    screen.type(CTRL_D)
    screen.process.expect(pexpect.EOF)


@pytest.mark.slow
def test_the_picture_in_the_documentation_is_up_to_date() -> None:
    assert record_shell.record() == record_shell.FILE.read_text(encoding="utf-8"), "run: python tests/record_shell.py"


# --- without a terminal ---------------------------------------------------------------------------


def test_without_a_terminal_the_help_is_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "everfold"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert (done.stdout + done.stderr).startswith("Usage: ")


def test_the_shell_needs_a_terminal() -> None:
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(everfold, ["sql"], catch_exceptions=False, standalone_mode=False)
    assert caught.value.code == "no-terminal"


def test_the_shell_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everfold.cli.main.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'everfold\[shell\]'") as caught:
        CliRunner().invoke(everfold, ["sql"], catch_exceptions=False, standalone_mode=False)
    assert caught.value.code == "missing-package"


def test_only_the_shell_imports_prompt_toolkit_and_pygments() -> None:
    program = (
        "import sys; import everfold.cli.main, everfold.cli.run, everfold.shell.session, everfold.shell.completion,"
        " everfold.shell.terminal, everfold.shell.commands; print({'prompt_toolkit', 'pygments', 'pyspark'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
