"""Conversion of pipe tables to Arrow tables and back: the input rows of a case and its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.far_times import to_values
from everfold.plan.changelog import KIND
from everfold.plan.nodes import TableColumn
from everfold.rendering import cells
from everfold.testing.pipetable import KINDS, PipeTable, PipeTableError
from everfold.types import Schema, physical_name

if TYPE_CHECKING:
    import pyarrow as pa


def to_arrow(
    table: PipeTable,
    columns: Sequence[TableColumn],
    *,
    name: str,
    known: Sequence[str] | None = None,
    zone: str = "UTC",
) -> pa.Table:
    """Convert the rows of a table: columns `c0`, `c1`, … for `columns`, and `__kind`.

    Columns that the pipe table omits are NULL. known: the names of all columns, if the query does
    not read all of them. Raises PipeTableError.
    """
    import pyarrow as pa

    known = [column.name for column in columns] if known is None else known
    if unknown := [column for column in table.columns if column not in known]:
        raise PipeTableError(0, f"table `{name}` has no column `{unknown[0]}`; it has {', '.join(known)}")
    arrays = {}
    for at, column in enumerate(columns):
        values: list[object] = [None] * len(table.rows)
        if column.name in table.columns:
            index = table.columns.index(column.name)
            values = [_value(row.cells[index], column, row.line, zone) for row in table.rows]
        arrays[physical_name(at)] = pa.array(values, column.type.arrow)
    if table.kinds is not None:
        arrays[KIND] = pa.array([KINDS.index(kind) for kind in table.kinds], pa.int8())
    return pa.table(arrays)


def _value(cell: str | None, column: TableColumn, line: int, zone: str) -> object:
    try:
        return cells.read(cell, column.type, zone)
    except cells.CellError as error:
        raise PipeTableError(line, f"column `{column.name}`: {error}") from error


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query.

    changes: in order of emission, each as a row kind and canonical strings.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    changes: tuple[tuple[str, tuple[str | None, ...]], ...]
    schema: Schema


def from_arrow(table: pa.Table, schema: Schema) -> Answer:
    """Convert a table of columns `c0`, `c1`, … and an optional `__kind` to a result."""
    columns = [
        [cells.write(value, field.type) for value in to_values(table.column(physical_name(at)))]
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
    """Return the row kind of each row."""
    if KIND not in table.column_names:
        return [KINDS[0]] * table.num_rows
    return [KINDS[code] for code in table.column(KIND).to_pylist()]
