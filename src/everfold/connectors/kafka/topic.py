"""Connector `topic`: a topic as Lenses SQL declares it. A record has a column `_key`, the fields of its value, or `_value`, and `_meta.…`.

A table of it is one of `kafka`, or of `upsert-kafka` where its records are the newest rows of their keys, which the table's PRIMARY KEY `_key` says. What
is different: a key with fields is one column, a ROW, and storage formats have the names that Lenses gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from everfold.connectors.contract import (
    Again,
    ClusterSink,
    Connector,
    LocalSink,
    Option,
    OptionSet,
    OptionValues,
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
from everfold.types import RowType, physical

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

KEY = "_key"
_WITHIN = f"{KEY}."
"""What the names of a key's columns begin with where each field is one."""
_ALONE = ("string", "int", "long", "double", "bytes")
"""Storage formats of a value alone: Kafka's own, which `raw` writes too."""
_STORAGE = (*_ALONE, "json", "avro")
_OF_KAFKA = (
    "properties.bootstrap.servers", "properties.group.id", "properties.*", "scan.startup.mode", "scan.startup.specific-offsets",
    "scan.startup.timestamp-millis", "scan.bounded.mode", "scan.bounded.specific-offsets", "scan.bounded.timestamp-millis",
    "scan.max-records-per-batch", "sink.transactional-id-prefix",
)  # fmt: skip
_OF_STREAMS = "scan.startup."
"""Options that tables do not have: these are always read from the beginning."""

OPTIONS = OptionSet(
    (
        Option("topic", meaning="the topic; the table's name unless it is said"),
        Option("key.format", _STORAGE, required=True, meaning="how keys are stored"),
        Option("value.format", _STORAGE, required=True, meaning="how values are stored"),
        Option("create", "bool", "false", meaning="whether the topic is made if it is not there"),
        Option("create.partitions", "int", "-1", meaning="how many partitions it then has; -1: as the brokers have it"),
        Option(
            "create.replication", "int", "-1", meaning="how many copies of it there are; -1: as the brokers have it"
        ),
        Option("create.cleanup.policy", meaning="what becomes of its old records"),
        Option("create.retention.ms", meaning="how long it keeps records"),
        Option("create.retention.bytes", meaning="how many bytes of a partition it keeps"),
        *(option for option in KAFKA_OPTIONS.options if option.name in _OF_KAFKA),
    )
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A table with each field of its key as a column of its own (`table`), as the connector `of` has it. at: where the key is, None if it is no ROW
    or not there; width: how many fields it has."""

    table: Table
    of: Connector
    at: int | None = None
    width: int = 0

    def together(self, frame: DataFrame) -> DataFrame:
        """A frame of the columns with the key as one of them."""
        if self.at is None:
            return frame
        fields = [column.name.removeprefix(_WITHIN) for column in self.table.columns[self.at :][: self.width]]
        columns = [physical(at) for at in range(len(self.table.columns))]
        key = ", ".join(f"'{name}', {physical(self.at + at)}" for at, name in enumerate(fields))
        columns[self.at : self.at + self.width] = [f"named_struct({key})"]
        others = [name for name in frame.columns if name not in map(physical, range(len(self.table.columns)))]
        return frame.selectExpr(*(f"{sql} AS {physical(at)}" for at, sql in enumerate(columns)), *others)

    def apart(self, rows: pa.Table) -> pa.Table:
        """Rows with the key as one column, with its fields as columns."""
        if self.at is None:
            return rows
        import pyarrow as pa

        width = len(columns_of(self.table, Role.SINK)) - self.width + 1
        columns = [rows.column(at) for at in range(width)]
        key = columns[self.at].combine_chunks()
        columns[self.at : self.at + 1] = [pa.chunked_array([field]) for field in key.flatten()]
        names = [physical(at) for at in range(len(columns))]
        others = rows.column_names[width:]
        return pa.table(dict(zip((*names, *others), (*columns, *(rows.column(name) for name in others)), strict=True)))


def spread(table: Table) -> Spread:
    """A table of Lenses' as one of Kafka's. UnsupportedFeature `key-format` for a key whose type has no storage format."""
    said = dict(table.options)
    options = {name: text for name, text in said.items() if not name.startswith("create")}
    options |= {"topic": said.get("topic", table.name), "value.format": _format(said.get("value.format"))}
    columns = list(table.columns)
    keys: tuple[str, ...] = ()
    at = table.schema.position(KEY)
    if at is None:
        options.pop("key.format", None)
    else:
        options |= {"key.format": _format(said.get("key.format")), "value.fields-include": "EXCEPT_KEY"}
        columns[at : at + 1] = of_key = _key_columns(table, columns[at])
        keys = tuple(column.name for column in of_key)
        if keys != (KEY,):
            options["key.fields-prefix"] = _WITHIN
    if table.primary_key:
        options = {name: text for name, text in options.items() if not name.startswith(_OF_STREAMS)}
    else:
        options |= {"key.fields": ";".join(keys)} if keys else {}
        options.setdefault("scan.startup.mode", "earliest-offset")
    of = UPSERT_KAFKA if table.primary_key else KAFKA
    options["connector"] = of.name
    made = replace(
        table,
        columns=tuple(columns),
        options=tuple(sorted(options.items())),
        primary_key=keys if table.primary_key else (),
    )
    return Spread(made, of, None if keys in ((), (KEY,)) else at, len(keys))


def _key_columns(table: Table, column: TableColumn) -> list[TableColumn]:
    """The columns that a key becomes: the fields of a structure, else itself."""
    if dict(table.options).get("key.format") in _ALONE:
        return [column]
    if not isinstance(column.type, RowType):
        raise UnsupportedFeature.of(
            "key-format",
            f"topic `{table.name}`: a key that is {column.type} alone has no storage format: there are {', '.join(_ALONE).upper()}",
            table.place_of(KEY),
            "give it a name: GROUP BY x AS name",
        )
    return [TableColumn(name=_WITHIN + each.name, type=each.type) for each in column.type.fields]


def _format(name: str | None) -> str:
    """The format of Kafka's tables that stores the same."""
    return "raw" if name in _ALONE else name or ""


class TopicConnector(Connector):
    """Topics of Lenses SQL."""

    def options(self, table: Table) -> OptionSet:
        """The connector's own."""
        return OPTIONS

    def check(self, table: Table, role: Role) -> OptionValues:
        """Storage formats, and all that a table of Kafka's can have wrong."""
        said = self.options(table).read(table, role.value)
        made = spread(table)
        made.of.check(made.table, role)
        return said

    def changelog(self, table: Table) -> ChangelogMode:
        """Upserts by `_key`, if that is the PRIMARY KEY; else every record is a row."""
        return self.takes(table)

    def read_whole(self, table: Table) -> bool:
        """Where fields have no names."""
        said = dict(table.options)
        return any(is_positional(_format(said.get(option))) for option in ("key.format", "value.format"))

    def positions(self, table: Table) -> dict[str, str]:
        """Return those of the key and of the value."""
        said = dict(table.options)
        columns = (each.name for each in table.columns if each.metadata_key is None and each.name != KEY)
        in_value = positions_in(_format(said.get("value.format")), "value", columns)
        return {**in_value, **positions_in(_format(said.get("key.format")), "key", (KEY,))}

    def takes(self, table: Table) -> ChangelogMode:
        """The same changes."""
        return ChangelogMode.UPSERT if table.primary_key else ChangelogMode.INSERT_ONLY

    def again(self, table: Table) -> Again:
        """The newest record of a key counts."""
        return Again.COMPARED if table.primary_key else Again.TWICE

    def source(self, table: Table) -> Source:
        """Reads the topic."""
        from everfold.connectors.kafka.topic_records import TopicSource

        said, made = self.check(table, Role.SOURCE), spread(table)
        return TopicSource(made, said, made.of.check(made.table, Role.SOURCE))

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """Writes to the topic, exactly once."""
        from everfold.connectors.kafka.topic_records import TopicSink

        said, made = self.check(context.table, Role.SINK), spread(context.table)
        return TopicSink(context, made, said, made.of.check(made.table, Role.SINK))


CONNECTOR = TopicConnector(name="topic", meaning="topics of Apache Kafka as Lenses SQL declares them")
