r"""Pipe tables: small tables in readable form, one row per line, cells separated by `|`.

The first line names the columns. `NULL` is NULL, `''` the empty string, `\|` a pipe in a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

KINDS = ("+I", "-U", "+U", "-D")
"""The row kinds of a changelog."""
_SEPARATOR = re.compile(r"(?<!\\)\|")


class PipeTableError(ValueError):
    """An invalid line of a table; `line` counts from 0."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class PipeRow:
    """A row of strings, None for NULL; `line` is its line in the source, from 0."""

    cells: tuple[str | None, ...]
    line: int = 0


@dataclass(frozen=True, slots=True)
class PipeTable:
    """A header and its rows; all cells are strings.

    kinds: the row kind of each row if the first column is `op`.
    """

    columns: tuple[str, ...]
    rows: tuple[PipeRow, ...]
    kinds: tuple[str, ...] | None = None

    def cells(self) -> list[tuple[str | None, ...]]:
        """Return the cells of all rows."""
        return [row.cells for row in self.rows]


def parse(text: str, *, op: bool = True) -> PipeTable:
    """Parse a table.

    A first column `op` holds the row kinds if `op` is set and all its cells are row kinds. Raises
    PipeTableError.
    """
    lines = [(at, line) for at, line in enumerate(text.splitlines()) if line.strip()]
    if not lines:
        return PipeTable((), ())
    header, *body = ((at, _split(line)) for at, line in lines)
    columns = header[1]
    for name in columns:
        if not name:
            raise PipeTableError(header[0], "a column without a name")
        if columns.count(name) > 1 and op and columns[0] == "op" and name == "op":
            raise PipeTableError(header[0], "two columns are named `op`")
    rows = []
    for at, cells in body:
        if len(cells) != len(columns) or "" in cells:
            raise PipeTableError(
                at, f"expected a value for each of {', '.join(columns)} (write NULL, or '' for an empty string)"
            )
        rows.append(PipeRow(tuple(_value(cell) for cell in cells), at))
    if not (op and columns[0] == "op" and all(row.cells[0] in KINDS for row in rows)):
        return PipeTable(tuple(columns), tuple(rows))
    kinds = tuple(str(row.cells[0]) for row in rows)
    return PipeTable(tuple(columns[1:]), tuple(PipeRow(row.cells[1:], row.line) for row in rows), kinds)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in _SEPARATOR.split(line)]


def _value(cell: str) -> str | None:
    if cell == "NULL":
        return None
    return "" if cell == "''" else cell.replace(r"\|", "|")


def format_cell(cell: str | None) -> str:
    """Format a value as a cell."""
    if cell is None:
        return "NULL"
    return cell.replace("|", r"\|").replace("\n", r"\n") or "''"


def pad_cell(text: str, width: int) -> str:
    """Pad a string with spaces on the right to a display width."""
    return text + " " * (width - cell_len(text))


def align_rows(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    table = [list(row) for row in rows]
    if not table:
        return []
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    return [" | ".join(map(pad_cell, row, widths)).rstrip() for row in table]
