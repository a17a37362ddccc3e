"""Topics as tables: apply the options `topic.<name>.…`, and choose the connector.

A topic is on a Kafka cluster if `properties.bootstrap.servers` is set. Without it the table has no
connector, and the caller supplies its rows.
"""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import Span, SqlError
from everfold.plan.nodes import Table
from everfold.plan.topic_storage import CONNECTOR
from everfold.sql.binder.ddl import bind_create_table
from everfold.sql.catalog import Catalog, CatalogTable
from everfold.sql.statements import CreateTopic

_BROKERS = "properties.bootstrap.servers"


def bind_topic(statement: CreateTopic, catalog: Catalog) -> CatalogTable:
    """Return the topic that a CREATE TABLE of Lenses SQL declares.

    All errors in it are raised together.
    """
    entry = bind_create_table(statement, catalog)
    return replace(entry, table=configure_topic(entry.table, catalog))


def configure_topic(table: Table, catalog: Catalog) -> Table:
    """Return the table with the options set for its topic."""
    options = catalog.settings.topic_options(table.name)
    if _BROKERS in options:
        options["connector"] = CONNECTOR
    return catalog.connected(replace(table, options=tuple(sorted({**dict(table.options), **options}.items()))))


def check_late_option(key: str, catalog: Catalog, span: Span | None) -> None:
    """Raise SqlError `late-option` for an option of a topic that already exists.

    The option would have no effect.
    """
    late = next((entry.name for entry in catalog.entries() if key.startswith(f"topic.{entry.name}.")), None)
    if late is not None:
        raise SqlError.of(
            "late-option",
            f"`{key}` would have no effect: `{late}` exists already",
            span,
            "set it before the topic is declared",
        )
