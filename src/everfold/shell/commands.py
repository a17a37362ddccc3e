"""The commands of the shell that are not SQL: `\\d`, `\\timing` and so on, QUIT, HELP, SOURCE."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from everfold.errors import EverfoldError, UsageError, suggest_name
from everfold.shell.session import ENGINE_OPTION, ShellSession
from everfold.shell.terminal import Terminal

_WORDS = re.compile(r"(?i)(quit|exit|help|clear|source)\b\s*(.*?)\s*;?", re.DOTALL)
_WATCH_S = 2.0
_JOBS = ("job name", "status", "rows in", "rows out", "state rows", "watermark", "directory")


@dataclass(slots=True)
class Shell:
    """A shell: its session, its terminal and its switches.

    has_timing: whether to show how long each input took. next_input: what the next prompt begins
    with. is_over: whether the user has left.
    """

    session: ShellSession
    terminal: Terminal
    has_timing: bool = False
    next_input: str = ""
    is_over: bool = False
    last_input: str = ""

    def handle(self, text: str) -> None:
        """Run one input: a command or SQL."""
        if not text.strip():
            return
        started = time.perf_counter()
        self.session.start_input()
        command = parse_command(text)
        try:
            if command is None:
                self.last_input = text
                self.session.run(text)
            else:
                name, arguments = command
                find_command(name).run(self, arguments)
        except EverfoldError as error:
            self.terminal.show_error(error)
        except OSError as error:
            self.terminal.show_note(f"{error.filename or 'the file'}: {error.strerror or error}")
        except Exception as error:
            self.session.show_failure(error)
        if self.has_timing and (command is None or command[0] == "\\i"):
            self.terminal.show_message(f"Time: {time.perf_counter() - started:.3f} s")


@dataclass(frozen=True, slots=True)
class Command:
    """A command. arguments: as shown in the help. run: takes the shell and the arguments."""

    name: str
    arguments: str
    meaning: str
    run: Callable[[Shell, str], None]


def parse_command(text: str) -> tuple[str, str] | None:
    """Return the name and the arguments of a command; None if the text is SQL."""
    stripped = text.strip()
    if stripped.startswith("\\"):
        name, _, arguments = stripped.rstrip(";").partition(" ")
        return name, arguments.strip()
    found = _WORDS.fullmatch(stripped)
    if found is None:
        return None
    word, arguments = found.group(1).lower(), found.group(2).strip()
    name = {"quit": "\\q", "exit": "\\q", "help": "\\?", "clear": "\\clear", "source": "\\i"}[word]
    return (name, arguments) if word == "source" or not arguments else None


def find_command(name: str) -> Command:
    """Return a command. Raises UsageError `unknown-command`."""
    for command in COMMANDS:
        if command.name == name:
            return command
    help_ = suggest_name(name, [each.name for each in COMMANDS]) or "\\? lists the commands"
    raise UsageError.of("unknown-command", f"no command is named `{name}`", help=help_)


def list_commands() -> Iterable[tuple[str, str, str]]:
    """Return the commands for completion: name, kind and meaning."""
    return [(each.name, "command", each.meaning) for each in COMMANDS]


# --- the commands ---------------------------------------------------------------------------------


def _switch(name: str, arguments: str, now: bool) -> bool:
    """Return the new value of a switch: the argument, or the opposite of its value."""
    values = {"": not now, "on": True, "off": False}
    if arguments.lower() not in values:
        raise UsageError.of("wrong-option-value", f"`{name}` takes `on` or `off`, not `{arguments}`")
    return values[arguments.lower()]


def _describe(shell: Shell, name: str) -> None:
    if name:
        shell.session.run(f"DESCRIBE {name}", "\\d")
        return
    from everfold.sql.catalog import CatalogTable

    rows = [
        (entry.name, "table", entry.table.connector or "")
        if isinstance(entry, CatalogTable)
        else (entry.name, "view", "")
        for entry in shell.session.planner.catalog.entries()
    ]
    shell.terminal.show_table(("name", "kind", "connector"), rows)


def _edit(shell: Shell, _: str) -> None:
    """Open the last input in the user's editor; the next prompt begins with the result."""
    handle, path = tempfile.mkstemp(prefix="everfold-", suffix=".sql")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(shell.last_input)
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        subprocess.run([*shlex.split(editor), path], check=False, stdout=shell.terminal.out)
        shell.next_input = Path(path).read_text(encoding="utf-8").rstrip("\n")
    finally:
        os.unlink(path)


def _choose_engine(shell: Shell, name: str) -> None:
    if name:
        shell.session.choose_engine(name)
    chosen = shell.session.settings.engine or "auto (memory where it can run a query, else Spark)"
    shell.terminal.show_message(f"{ENGINE_OPTION}: {chosen}; Spark: {shell.session.engines.spark_state}")


def _set_format(shell: Shell, name: str) -> None:
    from everfold.cli.output import FORMATS

    for each in FORMATS:
        if each == name.lower():
            shell.terminal.layout.format = each
            return
    raise UsageError.of("wrong-option-value", f"`\\format` takes {', '.join(FORMATS)}, not `{name}`")


def _run_file(shell: Shell, name: str) -> None:
    path = name.strip("'\"")
    try:
        text = (shell.session.planner.folder / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError.of("unreadable-file", f"`{path}` cannot be read: {reason}") from error
    shell.session.run(text, path)


def _redirect(shell: Shell, name: str) -> None:
    shell.terminal.redirect(shell.session.planner.folder / name if name else None)


def _expand(shell: Shell, arguments: str) -> None:
    layout = shell.terminal.layout
    layout.is_expanded = _switch("\\x", arguments, layout.is_expanded)
    shell.terminal.show_message(f"Expanded display is {'on' if layout.is_expanded else 'off'}.")


def _time(shell: Shell, arguments: str) -> None:
    shell.has_timing = _switch("\\timing", arguments, shell.has_timing)
    shell.terminal.show_message(f"Timing is {'on' if shell.has_timing else 'off'}.")


def _use_pager(shell: Shell, arguments: str) -> None:
    shell.terminal.uses_pager = _switch("\\pager", arguments, shell.terminal.uses_pager)
    shell.terminal.show_message(f"The pager is {'on' if shell.terminal.uses_pager else 'off'}.")


def _watch(shell: Shell, arguments: str) -> None:
    """Run the last query again and again, until the user cancels it."""
    try:
        seconds = float(arguments or _WATCH_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError.of("wrong-option-value", f"`\\watch` takes a number of seconds, not `{arguments}`")
    if not shell.session.last_query:
        raise UsageError.of("wrong-option-value", "`\\watch` repeats the last query, and there is none")
    pager, shell.terminal.uses_pager = shell.terminal.uses_pager, False
    try:
        while True:
            shell.terminal.show_message(f"{datetime.now():%H:%M:%S} (every {seconds:g} s; Ctrl-C ends it)")
            if not shell.session.run(shell.session.last_query) or not shell.session.sleep(seconds):
                break
    finally:
        shell.terminal.uses_pager = pager


def _leave(shell: Shell, _: str) -> None:
    """Leave the shell; ask before jobs are stopped."""
    running = shell.session.jobs.count_running()
    if running:
        jobs = "1 job runs" if running == 1 else f"{running} jobs run"
        answers = {"yes": "stop them and leave; their INSERTs resume them", "no": "stay"}
        if shell.terminal.ask(f"{jobs} in this shell, and stops with it. Leave?", answers, "yes") == "no":
            return
        shell.terminal.show_message("Stopping after the running batches …")
        shell.session.stop_jobs()
    shell.is_over = True


def _show_help(shell: Shell, _: str) -> None:
    widest = max(len(f"{each.name} {each.arguments}") for each in COMMANDS)
    lines = [
        "Statements end with `;`. Enter starts a new line until one does; Alt-Enter runs the input as it is.",
        "Tab completes, Ctrl-R searches the history, Ctrl-C cancels a query, Ctrl-D leaves.",
        "",
        *(f"{f'{each.name} {each.arguments}':<{widest}}  {each.meaning}" for each in COMMANDS),
        "",
        "QUIT, EXIT, HELP, CLEAR and SOURCE 'file' work, too.",
    ]
    shell.terminal.write_lines(lines)


COMMANDS = (
    Command("\\?", "", "show this help", _show_help),
    Command("\\d", "[table]", "list tables and views, or describe one", _describe),
    Command("\\e", "", "edit the last input in $EDITOR", _edit),
    Command("\\engine", "[auto|memory|spark]", "choose the engine of queries; spark starts it", _choose_engine),
    Command("\\format", "text|json|csv", "choose the format of results", _set_format),
    Command("\\i", "file", "run a script", _run_file),
    Command(
        "\\jobs",
        "",
        "show the progress and the directories of jobs",
        lambda shell, _: shell.terminal.show_table(_JOBS, shell.session.jobs.details()),
    ),
    Command(
        "\\last", "", "show the last result again, without the pager", lambda shell, _: shell.terminal.repeat_last()
    ),
    Command("\\o", "[file]", "write results to a file, or to the terminal again", _redirect),
    Command("\\pager", "[on|off]", "show results that exceed the screen in $PAGER", _use_pager),
    Command("\\q", "", "leave", _leave),
    Command("\\timing", "[on|off]", "show how long each input takes", _time),
    Command("\\watch", "[seconds]", "repeat the last query until Ctrl-C", _watch),
    Command("\\x", "[on|off]", "show results with one line per column", _expand),
    Command("\\clear", "", "clear the screen", lambda shell, _: shell.terminal.clear()),
)
