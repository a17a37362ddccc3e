"""Connector `kafka`: its options and checks. Options have the names of Flink's Kafka connector."""

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
    Role,
    SinkContext,
    Source,
    refuse_metadata,
    refuse_written_metadata,
    wrong_option_error,
)
from everfold.connectors.formats.registry import changelog_of, options_of
from everfold.connectors.kafka.table_options import (
    FORMATS,
    METADATA,
    SERVERS,
    WRITABLE,
    is_read_whole,
    key_columns,
    key_format,
    locate_topics,
    parse_offsets,
    record_positions,
    split_names,
    topics,
    value_columns,
    value_format,
    value_format_name,
    value_metadata,
)
from everfold.connectors.options import missing_option_error
from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table

_STARTUP = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_BOUNDED = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")

OPTIONS = OptionSet(
    (
        Option("topic", meaning="the topic, or several topics separated by `;`"),
        Option("topic-pattern", "regex", role="source", meaning="a regular expression for the names of the topics"),
        Option(SERVERS, required=True, meaning="the list of brokers, as `host:9092`"),
        Option("properties.group.id", meaning="the consumer group that `group-offsets` starts from, and that progress is committed to"),
        Option("properties.*", meaning="settings of the Kafka client, passed on unchanged", secret=True),
        Option("format", meaning="the format of values: json, csv, raw, avro, avro-confluent, debezium-json or canal-json"),
        Option("value.format", meaning="the same as `format`"),
        Option("key.format", meaning="the format of keys: json, csv, raw, avro or avro-confluent"),
        Option("key.fields", meaning="the columns in the key, separated by `;`"),
        Option("key.fields-prefix", default="", meaning="prefix of the key columns in the table, which their names in the key do not have"),
        Option("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL", meaning="whether the value contains the key columns too"),
        Option("scan.startup.mode", _STARTUP, "group-offsets", role="source", meaning="where to start reading"),
        Option("scan.startup.specific-offsets", role="source", meaning="offsets to start from, as `partition:0,offset:42;partition:1,offset:300`"),
        Option("scan.startup.timestamp-millis", "int", role="source", meaning="time to start from, in milliseconds since 1970"),
        Option("scan.bounded.mode", _BOUNDED, "unbounded", role="source", meaning="where to stop reading; fixed when the job is first started"),
        Option("scan.bounded.specific-offsets", role="source", meaning="offsets to stop before, as `partition:0,offset:42`"),
        Option("scan.bounded.timestamp-millis", "int", role="source", meaning="time to stop before, in milliseconds since 1970"),
        Option("scan.topic-partition-discovery.interval", "duration", "5 min", role="source", note="has no meaning here: every batch looks for new partitions"),
        Option("scan.watermark.idle-timeout", "duration", role="source", note="has no meaning here: SET 'table.exec.source.idle-timeout' applies to all tables"),
        Option("scan.max-bytes-per-batch", "memory", "512 mb", role="source", least=1, meaning="maximum size of the records in a batch of a stream; estimated from the newest records, up to 5 million of them"),
        Option("scan.max-records-per-batch", "int", role="source", least=1, meaning="maximum number of records in a batch of a stream; replaces `scan.max-bytes-per-batch`"),
        Option("sink.partitioner", ("default", "fixed", "round-robin"), "default", role="sink", meaning="how records are assigned to partitions"),
        Option("sink.delivery-guarantee", ("exactly-once", "at-least-once", "none"), "exactly-once", role="sink"),
        Option("sink.transactional-id-prefix", default="everfold", role="sink", meaning="prefix of transactional ids"),
        Option("sink.parallelism", "int", role="sink", note="has no meaning here: the tasks that compute the rows write them"),
    )
)  # fmt: skip


class KafkaConnector(Connector):
    """Tables of Kafka records."""

    def options(self, table: Table) -> OptionSet:
        """Return the options of the connector and of the table's formats, with their prefixes."""
        found = OPTIONS
        given = dict(table.options)
        for option, prefix in (("format", ""), ("value.format", "value."), ("key.format", "key.")):
            if given.get(option) in FORMATS:
                found = found + options_of(given[option]).add_prefix(f"{prefix}{given[option]}.")
        return found

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check topics, formats, key columns, METADATA, and where reading starts and ends."""
        options = self.options(table).read(table, role.value)
        _check_topics(table, options, role)
        if table.primary_key and self.accepted_changelog(table) is ChangelogMode.INSERT_ONLY:
            raise UnsupportedFeature.of(
                "primary-key",
                f"table `{table.name}`: a topic of format `{value_format_name(table)}` keeps every record, "
                "so several rows can have the same PRIMARY KEY",
                table.span,
                "leave the PRIMARY KEY out, or use the connector `upsert-kafka`",
            )
        check_records(table, options, role)
        return options

    def changelog(self, table: Table) -> ChangelogMode:
        """Return the changelog mode of the value format."""
        return changelog_of(value_format_name(table))

    def needs_whole_record(self, table: Table) -> bool:
        """Return whether a field has no name in a record, or some columns are in the key."""
        return is_read_whole(table)

    def positions(self, table: Table) -> dict[str, str]:
        """Return the positions of columns in keys and values."""
        return record_positions(table, split_names(table.option("key.fields")))

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Return the changes that the value format can represent: records are never replaced."""
        return self.changelog(table)

    def locations(self, table: Table, options: OptionValues, base_folder: Path) -> frozenset[str]:
        """Return the topics at each broker."""
        return locate_topics(options)

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return a source that reads the topics."""
        from everfold.connectors.kafka.source import KafkaSource

        return KafkaSource(table, options)

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that writes to the topic exactly once."""
        from everfold.connectors.kafka.sink import KafkaSink

        return KafkaSink(context, options)


CONNECTOR = KafkaConnector(name="kafka", meaning="topics of Apache Kafka", writes_in_process=True)


# --- checks ---------------------------------------------------------------------------------------


def check_records(table: Table, options: OptionValues, role: Role) -> None:
    """Check that keys, values and METADATA of a table can be read or written.

    Also checks where reading starts and ends. Raises SqlError.
    """
    if role is Role.SOURCE:
        refuse_metadata(table, (*METADATA, *value_metadata(table)), role)
        _check_offsets(table, options)
    else:
        written = tuple(each for each in table.columns if not each.virtual)
        refuse_metadata(replace(table, columns=written), (*METADATA, *value_metadata(table)), role)
        refuse_written_metadata(table, WRITABLE, "record")
    _check_stores(table, options)
    value_format(table, options).check(table, value_columns(table, options, role))
    keys = key_columns(table, options, role)
    found_key = key_format(table, options)
    if found_key is not None:
        if not keys:
            raise wrong_option_error(table, "key.format", "`key.format` is set, but `key.fields` names no column")
        found_key.check(table, keys)
    elif keys:
        raise missing_option_error(table, "key.format", "key.fields")


def _check_topics(table: Table, options: OptionValues, role: Role) -> None:
    pattern = options.string_or_none("topic-pattern")
    names = topics(options)
    if bool(names) == (pattern is not None):
        raise SqlError.of(
            "missing-option" if not names else "wrong-option-value",
            f"table `{table.name}` needs option `topic`"
            if not names
            else f"table `{table.name}`: `topic` or `topic-pattern`, not both",
            table.span_of_option("topic-pattern" if names else "connector"),
        )
    if role is Role.SINK and len(names) != 1:
        raise UnsupportedFeature.of(
            "sink-topics",
            f"table `{table.name}`: rows can be written to one topic only",
            table.span_of_option("topic"),
        )


def _check_stores(table: Table, options: OptionValues) -> None:
    """Refuse key stores that only Java can read.

    Offsets and topics are queried with a client that is not written in Java.
    """
    given = options.with_prefix("properties.")
    for store, known in (("truststore", ("PEM",)), ("keystore", ("PEM", "PKCS12"))):
        of = given.get(f"ssl.{store}.type", "JKS").upper()
        if f"ssl.{store}.location" in given and of not in known:
            option = f"properties.ssl.{store}.location"
            raise UnsupportedFeature.of(
                "java-key-store",
                f"table `{table.name}`: `{option}` is a store of type {of}, which only Java can read",
                table.span_of_option(option),
                f"write it as PEM (keytool, openssl pkcs12) and set 'properties.ssl.{store}.type' = 'PEM'",
            )


def _check_offsets(table: Table, options: OptionValues) -> None:
    for side in ("startup", "bounded"):
        mode = options.string(f"scan.{side}.mode")
        if mode == "group-offsets" and options.string_or_none("properties.group.id") is None:
            default = f"scan.{side}.mode" not in options.explicit
            raise SqlError.of(
                "missing-option",
                f"table `{table.name}` needs option `properties.group.id`, as `scan.{side}.mode` is `group-offsets`"
                + (", its default" if default else ""),
                table.span_of_option(f"scan.{side}.mode") or table.span_of_option("connector"),
                f"to read all records, set 'scan.{side}.mode' = 'earliest-offset'" if side == "startup" else None,
            )
        for wanted, option in (("timestamp", "timestamp-millis"), ("specific-offsets", "specific-offsets")):
            name = f"scan.{side}.{option}"
            if mode == wanted and name not in options.explicit:
                raise SqlError.of(
                    "missing-option",
                    f"table `{table.name}` needs option `{name}`, as `scan.{side}.mode` is `{mode}`",
                    table.span_of_option(f"scan.{side}.mode"),
                )
        if mode == "specific-offsets":
            parse_offsets(table, options, f"scan.{side}.specific-offsets")
            if len(topics(options)) != 1:
                raise wrong_option_error(
                    table, f"scan.{side}.mode", f"`scan.{side}.mode` = 'specific-offsets' needs exactly one topic"
                )
