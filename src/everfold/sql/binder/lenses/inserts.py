"""INSERT INTO a topic: one that is declared, or one that is made by it (`defaults.topic.autocreate`); or into any other table.

The topic's table has a column `_key`, and in its options stand the storage formats of key and value. A table without such a column takes the fields of the
key by their names, and `window_start` and `window_end`.
"""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import Diagnostic, SqlError
from everfold.plan.expressions import Expr, references
from everfold.plan.nodes import Plan, Project, Sink, Table, TableColumn
from everfold.sql.binder.context import Context, Problems, named_list
from everfold.sql.binder.inserts import into, writable
from everfold.sql.binder.lenses.keys import primitive_format
from everfold.sql.binder.lenses.queries import Result, bind_topic_query
from everfold.sql.binder.lenses.sources import is_facet
from everfold.sql.binder.lenses.topics import configured
from everfold.sql.binder.literals import null
from everfold.sql.catalog import Catalog, CatalogTable, CatalogView
from everfold.sql.dialects.lenses import KEY, META, METADATA, VALUE
from everfold.sql.dialects.lenses_nodes import TopicQuery
from everfold.sql.statements import Insert
from everfold.types import Schema

_DEFAULT_STRUCTURE = "json"


def bind_topic_insert(statement: Insert, catalog: Catalog) -> Sink:
    """An INSERT of a Lenses query. A topic that it makes is in the catalog from then on; in a script that is only judged it may be any.

    SqlError `unknown-topic` if the topic may not be made, `unknown-column`, `type-mismatch`, `not-a-table`.
    """
    assert isinstance(statement.query, TopicQuery)
    context = Context.at(statement.span, catalog)
    name, span = statement.target[-1], statement.target_span
    entry = catalog.find(statement.target)
    if isinstance(entry, CatalogView):
        raise SqlError(Diagnostic("not-a-table", f"`{name}` is the name of a query, and no topic", span))
    if entry is None and not catalog.settings.topic_autocreate and catalog.excused is None:
        raise SqlError(
            Diagnostic(
                "unknown-topic",
                f"no topic is named `{name}`, and none is made",
                span,
                "SET defaults.topic.autocreate = true, or CREATE TABLE it",
            )
        )
    keyless = entry is not None and KEY not in entry.table.schema.names
    found = bind_topic_query(statement.query, context, keyless=keyless)
    plan = _written(found.plan)
    if entry is None:
        entry = _made(name, found, plan.schema, catalog)
        catalog.add(entry)
    else:
        plan = _into(entry, plan, found, statement, context)
    table = entry.table
    if found.table and not keyless:
        table = replace(table, primary_key=(KEY,))
    return Sink(table=table, input=plan, span=statement.span)


def _written(plan: Plan) -> Plan:
    """The key and the value, without what comes with each record by itself."""
    kept = [each for each in references(plan.schema) if each.name == KEY or not is_facet(each.name)]
    if len(kept) == len(plan.schema):
        return plan
    return Project(input=plan, expressions=tuple(kept), names=tuple(each.name for each in kept))


def _made(name: str, found: Result, schema: Schema, catalog: Catalog) -> CatalogTable:
    """The topic that a result makes: compacted, if records replace each other, unless something else is said of it."""
    structure = found.structure or _DEFAULT_STRUCTURE
    options = {
        "key.format": _storage(schema, KEY, structure),
        "value.format": _storage(schema, VALUE, structure),
        "create": "true",
    }
    if found.table:
        options["create.cleanup.policy"] = "compact"
    meta = (TableColumn(name=f"{META}.{key}", type=of, metadata_key=key, virtual=True) for key, of in METADATA.items())
    columns = (*(TableColumn(name=field.name, type=field.type.as_nullable()) for field in schema), *meta)
    table = Table(name=name, columns=columns, options=tuple(sorted(options.items())))
    return CatalogTable.of(configured(table, catalog))


def _storage(schema: Schema, facet: str, structure: str) -> str:
    """The storage format of a key or value: that of its type, if it is one column of a type that has one, else that of what has fields."""
    at = schema.position(facet)
    return structure if at is None else primitive_format(schema[at].type) or structure


def _into(entry: CatalogTable, plan: Plan, found: Result, statement: Insert, context: Context) -> Plan:
    """The columns of a declared table out of those of a result, by their names; those of the key need not be there."""
    columns = writable(entry)
    given: dict[str, Expr] = dict(zip(plan.schema.names, references(plan.schema), strict=True))
    names = [column.name for column in columns]
    unknown = [name for name in given if name not in (*names, KEY, *found.of_key)]
    if unknown:
        raise context.error(
            "unknown-column",
            f"`{entry.name}` has no field `{unknown[0]}`",
            statement.query,
            f"it has {named_list(name for name in names if name != KEY)}",
        )
    problems = Problems()
    expressions: list[Expr] = []
    for at, column in enumerate(columns):
        with problems:
            value = given.get(column.name)
            place = context.span(statement.query)
            expressions.append(null(column.type) if value is None else into(value, column, at, entry.name, place))
    problems.check()
    return Project(input=plan, expressions=tuple(expressions), names=tuple(names), span=statement.span)
