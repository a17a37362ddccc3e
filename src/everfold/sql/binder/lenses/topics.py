"""Topics as tables: what `topic.<name>.…` says of one, and where its records are.

A topic lies on brokers if `properties.bootstrap.servers` says which; without it a table has no connector, and somebody else feeds it.
"""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import Span, SqlError
from everfold.plan.nodes import Table
from everfold.sql.binder.ddl import bind_create_table
from everfold.sql.catalog import Catalog, CatalogTable
from everfold.sql.statements import CreateTopic

_BROKERS = "properties.bootstrap.servers"
_CONNECTOR = "topic"


def bind_topic(statement: CreateTopic, catalog: Catalog) -> CatalogTable:
    """The topic that a CREATE TABLE of Lenses SQL declares; whatever is wrong in it is raised together."""
    entry = bind_create_table(statement, catalog)
    return replace(entry, table=configured(entry.table, catalog))


def configured(table: Table, catalog: Catalog) -> Table:
    """The table with what options say of its topic."""
    options = catalog.settings.topic_options(table.name)
    if _BROKERS in options:
        options["connector"] = _CONNECTOR
    return catalog.connected(replace(table, options=tuple(sorted({**dict(table.options), **options}.items()))))


def check_in_time(key: str, catalog: Catalog, span: Span | None) -> None:
    """SqlError `late-option` for an option of one topic that is declared or made already: it would have no effect."""
    late = next((entry.name for entry in catalog.entries() if key.startswith(f"topic.{entry.name}.")), None)
    if late is not None:
        raise SqlError.of(
            "late-option", f"`{key}` would have no effect: `{late}` is there already", span, "set it before the topic"
        )
