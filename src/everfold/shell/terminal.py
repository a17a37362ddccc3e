"""A terminal as the screen of a shell: results, live tables, a pager, colors."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from rich.cells import cell_len

from everfold.cli.live_table import LiveTable
from everfold.cli.output import Output, changes, create_output
from everfold.cli.progress import LiveLine
from everfold.rendering import table_format
from everfold.rendering.current_rows import Cells, CurrentRows
from everfold.shell.rendering import MODE_OPTION, WIDTH_OPTION, Layout, Row
from everfold.shell.screen import ResultInfo

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.errors import EverfoldError
    from everfold.jobs.progress import Progress

Ask = Callable[[str, Mapping[str, str], str], str]
_PAGER = "less -SRFX"
"""Long lines are not wrapped, short output ends the pager, and the text stays on the screen."""


class Terminal:
    """The screen of a shell on a terminal.

    out: the terminal. While Spark starts, the standard output of the process is its log.
    ask: prompts the user for one of several answers.
    """

    def __init__(self, out: TextIO, ask: Ask) -> None:
        self.out = out
        self.ask = ask
        self.layout = Layout()
        self.uses_pager = True
        self._target: TextIO | None = None
        self._last: list[str] = []

    # --- messages ---------------------------------------------------------------------------------

    def show_message(self, text: str) -> None:
        self._echo(text)

    def show_note(self, text: str) -> None:
        self._echo(f"note: {text}")

    def show_error(self, error: EverfoldError) -> None:
        for each in error.diagnostics:
            label, colon, rest = each.render().partition(":")
            self._echo(click.style(label, fg="red", bold=True) + colon + rest)

    def _echo(self, text: str) -> None:
        click.echo(text, file=self.out, color=self.out.isatty())

    # --- tables -----------------------------------------------------------------------------------

    def show_table(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if list(columns) == ["result"]:
            # A plan or a CREATE statement has several lines: show it without a frame.
            self.write_lines([line for (cell,) in rows for line in str(cell).splitlines()])
        else:
            self.write_lines(list(self.layout.lines(columns, rows, None, null="")))

    def open_result(self, info: ResultInfo) -> _View:
        return _View(self, info)

    @property
    def is_live(self) -> bool:
        """Whether results may be redrawn: they go to a terminal, as text."""
        return self._target is None and self.layout.format == "text" and self.out.isatty()

    @property
    def target(self) -> TextIO:
        """Where results go: the terminal, or the file of `\\o`."""
        return self._target or self.out

    def duplicate(self) -> TextIO:
        """Return another handle of the terminal."""
        return os.fdopen(os.dup(self.out.fileno()), "w", encoding="utf-8", errors="replace")

    def redirect(self, path: Path | None) -> None:
        """Write results to a file from now on; None: to the terminal. Raises OSError."""
        if self._target is not None:
            self._target.close()
        self._target = None if path is None else open(path, "w", encoding="utf-8")  # noqa: SIM115 open until the next call

    def write_lines(self, lines: list[str]) -> None:
        """Write the lines of a result, through the pager if they do not fit the terminal."""
        self._last = lines
        if self._target is None and self.uses_pager and self._exceeds_screen(lines) and self._page(lines):
            return
        self._write(lines)

    def _write(self, lines: Sequence[str]) -> None:
        self.target.write("".join(f"{line}\n" for line in lines))
        self.target.flush()

    def clear(self) -> None:
        """Clear the screen."""
        click.echo("\x1b[2J\x1b[H", file=self.out, nl=False)

    def repeat_last(self) -> None:
        """Write the last result again, without the pager."""
        self._write(self._last)

    def _exceeds_screen(self, lines: Sequence[str]) -> bool:
        if not self.out.isatty():
            return False
        size = os.get_terminal_size(self.out.fileno())
        return len(lines) >= size.lines or any(cell_len(line) > size.columns for line in lines)

    def _page(self, lines: Sequence[str]) -> bool:
        """Show lines in the user's pager; return False if there is none."""
        command = shlex.split(os.environ.get("PAGER") or _PAGER)
        if command[:1] == ["less"]:
            command = shlex.split(_PAGER)
        if not command or shutil.which(command[0]) is None:
            return False
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self.out, text=True, encoding="utf-8")
        assert pager.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the user has left the pager
            pager.stdin.write("".join(f"{line}\n" for line in lines))
        with contextlib.suppress(BrokenPipeError):
            pager.stdin.close()
        pager.wait()
        return True


class _View:
    """Shows the result of one query.

    A changing result is a live table while the query runs. Rows of unbounded input are written as
    they arrive. All others are kept until the end, so that the widths of columns fit.
    """

    def __init__(self, terminal: Terminal, info: ResultInfo) -> None:
        self._terminal, self._info = terminal, info
        self._lock = threading.Lock()
        self._is_discarded = False
        width = info.settings.options.get(WIDTH_OPTION)
        self._width = int(width) if width else table_format.MAX_COLUMN_WIDTH
        mode = info.settings.value_of(MODE_OPTION)
        self._shows_changes = info.is_updating and (mode not in (None, "table") or terminal.layout.format != "text")
        self._rows: list[list[str | None]] = []
        self._current: CurrentRows[Cells] = CurrentRows()
        self._table: LiveTable | None = None
        self._output: Output | None = None
        self._line = LiveLine(terminal.duplicate()) if terminal.is_live else None

    def say(self, activity: str) -> None:
        """Show what the query does, unless rows are on the screen."""
        with self._lock:
            if self._line is not None:
                self._line.say(activity)

    def write(self, rows: pa.Table) -> None:
        """Take rows."""
        with self._lock:
            if self._is_discarded:
                return
            self._close_line()
            if self._info.is_updating and not self._shows_changes:
                self._update(rows)
            elif self._terminal.layout.format != "text" or not self._info.is_bounded:
                self._written_output().write(rows)
            else:
                self._keep(rows)

    def _update(self, rows: pa.Table) -> None:
        """Apply the changes of a table, and show it if results may be redrawn."""
        schema, zone = self._info.schema, self._info.settings.local_time_zone
        if self._terminal.is_live:
            if self._table is None:
                self._table = LiveTable(self._terminal.out, schema, zone=zone, most=self._width)
            self._table.write(rows)
        else:
            for kind, row in changes(rows, schema):
                cells = tuple(table_format.format_cells(row, schema, zone))
                self._current.apply(kind, cells, cells)

    def _written_output(self) -> Output:
        if self._output is None:
            self._output = create_output(
                self._terminal.layout.format,
                self._terminal.target,
                self._info.schema,
                zone=self._info.settings.local_time_zone,
                live=True,
                kinds=self._shows_changes,
                most=self._width,
            )
        return self._output

    def _keep(self, rows: pa.Table) -> None:
        zone = self._info.settings.local_time_zone
        for kind, row in changes(rows, self._info.schema):
            cells = table_format.format_cells(row, self._info.schema, zone)
            self._rows.append([kind, *cells] if self._shows_changes else cells)

    def report(self, progress: Progress) -> None:
        """Show the progress, unless rows are on the screen."""
        with self._lock:
            if self._line is not None:
                self._line.update(progress)

    def _close_line(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def finish(self) -> None:
        """Show the whole result, or the end of one that was written as it arrived."""
        with self._lock:
            if self._is_discarded:
                return
            self._is_discarded = True
            self._close_line()
            names = self._info.schema.names
            if self._info.is_updating and not self._shows_changes:
                rows = self._current.rows() if self._table is None else self._table.stop()
                lines = list(self._terminal.layout.lines(names, rows, self._width))
            elif self._output is not None or self._terminal.layout.format != "text":
                self._written_output().finish()
                return
            else:
                shown = ["op", *names] if self._shows_changes else list(names)
                lines = list(self._terminal.layout.lines(shown, self._rows, self._width))
        self._terminal.write_lines(lines)

    def discard(self) -> None:
        """Remove what is live, and ignore later rows."""
        with self._lock:
            self._is_discarded = True
            self._close_line()
            if self._table is not None:
                self._table.stop()
