"""FROM of Lenses SQL: a topic, a table of another dialect, or the name of a WITH.

Each is read as a stream or as a table. A stream takes each record by itself. A table holds the
latest value of each key, and a record without a value deletes its key. Source: the seed on Lenses
streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from everfold.errors import Diagnostic, SqlError
from everfold.plan.changelog import ChangelogMode
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import ChangelogNormalize, Filter, Plan, Project, Scan
from everfold.plan.size import check_size, count_own_cells
from everfold.plan.topic_storage import KEY, META, STRUCTURES, check_topic, is_read_whole, is_topic
from everfold.plan.walk import walk_plan
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.binder.relations import bind_view
from everfold.sql.binder.scope import Relation
from everfold.sql.catalog import CatalogTable, CatalogView


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A bound source.

    `name` qualifies its columns in expressions. `is_table`: whether it is read as a table.
    `structure` is the storage format of records with fields; None if unknown. Its columns are
    `_key` if records have one, the fields of the value (`_value` if it has none), and `_meta.…`.
    """

    name: str
    relation: Relation
    is_table: bool
    structure: str | None = None

    @property
    def plan(self) -> Plan:
        """The plan that produces its rows."""
        return self.relation.plan

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of the value."""
        return tuple(name for name in self.plan.schema.names if not is_facet(name))

    def with_plan(self, plan: Plan) -> Source:
        """Return the source with another plan, which has the same columns or more."""
        return replace(self, relation=Relation.of(plan, self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a query.

    Its columns are `_key`, the fields of the value, and `_meta.timestamp` if each row is a record
    of the source. `is_table`: whether rows are the latest state of each key. `structure` is the
    storage format of values with fields; None if unknown. `key_columns` are the columns that
    replace the key in a result without `_key`. `paths` are the columns that projections write, with
    the fields within them.
    """

    plan: Plan
    is_table: bool
    structure: str | None = None
    key_columns: tuple[str, ...] = ()
    paths: tuple[tuple[str, ...], ...] = ()


class BindTopicQuery(Protocol):
    """Binds a query of Lenses SQL. `upserts`: as in `bind_source`."""

    def __call__(self, node: syntax.TopicQuery, context: Context, *, upserts: bool = False) -> Result: ...


def is_facet(name: str) -> bool:
    """Return whether a column is not a field of the value."""
    return name == KEY or name.startswith(f"{META}.")


def bind_source(
    node: syntax.TopicQuery, context: Context, bind_query: BindTopicQuery, *, upserts: bool = False
) -> Source:
    """Return the source of a query.

    `bind_query` binds the query of a WITH. `upserts`: its records may replace each other, and the
    caller keeps the last one of each key.

    Raises SqlError `unknown-table`, `table-as-stream`, `no-key`; UnsupportedFeature
    `table-in-batch`.
    """
    entry = context.catalog.find((node.source.name,))
    if entry is None:
        found = context.catalog.unknown_table((node.source.name,), node.source.span)
        help_ = found.help or "declare the topic: CREATE TABLE name(_key STRING, …) FORMAT (STRING, JSON)"
        raise SqlError(Diagnostic(found.code, found.message, found.span, help_))
    if isinstance(entry, CatalogTable):
        return _bind_topic(entry, node, context, upserts=upserts)
    if isinstance(entry.query, syntax.TopicQuery):
        return _bind_with(entry, entry.query, node, context, bind_query, upserts=upserts)
    plan = bind_view(entry, context, node.source)
    _check_kind(node, context, table=is_updating(plan))
    return _make_source(node, plan, table=is_updating(plan))


def _make_source(node: syntax.TopicQuery, plan: Plan, *, table: bool, structure: str | None = None) -> Source:
    return Source(
        name=node.source_name, relation=Relation.of(plan, node.source_name), is_table=table, structure=structure
    )


def _bind_topic(entry: CatalogTable, node: syntax.TopicQuery, context: Context, *, upserts: bool) -> Source:
    wanted, table = node.kind == "TABLE", entry.table
    structure = _structure(dict(table.options))
    if is_topic(table) and is_read_whole(table):
        check_topic(table)
    if KEY not in table.schema.names:
        changing = table.changelog is not ChangelogMode.INSERT_ONLY
        _check_kind(node, context, table=changing)
        if wanted and not changing and not table.primary_key:
            raise context.error(
                "no-key",
                f"`{table.name}` has no key, so it cannot be read as a table",
                node.source,
                "declare a column `_key`, or a PRIMARY KEY",
            )
        wanted, keys = wanted or changing, table.primary_key
    else:
        keys = (KEY,)
        # Records that retract rows are not events. Records of upserts are, except deletes.
        is_changing = table.changelog is ChangelogMode.ALL
        _check_kind(node, context, table=is_changing)
        wanted = wanted or is_changing
        table = replace(table, changelog=ChangelogMode.INSERT_ONLY)
    entry = replace(entry, table=table)
    if upserts or (wanted and table.changelog is ChangelogMode.INSERT_ONLY):
        entry = _with_key(entry, keys)
    plan = entry.plan(streaming=context.streaming, span=node.source.span)
    if upserts and isinstance(plan, ChangelogNormalize):
        plan = plan.input
    return _make_source(node, plan, table=wanted, structure=structure)


def _check_order(plan: Plan, node: syntax.TopicQuery, context: Context) -> None:
    """Raise UnsupportedFeature `table-in-batch` for rows that have no order of arrival in batch."""
    if not all(isinstance(part, Scan | Project | Filter) for part in walk_plan(plan)):
        raise context.unsupported(
            "table-in-batch",
            f"`{node.source.name}` cannot be read as a table in batch: "
            "its rows are computed, so it is not known which row of a key is the last one",
            node.source,
            "run as a stream, or write the rows to a topic and read that",
        )


def _with_key(entry: CatalogTable, keys: tuple[str, ...]) -> CatalogTable:
    """Return the table as one whose records replace each other by a key, which is never NULL."""
    delivered = (replace(of, type=of.type.as_nullable(False)) if of.name in keys else of for of in entry.table.columns)
    table = replace(entry.table, columns=tuple(delivered), changelog=ChangelogMode.UPSERT, primary_key=keys)
    columns = (
        replace(of, expression=replace(of.expression, type=of.type.as_nullable(False))) if of.name in keys else of
        for of in entry.columns
    )
    return replace(entry, table=table, columns=tuple(columns))


def _structure(options: Mapping[str, str]) -> str | None:
    """Return a topic's storage format of records with fields: that of values, else that of keys."""
    found = (options.get(option) for option in ("value.format", "format", "key.format"))
    return next((each for each in found if each is not None and each.upper() in STRUCTURES), None)


def _bind_with(
    entry: CatalogView,
    query: syntax.TopicQuery,
    node: syntax.TopicQuery,
    context: Context,
    bind_query: BindTopicQuery,
    *,
    upserts: bool,
) -> Source:
    context.check_views(node.source)
    views = (*context.views, entry.name)
    inside = Context(
        catalog=context.catalog, bind_query=context.bind_query, views=views, bound_views=context.bound_views
    )
    found = context.bind_view_once(entry.name, lambda: bind_query(query, inside))
    check_size(found.plan, node.source.span)
    context.catalog.work.add(count_own_cells(found.plan), node.source.span)
    _check_kind(node, context, table=found.is_table)
    wanted = node.kind == "TABLE"
    if found.is_table or not (wanted or upserts):
        return _make_source(node, found.plan, table=found.is_table, structure=found.structure)
    plan = context.bind_view_once(entry.name, lambda: bind_query(query, inside, upserts=True), upserts=True).plan
    if not context.streaming:
        _check_order(plan, node, context)
    if wanted and not upserts:
        key = plan.schema.position(KEY)
        if key is None:
            raise context.error("no-key", f"`{entry.name}` has no key, so it cannot be read as a table", node.source)
        plan = ChangelogNormalize(input=plan, keys=(key,), span=node.source.span)
    return _make_source(node, plan, table=wanted, structure=found.structure)


def _check_kind(node: syntax.TopicQuery, context: Context, *, table: bool) -> None:
    """Raise SqlError `table-as-stream`: the rows of a table change, those of a stream do not."""
    if table and node.kind == "STREAM":
        raise context.error(
            "table-as-stream",
            f"`{node.source.name}` is a table: its rows are the latest state of each key, not individual events",
            node.source,
            "write SELECT TABLE",
        )
