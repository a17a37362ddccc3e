"""Connector `kafka`: its options and checks. The names are those of Flink's Kafka SQL connector."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    columns_of,
    refuse_metadata,
    wrong_option,
)
from everfold.connectors.formats.envelope import VALUE
from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.formats.registry import (
    CHANGES,
    changelog_of,
    format_of,
    is_positional,
    metadata_of,
    options_of,
    positions_in,
    refuse_unknown,
)
from everfold.errors import Diagnostic, SqlError, UnsupportedFeature, nearest
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.types import BIGINT, BYTES, INT, STRING, TIMESTAMP_LTZ3, DataType, MapType

ROWS = ("json", "csv", "raw", "avro")
"""The formats of rows: of keys, and of values that are no changes."""
FORMATS = (*ROWS, *CHANGES)
METADATA: dict[str, DataType] = {
    "topic": STRING,
    "partition": INT,
    "headers": MapType(key=STRING, value=BYTES),
    "offset": BIGINT,
    "timestamp": TIMESTAMP_LTZ3,
    "timestamp-type": STRING,
}
WRITABLE = ("headers", "timestamp")
SERVERS = "properties.bootstrap.servers"
_STARTUP = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_BOUNDED = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_ALWAYS_ONCE = "is met: every batch is one transaction of Kafka, so its records are there exactly once"
_OFFSETS = re.compile(r"partition:(\d+),offset:(\d+)")

OPTIONS = OptionSet(
    (
        Option("topic", meaning="the topic, or topics with `;` between them"),
        Option("topic-pattern", role="source", meaning="a regular expression of the topics"),
        Option(SERVERS, required=True, meaning="where the brokers are, as `host:9092`"),
        Option("properties.group.id", meaning="the consumer group: where `group-offsets` starts, and where progress is shown"),
        Option("properties.*", meaning="settings of Kafka's client, handed on as they are", secret=True),
        Option("format", meaning="how values are written: json, csv, raw, avro, debezium-json or canal-json"),
        Option("value.format", meaning="the same as `format`"),
        Option("key.format", meaning="how keys are written: json, csv, raw or avro"),
        Option("key.fields", meaning="the columns that lie in the key, with `;` between them"),
        Option("key.fields-prefix", default="", meaning="what the names of key columns begin with in the table, but not in the key"),
        Option("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL", meaning="whether key columns lie in the value too"),
        Option("scan.startup.mode", _STARTUP, "group-offsets", role="source", meaning="where to start"),
        Option("scan.startup.specific-offsets", role="source", meaning="where, as `partition:0,offset:42;partition:1,offset:300`"),
        Option("scan.startup.timestamp-millis", "int", role="source", meaning="from which time on"),
        Option("scan.bounded.mode", _BOUNDED, "unbounded", role="source", meaning="where to end; fixed when the job is first started"),
        Option("scan.bounded.specific-offsets", role="source", meaning="before which offsets, as `partition:0,offset:42`"),
        Option("scan.bounded.timestamp-millis", "int", role="source", meaning="before which time"),
        Option("scan.topic-partition-discovery.interval", "duration", "5 min", role="source", note="has no meaning here: every batch looks"),
        Option("scan.watermark.idle-timeout", "duration", role="source", note="has no meaning here: SET 'table.exec.source.idle-timeout' counts for all tables"),
        Option("scan.max-records-per-batch", "int", "500000", role="source", meaning="how many records a batch of a stream takes in"),
        Option("sink.partitioner", ("default", "fixed", "round-robin"), "default", role="sink", meaning="how records go to partitions"),
        Option("sink.delivery-guarantee", ("exactly-once", "at-least-once", "none"), "exactly-once", role="sink"),
        Option("sink.transactional-id-prefix", default="everfold", role="sink", meaning="what transactional ids begin with"),
        Option("sink.parallelism", "int", role="sink", note="has no meaning here: one process writes"),
    )
)  # fmt: skip


class KafkaConnector(Connector):
    """Records of topics."""

    def options(self, table: Table) -> OptionSet:
        """The connector's options and those of the table's formats, under all their prefixes."""
        found = OPTIONS
        said = dict(table.options)
        for option, prefix in (("format", ""), ("value.format", "value."), ("key.format", "key.")):
            if said.get(option) in FORMATS:
                found = found + options_of(said[option]).under(f"{prefix}{said[option]}.")
        return found

    def check(self, table: Table, role: Role) -> OptionValues:
        """Topics, formats, key columns, METADATA and where to start and end."""
        options = self.options(table).read(table, role.value)
        _check_topics(table, options, role)
        if table.primary_key and self.takes(table) is ChangelogMode.INSERT_ONLY:
            raise UnsupportedFeature.of(
                "primary-key",
                f"table `{table.name}`: a topic of format `{value_format_name(table)}` keeps every record, so there can be several of a PRIMARY KEY",
                table.span,
                "leave the PRIMARY KEY out, or use the connector `upsert-kafka`",
            )
        check_records(table, options, role)
        return options

    def changelog(self, table: Table) -> ChangelogMode:
        """What the values' format makes of records."""
        return changelog_of(value_format_name(table))

    def read_whole(self, table: Table) -> bool:
        """Where fields have no names, or some columns lie in the key."""
        return is_read_whole(table)

    def positions(self, table: Table) -> dict[str, str]:
        """Return those of the key and of the value."""
        return record_positions(table, split_names(dict(table.options).get("key.fields")))

    def takes(self, table: Table) -> ChangelogMode:
        """What the values' format can hold: a record that was written stays."""
        return self.changelog(table)

    def source(self, table: Table) -> Source:
        """Reads the topics."""
        from everfold.connectors.kafka.source import KafkaSource

        return KafkaSource(table, self.check(table, Role.SOURCE))

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """Writes to the topic, exactly once."""
        from everfold.connectors.kafka.sink import KafkaSink

        return KafkaSink(context, self.check(context.table, Role.SINK))


CONNECTOR = KafkaConnector(name="kafka", meaning="topics of Apache Kafka")


# --- what the options say ---------------------------------------------------------------------------------------------


def topics(options: OptionValues) -> tuple[str, ...]:
    """The topics by name; none when a pattern is given."""
    return split_names(options.text_or_none("topic"))


def value_format_name(table: Table) -> str | None:
    """The name of the format of values, if the table gives one."""
    said = dict(table.options)
    return said.get("value.format", said.get("format"))


def is_read_whole(table: Table) -> bool:
    """Whether all columns say together where a field of a record is."""
    said = dict(table.options)
    return "key.fields" in said or any(is_positional(said.get(of)) for of in ("format", "key.format", "value.format"))


def record_positions(table: Table, keys: Sequence[str], *, upsert: bool = False) -> dict[str, str]:
    """Return the positions of columns in keys and values.

    keys: the columns that lie in the key. upsert: whether those that lie in the value too are read from both.
    """
    said = dict(table.options)
    left_out = keys if said.get("value.fields-include", "").upper() == "EXCEPT_KEY" else ()
    columns = [each.name for each in table.columns if each.metadata_key is None and each.name not in left_out]
    found = positions_in(value_format_name(table), "value", columns)
    for column, position in positions_in(said.get("key.format"), "key", keys).items():
        if upsert or column not in columns:
            found[column] = f"{found[column]} and {position}" if column in found else position
    return found


def value_metadata(table: Table) -> tuple[str, ...]:
    """The METADATA that the format of values has, as Flink names it in a table of Kafka."""
    return tuple(VALUE + key for key in metadata_of(value_format_name(table) or ""))


def value_format(table: Table, options: OptionValues) -> Format:
    """The format of values."""
    said = dict(table.options)
    if "format" in said and "value.format" in said:
        raise wrong_option(table, "value.format", "`format` and `value.format` say the same thing: leave one out")
    option = "value.format" if "value.format" in said else "format"
    name = refuse_unknown(table, option, FORMATS)
    return format_of(name, table, options, f"{'value.' if option == 'value.format' else ''}{name}.")


def key_format(table: Table, options: OptionValues) -> Format | None:
    """The format of keys, None if keys are not looked at."""
    if "key.format" not in options.given:
        return None
    name = refuse_unknown(table, "key.format", ROWS)
    return format_of(name, table, options, f"key.{name}.")


def key_fields(options: OptionValues) -> tuple[str, ...]:
    """The names of the table's columns that lie in the key."""
    if isinstance(found := options.values["key.fields"], tuple):
        return found
    return split_names(options.text_or_none("key.fields"))


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the names in a list whose separator is `;`."""
    return tuple(each.strip() for each in (text or "").split(";") if each.strip())


def key_columns(table: Table, options: OptionValues, role: Role) -> tuple[RecordColumn, ...]:
    """The columns that lie in the key. Raises SqlError for one that the table does not have."""
    prefix = options.text("key.fields-prefix")
    if prefix and options.text("value.fields-include") != "EXCEPT_KEY":
        raise wrong_option(
            table, "key.fields-prefix", "`key.fields-prefix` needs 'value.fields-include' = 'EXCEPT_KEY'"
        )
    known = {
        column.name: (at, column) for at, column in enumerate(columns_of(table, role)) if column.metadata_key is None
    }
    found: list[RecordColumn] = []
    for name in key_fields(options):
        if name not in known:
            raise wrong_option(
                table, "key.fields", f"`key.fields` names `{name}`, which is no column", nearest(name, known)
            )
        if not name.startswith(prefix):
            raise wrong_option(
                table, "key.fields", f"the key column `{name}` does not begin with `{prefix}`, the `key.fields-prefix`"
            )
        at, column = known[name]
        found.append(RecordColumn(name[len(prefix) :], at, column.type))
    return tuple(found)


def value_columns(table: Table, options: OptionValues, role: Role) -> tuple[RecordColumn, ...]:
    """The columns that lie in the value."""
    left_out = set(key_fields(options)) if options.text("value.fields-include") == "EXCEPT_KEY" else set()
    return tuple(
        RecordColumn(column.name, at, column.type)
        for at, column in enumerate(columns_of(table, role))
        if column.metadata_key is None and column.name not in left_out
    )


def specific_offsets(table: Table, options: OptionValues, option: str) -> dict[int, int]:
    """Offsets by partition, as `partition:0,offset:42;partition:1,offset:300` says them."""
    found: dict[int, int] = {}
    for part in (options.text_or_none(option) or "").rstrip(";").split(";"):
        said = _OFFSETS.fullmatch(part.replace(" ", ""))
        if said is None or int(said.group(1)) in found:
            raise wrong_option(table, option, f"option `{option}` takes `partition:0,offset:42;partition:1,offset:300`")
        found[int(said.group(1))] = int(said.group(2))
    return found


# --- checks -----------------------------------------------------------------------------------------------------------


def check_records(table: Table, options: OptionValues, role: Role) -> None:
    """Whether keys, values and METADATA of a table can be read or written, and where reading starts and ends. Raises SqlError."""
    if role is Role.SOURCE:
        refuse_metadata(table, (*METADATA, *value_metadata(table)), role)
        _check_offsets(table, options)
    else:
        _check_sink_metadata(table)
    _check_stores(table, options)
    value_format(table, options).check(table, value_columns(table, options, role))
    keys = key_columns(table, options, role)
    found_key = key_format(table, options)
    if found_key is not None:
        if not keys:
            raise wrong_option(table, "key.format", "`key.format` is set, but `key.fields` names no column")
        found_key.check(table, keys)
    elif keys:
        raise SqlError(
            Diagnostic(
                "missing-option",
                f"table `{table.name}` needs option `key.format`, as `key.fields` is set",
                dict(table.option_spans).get("key.fields"),
            )
        )
    if (count := options.number("scan.max-records-per-batch")) <= 0:
        raise wrong_option(
            table,
            "scan.max-records-per-batch",
            f"option `scan.max-records-per-batch` is {count}, but it must be above 0",
        )


def _check_topics(table: Table, options: OptionValues, role: Role) -> None:
    pattern = options.text_or_none("topic-pattern")
    named = topics(options)
    if bool(named) == (pattern is not None):
        raise SqlError(
            Diagnostic(
                "missing-option" if not named else "wrong-option-value",
                f"table `{table.name}` needs option `topic`"
                if not named
                else f"table `{table.name}`: `topic` or `topic-pattern`, not both",
                dict(table.option_spans).get("topic-pattern" if named else "connector"),
            )
        )
    if role is Role.SINK and len(named) != 1:
        raise UnsupportedFeature.of(
            "sink-topics",
            f"table `{table.name}`: rows can be written to one topic only",
            dict(table.option_spans).get("topic"),
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as wrong:
            raise wrong_option(
                table, "topic-pattern", f"option `topic-pattern` is no regular expression: {wrong}"
            ) from None


def _check_stores(table: Table, options: OptionValues) -> None:
    """Refuses key stores that Java alone can read: offsets and topics are asked for without it."""
    said = options.with_prefix("properties.")
    for store, known in (("truststore", ("PEM",)), ("keystore", ("PEM", "PKCS12"))):
        of = said.get(f"ssl.{store}.type", "JKS").upper()
        if f"ssl.{store}.location" in said and of not in known:
            option = f"properties.ssl.{store}.location"
            raise UnsupportedFeature.of(
                "java-key-store",
                f"table `{table.name}`: `{option}` is a store of type {of}, which only Java can read",
                dict(table.option_spans).get(option),
                f"write it as PEM (keytool, openssl pkcs12) and set 'properties.ssl.{store}.type' = 'PEM'",
            )


def _check_offsets(table: Table, options: OptionValues) -> None:
    for side in ("startup", "bounded"):
        mode = options.text(f"scan.{side}.mode")
        if mode == "group-offsets" and options.text_or_none("properties.group.id") is None:
            default = f"scan.{side}.mode" not in options.given
            raise SqlError(
                Diagnostic(
                    "missing-option",
                    f"table `{table.name}` needs option `properties.group.id`, as `scan.{side}.mode` is `group-offsets`"
                    + (", its default" if default else ""),
                    dict(table.option_spans).get(f"scan.{side}.mode") or dict(table.option_spans).get("connector"),
                    f"to read all, set 'scan.{side}.mode' = 'earliest-offset'" if side == "startup" else None,
                )
            )
        for wanted, option in (("timestamp", "timestamp-millis"), ("specific-offsets", "specific-offsets")):
            name = f"scan.{side}.{option}"
            if mode == wanted and name not in options.given:
                raise SqlError(
                    Diagnostic(
                        "missing-option",
                        f"table `{table.name}` needs option `{name}`, as `scan.{side}.mode` is `{mode}`",
                        dict(table.option_spans).get(f"scan.{side}.mode"),
                    )
                )
        if mode == "specific-offsets":
            specific_offsets(table, options, f"scan.{side}.specific-offsets")
            if len(topics(options)) != 1:
                raise wrong_option(
                    table, f"scan.{side}.mode", f"`scan.{side}.mode` = 'specific-offsets' needs exactly one topic"
                )


def _check_sink_metadata(table: Table) -> None:
    for column in table.columns:
        if column.metadata_key is None or column.virtual:
            continue
        if column.metadata_key not in METADATA:
            refuse_metadata(table, (*METADATA, *value_metadata(table)), Role.SINK)
        if column.metadata_key not in WRITABLE:
            raise UnsupportedFeature.of(
                "read-only-metadata",
                f"table `{table.name}`: the metadata `{column.metadata_key}` of a record cannot be written",
                table.place_of(column.name),
                f"declare `{column.name}` as METADATA VIRTUAL",
            )
