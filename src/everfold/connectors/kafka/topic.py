"""Connector `topic`: a topic as Lenses SQL declares it.

A record has the columns `_key`, the fields of its value, or `_value`, and `_meta.…`.

Such a table is converted to one of the connector `kafka`, or of `upsert-kafka` if its PRIMARY KEY
is `_key`: its records are then the current rows of their keys. There are two differences: a key
with fields is one column, a ROW, and storage formats are named as in Lenses.
"""

from __future__ import annotations

from pathlib import Path

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
)
from everfold.connectors.formats.registry import positions_in
from everfold.connectors.kafka.connector import OPTIONS as KAFKA_OPTIONS
from everfold.connectors.kafka.table_options import locate_topics
from everfold.connectors.kafka.topic_table import convert_table, to_kafka_format
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.plan.topic_storage import CONNECTOR as NAME
from everfold.plan.topic_storage import KEY, PRIMITIVES, STRUCTURES, check_topic, is_read_whole

_STORAGE = tuple(map(str.lower, (*PRIMITIVES, *STRUCTURES)))
_KAFKA_OPTIONS = (
    "properties.bootstrap.servers", "properties.group.id", "properties.*", "scan.startup.mode", "scan.startup.specific-offsets",
    "scan.startup.timestamp-millis", "scan.bounded.mode", "scan.bounded.specific-offsets", "scan.bounded.timestamp-millis",
    "scan.max-bytes-per-batch", "scan.max-records-per-batch", "sink.transactional-id-prefix",
)  # fmt: skip
OPTIONS = OptionSet(
    (
        Option("topic", meaning="the topic; the name of the table if not set"),
        Option("key.format", _STORAGE, required=True, meaning="the storage format of keys"),
        Option("value.format", _STORAGE, required=True, meaning="the storage format of values"),
        Option("create", "bool", "false", meaning="whether to create the topic if it does not exist"),
        Option("create.partitions", "int", "-1", meaning="number of partitions of a created topic; -1: the default of the brokers"),
        Option("create.replication", "int", "-1", meaning="replication factor of a created topic; -1: the default of the brokers"),
        Option("create.cleanup.policy", meaning="cleanup policy of a created topic"),
        Option("create.retention.ms", meaning="how long a created topic keeps records"),
        Option("create.retention.bytes", meaning="how many bytes per partition a created topic keeps"),
        *(option for option in KAFKA_OPTIONS.options if option.name in _KAFKA_OPTIONS),
    )
)  # fmt: skip


class TopicConnector(Connector):
    """Tables of topics, as Lenses SQL declares them."""

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check storage formats, and the converted Kafka table."""
        options = self.options(table).read(table, role.value)
        check_topic(table)
        converted = convert_table(table)
        converted.connector.check(converted.table, role)
        return options

    def changelog(self, table: Table) -> ChangelogMode:
        """Return upserts by `_key` if it is the PRIMARY KEY; otherwise every record is a row."""
        return self.accepted_changelog(table)

    def needs_whole_record(self, table: Table) -> bool:
        """Return whether a storage format has no field names."""
        return is_read_whole(table)

    def positions(self, table: Table) -> dict[str, str]:
        """Return the positions of columns in keys and values."""
        given = dict(table.options)
        columns = (each.name for each in table.columns if each.metadata_key is None and each.name != KEY)
        in_value = positions_in(to_kafka_format(given.get("value.format")), "value", columns)
        return {**in_value, **positions_in(to_kafka_format(given.get("key.format")), "key", (KEY,))}

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Return upserts if there is a PRIMARY KEY, inserts only otherwise."""
        return ChangelogMode.UPSERT if table.primary_key else ChangelogMode.INSERT_ONLY

    def replay_effect(self, table: Table) -> ReplayEffect:
        """With a PRIMARY KEY, replayed records replace older ones; else they are duplicates."""
        return ReplayEffect.OVERWRITES_AND_COMPARES if table.primary_key else ReplayEffect.DUPLICATES

    def locations(self, table: Table, options: OptionValues, base_folder: Path) -> frozenset[str]:
        """Return the topic at each broker."""
        return locate_topics(options, table.name)

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return a source that reads the topic."""
        from everfold.connectors.kafka.topic_records import TopicSource

        converted = convert_table(table)
        return TopicSource(converted, options, converted.connector.check(converted.table, Role.SOURCE))

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that writes to the topic exactly once."""
        from everfold.connectors.kafka.topic_records import TopicSink

        converted = convert_table(context.table)
        return TopicSink(context, converted, options, converted.connector.check(converted.table, Role.SINK))


CONNECTOR = TopicConnector(
    name=NAME,
    meaning="topics of Apache Kafka as Lenses SQL declares them",
    own_options=OPTIONS,
    writes_in_process=True,
)
