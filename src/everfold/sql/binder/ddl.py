"""CREATE TABLE and CREATE VIEW: turn declarations into catalog entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from everfold.errors import Diagnostic, Span, SqlError, UnsupportedFeature, suggest_name
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import Plan, Project, Scan, Table, TableColumn, time_attribute
from everfold.plan.size import check_columns, count_cells
from everfold.sql.binder.context import Context, Problems, quote_names
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.queries import bind_body, check_typed, create_context
from everfold.sql.binder.scope import Relation
from everfold.sql.catalog import ROWTIME_PRECISION, Catalog, CatalogTable, CatalogView, Column, Watermark, rowtime_of
from everfold.sql.dialects.render import render
from everfold.sql.statements import ComputedColumn, CreateTable, CreateView, MetadataColumn, PhysicalColumn
from everfold.types import Field, Schema, TimestampType


def bind_create_table(statement: CreateTable, catalog: Catalog) -> CatalogTable:
    """Return the table that a CREATE TABLE declares. All errors in it are raised together."""
    name = catalog.check_new(statement.name, temporary=statement.temporary, span=statement.name_span)
    check_columns(len(statement.columns), f"`{name}`", statement.name_span)
    problems = Problems()
    _check_names(statement, problems)
    key = _primary_key(statement, problems)
    _check_partitions(statement, problems)
    options: dict[str, str] = {}
    spans: dict[str, Span] = {}
    for option in statement.options:
        with problems:
            if option.key in options:
                raise SqlError(Diagnostic("duplicate-option", f"option `{option.key}` is given twice", option.key_span))
            options[option.key] = catalog.resolve(option.value, option.value_span)
            spans[option.key] = option.span
    problems.check()
    delivered = tuple(
        _connector_column(each, key) for each in statement.columns if not isinstance(each, ComputedColumn)
    )
    table = Table(
        name=name,
        columns=delivered,
        options=tuple(sorted(options.items())),
        primary_key=key,
        partition_keys=statement.partitioned_by,
        option_spans=tuple(sorted(spans.items(), key=lambda each: each[0])),
        span=statement.name_span,
    )
    table = catalog.connected(table)
    columns = _columns(statement, table, catalog, problems)
    problems.check()
    return CatalogTable(
        table=table,
        columns=columns,
        watermark=_watermark(statement, columns, table, catalog),
        primary_key_name=statement.key.name if statement.key else None,
        comment=statement.comment,
        temporary=statement.temporary,
        declared=statement,
    )


def _check_names(statement: CreateTable, problems: Problems) -> None:
    seen: set[str] = set()
    for column in statement.columns:
        with problems:
            if column.name in seen:
                raise SqlError(
                    Diagnostic("duplicate-column", f"the column `{column.name}` is declared twice", column.span)
                )
            seen.add(column.name)


def _primary_key(statement: CreateTable, problems: Problems) -> tuple[str, ...]:
    columns = {column.name: column for column in statement.columns}
    span = statement.key.span if statement.key else None
    for at, name in enumerate(statement.primary_key):
        with problems:
            column = columns.get(name)
            if column is None:
                raise SqlError(
                    Diagnostic(
                        "unknown-column",
                        f"PRIMARY KEY names `{name}`, which is not a column of the table",
                        span,
                        suggest_name(name, columns),
                    )
                )
            if not isinstance(column, PhysicalColumn):
                raise SqlError(
                    Diagnostic(
                        "wrong-primary-key", f"PRIMARY KEY takes physical columns, and `{name}` is not one", span
                    )
                )
            if name in statement.primary_key[:at]:
                raise SqlError(Diagnostic("duplicate-column", f"PRIMARY KEY names `{name}` twice", span))
    return statement.primary_key


def _check_partitions(statement: CreateTable, problems: Problems) -> None:
    physical = [column.name for column in statement.columns if isinstance(column, PhysicalColumn)]
    for name in statement.partitioned_by:
        with problems:
            if name not in physical:
                message = f"PARTITIONED BY names `{name}`, which is not a physical column of the table"
                raise SqlError(Diagnostic("unknown-column", message, statement.name_span, suggest_name(name, physical)))


def _connector_column(column: PhysicalColumn | MetadataColumn, key: Sequence[str]) -> TableColumn:
    if isinstance(column, MetadataColumn):
        return TableColumn(
            name=column.name,
            type=column.type,
            metadata_key=column.key or column.name,
            virtual=column.virtual,
            span=column.span,
        )
    of = column.type.as_nullable(False) if column.name in key else column.type
    return TableColumn(name=column.name, type=of, span=column.span)


def _columns(statement: CreateTable, table: Table, catalog: Catalog, problems: Problems) -> tuple[Column, ...]:
    """Return all columns in order.

    Computed columns are expressions over those that the connector delivers.
    """
    scan = Relation.of(Scan(table=table))
    context = create_context(catalog)
    columns: list[Column] = []
    positions = {name: at for at, name in reversed(tuple(enumerate(table.schema.names)))}
    for of in statement.columns:
        with problems:
            if isinstance(of, ComputedColumn):
                columns.append(_bind_computed(of, scan, context, statement))
                continue
            at = positions[of.name]
            extras = _metadata_extras(of) if isinstance(of, MetadataColumn) else ""
            columns.append(
                Column(
                    name=of.name,
                    expression=InputRef(type=table.columns[at].type, position=at, name=of.name),
                    kind="metadata" if isinstance(of, MetadataColumn) else "physical",
                    extras=extras,
                    comment=of.comment,
                )
            )
    return tuple(columns)


def _bind_computed(of: ComputedColumn, scan: Relation, context: Context, statement: CreateTable) -> Column:
    try:
        expression = ExpressionBinder(scan, context, "a computed column").bind(of.expression)
    except SqlError as error:
        others = [each.name for each in statement.columns if isinstance(each, ComputedColumn)]
        found = error.diagnostics[0]
        if error.code == "unknown-column" and any(f"`{name}`" in found.message for name in others):
            help_ = "a computed column can use physical and metadata columns, but not other computed ones"
            raise SqlError(Diagnostic(found.code, found.message, found.span, help_), *error.diagnostics[1:]) from None
        raise
    return Column(
        name=of.name, expression=expression, kind="computed", extras=f"AS {render(of.expression)}", comment=of.comment
    )


def _metadata_extras(of: MetadataColumn) -> str:
    source = f" FROM '{of.key}'" if of.key is not None else ""
    return f"METADATA{source}{' VIRTUAL' if of.virtual else ''}"


def _watermark(statement: CreateTable, columns: Sequence[Column], table: Table, catalog: Catalog) -> Watermark | None:
    declared = statement.watermark
    if declared is None:
        return None
    name = declared.column[0]
    names = tuple(column.name for column in columns)
    if name not in names:
        raise SqlError(
            Diagnostic(
                "unknown-column",
                f"the watermark is for `{name}`, which is not a column of the table",
                declared.column_span,
                suggest_name(name, names),
            )
        )
    if len(declared.column) > 1:
        raise UnsupportedFeature(
            Diagnostic(
                "nested-rowtime",
                "a watermark for a field of a ROW is not supported",
                declared.column_span,
                f"declare a computed column: ts AS {'.'.join(declared.column)}",
            )
        )
    at = names.index(name)
    of = columns[at].type
    if time_attribute(columns[at].expression, table.schema) == "proctime":
        raise SqlError(
            Diagnostic("wrong-watermark", f"`{name}` is processing time, which has no watermark", declared.span)
        )
    if not _can_be_rowtime(of):
        raise SqlError(
            Diagnostic(
                "wrong-watermark",
                f"a watermark is for a TIMESTAMP or TIMESTAMP_LTZ with a precision of 0 to 3, and `{name}` is {of.sql}",
                declared.column_span,
                _rowtime_help(name, of),
            )
        )
    expressions = [column.expression for column in columns]
    expressions[at] = rowtime_of(expressions[at])
    plan = Project(input=Scan(table=table), expressions=tuple(expressions), names=names)
    context = create_context(catalog)
    expression = ExpressionBinder(Relation.of(plan), context, "WATERMARK").bind(declared.expression)
    _check_watermark_type(expression, of, name, declared.span)
    return Watermark(column=at, expression=expression, text=render(declared.expression))


def _can_be_rowtime(of: object) -> bool:
    return isinstance(of, TimestampType) and of.precision <= ROWTIME_PRECISION


def _rowtime_help(name: str, of: object) -> str:
    if isinstance(of, TimestampType):
        local = "_LTZ" if of.local_zone else ""
        return (
            f"declare `{name}` as TIMESTAMP{local}(3), or a computed column: ts AS CAST({name} AS TIMESTAMP{local}(3))"
        )
    return f"declare a computed column, such as ts AS TO_TIMESTAMP({name}) or ts AS TO_TIMESTAMP_LTZ({name}, 3)"


def _check_watermark_type(expression: Expr, of: object, name: str, span: Span) -> None:
    assert isinstance(of, TimestampType)
    found = expression.type
    if not _can_be_rowtime(found):
        raise SqlError(
            Diagnostic(
                "wrong-watermark",
                "the watermark must be a TIMESTAMP or TIMESTAMP_LTZ with a precision of 0 to 3, "
                f"and this is {found.sql}",
                expression.span or span,
            )
        )
    assert isinstance(found, TimestampType)
    if found.local_zone != of.local_zone:
        raise SqlError(
            Diagnostic(
                "wrong-watermark",
                f"the watermark is {found.sql}, and `{name}` is {of.sql}: both must be of the same kind",
                expression.span or span,
            )
        )


# --- views ----------------------------------------------------------------------------------------


def bind_create_view(statement: CreateView, catalog: Catalog) -> CatalogView:
    """Return the view that a CREATE VIEW declares. Its query must be valid already."""
    name = catalog.check_new(statement.name, temporary=statement.temporary, span=statement.name_span)
    context = create_context(catalog)
    plan = _view_query(statement, context)
    check_typed(plan, statement.query, context)
    catalog.work.add(count_cells(plan), statement.span)
    names = plan.schema.names
    if statement.columns is not None:
        if len(statement.columns) != len(names):
            raise SqlError(
                Diagnostic(
                    "column-count",
                    f"the view names {len(statement.columns)} columns, and its query has {len(names)}",
                    statement.name_span,
                )
            )
        names = statement.columns
    doubles = [each for each, count in Counter(names).items() if count > 1]
    if doubles:
        raise SqlError(
            Diagnostic(
                "duplicate-column",
                f"the view has more than one column named {quote_names(dict.fromkeys(doubles))}",
                statement.query.span,
                "give each a unique name with AS",
            )
        )
    fields = tuple(_rename_field(field, each) for field, each in zip(plan.schema, names, strict=True))
    return CatalogView(
        name=name,
        query=statement.query,
        text=statement.text,
        schema=Schema(fields),
        span=statement.span,
        comment=statement.comment,
        temporary=statement.temporary,
    )


def _view_query(statement: CreateView, context: Context) -> Plan:
    """Return the plan of the query.

    A view may use batch features: a query that uses the view in streaming is rejected.
    """
    try:
        return bind_body(statement.query, context).plan
    except UnsupportedFeature as refused:
        if not context.streaming:
            raise
        try:
            return bind_body(statement.query, replace(context, as_batch=True)).plan
        except SqlError:
            raise refused from None


def _rename_field(field: Field, name: str) -> Field:
    return replace(field, name=name)
