"""The names by which a job knows tables and columns that were renamed since it began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from everfold.plan.nodes import Plan, Root, Scan, Table
from everfold.plan.parts import map_inputs


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The names by which a job knows a table and its columns.

    name: of the table. columns: of its renamed columns, by their present names.
    """

    name: str
    columns: Mapping[str, str] = field(default_factory=dict)


KnownNames = Mapping[str, KnownTable]
"""The tables that a query reads and whose names in the job differ, by their present names."""


def apply_known_names(roots: Sequence[Root], names: KnownNames) -> tuple[Root, ...]:
    """Return the plans in which tables and columns are known by other names (`Table.known_as`)."""
    if not names:
        return tuple(roots)

    def apply(node: Plan) -> Plan:
        if isinstance(node, Scan) and node.table.name in names:
            return replace(node, table=_rename(node.table, names[node.table.name]))
        return map_inputs(node, apply)

    return tuple(replace(root, input=apply(root.input)) for root in roots)


def _rename(table: Table, known_table: KnownTable) -> Table:
    columns = tuple(replace(column, known_as=known_table.columns.get(column.name, "")) for column in table.columns)
    return replace(table, known_as="" if known_table.name == table.name else known_table.name, columns=columns)


def keep_names_apart(tables: Iterable[Table], names: KnownNames) -> dict[str, KnownTable]:
    """Return the names with other ones for new tables and columns whose name the job knows.

    tables: those that the query reads.
    """
    present = {table.name: table for table in tables}
    known_tables = {name: table for name, table in names.items() if name in present}
    taken = {table.name for table in known_tables.values()}
    for name, table in present.items():
        if name not in known_tables and name in taken:
            known_tables[name] = KnownTable(_find_free_name(name, taken | present.keys()))
            taken.add(known_tables[name].name)
        if name in known_tables:
            columns = {column: former for column, former in known_tables[name].columns.items() if column != former}
            others = {column.name for column in table.columns}
            for column in sorted(others - columns.keys()):
                if column in columns.values():
                    columns[column] = _find_free_name(column, {*others, *columns.values()})
            known_tables[name] = replace(known_tables[name], columns=columns)
    return {name: table for name, table in known_tables.items() if table.name != name or table.columns}


def _find_free_name(name: str, taken: Iterable[str]) -> str:
    used = {*taken}
    return next(free for number in count(1) if (free := f"{name}_{number}") not in used)
