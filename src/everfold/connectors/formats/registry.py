"""The formats by name."""

from __future__ import annotations

from everfold.connectors.formats.contract import Format
from everfold.connectors.options import OptionSet, OptionValues
from everfold.errors import SqlError, nearest
from everfold.plan.nodes import Table

NAMES = ("json", "csv", "raw", "parquet")


def options_of(name: str) -> OptionSet:
    """The options of a format, without its prefix."""
    match name:
        case "json":
            from everfold.connectors.formats.json import OPTIONS
        case "csv":
            from everfold.connectors.formats.csv import OPTIONS
        case "raw":
            from everfold.connectors.formats.raw import OPTIONS
        case _:
            from everfold.connectors.formats.parquet import OPTIONS
    return OPTIONS


def format_of(name: str, table: Table, options: OptionValues, prefix: str) -> Format:
    """A format of text records with the options `<prefix>…` of a table."""
    match name:
        case "json":
            from everfold.connectors.formats.json import JsonFormat

            return JsonFormat.of(table, options, prefix)
        case "csv":
            from everfold.connectors.formats.csv import CsvFormat

            return CsvFormat.of(table, options, prefix)
        case _:
            from everfold.connectors.formats.raw import RawFormat

            assert name == "raw", name
            return RawFormat.of(table, options, prefix)


def refuse_unknown(table: Table, option: str, known: tuple[str, ...]) -> str:
    """The format that a table's option names; SqlError `missing-option`, `unknown-format`."""
    name = dict(table.options).get(option)
    span = dict(table.option_spans).get(option)
    if name is None:
        raise SqlError.of(
            "missing-option", f"table `{table.name}` needs option `{option}`", dict(table.option_spans).get("connector"),
            f"add '{option}' = 'json', or one of {', '.join(known)}",
        )  # fmt: skip
    if name not in known:
        raise SqlError.of(
            "unknown-format",
            f"table `{table.name}`: the connector `{table.connector}` has no format `{name}`",
            span,
            nearest(name, known) or f"there are {', '.join(known)}",
        )
    return name
