"""Tables for tests, in few words."""

from __future__ import annotations

from everfold.errors import Span
from everfold.plan.nodes import Table, TableColumn
from everfold.types import DataType


def table(
    name: str = "bids",
    partition_keys: tuple[str, ...] = (),
    metadata: dict[str, tuple[DataType, str]] | None = None,
    /,
    **columns: DataType,
) -> TableMaker:
    """A table's columns: physical ones, then VIRTUAL METADATA ones by (type, key). Its options come by `with_`."""
    made = [TableColumn(name=each, type=of) for each, of in columns.items()]
    made += [
        TableColumn(name=each, type=of, metadata_key=key, virtual=True) for each, (of, key) in (metadata or {}).items()
    ]
    return TableMaker(name, tuple(made), partition_keys)


class TableMaker:
    """Columns that wait for options."""

    def __init__(self, name: str, columns: tuple[TableColumn, ...], partition_keys: tuple[str, ...]) -> None:
        self.name, self.columns, self.partition_keys = name, columns, partition_keys

    def with_(self, connector: str | None, **options: str) -> Table:
        """The table with options: `path="x"`, `json__ignore_parse_errors="true"` for `json.ignore-parse-errors`."""
        said = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        if connector is not None:
            said["connector"] = connector
        return self.with_options(said)

    def with_options(self, said: dict[str, str]) -> Table:
        """The table with options by their names; each has a place in a text."""
        text = ", ".join(f"'{key}' = '{value}'" for key, value in said.items())
        spans, at = [], 0
        for key, value in said.items():
            size = len(f"'{key}' = '{value}'")
            spans.append((key, Span(at, at + size, "script.sql", text)))
            at += size + 2
        return Table(
            name=self.name,
            columns=self.columns,
            options=tuple(sorted(said.items())),
            option_spans=tuple(sorted(spans)),
            partition_keys=self.partition_keys,
        )
