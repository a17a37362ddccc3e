"""The options of a Kafka table: topics, formats, and the columns of keys and values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from everfold.connectors.contract import Role, columns_of
from everfold.connectors.formats.envelope import VALUE
from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.formats.registry import (
    CHANGES,
    format_of,
    is_positional,
    metadata_of,
    positions_in,
    require_format,
)
from everfold.connectors.options import OptionValues, wrong_option_error
from everfold.errors import suggest_name
from everfold.plan.nodes import Table
from everfold.types import BIGINT, BYTES, INT, STRING, TIMESTAMP_LTZ3, DataType, MapType

ROWS = ("json", "csv", "raw", "avro", "avro-confluent")
"""The formats of rows: of keys, and of values that are not changes."""
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
_OFFSETS = re.compile(r"partition:(\d+),offset:(\d+)")


def topics(options: OptionValues) -> tuple[str, ...]:
    """Return the names of the topics; empty if a pattern is given."""
    return split_names(options.string_or_none("topic"))


def locate_topics(options: OptionValues, default: str | None = None) -> frozenset[str]:
    """Return the topics at each of the brokers that the options name; any broker knows the others.

    default: the topic if none is given.
    """
    names = options.string_or_none("topic-pattern") if "topic-pattern" in options.values else None
    names = names or ",".join(sorted(topics(options))) or default
    servers = (server.strip().lower() for server in options.string(SERVERS).split(","))
    return frozenset(f"{server}/{names}" for server in servers if server)


def value_format_name(table: Table) -> str | None:
    """Return the name of the value format, None if it is missing."""
    given = dict(table.options)
    return given.get("value.format", given.get("format"))


def is_read_whole(table: Table) -> bool:
    """Return whether the position of a field in a record depends on all columns."""
    given = dict(table.options)
    return "key.fields" in given or any(is_positional(given.get(of)) for of in ("format", "key.format", "value.format"))


def record_positions(table: Table, keys: Sequence[str], *, upsert: bool = False) -> dict[str, str]:
    """Return the positions of columns in keys and values.

    keys: the columns in the key. upsert: whether columns that are also in the value are read from
    both.
    """
    given = dict(table.options)
    left_out = keys if given.get("value.fields-include", "").upper() == "EXCEPT_KEY" else ()
    columns = [each.name for each in table.columns if each.metadata_key is None and each.name not in left_out]
    found = positions_in(value_format_name(table), "value", columns)
    by_name = {column: "in the key" for column in keys if column not in columns}
    for column, position in (by_name | positions_in(given.get("key.format"), "key", keys)).items():
        if upsert or column not in columns:
            found[column] = f"{found[column]} and {position}" if column in found else position
    return found


def value_metadata(table: Table) -> tuple[str, ...]:
    """Return the METADATA keys of the value format, named as in Flink's Kafka tables."""
    return tuple(VALUE + key for key in metadata_of(value_format_name(table) or ""))


def value_format(table: Table, options: OptionValues) -> Format:
    """Return the value format."""
    given = dict(table.options)
    if "format" in given and "value.format" in given:
        raise wrong_option_error(
            table, "value.format", "`format` and `value.format` have the same meaning: leave one out"
        )
    option = "value.format" if "value.format" in given else "format"
    name = require_format(table, option, FORMATS)
    return format_of(name, table, options, f"{'value.' if option == 'value.format' else ''}{name}.")


def key_format(table: Table, options: OptionValues) -> Format | None:
    """Return the key format, None if keys are not read or written."""
    if "key.format" not in options.explicit:
        return None
    name = require_format(table, "key.format", ROWS)
    return format_of(name, table, options, f"key.{name}.")


def key_fields(options: OptionValues) -> tuple[str, ...]:
    """Return the names of the table's columns in the key."""
    if isinstance(found := options.values["key.fields"], tuple):
        return found
    return split_names(options.string_or_none("key.fields"))


def split_names(text: str | None) -> tuple[str, ...]:
    """Split a list of names that are separated by `;`."""
    return tuple(each.strip() for each in (text or "").split(";") if each.strip())


def key_columns(table: Table, options: OptionValues, role: Role) -> tuple[RecordColumn, ...]:
    """Return the columns in the key. Raises SqlError for one that the table does not have."""
    prefix = options.string("key.fields-prefix")
    if prefix and options.string("value.fields-include") != "EXCEPT_KEY":
        raise wrong_option_error(
            table, "key.fields-prefix", "`key.fields-prefix` needs 'value.fields-include' = 'EXCEPT_KEY'"
        )
    known = {
        column.name: (at, column) for at, column in enumerate(columns_of(table, role)) if column.metadata_key is None
    }
    found: list[RecordColumn] = []
    for name in key_fields(options):
        if name not in known:
            raise wrong_option_error(
                table, "key.fields", f"`key.fields` names `{name}`, which is not a column", suggest_name(name, known)
            )
        if not name.startswith(prefix):
            raise wrong_option_error(
                table, "key.fields", f"the key column `{name}` does not begin with `{prefix}`, the `key.fields-prefix`"
            )
        at, column = known[name]
        found.append(RecordColumn(name[len(prefix) :], at, column.type))
    return tuple(found)


def value_columns(table: Table, options: OptionValues, role: Role) -> tuple[RecordColumn, ...]:
    """Return the columns in the value."""
    left_out = set(key_fields(options)) if options.string("value.fields-include") == "EXCEPT_KEY" else set()
    return tuple(
        RecordColumn(column.name, at, column.type)
        for at, column in enumerate(columns_of(table, role))
        if column.metadata_key is None and column.name not in left_out
    )


def parse_offsets(table: Table, options: OptionValues, option: str) -> dict[int, int]:
    """Parse `partition:0,offset:42;partition:1,offset:300` to offsets by partition."""
    found: dict[int, int] = {}
    for part in (options.string_or_none(option) or "").rstrip(";").split(";"):
        match = _OFFSETS.fullmatch(part.replace(" ", ""))
        if match is None or int(match.group(1)) in found:
            raise wrong_option_error(
                table, option, f"option `{option}` takes `partition:0,offset:42;partition:1,offset:300`"
            )
        found[int(match.group(1))] = int(match.group(2))
    return found
