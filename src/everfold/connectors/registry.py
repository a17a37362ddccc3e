"""The connectors by name."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from everfold.connectors.contract import Connector
from everfold.errors import SqlError, nearest
from everfold.plan.nodes import Table

_WHERE = {
    "filesystem": "everfold.connectors.filesystem.connector",
    "kafka": "everfold.connectors.kafka.connector",
    "upsert-kafka": "everfold.connectors.kafka.upsert",
    "topic": "everfold.connectors.kafka.topic",
    "jdbc": "everfold.connectors.jdbc.connector",
    "print": "everfold.connectors.printing",
    "blackhole": "everfold.connectors.blackhole",
    "datagen": "everfold.connectors.datagen",
}
"""Each module has a `CONNECTOR`; it is imported when a table first asks for it."""


def names() -> tuple[str, ...]:
    """The names that `'connector' = …` takes."""
    return tuple(_WHERE)


def connector(name: str) -> Connector:
    """The connector of that name; SqlError `unknown-connector` with the nearest name."""
    if name not in _WHERE:
        raise SqlError.of("unknown-connector", _unknown(name), help=_help(name))
    made: Connector = import_module(_WHERE[name]).CONNECTOR
    return made


_TOPIC_HELP = "say where its brokers are: SET defaults.topic.properties.bootstrap.servers = 'host:9092' before it; or declare it in Flink's dialect"


def connector_of(table: Table) -> Connector:
    """The connector of a table; SqlError `missing-option` if it names none, `unknown-connector` if nobody knows it."""
    name = table.connector
    if name is None:
        raise SqlError.of(
            "missing-option",
            f"table `{table.name}` has no connector",
            table.span,
            _TOPIC_HELP
            if "value.format" in dict(table.options)
            else f"add WITH ('connector' = '…'): one of {', '.join(names())}",
        )
    if name not in _WHERE:
        raise SqlError.of(
            "unknown-connector",
            f"table `{table.name}`: {_unknown(name)}",
            dict(table.option_spans).get("connector"),
            _help(name),
        )
    return connector(name)


def connected(table: Table) -> Table:
    """The table with which changes its rows are when it is read, whether they end, whether they are read whole, and which columns are found by position; without a
    connector that somebody knows, as it is."""
    name = table.connector
    if name is None or name not in _WHERE:
        return table
    of = connector(name)
    return replace(
        table,
        changelog=of.changelog(table),
        bounded=of.bounded(table),
        read_whole=of.read_whole(table),
        positions=tuple(of.positions(table).items()),
    )


def _unknown(name: str) -> str:
    return f"no connector is named `{name}`"


def _help(name: str) -> str:
    return nearest(name, names()) or f"there are {', '.join(names())}"
