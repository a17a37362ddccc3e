"""The result of a query that changes, as it is now: drawn anew after every batch, as the table mode of Flink's SQL client does."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from everfold.cli import table_format
from everfold.cli.output import changes
from everfold.plan.changelog import RowKind
from everfold.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_FRAME_LINES = 6
"""Lines that are no rows: the frame, its header, what is left out, the progress line, and room for the prompt."""
_COMING = frozenset({RowKind.INSERT.short, RowKind.UPDATE_AFTER.short})
Cells = tuple[str | None, ...]


class Current:
    """The rows that are there. One that is updated keeps its place."""

    def __init__(self) -> None:
        self._rows: dict[int, Cells] = {}
        self._places: dict[Cells, list[int]] = {}
        self._next = 0
        self._vacant: int | None = None

    def apply(self, kind: str, row: Cells) -> None:
        """Applies a change. A row taken back that is not there changes nothing."""
        if kind in _COMING:
            place = self._next if self._vacant is None or kind == RowKind.INSERT.short else self._vacant
            self._next += place == self._next
            self._rows[place] = row
            self._places.setdefault(row, []).append(place)
            self._vacant = None
            return
        places = self._places.get(row)
        if not places:
            return
        place = places.pop(0)
        if not places:
            del self._places[row]
        del self._rows[place]
        self._vacant = place if kind == RowKind.UPDATE_BEFORE.short else None

    def rows(self) -> list[Cells]:
        """All rows, by place."""
        return [self._rows[place] for place in sorted(self._rows)]


class LiveTable:
    """Takes changes, shows what is left of them: while rows come the first ones that have room, at the end all."""

    def __init__(self, out: IO[str], schema: Schema, *, zone: str = "UTC", most: int | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._out, self._schema, self._zone = out, schema, zone
        self._most = table_format.MAX_COLUMN_WIDTH if most is None else most
        self._current = Current()
        self._console = Console(file=out, highlight=False)
        self._live = Live(
            console=self._console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start()

    def write(self, rows: pa.Table) -> None:
        for kind, row in changes(rows, self._schema):
            self._current.apply(kind, tuple(table_format.texts(row, self._schema, self._zone)))
        from rich.text import Text

        room = max(1, self._console.size.height - _FRAME_LINES)
        found = self._current.rows()
        lines = list(table_format.table(self._schema.names, found[:room], most=self._most))
        if len(found) > room:
            lines[-1] = f"{room} of {len(found):,} rows"
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)

    def finish(self) -> None:
        self._live.stop()
        lines = table_format.table(self._schema.names, self._current.rows(), most=self._most)
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()
