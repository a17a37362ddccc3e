"""The current result of an updating query, redrawn after every batch.

Like the table mode of Flink's SQL client.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from everfold.cli.output import changes
from everfold.rendering import table_format
from everfold.rendering.current_rows import Cells, CurrentRows
from everfold.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_FRAME_LINES = 7
"""Lines other than rows: the frame, the header, the row count, the progress line and the prompt."""


class LiveTable:
    """Takes changes and shows the current rows.

    While the query runs it shows the first rows that fit the screen; at the end, all rows.
    """

    def __init__(self, out: IO[str], schema: Schema, *, zone: str = "UTC", most: int | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._out, self._schema, self._zone = out, schema, zone
        self._most = table_format.MAX_COLUMN_WIDTH if most is None else most
        self._current: CurrentRows[Cells] = CurrentRows()
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
            cells = tuple(table_format.format_cells(row, self._schema, self._zone))
            self._current.apply(kind, cells, cells)
        from rich.text import Text

        room = max(1, self._console.size.height - _FRAME_LINES)
        current = self._current.rows()
        lines = list(table_format.table(self._schema.names, current[:room], most=self._most))
        if len(current) > room:
            lines[-1] = f"{room} of {len(current):,} rows"
        # The cursor stays behind the last character, where the progress line would continue it.
        self._live.update(Text("\n".join([*lines, ""]), no_wrap=True, overflow="crop"), refresh=True)

    def stop(self) -> list[Cells]:
        """Remove the table from the screen, and return all current rows."""
        self._live.stop()
        return self._current.rows()

    def finish(self) -> None:
        lines = table_format.table(self._schema.names, self.stop(), most=self._most)
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()
