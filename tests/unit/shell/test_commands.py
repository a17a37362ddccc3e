"""The commands of the shell, and what its terminal prints."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from everfold.shell.commands import COMMANDS, Shell, parse_command
from everfold.shell.options import ShellOptions
from everfold.shell.session import ShellSession
from everfold.shell.terminal import Terminal

ROWS = "SELECT * FROM (VALUES (1, 'a'), (2, CAST(NULL AS STRING))) AS t (id, name);"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    terminal = Terminal(io.StringIO(), _refuse_questions)
    return Shell(ShellSession(terminal, ShellOptions(folder=tmp_path)), terminal)


def _refuse_questions(question: str, answers: Mapping[str, str], default: str) -> str:
    raise AssertionError(question)


def run(shell: Shell, *inputs: str) -> str:
    """Run inputs; return what the last one prints."""
    for text in inputs:
        assert isinstance(shell.terminal.out, io.StringIO)
        shell.terminal.out.truncate(0)
        shell.terminal.out.seek(0)
        shell.handle(text)
    assert isinstance(shell.terminal.out, io.StringIO)
    return shell.terminal.out.getvalue()


def test_a_table_is_printed_as_by_flink(shell: Shell) -> None:
    assert (
        run(shell, ROWS)
        == """\
+----+--------+
| id |   name |
+----+--------+
|  1 |      a |
|  2 | <NULL> |
+----+--------+
2 rows in set
"""
    )


def test_expanded_output_has_a_line_per_column(shell: Shell) -> None:
    expected = "-[ row 1 ]\nid   | 1\nname | a\n-[ row 2 ]\nid   | 2\nname | <NULL>\n2 rows in set\n"
    assert run(shell, "\\x", ROWS) == expected
    assert run(shell, "\\x off") == "Expanded display is off.\n"


def test_formats(shell: Shell) -> None:
    assert run(shell, "\\format json", ROWS) == '{"id": 1, "name": "a"}\n{"id": 2, "name": null}\n'
    assert run(shell, "\\format csv", ROWS) == "id,name\n1,a\n2,\n"
    assert run(shell, "\\format csv", "SHOW CATALOGS;") == "catalog name\ndefault_catalog\n"


def test_a_changing_result_is_its_last_state_or_all_changes(shell: Shell) -> None:
    query = "SELECT id, COUNT(*) AS n FROM (VALUES (1), (1)) AS t (id) GROUP BY id;"
    assert "| id | n |" in run(shell, query)
    assert "| op | id | n |" in run(shell, "SET 'sql-client.execution.result-mode' = 'changelog';", query)


def test_results_go_to_a_file(shell: Shell, tmp_path: Path) -> None:
    assert run(shell, "\\o result.txt", ROWS) == ""
    run(shell, "\\o")
    assert (tmp_path / "result.txt").read_text().endswith("2 rows in set\n")
    assert "2 rows in set" in run(shell, ROWS)
    assert run(shell, "\\o no/such/folder").startswith("note: ")


def test_describe(shell: Shell) -> None:
    run(shell, "CREATE TABLE t (a INT) WITH ('connector' = 'print'); CREATE VIEW v AS SELECT 1 AS one;")
    assert "|    t | table |     print |" in run(shell, "\\d")
    assert "|  one |  INT | false |" in run(shell, "\\d v")
    assert "error[unknown-table]" in run(shell, "\\d nothing")


def test_timing_is_shown_after_sql(shell: Shell) -> None:
    assert run(shell, "\\timing") == "Timing is on.\n"
    assert "\nTime: 0." in run(shell, "SHOW CATALOGS;")


def test_a_script_is_run(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a b.sql").write_text("SELECT 1 AS one; SELECT x;")
    for text in ("\\i a b.sql", "SOURCE 'a b.sql';"):
        shown = run(shell, text)
        assert "| one |" in shown
        assert "--> a b.sql:1:25" in shown
    assert "error[unreadable-file]: `none.sql` cannot be read: No such file" in run(shell, "\\i none.sql")


def test_the_editor_gets_the_last_input_and_fills_the_next(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys; f = open(sys.argv[1], 'r+'); text = f.read(); f.seek(0); f.write(text.replace('1', '22') + '\\n')"
    )
    monkeypatch.setenv("VISUAL", f'{sys.executable} -c "{program}"')
    shell.last_input = "SELECT 1;"
    shell.terminal.out = sys.stdout
    shell.handle("\\e")
    assert shell.next_input == "SELECT 22;"


def test_watch_repeats_the_last_query_until_it_is_canceled(shell: Shell) -> None:
    assert "there is none" in run(shell, "\\watch")
    assert "takes a number" in run(shell, "\\watch soon")
    run(shell, ROWS)
    threading.Timer(0.5, shell.session.cancel).start()
    shown = run(shell, "\\watch 0.1")
    assert shown.count("2 rows in set") > 1
    assert "(every 0.1 s; Ctrl-C ends it)" in shown


def test_watch_ends_if_it_is_canceled_between_two_queries(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    run(shell, ROWS)
    timer = threading.Timer(10, shell.session.cancel)  # ends a test that fails
    timer.start()
    show, shown = shell.terminal.show_message, []

    def cancel(message: str) -> None:
        show(message)
        shown.append(message)
        shell.session.cancel()

    monkeypatch.setattr(shell.terminal, "show_message", cancel)
    run(shell, "\\watch 0.1")
    timer.cancel()
    assert len(shown) == 1


def test_last_shows_a_result_again(shell: Shell) -> None:
    assert run(shell, ROWS) == run(shell, "\\last")


def test_the_engine_is_chosen(shell: Shell) -> None:
    assert run(shell, "\\engine memory") == "everfold.engine: memory; Spark: off\n"
    assert run(shell, "\\engine").startswith("everfold.engine: memory")
    assert run(shell, "\\engine auto").startswith("everfold.engine: auto")
    assert "error[wrong-option-value]" in run(shell, "\\engine flink")


@pytest.mark.parametrize("text", ["\\nothing", "\\x maybe", "\\format xml"])
def test_wrong_commands_are_errors(shell: Shell, text: str) -> None:
    assert run(shell, text).startswith("error[")


def test_the_help_lists_all_commands(shell: Shell) -> None:
    shown = run(shell, "\\?")
    assert [each.name for each in COMMANDS if f"\n{each.name} " not in shown] == []


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("\\d t;", ("\\d", "t")),
        ("exit", ("\\q", "")),
        ("QUIT;", ("\\q", "")),
        ("source 'a.sql';", ("\\i", "'a.sql'")),
        ("help me;", None),
        ("SELECT 1;", None),
    ],
)
def test_words_are_commands_only_alone(text: str, command: tuple[str, str] | None) -> None:
    assert parse_command(text) == command


def test_jobs_have_a_command(shell: Shell) -> None:
    assert run(shell, "\\jobs") == "Empty set\n"
