"""Registry of formats."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from everfold.connectors.formats.format import Format
from everfold.connectors.options import OptionSet, OptionValues
from everfold.errors import SqlError, suggest_name
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.types import DataType

_MODULES = {
    "json": "json",
    "csv": "csv",
    "raw": "raw",
    "avro": "avro",
    "avro-confluent": "avro_confluent",
    "parquet": "parquet",
    "debezium-json": "debezium",
    "canal-json": "canal",
}
"""Modules by format name. Each defines `OPTIONS`, and `FORMAT` or functions to read files."""
NAMES = tuple(_MODULES)
CHANGES = ("debezium-json", "canal-json")
"""The formats whose records are changes."""
POSITIONAL = ("csv", "raw", "avro")
"""The formats whose records do not name their fields."""


def options_of(name: str) -> OptionSet:
    """Return the options of a format, without its prefix."""
    found: OptionSet = _load_module(name).OPTIONS
    return found


def metadata_of(name: str) -> dict[str, DataType]:
    """Return the METADATA keys of a format, with their types."""
    found: dict[str, DataType] = _load_module(name).METADATA if name in CHANGES else {}
    return found


def is_positional(name: str | None) -> bool:
    """Return whether the fields of a record have no names.

    Such a record can be decoded only with all columns of the table.
    """
    return name in POSITIONAL


def positions_in(name: str | None, record: str, columns: Iterable[str]) -> dict[str, str]:
    """Return the positions of the columns in a record, none if its format names the fields.

    record: the noun for the record in messages.
    """
    if not is_positional(name):
        return {}
    return {column: f"field {at} of the {record}" for at, column in enumerate(columns, 1)}


def changelog_of(name: str | None) -> ChangelogMode:
    """Return the changelog mode of a format's records."""
    return ChangelogMode.ALL if name in CHANGES else ChangelogMode.INSERT_ONLY


def format_of(name: str, table: Table, options: OptionValues, prefix: str) -> Format:
    """Return a format of records, configured by the options `<prefix>…` of a table."""
    found: Format = _load_module(name).FORMAT.of(table, options, prefix)
    return found


def _load_module(name: str) -> Any:
    return import_module(f"everfold.connectors.formats.{_MODULES[name]}")


def require_format(table: Table, option: str, known: tuple[str, ...]) -> str:
    """Return the format that a table's option names.

    Raises SqlError `missing-option`, `unknown-format`.
    """
    name = table.option(option)
    span = table.span_of_option(option)
    if name is None:
        raise SqlError.of(
            "missing-option", f"table `{table.name}` needs option `{option}`",
            table.span_of_option("connector"),
            f"add '{option}' = 'json', or one of {', '.join(known)}",
        )  # fmt: skip
    if name not in known:
        raise SqlError.of(
            "unknown-format",
            f"table `{table.name}`: the connector `{table.connector}` has no format `{name}`",
            span,
            suggest_name(name, known) or f"available formats: {', '.join(known)}",
        )
    return name
