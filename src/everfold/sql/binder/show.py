"""DESCRIBE and SHOW: the catalog as rows and SQL, in Flink's format."""

from __future__ import annotations

from collections.abc import Callable

from everfold.errors import Diagnostic, Span, SqlError
from everfold.secrets import redact_value
from everfold.sql.catalog import CATALOG, DATABASE, Catalog, CatalogTable, CatalogView, Column, Entry
from everfold.sql.dialects.render import quote_name
from everfold.sql.settings import Settings
from everfold.types import (
    MAX_VARCHAR,
    ArrayType,
    BytesType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    StringType,
    TimestampType,
)

_COLUMNS = ("name", "type", "null", "key", "extras", "watermark")


def describe_columns(entry: Entry) -> tuple[str, ...]:
    """Return the columns of DESCRIBE; `comment` only if any column has one."""
    commented = isinstance(entry, CatalogTable) and any(column.comment for column in entry.columns)
    return (*_COLUMNS, "comment") if commented else _COLUMNS


def describe(entry: Entry) -> tuple[tuple[str, ...], ...]:
    """Return the rows of DESCRIBE."""
    if isinstance(entry, CatalogView):
        return tuple(
            (field.name, _format_type(field), _boolean(field.type.nullable), "", "", "") for field in entry.schema
        )
    commented = len(describe_columns(entry)) > len(_COLUMNS)
    rows = []
    for at, (column, field) in enumerate(zip(entry.columns, entry.schema, strict=True)):
        keys = entry.table.primary_key
        watermark = entry.watermark.text if entry.watermark is not None and entry.watermark.column == at else ""
        row = (
            column.name,
            _format_type(field),
            _boolean(field.type.nullable),
            f"PRI({', '.join(keys)})" if column.name in keys else "",
            column.extras,
            watermark,
        )
        rows.append((*row, column.comment or "") if commented else row)
    return tuple(rows)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _format_type(field: Field) -> str:
    shown = field.type.sql
    return f"{shown} *{field.time.upper()}*" if field.time else shown


def view_names(catalog: Catalog) -> tuple[str, ...]:
    """Return the names of the views that queries can see."""
    return tuple(entry.name for entry in catalog.entries() if isinstance(entry, CatalogView))


def function_names(catalog: Catalog, *, user: bool) -> tuple[str, ...]:
    """Return the names that SHOW FUNCTIONS lists: the user's and, unless `user`, built-in ones."""
    from everfold.sql.binder.names import aggregate_names
    from everfold.sql.functions import names

    own = {function.name.lower() for function in catalog.functions}
    return tuple(sorted(own if user else own | {name.lower() for name in (*names(), *aggregate_names())}))


ShowOption = Callable[[str], str]
"""Returns an option's value as the script writes it: with the names of environment variables."""


def list_options(settings: Settings, show_option: ShowOption) -> tuple[tuple[str, str], ...]:
    """Return the rows of SET without arguments."""
    return tuple((key, redact_value(key, show_option(value))) for key, value in sorted(settings.options.items()))


# --- SHOW CREATE ----------------------------------------------------------------------------------


def show_create(entry: Entry, kind: str, span: Span | None, show_option: ShowOption) -> str:
    """Return the statement that creates a table or view. Values of secret options are masked."""
    is_view = isinstance(entry, CatalogView)
    if is_view != (kind == "VIEW"):
        found, other = ("view", "VIEW") if is_view else ("table", "TABLE")
        raise SqlError(
            Diagnostic(
                f"not-a-{kind.lower()}", f"`{entry.name}` is a {found}", span, f"SHOW CREATE {other} {entry.name}"
            )
        )
    return _view(entry) if isinstance(entry, CatalogView) else _table(entry, show_option)


def _head(kind: str, entry: Entry) -> str:
    temporary = "TEMPORARY " if entry.temporary else ""
    return f"CREATE {temporary}{kind} {quote_name(CATALOG)}.{quote_name(DATABASE)}.{quote_name(entry.name)}"


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _view(view: CatalogView) -> str:
    columns = ",\n".join(f"  {quote_name(name)}" for name in view.schema.names)
    comment = f"\nCOMMENT {_quote(view.comment)}" if view.comment else ""
    return f"{_head('VIEW', view)} (\n{columns}\n){comment}\nAS {view.text}"


def _table(table: CatalogTable, show_option: ShowOption) -> str:
    lines = [_column(column) for column in table.columns]
    if table.watermark is not None:
        lines.append(
            f"WATERMARK FOR {quote_name(table.columns[table.watermark.column].name)} AS {table.watermark.text}"
        )
    keys = table.table.primary_key
    if keys:
        name = table.primary_key_name or "PK_" + "_".join(keys)
        lines.append(f"CONSTRAINT {quote_name(name)} PRIMARY KEY ({', '.join(map(quote_name, keys))}) NOT ENFORCED")
    parts = [_head("TABLE", table) + " (\n" + ",\n".join(f"  {line}" for line in lines) + "\n)"]
    if table.comment:
        parts.append(f"COMMENT {_quote(table.comment)}")
    if table.table.partition_keys:
        parts.append(f"PARTITIONED BY ({', '.join(map(quote_name, table.table.partition_keys))})")
    if table.table.options:
        shown = [(key, redact_value(key, show_option(value))) for key, value in table.table.options]
        parts.append("WITH (\n" + ",\n".join(f"  {_quote(key)} = {_quote(value)}" for key, value in shown) + "\n)")
    return "\n".join(parts)


def _column(column: Column) -> str:
    comment = f" COMMENT {_quote(column.comment)}" if column.comment else ""
    if column.kind == "computed":
        return f"{quote_name(column.name)} {column.extras}{comment}"
    extras = f" {column.extras}" if column.extras else ""
    return f"{quote_name(column.name)} {serialize_type(column.type)}{extras}{comment}"


def serialize_type(of: DataType) -> str:
    """Return a type as Flink writes it in SHOW CREATE: nothing abbreviated."""
    match of:
        case StringType(fixed=False) if of.length == MAX_VARCHAR:
            shown = f"VARCHAR({MAX_VARCHAR})"
        case BytesType(fixed=False) if of.length == MAX_VARCHAR:
            shown = f"VARBINARY({MAX_VARCHAR})"
        case TimestampType(local_zone=True):
            shown = f"TIMESTAMP({of.precision}) WITH LOCAL TIME ZONE"
        case MultisetType():
            shown = f"MULTISET<{serialize_type(of.key)}>"
        case MapType():
            shown = f"MAP<{serialize_type(of.key)}, {serialize_type(of.value)}>"
        case ArrayType():
            shown = f"ARRAY<{serialize_type(of.element)}>"
        case RowType():
            shown = (
                "ROW<"
                + ", ".join(f"{quote_name(field.name)} {serialize_type(field.type)}" for field in of.fields)
                + ">"
            )
        case _:
            shown = of.sql
    return shown if of.nullable else f"{shown} NOT NULL"
