"""Connector `upsert-kafka`: a topic whose records are the current rows of their keys.

A tombstone deletes the row of its key. Named and configured as in Flink. As a source it emits
upserts: +U, and -D with only the PRIMARY KEY. It is always read from the beginning. As a sink, a
batch writes the last row of each key, exactly once.
"""

from __future__ import annotations

from dataclasses import replace
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
from everfold.connectors.formats.registry import CHANGES, options_of, require_format
from everfold.connectors.kafka.connector import OPTIONS as KAFKA_OPTIONS
from everfold.connectors.kafka.connector import check_records
from everfold.connectors.kafka.table_options import ROWS, is_read_whole, locate_topics, record_positions, topics
from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table

_KAFKA_OPTIONS = (
    "properties.bootstrap.servers", "properties.group.id", "properties.*", "key.fields-prefix", "value.fields-include", "scan.bounded.mode",
    "scan.bounded.specific-offsets", "scan.bounded.timestamp-millis", "scan.topic-partition-discovery.interval", "scan.max-bytes-per-batch",
    "scan.max-records-per-batch", "sink.delivery-guarantee", "sink.transactional-id-prefix", "sink.parallelism",
)  # fmt: skip
_ONE_BATCH = "has no meaning here: a batch writes one record per key"

OPTIONS = OptionSet(
    (
        Option("topic", required=True, meaning="the topic"),
        Option("key.format", required=True, meaning="the format of keys: json, csv, raw, avro or avro-confluent"),
        Option("value.format", required=True, meaning="the format of values: json, csv, raw, avro or avro-confluent"),
        *(option for option in KAFKA_OPTIONS.options if option.name in _KAFKA_OPTIONS),
        Option("scan.parallelism", "int", role="source", note="has no meaning here: each partition is a task"),
        Option("sink.buffer-flush.max-rows", "int", "0", role="sink", note=_ONE_BATCH),
        Option("sink.buffer-flush.interval", "duration", "0 ms", role="sink", note=_ONE_BATCH),
        Option("sink.transaction-naming-strategy", role="sink", note="has no meaning here: transactional ids are named after the job, the sink and the task"),
    )
)  # fmt: skip


class UpsertKafkaConnector(Connector):
    """Tables of the current rows by key."""

    def options(self, table: Table) -> OptionSet:
        """Return the options of the connector and of the formats, with their prefixes."""
        found = OPTIONS
        given = dict(table.options)
        for option, prefix in (("value.format", "value."), ("key.format", "key.")):
            if given.get(option) in ROWS:
                found = found + options_of(given[option]).add_prefix(f"{prefix}{given[option]}.")
        return found

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check PRIMARY KEY, topic, formats, METADATA, and where reading ends."""
        options = self.options(table).read(table, role.value)
        if not table.primary_key:
            raise SqlError.of(
                "missing-primary-key",
                f"table `{table.name}` needs a PRIMARY KEY: its columns are the keys of the records, "
                "by which rows are changed and deleted",
                table.span,
                "declare PRIMARY KEY (…) NOT ENFORCED",
            )
        for option in ("key.format", "value.format"):
            name = dict(table.options)[option]
            if name in CHANGES:
                raise UnsupportedFeature.of(
                    "format-of-changes",
                    f"table `{table.name}`: `{option}` is `{name}`, whose records are changes, "
                    "but here each record is a row",
                    table.span_of_option(option),
                    "use the connector `kafka`, or the format json",
                )
            require_format(table, option, ROWS)
        if len(topics(options)) != 1:
            raise UnsupportedFeature.of(
                "one-topic", f"table `{table.name}`: `topic` must be one topic", table.span_of_option("topic")
            )
        options = _to_kafka_options(table, options)
        check_records(table, options, role)
        return options

    def changelog(self, table: Table) -> ChangelogMode:
        """Return upserts."""
        return ChangelogMode.UPSERT

    def needs_whole_record(self, table: Table) -> bool:
        """Return whether a field has no name in a record, or some columns are in the key."""
        return is_read_whole(table)

    def positions(self, table: Table) -> dict[str, str]:
        """Return the positions of columns in keys (the PRIMARY KEY) and values."""
        return record_positions(table, table.primary_key, upsert=True)

    def locations(self, table: Table, options: OptionValues, base_folder: Path) -> frozenset[str]:
        """Return the topics at each broker."""
        return locate_topics(options)

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return a source that reads the topic."""
        from everfold.connectors.kafka.source import KafkaSource

        return KafkaSource(table, options, upsert=True)

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that writes to the topic exactly once."""
        from everfold.connectors.kafka.sink import KafkaSink

        return KafkaSink(context, options, upsert=True)


CONNECTOR = UpsertKafkaConnector(
    name="upsert-kafka",
    meaning="topics of Apache Kafka that hold the newest row of each key",
    accepts=ChangelogMode.UPSERT,
    on_replay=ReplayEffect.OVERWRITES_AND_COMPARES,
    writes_in_process=True,
)


def _to_kafka_options(table: Table, options: OptionValues) -> OptionValues:
    """Convert options to those of the connector `kafka`.

    Options that cannot be set for `upsert-kafka` get fixed values.
    """
    fixed = {
        "format": None, "topic-pattern": None, "key.fields": table.primary_key, "scan.startup.mode": "earliest-offset",
        "sink.partitioner": "default",
    }  # fmt: skip
    return replace(options, values={**options.values, **fixed})
