"""Source tables and columns that were renamed: `--source OLD=NEW` and `--source TABLE.OLD=NEW`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from everfold.errors import UsageError, suggest_name
from everfold.plan.canonical import quote_name
from everfold.plan.known_names import KnownTable, apply_known_names, keep_names_apart
from everfold.plan.nodes import Table
from everfold.plan.walk import tables_read

if TYPE_CHECKING:
    from everfold.jobs.manifest import NewQuery, Version


def rename_sources(query: NewQuery, version: Version, renamed: Mapping[str, str]) -> NewQuery:
    """Return a query in which renamed tables have the names by which a job knows them.

    version: of the job. renamed: the present name of a table by its old one, and of a column by the
    old name of its table, a point, and its old name.

    Raises UsageError `wrong-option-value` if the job does not read the old name, or the script
    still does, or a table has no such column.
    """
    names = find_known_names(version, tables_read(query.roots), renamed)
    return replace(query, roots=apply_known_names(query.roots, names), known_names=names)


def find_known_names(version: Version, tables: Iterable[Table], renamed: Mapping[str, str]) -> dict[str, KnownTable]:
    """Return the names by which a job knows the tables of a query. Raises as `rename_sources`."""
    read = {table.name: table for table in tables}
    known_tables = dict(version.known_names)
    old_tables = list_tables(version)
    is_column = {key: _is_column(key, old_tables, renamed) for key in renamed}
    for old, new in renamed.items():
        if is_column[old] or new not in read or (new in known_tables and known_tables[new].name == old):
            continue
        option = f"--source {old}={new}"
        if old not in old_tables:
            if new in old_tables:  # another job of the script reads the old one
                continue
            raise _wrong(option, f"the job reads no table `{old}`", _suggest(old, old_tables))
        if old in read:
            raise _wrong(option, f"the script still reads the table `{old}`")
        if new in old_tables:
            raise _wrong(option, f"the job already reads a table `{new}`")
        known_tables[new] = known_tables.pop(old, KnownTable(old))
    present = {table.name: name for name, table in known_tables.items()}
    for key in (key for key in renamed if is_column[key]):
        old_table, _, old = key.rpartition(".")
        new, name = renamed[key], renamed.get(old_table, present.get(old_table, old_table))
        if name not in read:
            continue
        table = known_tables.get(name, KnownTable(name))
        if table.columns.get(new) == old:
            continue
        option, columns = f"--source {key}={new}", [column.name for column in read[name].columns]
        if new not in columns:
            raise _wrong(option, f"the table `{name}` has no column `{new}`", _suggest(new, columns))
        if old in columns:
            raise _wrong(option, f"the table `{name}` still has the column `{old}`")
        if not _reads_column(version, table, old):
            raise _wrong(option, f"the state of the job has no column `{old}` of the table `{old_table}`")
        former = {column: other for column, other in table.columns.items() if column != old}
        known_tables[name] = KnownTable(table.name, {**former, new: table.columns.get(old, old)})
    return keep_names_apart(read.values(), known_tables)


def list_tables(version: Version) -> list[str]:
    """Return the present names of the tables that a job reads."""
    present = {table.name: name for name, table in version.known_names.items()}
    names = [note["table"] for note in version.sources or ()]
    scanned = (table for shape in version.query_shapes for operator in shape.operators for table in operator.scans)
    return [*dict.fromkeys(present.get(name, name) for name in (*names, *scanned))]


def _reads_column(version: Version, table: KnownTable, column: str) -> bool:
    text = f"{quote_name(table.name)}.{quote_name(table.columns.get(column, column))}"
    return text in json.dumps(version.shapes, ensure_ascii=False).replace('\\"', '"')


def _is_column(key: str, tables: Collection[str], renamed: Mapping[str, str]) -> bool:
    """Whether the left side of `--source` names a column. tables: that the job reads."""
    table = key.rpartition(".")[0]
    return bool(table) and key not in tables and (table in tables or table in renamed)


def _suggest(name: str, names: Sequence[str]) -> str | None:
    listed = f"the names are {', '.join(f'`{known_name}`' for known_name in names)}" if names else None
    return suggest_name(name, names) or listed


def _wrong(option: str, problem: str, help_: str | None = None) -> UsageError:
    return UsageError.of("wrong-option-value", f"`{option}`: {problem}", help=help_)
