"""Convert tables of topics, as Lenses SQL declares them, to Kafka tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from everfold.connectors.contract import Connector, Role, columns_of
from everfold.connectors.kafka.connector import CONNECTOR as KAFKA
from everfold.connectors.kafka.upsert import CONNECTOR as UPSERT_KAFKA
from everfold.plan.nodes import Table, TableColumn
from everfold.plan.topic_storage import KEY, is_primitive
from everfold.types import RowType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_KEY_PREFIX = f"{KEY}."
"""Prefix of the key columns when each field of the key is a column."""
_STARTUP_PREFIX = "scan.startup."
"""Prefix of options for streams only: tables are always read from the beginning."""


@dataclass(frozen=True, slots=True)
class ConvertedTable:
    """A table of the connector `topic`, converted to one of Kafka.

    table: the converted table, with each field of the key as a column. connector: its connector.
    key_position: the position of the key, None if there is none or it is not a ROW. key_width: how
    many fields it has.
    """

    table: Table
    connector: Connector
    key_position: int | None = None
    key_width: int = 0

    def pack_key(self, frame: DataFrame) -> DataFrame:
        """Combine the key columns of a frame into one."""
        if self.key_position is None:
            return frame
        fields = [
            column.name.removeprefix(_KEY_PREFIX)
            for column in self.table.columns[self.key_position :][: self.key_width]
        ]
        columns = [physical_name(at) for at in range(len(self.table.columns))]
        key = ", ".join(f"'{name}', {physical_name(self.key_position + at)}" for at, name in enumerate(fields))
        columns[self.key_position : self.key_position + self.key_width] = [f"named_struct({key})"]
        others = [name for name in frame.columns if name not in map(physical_name, range(len(self.table.columns)))]
        return frame.selectExpr(*(f"{sql} AS {physical_name(at)}" for at, sql in enumerate(columns)), *others)

    def unpack_key(self, rows: pa.Table) -> pa.Table:
        """Split the key column of rows into one column per field."""
        if self.key_position is None:
            return rows
        import pyarrow as pa

        width = len(columns_of(self.table, Role.SINK)) - self.key_width + 1
        columns = [rows.column(at) for at in range(width)]
        key = columns[self.key_position].combine_chunks()
        columns[self.key_position : self.key_position + 1] = [pa.chunked_array([field]) for field in key.flatten()]
        names = [physical_name(at) for at in range(len(columns))]
        others = rows.column_names[width:]
        return pa.table(dict(zip((*names, *others), (*columns, *(rows.column(name) for name in others)), strict=True)))


def convert_table(table: Table) -> ConvertedTable:
    """Convert a Lenses table to a Kafka table."""
    given = dict(table.options)
    options = {name: text for name, text in given.items() if not name.startswith("create")}
    options |= {"topic": given.get("topic", table.name), "value.format": to_kafka_format(given.get("value.format"))}
    columns = list(table.columns)
    keys: tuple[str, ...] = ()
    at = table.schema.position(KEY)
    if at is None:
        options.pop("key.format", None)
    else:
        options |= {"key.format": to_kafka_format(given.get("key.format")), "value.fields-include": "EXCEPT_KEY"}
        columns[at : at + 1] = of_key = _key_columns(columns[at])
        keys = tuple(column.name for column in of_key)
        if keys != (KEY,):
            options["key.fields-prefix"] = _KEY_PREFIX
    if table.primary_key:
        options = {name: text for name, text in options.items() if not name.startswith(_STARTUP_PREFIX)}
    else:
        options |= {"key.fields": ";".join(keys)} if keys else {}
        options.setdefault("scan.startup.mode", "earliest-offset")
    of = UPSERT_KAFKA if table.primary_key else KAFKA
    options["connector"] = of.name
    converted = replace(
        table,
        columns=tuple(columns),
        options=tuple(sorted(options.items())),
        primary_key=keys if table.primary_key else (),
    )
    return ConvertedTable(converted, of, None if keys in ((), (KEY,)) else at, len(keys))


def _key_columns(column: TableColumn) -> list[TableColumn]:
    """Return the columns of a key: its fields if it is a ROW, else the key itself."""
    if not isinstance(column.type, RowType):
        return [column]
    return [TableColumn(name=_KEY_PREFIX + each.name, type=each.type) for each in column.type.fields]


def to_kafka_format(name: str | None) -> str:
    """Return the format of a Kafka table for a storage format.

    `raw` writes single values as Kafka's serializers do.
    """
    return "raw" if is_primitive(name) else name or ""
