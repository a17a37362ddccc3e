"""A screen that records what a shell shows, for tests without a terminal."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from everfold.cli.output import changes
from everfold.errors import EverfoldError
from everfold.jobs.progress import Progress
from everfold.rendering.current_rows import Cells, CurrentRows
from everfold.rendering.table_format import format_cells
from everfold.shell.options import ShellOptions
from everfold.shell.screen import ResultInfo
from everfold.shell.session import ShellSession

Rows = list[tuple[str | None, ...]]


@dataclass
class Screen:
    """Records messages, tables, results and questions. answers: what the user will answer."""

    messages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    errors: list[EverfoldError] = field(default_factory=list)
    tables: list[tuple[tuple[str, ...], Rows]] = field(default_factory=list)
    results: list[Rows] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    written: threading.Event = field(default_factory=threading.Event)

    def show_message(self, text: str) -> None:
        self.messages.append(text)

    def show_note(self, text: str) -> None:
        self.notes.append(text)

    def show_error(self, error: EverfoldError) -> None:
        self.errors.append(error)

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
        self.tables.append((tuple(columns), [tuple(row) for row in rows]))

    def open_result(self, info: ResultInfo) -> View:
        return View(self, info)

    def ask(self, question: str, answers: Mapping[str, str], default: str) -> str:
        self.questions.append(question)
        answer = self.answers.pop(0)
        assert answer in answers, answer
        return answer

    @property
    def codes(self) -> list[str]:
        """The codes of the errors shown."""
        return [each.code for each in self.errors]


@dataclass
class View:
    """Keeps the current rows of a result."""

    screen: Screen
    info: ResultInfo
    current: CurrentRows[Cells] = field(default_factory=CurrentRows)

    def write(self, rows: pa.Table) -> None:
        for kind, row in changes(rows, self.info.schema):
            cells = tuple(format_cells(row, self.info.schema))
            self.current.apply(kind, cells, cells)
        self.screen.written.set()

    def say(self, activity: str) -> None:
        pass

    def report(self, progress: Progress) -> None:
        pass

    def finish(self) -> None:
        self.screen.results.append(sorted(self.current.rows(), key=str))

    def discard(self) -> None:
        pass


def open_session(folder: Path, *answers: str, options: Mapping[str, str] | None = None) -> tuple[ShellSession, Screen]:
    """Return a session in a folder, and its screen."""
    screen = Screen(answers=list(answers))
    return ShellSession(screen, ShellOptions(folder=folder, options=options or {})), screen
