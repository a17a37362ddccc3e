"""Short constructors of tables for tests, and their rows as records."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from everfold.connectors.formats.format import Format, RecordColumn
from everfold.errors import Span
from everfold.plan.changelog import KIND
from everfold.plan.nodes import Table, TableColumn
from everfold.types import DataType, physical_name


def encode_rows(
    form: Format, columns: Sequence[RecordColumn], rows: Sequence[Sequence[object]], kinds: Sequence[int] | None = None
) -> list[bytes | None]:
    """Return the records of rows, whose values are those that Arrow converts to Python."""
    arrays = {
        physical_name(column.position): pa.chunked_array([pa.array([row[at] for row in rows], column.type.arrow)])
        for at, column in enumerate(columns)
    }
    if kinds is not None:
        arrays[KIND] = pa.chunked_array([pa.array(kinds, pa.int8())])
    found: list[bytes | None] = form.encode(pa.table(arrays), columns).cast(pa.large_binary()).to_pylist()
    return found


def table(
    name: str = "bids",
    partition_keys: tuple[str, ...] = (),
    metadata: dict[str, tuple[DataType, str]] | None = None,
    /,
    **columns: DataType,
) -> TableMaker:
    """Return a table's columns: physical ones, then VIRTUAL METADATA ones by (type, key).

    `with_` adds the options.
    """
    made = [TableColumn(name=each, type=of) for each, of in columns.items()]
    made += [
        TableColumn(name=each, type=of, metadata_key=key, virtual=True) for each, (of, key) in (metadata or {}).items()
    ]
    return TableMaker(name, tuple(made), partition_keys)


class TableMaker:
    """Columns of a table that has no options yet."""

    def __init__(self, name: str, columns: tuple[TableColumn, ...], partition_keys: tuple[str, ...]) -> None:
        self.name, self.columns, self.partition_keys = name, columns, partition_keys

    def with_(self, connector: str | None, **options: str) -> Table:
        """Return the table with options.

        `path="x"` sets `path`, and `json__ignore_parse_errors="true"` sets
        `json.ignore-parse-errors`.
        """
        options_by_name = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        if connector is not None:
            options_by_name["connector"] = connector
        return self.with_options(options_by_name)

    def with_options(self, options_by_name: dict[str, str]) -> Table:
        """Return the table with options by their names, each with a position in a script."""
        text = ", ".join(f"'{key}' = '{value}'" for key, value in options_by_name.items())
        spans, at = [], 0
        for key, value in options_by_name.items():
            size = len(f"'{key}' = '{value}'")
            spans.append((key, Span(at, at + size, "script.sql", text)))
            at += size + 2
        return Table(
            name=self.name,
            columns=self.columns,
            options=tuple(sorted(options_by_name.items())),
            option_spans=tuple(sorted(spans)),
            partition_keys=self.partition_keys,
        )
