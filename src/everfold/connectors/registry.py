"""Registry of connectors."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from everfold.connectors.contract import Connector
from everfold.errors import EverfoldError, SqlError, suggest_name
from everfold.plan.nodes import Table

_MODULES = {
    "filesystem": "everfold.connectors.filesystem.connector",
    "kafka": "everfold.connectors.kafka.connector",
    "upsert-kafka": "everfold.connectors.kafka.upsert",
    "topic": "everfold.connectors.kafka.topic",
    "jdbc": "everfold.connectors.jdbc.connector",
    "delta": "everfold.connectors.delta.connector",
    "iceberg": "everfold.connectors.iceberg",
    "print": "everfold.connectors.printing",
    "blackhole": "everfold.connectors.blackhole",
    "datagen": "everfold.connectors.datagen",
}
"""Modules by connector name. Each defines `CONNECTOR`, and is imported on first use."""
_REFUSED = ("iceberg",)
"""Connectors whose tables are refused with the reason."""


def connector_names(*, refused: bool = False) -> tuple[str, ...]:
    """Return the valid values of `'connector' = …`.

    refused: also the names of connectors whose tables are refused.
    """
    return tuple(name for name in _MODULES if refused or name not in _REFUSED)


def get_connector(name: str) -> Connector:
    """Return a connector. Raises SqlError `unknown-connector` with the nearest name."""
    if name not in _MODULES:
        raise SqlError.of("unknown-connector", _unknown(name), help=_help(name))
    found: Connector = import_module(_MODULES[name]).CONNECTOR
    return found


_TOPIC_HELP = (
    "set its brokers first, with SET defaults.topic.properties.bootstrap.servers = 'host:9092';"
    " or declare it in Flink's dialect"
)


def connector_of(table: Table) -> Connector:
    """Return the connector of a table.

    Raises SqlError `missing-option` if the table has none, `unknown-connector` for an unknown name.
    """
    name = table.connector
    if name is None:
        raise SqlError.of(
            "missing-option",
            f"table `{table.name}` has no connector",
            table.span,
            _TOPIC_HELP
            if "value.format" in dict(table.options)
            else f"add WITH ('connector' = '…'): one of {', '.join(connector_names())}",
        )
    if name not in _MODULES:
        raise SqlError.of(
            "unknown-connector",
            f"table `{table.name}`: {_unknown(name)}",
            table.span_of_option("connector"),
            _help(name),
        )
    return get_connector(name)


def apply_connector(table: Table) -> Table:
    """Fill in the table's fields that its connector determines.

    These are the changelog mode of its rows, whether it is bounded, whether records are read whole,
    and the columns found by position. Never raises: if the table cannot be read as declared, the
    error is a field of it. A table without options, whose rows are given, is returned unchanged; so
    is a topic of Lenses SQL without a connector.
    """
    if table.connector is None and (not table.options or "value.format" in dict(table.options)):
        return table
    bounded, error = False, None
    try:
        of = connector_of(table)
    except EverfoldError as wrong:
        return replace(table, declaration_error=wrong)
    try:
        bounded = of.is_bounded(table)
    except EverfoldError as wrong:
        error = wrong
    return replace(
        table,
        changelog=of.changelog(table),
        bounded=bounded,
        declaration_error=error,
        needs_all_columns=of.needs_whole_record(table),
        positions=tuple(of.positions(table).items()),
    )


def _unknown(name: str) -> str:
    return f"no connector is named `{name}`"


def _help(name: str) -> str:
    return suggest_name(name, connector_names()) or f"available connectors: {', '.join(connector_names())}"
