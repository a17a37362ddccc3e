"""Results as lines of text: Flink's table, one column per line, JSON or CSV."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from everfold.cli.output import Format, show
from everfold.rendering import table_format
from everfold.rendering.table_format import NULL

WIDTH_OPTION = "sql-client.display.max-column-width"
MODE_OPTION = "sql-client.execution.result-mode"
Row = Sequence[str | None]


@dataclass(slots=True)
class Layout:
    """How results are written. is_expanded: one column per line. width: of a column, at most."""

    format: Format = "text"
    is_expanded: bool = False

    def lines(self, names: Sequence[str], rows: Sequence[Row], width: int | None, null: str = NULL) -> Iterator[str]:
        """Yield the lines of a result whose cells are strings."""
        if self.format == "text" and self.is_expanded:
            return format_expanded(names, rows, null)
        if self.format == "text":
            return table_format.table(names, rows, most=width, null=null)
        text = io.StringIO()
        show(text, names, rows, self.format)
        return iter(text.getvalue().splitlines())


def format_expanded(names: Sequence[str], rows: Sequence[Row], null: str = NULL) -> Iterator[str]:
    """Yield a result with one column per line, as `\\x` of psql does."""
    widest = max(map(cell_len, names), default=0)
    for number, row in enumerate(rows, 1):
        yield f"-[ row {number} ]" + "-" * max(0, widest - cell_len(f"[ row {number} ]"))
        for name, cell in zip(names, row, strict=True):
            first, *more = (null if cell is None else cell).split("\n")
            yield f"{name}{' ' * (widest - cell_len(name))} | {first}"
            yield from (f"{' ' * widest} | {line}" for line in more)
    yield table_format.count(len(rows))
