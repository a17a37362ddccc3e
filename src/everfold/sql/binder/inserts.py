"""Bind an INSERT: the columns of a query into those of a table."""

from __future__ import annotations

from everfold.errors import Diagnostic, Span, SqlError, UnsupportedFeature, suggest_name
from everfold.plan.expressions import Expr, Literal, column_references
from everfold.plan.nodes import Project, Sink, Table, TableColumn
from everfold.sql import syntax
from everfold.sql.binder.constants import null_literal
from everfold.sql.binder.context import Problems
from everfold.sql.binder.queries import bind_body, create_context, deduplicate_names, rename_columns
from everfold.sql.binder.topn import check_top_n
from everfold.sql.catalog import Catalog, CatalogTable, CatalogView
from everfold.sql.statements import Insert
from everfold.types import DataType, NullType


def writable_columns(table: CatalogTable) -> tuple[TableColumn, ...]:
    """Return the columns that an INSERT writes.

    They are the physical columns, and the metadata columns that are not VIRTUAL.
    """
    return tuple(column for column in table.table.columns if not column.virtual)


def bind_insert(statement: Insert, catalog: Catalog) -> Sink:
    """Bind an INSERT.

    The input of the sink has the writable columns of the table, in their order and types.
    """
    entry = catalog.get(statement.target, statement.target_span)
    context = create_context(catalog)
    if isinstance(entry, CatalogView):
        raise SqlError(
            Diagnostic("not-a-table", f"`{entry.name}` is a view, and a view cannot be written", statement.target_span)
        )
    if statement.overwrite:
        raise UnsupportedFeature(
            Diagnostic(
                "insert-overwrite",
                "INSERT OVERWRITE is not supported in streaming"
                if context.streaming
                else "INSERT OVERWRITE is not supported yet",
                statement.target_span,
                "write INSERT INTO, to a new folder",
            )
        )
    columns = writable_columns(entry)
    targets = _targets(statement, entry, columns)
    plan = bind_body(statement.query, context).plan
    check_top_n(plan, context)
    if len(plan.schema) != len(targets):
        raise context.error(
            "column-count",
            f"the query has {len(plan.schema)} columns, and `{entry.name}` takes {len(targets)}",
            statement.query,
            "name the columns to write: INSERT INTO " + entry.name + " (…)"
            if len(plan.schema) < len(targets)
            else None,
        )
    values = dict(zip(targets, column_references(plan.schema), strict=True))
    problems = Problems()
    expressions: list[Expr] = []
    for at, column in enumerate(columns):
        with problems:
            value = values.get(column.name)
            if value is None:
                expressions.append(null_literal(column.type))
            else:
                location = _item(statement.query, targets.index(column.name)) or statement.query.span
                expressions.append(cast_to_column(value, column, at, entry.name, location))
    problems.check()
    project = Project(
        input=plan, expressions=tuple(expressions), names=tuple(column.name for column in columns), span=statement.span
    )
    return Sink(table=entry.table, input=project, span=statement.span)


def bind_open_insert(statement: Insert, catalog: Catalog) -> Sink:
    """Bind an INSERT into an undeclared table, which has the columns of the query."""
    context = create_context(catalog)
    plan = bind_body(statement.query, context).plan
    check_top_n(plan, context)
    plan = rename_columns(plan, deduplicate_names(statement.columns or plan.schema.names))
    columns = tuple(TableColumn(name=of.name, type=of.type) for of in plan.schema)
    return Sink(table=Table(name=statement.target[-1], columns=columns), input=plan, span=statement.span)


def _targets(statement: Insert, entry: CatalogTable, columns: tuple[TableColumn, ...]) -> tuple[str, ...]:
    names = tuple(column.name for column in columns)
    if statement.columns is None:
        return names
    problems = Problems()
    declared = [column.name for column in entry.columns]
    for at, name in enumerate(statement.columns):
        with problems:
            if name not in names:
                reason = (
                    f"`{name}` of `{entry.name}` cannot be written"
                    if name in declared
                    else f"`{entry.name}` has no column `{name}`"
                )
                raise SqlError(Diagnostic("unknown-column", reason, statement.target_span, suggest_name(name, names)))
            if name in statement.columns[:at]:
                raise SqlError(
                    Diagnostic("duplicate-column", f"the column `{name}` is listed twice", statement.target_span)
                )
    for column in columns:
        if column.name not in statement.columns and not column.type.nullable:
            with problems:
                raise SqlError(
                    Diagnostic(
                        "missing-column",
                        f"`{column.name}` of `{entry.name}` is NOT NULL and gets no value",
                        statement.target_span,
                    )
                )
    problems.check()
    return statement.columns


def _item(query: syntax.Query, at: int) -> Span | None:
    """Return the location of a column in the SELECT list, if it is known."""
    if not isinstance(query, syntax.Select) or len(query.items) <= at:
        return None
    if any(isinstance(each.value, syntax.Star | syntax.QualifiedStar) for each in query.items):
        return None
    return query.items[at].span


def cast_to_column(value: Expr, column: TableColumn, at: int, table: str, location: Span | None) -> Expr:
    """Cast a value to the type of a column.

    The column's nullability is checked when rows are written.
    """
    from everfold.sql.functions import implicit_cast

    of: DataType = column.type
    if isinstance(value.type, NullType) or (isinstance(value, Literal) and value.value is None):
        return null_literal(of)
    try:
        return implicit_cast(value, of)
    except SqlError:
        raise SqlError(
            Diagnostic(
                "type-mismatch",
                f"column {at + 1}, `{column.name}`, of `{table}` is {of.sql}, and the query returns {value.type.sql}",
                location,
                f"write CAST(… AS {of.sql})",
            )
        ) from None
