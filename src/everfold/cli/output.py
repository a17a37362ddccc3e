"""The output of query results: a table for people, JSON lines or CSV for programs.

Rows arrive as Arrow tables with the columns `c0`, `c1`, …
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

from everfold.far_times import to_values
from everfold.rendering import cells, table_format
from everfold.testing.tables import row_kinds
from everfold.types import FloatingType, Schema, physical_name
from everfold.value_text import format_float

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["text", "json", "csv"]
FORMATS: tuple[Format, ...] = ("text", "json", "csv")
Changes = Iterator[tuple[str, tuple[Any, ...]]]


class Output(Protocol):
    """Takes the rows of one query."""

    def write(self, rows: pa.Table) -> None:
        """Write some rows."""

    def finish(self) -> None:
        """End the output: there are no more rows."""


def changes(rows: pa.Table, schema: Schema) -> Changes:
    """Return the row kind and the values of each row."""
    columns = [to_values(rows.column(physical_name(position))) for position in range(len(schema))]
    return zip(row_kinds(rows), zip(*columns, strict=True), strict=True)


class TableOutput:
    """A table of all rows, printed when they are complete.

    live: print the header first, and each row as it arrives.
    """

    def __init__(
        self,
        out: IO[str],
        schema: Schema,
        *,
        zone: str = "UTC",
        live: bool = False,
        kinds: bool = False,
        most: int | None = None,
    ) -> None:
        self._out, self._schema, self._zone, self._kinds = out, schema, zone, kinds
        self._most = table_format.MAX_COLUMN_WIDTH if most is None else most
        self._names = [*(["op"] if kinds else []), *schema.names]
        self._rows: list[list[str | None]] = []
        self._count = 0
        self._widths: list[int] | None = None
        if live:
            self._widths = [*([len("op")] if kinds else []), *table_format.widths_by_type(schema, self._most)]
            self._print(
                table_format.rule(self._widths),
                table_format.line(self._names, self._widths),
                table_format.rule(self._widths),
            )

    def write(self, rows: pa.Table) -> None:
        for kind, row in changes(rows, self._schema):
            cells_of_row = [*([kind] if self._kinds else []), *table_format.format_cells(row, self._schema, self._zone)]
            self._count += 1
            if self._widths is None:
                self._rows.append(cells_of_row)
            else:
                self._print(table_format.line(cells_of_row, self._widths))

    def finish(self) -> None:
        if self._widths is None:
            self._print(*table_format.table(self._names, self._rows, most=self._most))
        else:
            self._print(
                table_format.rule(self._widths),
                f"Received a total of {self._count} row{'s' if self._count != 1 else ''}",
            )

    def _print(self, *lines: str) -> None:
        self._out.write("".join(f"{each}\n" for each in lines))
        self._out.flush()


class JsonOutput:
    """One JSON object per row. An updating query adds the row kind as `op`."""

    def __init__(self, out: IO[str], schema: Schema, *, kinds: bool = False) -> None:
        self._out, self._schema, self._kinds = out, schema, kinds

    def write(self, rows: pa.Table) -> None:
        for kind, row in changes(rows, self._schema):
            pairs = [("op", json.dumps(kind))] if self._kinds else []
            pairs += [(field.name, _json(value, field.type)) for value, field in zip(row, self._schema, strict=True)]
            self._out.write(
                "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in pairs) + "}\n"
            )
        self._out.flush()

    def finish(self) -> None:
        pass


def _json(value: Any, type: Any) -> str:
    if isinstance(type, FloatingType) and value is not None and not math.isfinite(value):
        return json.dumps(format_float(value))
    return cells.to_json(value, type)


class CsvOutput:
    """CSV with a header. NULL is an empty field."""

    def __init__(self, out: IO[str], schema: Schema, *, kinds: bool = False) -> None:
        self._out, self._schema, self._kinds = out, schema, kinds
        self._write([[*(["op"] if kinds else []), *schema.names]])

    def write(self, rows: pa.Table) -> None:
        self._write(
            [
                [
                    *([kind] if self._kinds else []),
                    *(cells.write(value, field.type) for value, field in zip(row, self._schema, strict=True)),
                ]
                for kind, row in changes(rows, self._schema)
            ]
        )

    def _write(self, rows: Sequence[Sequence[str | None]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._out.write(text.getvalue())
        self._out.flush()

    def finish(self) -> None:
        pass


def show(out: IO[str], columns: Sequence[str], rows: Sequence[Sequence[str | None]], format: Format) -> None:
    """Print the result of DESCRIBE, SHOW and the like, whose cells are strings."""
    if format == "json":
        for row in rows:
            out.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
    elif format == "csv":
        csv.writer(out, lineterminator="\n").writerows([columns, *rows])
    elif list(columns) == ["result"]:
        # A plan or a CREATE statement has several lines: print it without a frame.
        out.writelines(f"{row[0]}\n" for row in rows)
    else:
        out.writelines(f"{each}\n" for each in table_format.table(columns, rows, most=None, null=""))
    out.flush()


def create_output(
    format: Format,
    out: IO[str],
    schema: Schema,
    *,
    zone: str = "UTC",
    live: bool = False,
    kinds: bool = False,
    most: int | None = None,
) -> Output:
    """Return the output for a format.

    kinds: the query is updating, print row kinds. live: print rows as they arrive.
    """
    if format == "json":
        return JsonOutput(out, schema, kinds=kinds)
    if format == "csv":
        return CsvOutput(out, schema, kinds=kinds)
    return TableOutput(out, schema, zone=zone, live=live, kinds=kinds, most=most)
