"""Pipe tables to Arrow tables and back: rows that a case gives a table, and rows that a query answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.plan.nodes import TableColumn
from everfold.testing import cells
from everfold.testing.pipetable import KINDS, PipeTable, PipeTableError
from everfold.types import Schema, physical

if TYPE_CHECKING:
    import pyarrow as pa

KIND_COLUMN = "__kind"
"""The column of an engine's rows that holds a row kind, TINYINT: its place in `KINDS`; without it all rows are +I."""


def to_arrow(
    table: PipeTable,
    columns: Sequence[TableColumn],
    *,
    name: str,
    known: Sequence[str] | None = None,
    zone: str = "UTC",
) -> pa.Table:
    """The rows of a table as its connector would deliver them: `c0`, `c1`, … for `columns`, and `__kind`.

    Columns that the pipe table leaves out are NULL. `known` are the names of all its columns, if the query does not read every one.
    """
    import pyarrow as pa

    known = [column.name for column in columns] if known is None else known
    if unknown := [column for column in table.columns if column not in known]:
        raise PipeTableError(0, f"table `{name}` has no column `{unknown[0]}` to fill; it has {', '.join(known)}")
    arrays = {}
    for at, column in enumerate(columns):
        values: list[object] = [None] * len(table.rows)
        if column.name in table.columns:
            place = table.columns.index(column.name)
            values = [_value(row.cells[place], column, row.line, zone) for row in table.rows]
        arrays[physical(at)] = pa.array(values, column.type.arrow)
    if table.kinds is not None:
        arrays[KIND_COLUMN] = pa.array([KINDS.index(kind) for kind in table.kinds], pa.int8())
    return pa.table(arrays)


def _value(cell: str | None, column: TableColumn, line: int, zone: str) -> object:
    try:
        return cells.read(cell, column.type, zone)
    except cells.CellError as error:
        raise PipeTableError(line, f"column `{column.name}`: {error}") from error


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query answered: its columns, and its changes in the order they came, each a row kind and canonical texts."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    changes: tuple[tuple[str, tuple[str | None, ...]], ...]
    schema: Schema


def from_arrow(table: pa.Table, schema: Schema) -> Answer:
    """The answer in a table whose columns `c0`, `c1`, … are those of the schema, `__kind` if it has one."""
    columns = [
        [cells.write(value, field.type) for value in table.column(physical(at)).to_pylist()]
        for at, field in enumerate(schema)
    ]
    rows = list(zip(*columns, strict=True)) if columns else []
    return Answer(
        schema.names,
        tuple(field.type.sql for field in schema),
        tuple(zip(row_kinds(table), rows, strict=True)),
        schema,
    )


def row_kinds(table: pa.Table) -> list[str]:
    """The row kind of each row."""
    if KIND_COLUMN not in table.column_names:
        return [KINDS[0]] * table.num_rows
    return [KINDS[code] for code in table.column(KIND_COLUMN).to_pylist()]
