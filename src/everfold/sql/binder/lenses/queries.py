"""SELECT of Lenses SQL: an aggregation of a source's records, or a projection of each record.

An aggregation returns a table, whose key is what GROUP BY lists. Source: the seed on Lenses
streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from everfold.plan.expressions import Expr, InputRef, column_references
from everfold.plan.nodes import Filter, Project
from everfold.plan.topic_storage import KEY
from everfold.sql import syntax
from everfold.sql.binder.aggregates import Calls, Grouped, group_by, rewrite_over_groups
from everfold.sql.binder.context import Context, Problems
from everfold.sql.binder.grouping import Grouping
from everfold.sql.binder.lenses.facets import FacetBinder
from everfold.sql.binder.lenses.functions import has_aggregate
from everfold.sql.binder.lenses.having import filter_groups
from everfold.sql.binder.lenses.keys import WINDOW_BOUNDS, ResultKey, bind_key
from everfold.sql.binder.lenses.sources import Result, Source, bind_source, is_facet
from everfold.sql.binder.lenses.targets import Target, bind_targets, build_columns, check_paths, sort_by_column
from everfold.sql.binder.lenses.times import TIMESTAMP, assign_event_time, with_watermark
from everfold.sql.binder.lenses.windows import check_window, group_by_window
from everfold.types import BIGINT, DataType, Schema


def bind_topic_query(
    node: syntax.TopicQuery, context: Context, *, upserts: bool = False, target: Schema | None = None
) -> Result:
    """Return the plan of a query. All errors in its clauses are raised together.

    `upserts`: records of a stream may replace each other, as in `bind_source`. `target`: the
    columns of the table that it is written to, if it exists. Without a `_key`, an aggregation
    returns the fields of its key as columns.
    """
    declared = {} if target is None else {field.name: field.type for field in target}
    source = bind_source(node, context, bind_topic_query, upserts=upserts)
    aggregated = any(has_aggregate(each.value) for each in node.items)
    if aggregated or node.group or node.window is not None or node.having is not None:
        return _Aggregation(node, source, context, declared).bound()
    return _bind_projection(node, source, context, declared)


# --- projections of each record -------------------------------------------------------------------


def _bind_projection(
    node: syntax.TopicQuery, source: Source, context: Context, declared: Mapping[str, DataType]
) -> Result:
    problems = Problems()
    with problems:
        source = assign_event_time(node, source, context)
    with problems:
        source = _apply_where(node, source, context)
    targets: list[Target] = []
    for item in node.items:
        with problems:
            targets += _bind_item(item, source, context)
    paths = tuple(target.path for target in targets)
    with problems:
        check_paths(paths, node, context)
    problems.check()
    source_columns = {each.name: each for each in column_references(source.plan.schema)}
    columns: dict[str, Expr] = {KEY: source_columns[KEY]} if KEY in source_columns else {}
    columns |= build_columns(paths, [target.value for target in targets], declared)
    if TIMESTAMP in source_columns:
        columns[TIMESTAMP] = source_columns[TIMESTAMP]
    plan = Project(input=source.plan, expressions=tuple(columns.values()), names=tuple(columns), span=node.span)
    return Result(plan=plan, is_table=source.is_table, structure=source.structure, paths=paths)


def _bind_item(node: syntax.Projection, source: Source, context: Context) -> Iterator[Target]:
    """Yield what an item of SELECT writes for each record."""
    if isinstance(node.value, syntax.Star):
        fields = (column for column in column_references(source.plan.schema) if not is_facet(column.name))
        yield from (Target(path=(field.name,), value=field, is_aggregated=False) for field in fields)
        return
    for target in bind_targets(node, FacetBinder(source, context, "SELECT").bind, context, aggregation=False):
        if target.path[0] == KEY and source.is_table:
            raise context.unsupported(
                "rekeyed-table", "changing the key of a table is not supported", node, "write SELECT STREAM"
            )
        yield target


def _apply_where(node: syntax.TopicQuery, source: Source, context: Context) -> Source:
    if node.where is None:
        return source
    condition = FacetBinder(source, context, "WHERE").condition(node.where)
    return source.with_plan(Filter(input=source.plan, condition=condition, span=node.where.span))


# --- aggregations ---------------------------------------------------------------------------------


class _Aggregation:
    """An aggregation while it is bound. declared: the columns of the table that receives it."""

    def __init__(
        self, node: syntax.TopicQuery, source: Source, context: Context, declared: Mapping[str, DataType]
    ) -> None:
        self.node, self.source, self.context, self.declared = node, source, context, declared
        self.problems = Problems()

    def bound(self) -> Result:
        """Bind the aggregation."""
        node, context, problems = self.node, self.context, self.problems
        self._check_clauses()
        self._prepare_source()
        width = len(self.source.plan.schema)
        calls = Calls(width)
        key = bind_key(node, self.source, context, problems)
        targets = self._items(calls, key)
        grouping = Grouping(key.values, (tuple(range(len(key.values))),))
        self._check_groups([target.value for target in targets], grouping, width)
        problems.check()
        if node.window is None:
            grouped = group_by(self.source.plan, grouping, calls.calls, context, node)
        else:
            grouped = group_by_window(node, self.source, grouping, calls.calls, context)
        targets = [replace(target, value=rewrite_over_groups(target.value, grouped, width)) for target in targets]
        groups = filter_groups(node, grouped.plan, targets, context)
        paths = tuple(target.path for target in targets)
        of_value = build_columns(paths, [target.value for target in targets], self.declared)
        of_key = self._of_key(key, grouped)
        columns = of_key | of_value
        return Result(
            plan=Project(input=groups, expressions=tuple(columns.values()), names=tuple(columns), span=node.span),
            is_table=True,
            structure=self.source.structure,
            key_columns=tuple(name for name in of_key if name not in of_value),
            paths=paths,
        )

    def _of_key(self, key: ResultKey, grouped: Grouped) -> dict[str, Expr]:
        """Return the columns of the key, over the groups."""
        if not self.declared or KEY in self.declared:
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

    def _items(self, calls: Calls, key: ResultKey) -> list[Target]:
        """Return what the projections write, over the source."""
        context = self.context
        binder = FacetBinder(self.source, context, "SELECT", calls=calls, projection=True)
        targets: list[Target] = []
        for node in sort_by_column(self.node.items):
            with self.problems:
                if isinstance(node.value, syntax.Star):
                    raise context.error(
                        "not-in-group-by",
                        "`*` selects all fields, and an aggregation returns only those of GROUP BY",
                        node,
                        "name fields of GROUP BY, and aggregates",
                    )
                if not self._is_key(node, key):
                    targets += bind_targets(node, binder.bind, context, aggregation=True)
        with self.problems:
            check_paths([target.path for target in targets], self.node, context)
        if not len(self.problems) and not any(target.is_aggregated for target in targets):
            raise context.error(
                "no-aggregated-projection",
                "at least one projection of an aggregation must contain an aggregate",
                self.node,
                "add one, such as COUNT(*) AS records",
            )
        return targets

    def _is_key(self, node: syntax.Projection, key: ResultKey) -> bool:
        """Return whether a projection without an alias is the key, which the result has already."""
        named = node.target is not None or syntax.implicit_name(node.value) != KEY
        return not named and key.is_single and node.value == self.node.group[0].value and self.node.window is None

    def _check_groups(self, values: Sequence[Expr], grouping: Grouping, width: int) -> None:
        """Raise SqlError `not-in-group-by` before the aggregate is built."""
        anywhere = InputRef(type=BIGINT, position=0)
        count = sum(1 for _ in syntax.walk(self.node))
        dry = Grouped(plan=self.source.plan, keys=grouping.keys, calls=(anywhere,) * count, grouping=grouping)
        for value in values:
            with self.problems:
                rewrite_over_groups(value, dry, width)
