"""Completion of the shell's input: its commands here, SQL by `everfold.completion`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.completion.engine import STATEMENTS, Candidate, Found
from everfold.completion.engine import Completer as SqlCompleter

if TYPE_CHECKING:
    from everfold.shell.session import ShellSession

_STATEMENTS = (*STATEMENTS, "DESCRIBE JOB", "SHOW JOBS", "STOP JOB", "SOURCE", "HELP", "QUIT")


class Completer:
    """Completes the input of a session. commands: the meta commands, with their meanings."""

    def __init__(self, session: ShellSession, commands: Callable[[], Found]) -> None:
        self._session = session
        self._commands = commands

    def complete(self, before: str, after: str = "") -> list[Candidate]:
        """Return the candidates for the text before the cursor, best first."""
        if before.lstrip().startswith("\\"):
            return list(self._complete_command(before.lstrip()))
        return self._sql.complete(before, after)

    @property
    def _sql(self) -> SqlCompleter:
        return SqlCompleter(self._session.planner.catalog, _STATEMENTS, self._session.jobs.names)

    def _complete_command(self, before: str) -> Iterator[Candidate]:
        name, space, rest = before.partition(" ")
        if not space:
            found = self._commands()
            typed = name
        else:
            typed = rest.lstrip()
            found = self._arguments(name, typed)
        for text, kind, meaning in found:
            if text.lower().startswith(typed.lower()) and text != typed:
                yield Candidate(text, len(typed), kind, meaning)

    def _arguments(self, name: str, typed: str) -> Found:
        match name:
            case "\\d":
                return self._sql.tables()
            case "\\engine":
                return [(each, "value", "") for each in ("auto", "memory", "spark")]
            case "\\format":
                return [(each, "value", "") for each in ("text", "json", "csv")]
            case "\\x" | "\\timing" | "\\pager":
                return [(each, "value", "") for each in ("on", "off")]
            case "\\i" | "\\o":
                return list(_files(typed, self._session.planner.folder))
            case _:
                return ()


def _files(typed: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the files and folders that begin with a typed path."""
    start = typed.rpartition("/")[0]
    base = folder / start if start else folder
    for each in sorted(base.iterdir()) if base.is_dir() else ():
        if not each.name.startswith("."):
            yield f"{start}/{each.name}" if start else each.name, "folder" if each.is_dir() else "file", ""
