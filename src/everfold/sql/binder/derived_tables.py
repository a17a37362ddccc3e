"""CREATE TABLE … LIKE and CREATE TABLE … AS: declarations completed from another source.

The source is another table or a query. Source of the rules: Flink's documentation of CREATE TABLE,
and the errors of flink 2.3.
"""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import Diagnostic, Span, SqlError, UnsupportedFeature, suggest_name
from everfold.sql.binder.queries import bind_body, check_typed, create_context, deduplicate_names
from everfold.sql.catalog import Catalog, CatalogView
from everfold.sql.statements import (
    AsQuery,
    ColumnDef,
    ComputedColumn,
    CreateTable,
    Insert,
    Like,
    MetadataColumn,
    Name,
    PhysicalColumn,
)

_KINDS = {"GENERATED": ComputedColumn, "METADATA": MetadataColumn}


# --- LIKE -----------------------------------------------------------------------------------------


def complete_like(statement: CreateTable, catalog: Catalog) -> CreateTable:
    """Return the declaration, completed with what LIKE takes from its source.

    The source's columns come first.

    Raises SqlError `unknown-table`, `not-a-table`, or `like-conflict` for what both tables declare.
    """
    like = statement.like
    if like is None:
        return statement
    source, strategies = _source(like, catalog), _strategies(like)

    def take(feature: str, own: object, there: object, what: str, span: Span | None) -> bool:
        """Return whether a feature, of which a table has at most one, comes from the source."""
        if strategies[feature] == "EXCLUDING" or not there:
            return False
        if own and strategies[feature] == "INCLUDING":
            raise _conflict(like, what, feature, span)
        return not own

    own_key = statement.key.span if statement.key else None
    key = take("CONSTRAINTS", statement.key, source.key, "a primary key", own_key)
    partitions = take(
        "PARTITIONS", statement.partitioned_by, source.partitioned_by, "PARTITIONED BY", statement.name_span
    )
    own_watermark = statement.watermark.span if statement.watermark else None
    watermark = take("WATERMARKS", statement.watermark, source.watermark, "a watermark", own_watermark)
    options = {each.key: each for each in source.options} if strategies["OPTIONS"] != "EXCLUDING" else {}
    for each in statement.options:
        if each.key in options and strategies["OPTIONS"] == "INCLUDING":
            raise _conflict(like, f"the option `{each.key}`", "OPTIONS", each.key_span)
    kept = [each for name, each in options.items() if name not in {own.key for own in statement.options}]
    return replace(
        statement,
        columns=_columns(statement, source, like, strategies),
        watermark=source.watermark if watermark else statement.watermark,
        key=source.key if key else statement.key,
        options=(*kept, *statement.options),
        partitioned_by=source.partitioned_by if partitions else statement.partitioned_by,
        like=None,
    )


def _source(like: Like, catalog: Catalog) -> CreateTable:
    entry = catalog.get(like.source, like.source_span)
    if isinstance(entry, CatalogView):
        message = f"`{entry.name}` is a view, and LIKE takes a table"
        raise SqlError.of("not-a-table", message, like.source_span, "CREATE VIEW, or CREATE TABLE … AS SELECT")
    if entry.declared is None:
        message = f"LIKE takes a table of a CREATE TABLE statement, and `{entry.name}` has none"
        raise UnsupportedFeature.of("unsupported-clause", message, like.source_span, "list the columns")
    return entry.declared


def _strategies(like: Like) -> dict[str, str]:
    """Return the strategy of each feature. The default includes all and overwrites options."""
    given: dict[str, str] = {each.feature: each.strategy for each in like.features}
    every = given.pop("ALL", None)
    features = ("CONSTRAINTS", "GENERATED", "METADATA", "PARTITIONS", "WATERMARKS")
    return {**dict.fromkeys(features, every or "INCLUDING"), "OPTIONS": every or "OVERWRITING", **given}


def _columns(
    statement: CreateTable, source: CreateTable, like: Like, strategies: dict[str, str]
) -> tuple[ColumnDef, ...]:
    columns: dict[str, ColumnDef] = {}
    for each in source.columns:
        feature = next((name for name, kind in _KINDS.items() if isinstance(each, kind)), None)
        if feature is None or strategies[feature] != "EXCLUDING":
            columns[each.name] = each
    found: list[ColumnDef] = []
    for each in statement.columns:
        there = columns.get(each.name)
        feature = next(
            (name for name, kind in _KINDS.items() if isinstance(each, kind) and isinstance(there, kind)), ""
        )
        if there is None:
            found.append(each)
        elif strategies.get(feature) == "OVERWRITING":
            columns[each.name] = each
        else:
            raise _conflict(like, f"the column `{each.name}`", feature, each.span)
    return (*columns.values(), *found)


def _conflict(like: Like, what: str, feature: str, span: Span | None) -> SqlError:
    overwrite = f" or (OVERWRITING {feature})" if feature not in ("CONSTRAINTS", "PARTITIONS") else ""
    help_ = f"write LIKE {'.'.join(like.source)} (EXCLUDING {feature}){overwrite}" if feature else "leave it out"
    return SqlError.of("like-conflict", f"`{like.source[-1]}` has {what} already", span, help_)


# --- AS -------------------------------------------------------------------------------------------


def complete_as(statement: CreateTable, query: AsQuery, catalog: Catalog) -> CreateTable:
    """Return the declaration with the columns of its query after its own.

    A declared column that the query also has sets its type.

    Raises SqlError `column-count` or `unknown-column` if the column list does not match the query.
    """
    if statement.temporary:
        raise UnsupportedFeature.of(
            "unsupported-clause",
            "CREATE TEMPORARY TABLE … AS is not supported",
            statement.name_span,
            "leave TEMPORARY out: no table outlives its session",
        )
    context = create_context(catalog)
    plan = bind_body(query.query, context).plan
    check_typed(plan, query.query, context)
    schema = plan.schema
    names = deduplicate_names(schema.names)
    types = dict(zip(names, (of.type for of in schema), strict=True))
    own = {each.name: each for each in statement.columns}
    for each in statement.columns:
        if each.name in types and not isinstance(each, PhysicalColumn):
            message = f"`{each.name}` is a column of the query, and is declared differently"
            raise SqlError(Diagnostic("duplicate-column", message, each.span, "give one of them another name"))
    from_query = tuple(
        own.get(name) or PhysicalColumn(name=name, type=types[name], type_span=query.span, span=statement.name_span)
        for name in _column_order(query, names)
    )
    declared_only = tuple(each for each in statement.columns if each.name not in types)
    return replace(statement, columns=(*declared_only, *from_query), as_query=None)


def build_insert(statement: CreateTable, query: AsQuery, catalog: Catalog) -> Insert:
    """Return the INSERT that fills a table of CREATE TABLE … AS.

    Its `text` is that of the query, because options of the table may contain secrets.
    """
    return Insert(
        target=statement.name,
        columns=deduplicate_names(bind_body(query.query, create_context(catalog)).plan.schema.names),
        query=query.query,
        text=query.text,
        target_span=statement.name_span,
        span=query.span,
    )


def _column_order(query: AsQuery, names: Name) -> Name:
    if query.columns is None:
        return names
    if len(query.columns) != len(names):
        message = f"the table lists {len(query.columns)} columns, and the query has {len(names)}"
        raise SqlError.of("column-count", message, query.span, "list all of them, or none")
    for name in query.columns:
        if name not in names:
            raise SqlError.of(
                "unknown-column", f"the query has no column `{name}`", query.span, suggest_name(name, names)
            )
    return query.columns
