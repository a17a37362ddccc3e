"""SELECT of Lenses SQL: an aggregation of a source's records, or a projection of each record.

An aggregation returns a table, whose key is what GROUP BY lists. Source: the seed on Lenses
streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Expr, InputRef, column_references
from everfold.plan.nodes import Filter, Project
from everfold.sql import syntax
from everfold.sql.binder.aggregates import Calls, Grouped, group_by, rewrite_over_groups
from everfold.sql.binder.context import Context, Problems
from everfold.sql.binder.grouping import Grouping
from everfold.sql.binder.lenses.facets import FacetBinder
from everfold.sql.binder.lenses.functions import has_aggregate
from everfold.sql.binder.lenses.having import with_having
from everfold.sql.binder.lenses.keys import WINDOW_BOUNDS, ResultKey, bind_key
from everfold.sql.binder.lenses.sources import Result, Source, bind_source, is_facet
from everfold.sql.binder.lenses.targets import check_names, target_column
from everfold.sql.binder.lenses.times import TIMESTAMP, assign_event_time, with_watermark
from everfold.sql.binder.lenses.windows import check_window, group_by_window
from everfold.sql.dialects.lenses import KEY
from everfold.types import BIGINT, NullType


def bind_topic_query(
    node: syntax.TopicQuery, context: Context, *, upserts: bool = False, keyless: bool = False
) -> Result:
    """Return the plan of a query. All errors in its clauses are raised together.

    `upserts`: records of a stream may replace each other, as in `bind_source`. `keyless`: an
    aggregation returns the fields of its key as columns instead of `_key`.
    """
    source = bind_source(node, context, bind_topic_query, upserts=upserts)
    aggregated = any(has_aggregate(each.value) for each in node.items)
    if aggregated or node.group or node.window is not None or node.having is not None:
        return _Aggregation(node, source, context, keyless=keyless).bound()
    return _bind_projection(node, source, context)


# --- projections of each record -------------------------------------------------------------------


def _bind_projection(node: syntax.TopicQuery, source: Source, context: Context) -> Result:
    problems = Problems()
    with problems:
        source = assign_event_time(node, source, context)
    with problems:
        source = _apply_where(node, source, context)
    items: list[tuple[str, Expr]] = []
    for each in node.items:
        with problems:
            items += _bind_item(each, source, context)
    with problems:
        check_names([name for name, _ in items], node, context)
    problems.check()
    source_columns = {each.name: each for each in column_references(source.plan.schema)}
    columns: dict[str, Expr] = {KEY: source_columns[KEY]} if KEY in source_columns else {}
    columns |= items
    if TIMESTAMP in source_columns:
        columns[TIMESTAMP] = source_columns[TIMESTAMP]
    plan = Project(input=source.plan, expressions=tuple(columns.values()), names=tuple(columns), span=node.span)
    return Result(plan=plan, is_table=source.is_table, structure=source.structure)


def _bind_item(node: syntax.Projection, source: Source, context: Context) -> list[tuple[str, Expr]]:
    """Return the columns that an item of SELECT computes from each record."""
    if isinstance(node.value, syntax.Star):
        return [(each.name, each) for each in column_references(source.plan.schema) if not is_facet(each.name)]
    name = target_column(node, context, aggregation=False)
    if name == KEY and source.is_table:
        raise context.unsupported(
            "rekeyed-table", "changing the key of a table is not supported", node, "write SELECT STREAM"
        )
    return [(name, _check_type(FacetBinder(source, context, "SELECT").bind(node.value), node, context))]


def _apply_where(node: syntax.TopicQuery, source: Source, context: Context) -> Source:
    if node.where is None:
        return source
    condition = FacetBinder(source, context, "WHERE").condition(node.where)
    return source.with_plan(Filter(input=source.plan, condition=condition, span=node.where.span))


def _check_type(value: Expr, node: syntax.Projection, context: Context) -> Expr:
    if isinstance(value.type, NullType):
        raise context.error("untyped-null", "NULL as a field needs a type", node, "write CAST(NULL AS STRING)")
    return value


# --- aggregations ---------------------------------------------------------------------------------


class _Aggregation:
    """An aggregation while it is bound."""

    def __init__(self, node: syntax.TopicQuery, source: Source, context: Context, *, keyless: bool) -> None:
        self.node, self.source, self.context, self.keyless = node, source, context, keyless
        self.problems = Problems()

    def bound(self) -> Result:
        """Bind the aggregation."""
        node, context, problems = self.node, self.context, self.problems
        self._check_clauses()
        self._prepare_source()
        width = len(self.source.plan.schema)
        calls = Calls(width)
        key = bind_key(node, self.source, context, problems)
        names, values = self._items(calls)
        grouping = Grouping(key.values, (tuple(range(len(key.values))),))
        self._check_groups(values, grouping, width)
        problems.check()
        if node.window is None:
            grouped = group_by(self.source.plan, grouping, calls.calls, context, node)
        else:
            grouped = group_by_window(node, self.source, grouping, calls.calls, context)
        columns = self._of_key(key, grouped)
        of_key = tuple(name for name in columns if name not in names)
        columns |= zip(names, (rewrite_over_groups(each, grouped, width) for each in values), strict=True)
        plan = Project(input=grouped.plan, expressions=tuple(columns.values()), names=tuple(columns), span=node.span)
        aggregated = [name for name, each in zip(names, node.items, strict=True) if has_aggregate(each.value)]
        return Result(
            plan=with_having(node, plan, aggregated, context),
            is_table=True,
            structure=self.source.structure,
            key_columns=of_key,
        )

    def _of_key(self, key: ResultKey, grouped: Grouped) -> dict[str, Expr]:
        """Return the columns of the key, over the groups."""
        if not self.keyless:
            return {KEY: key.build_over_groups(grouped.keys, grouped.window)}
        found = {name: value for name, value in zip(key.labels, grouped.keys, strict=True) if name is not None}
        return found | dict(zip(WINDOW_BOUNDS, grouped.window, strict=False))

    def _check_clauses(self) -> None:
        node, context = self.node, self.context
        with self.problems:
            check_window(node, self.source, context)
        with self.problems:
            if not node.group:
                raise context.error(
                    "no-group-by",
                    "an aggregation needs GROUP BY, which defines the key of the result",
                    node,
                    "add GROUP BY field",
                )

    def _prepare_source(self) -> None:
        """Apply the clauses before GROUP BY to the source."""
        node, context = self.node, self.context
        with self.problems:
            self.source = assign_event_time(node, self.source, context)
            if node.window is not None and not self.source.is_table:
                self.source = with_watermark(self.source, node, context)
        with self.problems:
            self.source = _apply_where(node, self.source, context)

    def _items(self, calls: Calls) -> tuple[list[str], list[Expr]]:
        """Return names and values of the value's columns, over the source."""
        context = self.context
        binder = FacetBinder(self.source, context, "SELECT", calls=calls, projection=True)
        names: list[str] = []
        values: list[Expr] = []
        for node in self.node.items:
            with self.problems:
                if isinstance(node.value, syntax.Star):
                    raise context.error(
                        "not-in-group-by",
                        "`*` selects all fields, and an aggregation returns only those of GROUP BY",
                        node,
                        "name fields of GROUP BY, and aggregates",
                    )
                name = target_column(node, context, aggregation=True)
                values.append(_check_type(binder.bind(node.value), node, context))
                names.append(name)
        with self.problems:
            check_names(names, self.node, context)
        if not len(self.problems) and not any(has_aggregate(each.value) for each in self.node.items):
            raise context.error(
                "no-aggregated-projection",
                "at least one projection of an aggregation must contain an aggregate",
                self.node,
                "add one, such as COUNT(*) AS records",
            )
        return names, values

    def _check_groups(self, values: Sequence[Expr], grouping: Grouping, width: int) -> None:
        """Raise SqlError `not-in-group-by` before the aggregate is built."""
        anywhere = InputRef(type=BIGINT, position=0)
        count = sum(1 for _ in syntax.walk(self.node))
        dry = Grouped(plan=self.source.plan, keys=grouping.keys, calls=(anywhere,) * count, grouping=grouping)
        for value in values:
            with self.problems:
                rewrite_over_groups(value, dry, width)
