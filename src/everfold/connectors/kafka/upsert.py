"""Connector `upsert-kafka`: a topic whose records are the newest rows of their keys; one without a value ends its key's row.

Named and configured as Flink's. As a source its rows are upserts: +U, and -D with the PRIMARY KEY only. It is always read from the
beginning. As a sink, a batch writes the last row of each key, exactly once.
"""

from __future__ import annotations

from dataclasses import replace

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
)
from everfold.connectors.formats.registry import CHANGES, options_of, refuse_unknown
from everfold.connectors.kafka.connector import OPTIONS as KAFKA_OPTIONS
from everfold.connectors.kafka.connector import ROWS, check_records, is_read_whole, record_positions, topics
from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table

_OF_KAFKA = (
    "properties.bootstrap.servers", "properties.group.id", "properties.*", "key.fields-prefix", "value.fields-include", "scan.bounded.mode",
    "scan.bounded.specific-offsets", "scan.bounded.timestamp-millis", "scan.topic-partition-discovery.interval", "scan.max-records-per-batch",
    "sink.delivery-guarantee", "sink.transactional-id-prefix", "sink.parallelism",
)  # fmt: skip
_ONE_BATCH = "has no meaning here: a batch writes one record a key"

OPTIONS = OptionSet(
    (
        Option("topic", required=True, meaning="the topic"),
        Option("key.format", required=True, meaning="how keys are written: json, csv, raw or avro"),
        Option("value.format", required=True, meaning="how values are written: json, csv, raw or avro"),
        *(option for option in KAFKA_OPTIONS.options if option.name in _OF_KAFKA),
        Option("scan.parallelism", "int", role="source", note="has no meaning here: a partition is a task"),
        Option("sink.buffer-flush.max-rows", "int", "0", role="sink", note=_ONE_BATCH),
        Option("sink.buffer-flush.interval", "duration", "0 ms", role="sink", note=_ONE_BATCH),
        Option("sink.transaction-naming-strategy", role="sink", note="has no meaning here: a sink of a job has one transactional id"),
    )
)  # fmt: skip


class UpsertKafkaConnector(Connector):
    """Newest rows by key."""

    def options(self, table: Table) -> OptionSet:
        """The connector's options and those of the formats, under their prefixes."""
        found = OPTIONS
        said = dict(table.options)
        for option, prefix in (("value.format", "value."), ("key.format", "key.")):
            if said.get(option) in ROWS:
                found = found + options_of(said[option]).under(f"{prefix}{said[option]}.")
        return found

    def check(self, table: Table, role: Role) -> OptionValues:
        """PRIMARY KEY, topic, formats, METADATA and where to end."""
        said = self.options(table).read(table, role.value)
        if not table.primary_key:
            raise SqlError.of(
                "missing-primary-key",
                f"table `{table.name}` needs a PRIMARY KEY: its columns are the keys of the records, by which rows are changed and deleted",
                table.span,
                "declare PRIMARY KEY (…) NOT ENFORCED",
            )
        for option in ("key.format", "value.format"):
            name = dict(table.options)[option]
            if name in CHANGES:
                raise UnsupportedFeature.of(
                    "format-of-changes",
                    f"table `{table.name}`: `{option}` is `{name}`, whose records are changes, and here a record is a row",
                    dict(table.option_spans).get(option),
                    "use the connector `kafka`, or the format json",
                )
            refuse_unknown(table, option, ROWS)
        if len(topics(said)) != 1:
            raise UnsupportedFeature.of(
                "one-topic", f"table `{table.name}`: `topic` must be one topic", dict(table.option_spans).get("topic")
            )
        options = _as_kafka(table, said)
        check_records(table, options, role)
        return options

    def changelog(self, table: Table) -> ChangelogMode:
        """Upserts."""
        return ChangelogMode.UPSERT

    def read_whole(self, table: Table) -> bool:
        """Where fields have no names, or some columns lie in the key."""
        return is_read_whole(table)

    def positions(self, table: Table) -> dict[str, str]:
        """Return those of the key, which is the PRIMARY KEY, and of the value."""
        return record_positions(table, table.primary_key, upsert=True)

    def takes(self, table: Table) -> ChangelogMode:
        """Upserts."""
        return ChangelogMode.UPSERT

    def again(self, table: Table) -> Again:
        """The newest record of a key counts."""
        return Again.COMPARED

    def source(self, table: Table) -> Source:
        """Reads the topic."""
        from everfold.connectors.kafka.source import KafkaSource

        return KafkaSource(table, self.check(table, Role.SOURCE), upsert=True)

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """Writes to the topic, exactly once."""
        from everfold.connectors.kafka.sink import KafkaSink

        return KafkaSink(context, self.check(context.table, Role.SINK), upsert=True)


CONNECTOR = UpsertKafkaConnector(
    name="upsert-kafka", meaning="topics of Apache Kafka that hold the newest row of each key"
)


def _as_kafka(table: Table, said: OptionValues) -> OptionValues:
    """The options as the connector `kafka` has them: what is not the author's to say here is said for him."""
    decided = {
        "format": None, "topic-pattern": None, "key.fields": table.primary_key, "scan.startup.mode": "earliest-offset",
        "sink.partitioner": "default",
    }  # fmt: skip
    return replace(said, values={**said.values, **decided})
