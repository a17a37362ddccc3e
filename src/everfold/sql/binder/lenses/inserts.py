"""INSERT of Lenses SQL, into a topic or any other table.

The topic is declared, or created by the statement (`defaults.topic.autocreate`). The table of a
topic has a column `_key`, and the storage formats of key and value are in its options. A table
without such a column receives the fields of the key by name, and `window_start` and `window_end`.
"""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import Diagnostic, Span, SqlError
from everfold.plan.expressions import Expr, column_references
from everfold.plan.nodes import Plan, Project, Sink, Table, TableColumn
from everfold.plan.sink_keys import check_result_key
from everfold.plan.topic_storage import KEY, META, PRIMITIVES, VALUE, check_topic, find_primitive, is_topic
from everfold.sql import syntax
from everfold.sql.binder.constants import null_literal
from everfold.sql.binder.context import Context, Problems, quote_names
from everfold.sql.binder.inserts import cast_to_column, writable_columns
from everfold.sql.binder.lenses.queries import bind_topic_query
from everfold.sql.binder.lenses.sources import Result, is_facet
from everfold.sql.binder.lenses.targets import find_undeclared, target_path
from everfold.sql.binder.lenses.topics import configure_topic
from everfold.sql.binder.queries import create_context
from everfold.sql.catalog import Catalog, CatalogTable, CatalogView
from everfold.sql.dialects.lenses_columns import METADATA
from everfold.sql.functions import cast
from everfold.sql.statements import Insert
from everfold.types import Schema, with_article

_DEFAULT_STRUCTURE = "json"


def bind_topic_insert(statement: Insert, catalog: Catalog) -> Sink:
    """Bind an INSERT of a Lenses query.

    A topic that it creates is added to the catalog. In a script that is only checked, any topic may
    be created. Raises SqlError `unknown-topic` if the topic must not be created, `unknown-column`,
    `type-mismatch`, `not-a-table`; UnsupportedFeature `sink-key`, and those of `check_topic`.
    """
    assert isinstance(statement.query, syntax.TopicQuery)
    context = create_context(catalog)
    name, span = statement.target[-1], statement.target_span
    entry = catalog.find(statement.target)
    if isinstance(entry, CatalogView):
        raise SqlError(Diagnostic("not-a-table", f"`{name}` is the name of a query, not a topic", span))
    if entry is None and not catalog.settings.topic_autocreate and catalog.tolerated_errors is None:
        raise SqlError(
            Diagnostic(
                "unknown-topic",
                f"no topic is named `{name}`, and topics are not created automatically",
                span,
                "SET defaults.topic.autocreate = true, or CREATE TABLE it",
            )
        )
    target = None if entry is None else entry.table.schema
    found = bind_topic_query(statement.query, context, target=target)
    plan = _drop_metadata(found.plan)
    if entry is None:
        plan = _store_single_values(plan)
        entry = _create_topic(name, found, plan.schema, statement, catalog)
        catalog.add(entry)
    else:
        plan = _map_columns(entry, plan, found, statement, context)
    table = entry.table
    if found.is_table and KEY in table.schema.names:
        table = replace(table, primary_key=(KEY,))
    sink = Sink(table=table, input=plan, span=statement.span)
    if context.streaming and is_topic(table):
        check_result_key(sink)
    return sink


def _drop_metadata(plan: Plan) -> Plan:
    """Return the key and the value, without the metadata that every record has."""
    kept = [each for each in column_references(plan.schema) if each.name == KEY or not is_facet(each.name)]
    if len(kept) == len(plan.schema):
        return plan
    return Project(input=plan, expressions=tuple(kept), names=tuple(each.name for each in kept))


def _store_single_values(plan: Plan) -> Plan:
    """Return the plan with a key and a value of the type that their storage format holds.

    Strings of any length become STRING, bytes of any length BYTES.
    """
    values: list[Expr] = []
    for column in column_references(plan.schema):
        primitive = find_primitive(column.type) if column.name in (KEY, VALUE) else None
        data_type = column.type if primitive is None else PRIMITIVES[primitive]
        values.append(cast(column, data_type.as_nullable(column.type.nullable), column.span))
    if values == list(column_references(plan.schema)):
        return plan
    return Project(input=plan, expressions=tuple(values), names=plan.schema.names)


def _create_topic(name: str, result: Result, schema: Schema, statement: Insert, catalog: Catalog) -> CatalogTable:
    """Return the topic that a result creates: compacted if records replace each other.

    Options set for the topic take precedence. Raises UnsupportedFeature for a key or a value that
    cannot be stored, as `check_topic`.
    """
    structure = result.structure or _DEFAULT_STRUCTURE
    options = {
        "key.format": _storage_format(schema, KEY, structure),
        "value.format": _storage_format(schema, VALUE, structure),
        "create": "true",
    }
    if result.is_table:
        options["create.cleanup.policy"] = "compact"
    spans = _locate_columns(statement)
    meta = (TableColumn(name=f"{META}.{key}", type=of, metadata_key=key, virtual=True) for key, of in METADATA.items())
    columns = (
        *(TableColumn(name=field.name, type=field.type.as_nullable(), span=spans.get(field.name)) for field in schema),
        *meta,
    )
    table = Table(name=name, columns=columns, options=tuple(sorted(options.items())), span=statement.target_span)
    table = configure_topic(table, catalog)
    check_topic(table)
    return CatalogTable.of(table)


def _locate_columns(statement: Insert) -> dict[str, Span | None]:
    """Return the location of the key and of the projections, by their columns."""
    query = statement.query
    assert isinstance(query, syntax.TopicQuery)
    spans = {path[0]: item.span for item in query.items if (path := target_path(item)) is not None}
    if query.group:
        first, last = query.group[0].span, query.group[-1].span
        spans[KEY] = None if first is None or last is None else replace(first, end=last.end)
    return spans


def _storage_format(schema: Schema, facet: str, structure: str) -> str:
    """Return the storage format of a key or value.

    It is that of its type if it is one column of a primitive type, else that of values with fields.
    """
    at = schema.position(facet)
    primitive = None if at is None else find_primitive(schema[at].type)
    return structure if primitive is None else primitive.lower()


def _map_columns(entry: CatalogTable, plan: Plan, result: Result, statement: Insert, context: Context) -> Plan:
    """Map the columns of a result to those of a declared table, by name.

    The table may lack those of the key.
    """
    columns = writable_columns(entry)
    values: dict[str, Expr] = dict(zip(plan.schema.names, column_references(plan.schema), strict=True))
    names = [column.name for column in columns]
    unknown = [name for name in values if name not in (*names, KEY, *result.key_columns)]
    if unknown:
        raise context.error(
            "unknown-column",
            f"`{entry.name}` has no field `{unknown[0]}`",
            statement.query,
            f"it has {quote_names(name for name in names if name != KEY)}",
        )
    types = {column.name: column.type for column in columns}
    undeclared = find_undeclared(result.paths, types)
    if undeclared is not None:
        raise context.error(
            "unknown-column",
            f"`{entry.name}` has no field `{'.'.join(undeclared)}`",
            statement.query,
            f"`{undeclared[0]}` is {with_article(types[undeclared[0]])}",
        )
    problems = Problems()
    expressions: list[Expr] = []
    for at, column in enumerate(columns):
        with problems:
            value = values.get(column.name)
            location = statement.query.span
            expressions.append(
                null_literal(column.type) if value is None else cast_to_column(value, column, at, entry.name, location)
            )
    problems.check()
    return Project(input=plan, expressions=tuple(expressions), names=tuple(names), span=statement.span)
