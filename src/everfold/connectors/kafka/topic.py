"""Connector `topic`: a topic as Lenses SQL declares it.

A record has the columns `_key`, the fields of its value, or `_value`, and `_meta.…`.

Such a table is converted to one of the connector `kafka`, or of `upsert-kafka` if its PRIMARY KEY
is `_key`: its records are then the current rows of their keys. There are two differences: a key
with fields is one column, a ROW, and storage formats are named as in Lenses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from everfold.connectors.contract import (
    ClusterSink,
    Connector,
    LocalSink,
    Option,
    OptionSet,
    OptionValues,
    ReplayEffect,
    Role,
    SinkContext,
    Source,
    columns_of,
)
from everfold.connectors.formats.registry import is_positional, positions_in
from everfold.connectors.kafka.connector import CONNECTOR as KAFKA
from everfold.connectors.kafka.connector import OPTIONS as KAFKA_OPTIONS
from everfold.connectors.kafka.upsert import CONNECTOR as UPSERT_KAFKA
from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table, TableColumn
from everfold.types import RowType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

KEY = "_key"
_KEY_PREFIX = f"{KEY}."
"""Prefix of the key columns when each field of the key is a column."""
_SINGLE_VALUE = ("string", "int", "long", "double", "bytes")
"""Storage formats of a single value: those of Kafka's serializers, which `raw` writes too."""
_STORAGE = (*_SINGLE_VALUE, "json", "avro")
_KAFKA_OPTIONS = (
    "properties.bootstrap.servers", "properties.group.id", "properties.*", "scan.startup.mode", "scan.startup.specific-offsets",
    "scan.startup.timestamp-millis", "scan.bounded.mode", "scan.bounded.specific-offsets", "scan.bounded.timestamp-millis",
    "scan.max-records-per-batch", "sink.transactional-id-prefix",
)  # fmt: skip
_STARTUP_PREFIX = "scan.startup."
"""Prefix of options for streams only: tables are always read from the beginning."""

OPTIONS = OptionSet(
    (
        Option("topic", meaning="the topic; the name of the table if not set"),
        Option("key.format", _STORAGE, required=True, meaning="the storage format of keys"),
        Option("value.format", _STORAGE, required=True, meaning="the storage format of values"),
        Option("create", "bool", "false", meaning="whether to create the topic if it does not exist"),
        Option(
            "create.partitions",
            "int",
            "-1",
            meaning="number of partitions of a created topic; -1: the default of the brokers",
        ),
        Option(
            "create.replication",
            "int",
            "-1",
            meaning="replication factor of a created topic; -1: the default of the brokers",
        ),
        Option("create.cleanup.policy", meaning="cleanup policy of a created topic"),
        Option("create.retention.ms", meaning="how long a created topic keeps records"),
        Option("create.retention.bytes", meaning="how many bytes per partition a created topic keeps"),
        *(option for option in KAFKA_OPTIONS.options if option.name in _KAFKA_OPTIONS),
    )
)


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
    """Convert a Lenses table to a Kafka table.

    Raises UnsupportedFeature `key-format` for a key whose type has no storage format.
    """
    given = dict(table.options)
    options = {name: text for name, text in given.items() if not name.startswith("create")}
    options |= {"topic": given.get("topic", table.name), "value.format": _format(given.get("value.format"))}
    columns = list(table.columns)
    keys: tuple[str, ...] = ()
    at = table.schema.position(KEY)
    if at is None:
        options.pop("key.format", None)
    else:
        options |= {"key.format": _format(given.get("key.format")), "value.fields-include": "EXCEPT_KEY"}
        columns[at : at + 1] = of_key = _key_columns(table, columns[at])
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


def _key_columns(table: Table, column: TableColumn) -> list[TableColumn]:
    """Return the columns of a key: its fields if it is a ROW, else the key itself."""
    if dict(table.options).get("key.format") in _SINGLE_VALUE:
        return [column]
    if not isinstance(column.type, RowType):
        raise UnsupportedFeature.of(
            "key-format",
            f"topic `{table.name}`: a key of type {column.type} without a name has no storage format, "
            f"only {', '.join(_SINGLE_VALUE).upper()} have one",
            table.span_of(KEY),
            "give it a name: GROUP BY x AS name",
        )
    return [TableColumn(name=_KEY_PREFIX + each.name, type=each.type) for each in column.type.fields]


def _format(name: str | None) -> str:
    """Return the format of a Kafka table for a storage format."""
    return "raw" if name in _SINGLE_VALUE else name or ""


class TopicConnector(Connector):
    """Tables of topics, as Lenses SQL declares them."""

    def options(self, table: Table) -> OptionSet:
        """Return the options of the connector."""
        return OPTIONS

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check storage formats, and the converted Kafka table."""
        options = self.options(table).read(table, role.value)
        converted = convert_table(table)
        converted.connector.check(converted.table, role)
        return options

    def changelog(self, table: Table) -> ChangelogMode:
        """Return upserts by `_key` if it is the PRIMARY KEY; otherwise every record is a row."""
        return self.accepted_changelog(table)

    def needs_whole_record(self, table: Table) -> bool:
        """Return whether a storage format has no field names."""
        given = dict(table.options)
        return any(is_positional(_format(given.get(option))) for option in ("key.format", "value.format"))

    def positions(self, table: Table) -> dict[str, str]:
        """Return the positions of columns in keys and values."""
        given = dict(table.options)
        columns = (each.name for each in table.columns if each.metadata_key is None and each.name != KEY)
        in_value = positions_in(_format(given.get("value.format")), "value", columns)
        return {**in_value, **positions_in(_format(given.get("key.format")), "key", (KEY,))}

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Return upserts if there is a PRIMARY KEY, inserts only otherwise."""
        return ChangelogMode.UPSERT if table.primary_key else ChangelogMode.INSERT_ONLY

    def replay_effect(self, table: Table) -> ReplayEffect:
        """With a PRIMARY KEY, replayed records replace older ones; else they are duplicates."""
        return ReplayEffect.OVERWRITES_AND_COMPARES if table.primary_key else ReplayEffect.DUPLICATES

    def source(self, table: Table) -> Source:
        """Return a source that reads the topic."""
        from everfold.connectors.kafka.topic_records import TopicSource

        options, converted = self.check(table, Role.SOURCE), convert_table(table)
        return TopicSource(converted, options, converted.connector.check(converted.table, Role.SOURCE))

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """Return a sink that writes to the topic exactly once."""
        from everfold.connectors.kafka.topic_records import TopicSink

        options, converted = self.check(context.table, Role.SINK), convert_table(context.table)
        return TopicSink(context, converted, options, converted.connector.check(converted.table, Role.SINK))


CONNECTOR = TopicConnector(name="topic", meaning="topics of Apache Kafka as Lenses SQL declares them")
