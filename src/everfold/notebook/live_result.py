"""The result of a query in a notebook, redrawn while its rows arrive."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from everfold.far_times import to_values
from everfold.notebook.display import html, show
from everfold.plan.changelog import KIND, RowKind
from everfold.rendering import table_format
from everfold.rendering.current_rows import CurrentRows
from everfold.rendering.html import format_table
from everfold.table.result import MAX_HTML_ROWS
from everfold.types import Schema

_INTERVAL_S = 0.5
"""A display is redrawn at most twice a second: faster flickers."""
_KEPT_ROWS = 10_000
"""How many rows are kept of a query that has no end."""

Values = tuple[Any, ...]


class LiveResult:
    """Takes the rows of a query, and shows the current ones of an updating query or the newest.

    zone: in which instants are shown. updating: whether rows are changes. bounded: whether the
    query ends; all rows are kept then. watchers: called with this result when it is redrawn.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        zone: str,
        updating: bool,
        bounded: bool,
        watchers: Sequence[Callable[[LiveResult], None]] = (),
    ) -> None:
        self._schema, self._zone, self._watchers = schema, zone, watchers
        self._current: CurrentRows[Values] | None = CurrentRows() if updating else None
        self._newest: deque[Values] = deque(maxlen=None if bounded else _KEPT_ROWS)
        self._count = 0
        self._drawn_at = 0.0
        self._shown = show(html("<p>waiting for rows</p>"))

    def write(self, rows: pa.Table) -> None:
        """Take the rows of a batch: `c0…`, and `__kind` if they are changes."""
        if not rows.num_rows:
            return
        columns = [to_values(rows[name]) for name in self._schema.arrow.names]
        values = zip(*columns, strict=True)
        if self._current is None:
            self._newest.extend(values)
            self._count += rows.num_rows
        else:
            for kind, row in zip(rows[KIND].to_pylist(), values, strict=True):
                cells = tuple(table_format.format_cells(row, self._schema, self._zone))
                self._current.apply(RowKind(kind).short, cells, row)
        if time.monotonic() - self._drawn_at >= _INTERVAL_S:
            self._draw()

    def finish(self) -> None:
        """Show the last rows: the query has ended or was stopped."""
        self._draw()

    def rows(self) -> list[Values]:
        """Return the current rows, or the newest ones of a query without updates."""
        return list(self._newest) if self._current is None else self._current.rows()

    def arrow(self) -> pa.Table:
        """Return the rows under the names of the columns."""
        names, types = self._schema.arrow.names, self._schema.arrow.types
        columns = zip(*self.rows(), strict=True) if self.rows() else ([] for _ in names)
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        return pa.Table.from_arrays(arrays, names=list(self._schema.names))

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        rows = self.rows()
        total = self._count if self._current is None else len(rows)
        shown = rows[-MAX_HTML_ROWS:] if self._current is None else rows[:MAX_HTML_ROWS]
        cells = [table_format.format_cells(row, self._schema, self._zone) for row in shown]
        self._shown.update(html(format_table(self._schema, cells, total=total)))
        for watcher in self._watchers:
            watcher(self)
