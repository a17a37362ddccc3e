"""Bind a SELECT: from its FROM to its SELECT list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from everfold.errors import Diagnostic, Span, SqlError
from everfold.plan.expressions import Expr, InputRef, Literal, column_references, join_balanced, transform, walk
from everfold.plan.nodes import Filter, Plan, Project, SortKey
from everfold.plan.size import check_columns
from everfold.sql import syntax
from everfold.sql.binder.aggregates import Calls, Grouped, group_by, group_by_window, rewrite_over_groups
from everfold.sql.binder.constants import string_literal
from everfold.sql.binder.context import Context, Problems, span_of
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.grouping import Grouping, bind_grouping
from everfold.sql.binder.hints import with_hints
from everfold.sql.binder.legacy_windows import GroupWindow, bind_group_window, is_group_window
from everfold.sql.binder.order_by import build_sort_key, order_items, resolve_ordinal, sort_rows
from everfold.sql.binder.over import OverCalls, is_call_over_window
from everfold.sql.binder.python_functions import is_aggregate_call
from everfold.sql.binder.relations import bind_from
from everfold.sql.binder.scope import Relation
from everfold.sql.binder.semi_joins import SemiJoin, bind_semi_join
from everfold.sql.binder.subqueries import OVER_GROUPS, Subqueries
from everfold.sql.binder.topn import rewrite_to_rank
from everfold.types import BIGINT, NullType, RowType


@dataclass(frozen=True, slots=True)
class _Item:
    """A column of the result."""

    name: str
    value: Expr


@dataclass
class _Select:
    """A SELECT while it is bound."""

    node: syntax.Select
    context: Context
    relation: Relation
    problems: Problems = field(default_factory=Problems)


def bind_select(node: syntax.Select, context: Context) -> Plan:
    """Return the plan of a SELECT with its ORDER BY, but without LIMIT.

    All errors in its clauses are raised together.
    """
    _check_lists(node, context)
    relation = bind_from(node, context)
    context = with_hints(node.hints, relation, context)
    select = _Select(node, context, relation)
    if node.where is not None:
        with select.problems:
            select.relation = _where(node.where, select)
    if _is_grouped(node, context):
        return _bind_grouped(select)
    return _bind_plain(select)


def _check_lists(node: syntax.Select, context: Context) -> None:
    """Reject lists that are far too long."""
    check_columns(len(node.items), "SELECT", node.span)
    if node.group is not None:
        check_columns(len(node.group.elements), "GROUP BY", node.group.span)
    if node.order is not None:
        check_columns(len(node.order.keys), "ORDER BY", node.order.span)
    check_columns(len(node.windows), "WINDOW", node.span)


def _is_grouped(node: syntax.Select, context: Context) -> bool:
    if node.group is not None or node.having is not None:
        return True
    parts = (*node.items, *(node.order.keys if node.order else ()), *([node.qualify] if node.qualify else ()))
    return any(_has_aggregate(each, context) for each in parts)


def _has_aggregate(node: syntax.Node, context: Context) -> bool:
    if isinstance(node, syntax.Query):
        return False
    if isinstance(node, syntax.Over):
        parts = (*syntax.children(node.call), *node.window.partition_by, *node.window.order)
        return any(_has_aggregate(each, context) for each in parts)
    if is_aggregate_call(node, context):
        return True
    return any(_has_aggregate(child, context) for child in syntax.children(node))


# --- WHERE ----------------------------------------------------------------------------------------


def _where(node: syntax.Clause, select: _Select) -> Relation:
    """Return the rows that WHERE keeps. Each condition over a subquery becomes a separate join."""
    context, relation = select.context, select.relation
    plain: list[syntax.Expression] = []
    problems = Problems()
    for part in syntax.flatten_chain(node.condition, "AND"):
        with problems:
            join = bind_semi_join(part, ExpressionBinder(relation, context, "WHERE"))
            if join is not None:
                relation = relation.with_plan(join.join_to(relation.plan))
            else:
                plain.append(part)
    width = len(relation.plan.schema)
    subqueries = Subqueries(width)
    conditions: list[Expr] = []
    for part in plain:
        with problems:
            conditions.append(ExpressionBinder(relation, context, "WHERE", subqueries=subqueries).condition(part))
    problems.check()
    if not conditions:
        return relation
    condition = join_balanced(conditions, lambda one, other: _and(one, other, node))
    filtered = _apply_condition(subqueries.join_to(relation.plan), condition, node.span, context)
    if not subqueries.plans:
        return relation.with_plan(filtered)
    narrowed = Project(
        input=filtered, expressions=column_references(filtered.schema)[:width], names=filtered.schema.names[:width]
    )
    return relation.with_plan(narrowed)


def _apply_condition(plan: Plan, condition: Expr, span: Span | None, context: Context) -> Plan:
    """Return the rows that satisfy a condition.

    In a stream, a condition that bounds a row number becomes a Top-N.
    """
    kept = Filter(input=plan, condition=condition, span=span)
    return rewrite_to_rank(kept) if context.streaming else kept


def _and(one: Expr, other: Expr, node: syntax.Clause) -> Expr:
    from everfold.sql.functions import build

    return build("AND", (one, other), node.span)


# --- the list of columns --------------------------------------------------------------------------


def _items(select: _Select, binder: ExpressionBinder) -> list[_Item]:
    items: list[_Item] = []
    for node in select.node.items:
        with select.problems:
            match node.value:
                case syntax.Star() as star:
                    items += _star(select, star)
                case syntax.QualifiedStar() as star:
                    items += _qualified_star(select, star, binder)
                case value:
                    items.append(_Item(_name(node, len(items)), _check_type(binder.bind(value), node, select)))
    return items


def _check_type(value: Expr, node: syntax.SelectItem, select: _Select) -> Expr:
    if isinstance(value.type, NullType):
        raise select.context.error("untyped-null", "NULL as a column needs a type", node, "write CAST(NULL AS STRING)")
    return value


def _name(node: syntax.SelectItem, at: int) -> str:
    if node.alias is not None:
        return node.alias.name
    return syntax.implicit_name(node.value) or f"EXPR${at}"


def _star(select: _Select, node: syntax.Star) -> list[_Item]:
    if not select.relation.columns:
        raise select.context.error("misplaced-star", "`*` needs a FROM", node)
    return _expand_star(select, [column.name for column in select.relation.visible_columns], node, None)


def _expand_star(select: _Select, names: Sequence[str], node: syntax.Expression, relation: str | None) -> list[_Item]:
    columns = select.relation.visible_columns if relation is None else select.relation.columns_of(relation)
    span = node.span
    items = []
    alike = Counter((each.name, each.relation) for each in columns)
    for column in columns:
        if (count := alike[column.name, column.relation]) > 1:
            raise select.context.error(
                "ambiguous-column",
                f"`{column.name}` is {count} columns of one relation, and `*` takes both",
                node,
                "rename one of them with AS where it is defined",
            )
        items.append(_Item(column.name, select.relation.reference(column, span)))
    return items


def _qualified_star(select: _Select, node: syntax.QualifiedStar, binder: ExpressionBinder) -> list[_Item]:
    from everfold.sql.binder.scope import resolve, strip_database
    from everfold.sql.functions import build

    names = strip_database(select.relation, node.names)
    if len(names) == 1 and names[0] in select.relation.relation_names:
        return _expand_star(select, [], node, names[0])
    span = node.span
    value = resolve(select.relation, node.names, span, select.context.outer)
    if not isinstance(value.type, RowType):
        raise select.context.error(
            "misplaced-star", f"`{'.'.join(node.names)}` is neither a table nor a ROW, so it has no `*`", node
        )
    return [_Item(of.name, build("FIELD", (value, string_literal(of.name)), span)) for of in value.type.fields]


# --- without groups -------------------------------------------------------------------------------


def _bind_plain(select: _Select) -> Plan:
    relation, context, node = select.relation, select.context, select.node
    subqueries, overs = Subqueries(len(relation.plan.schema)), _overs(node)
    items = _items(select, ExpressionBinder(relation, context, "the SELECT list", subqueries=subqueries, overs=overs))
    aliases = {item.name: item.value for item in items}
    qualify = _qualify(select, ExpressionBinder(relation, context, "QUALIFY", overs=overs, aliases=aliases))
    select.problems.check()
    keys = _sort_keys(select, items, ExpressionBinder(relation, context, "ORDER BY", overs=overs, aliases=aliases))
    plan, resolve_calls = overs.build_plan(subqueries.join_to(relation.plan), _identity, context)
    outputs = [_Item(item.name, resolve_calls(item.value)) for item in items]
    if qualify is not None:
        plan = _apply_condition(plan, resolve_calls(qualify), span_of(node.qualify), context)
    if node.distinct is not None:
        return _distinct(plan, outputs, _rewrite_keys(keys, items, select), select)
    keys = [replace(key, expression=resolve_calls(key.expression)) for key in keys]
    return _project_sorted(plan, outputs, keys, select)


def _qualify(select: _Select, binder: ExpressionBinder) -> Expr | None:
    """Return the condition of QUALIFY, if there is one."""
    node = select.node.qualify
    if node is None:
        return None
    with select.problems:
        condition = binder.condition(node.condition)
        if not any(map(is_call_over_window, walk(condition))):
            what = "the condition of QUALIFY contains no window function"
            raise select.context.error("qualify-without-window", what, node, "write WHERE, or HAVING for groups")
        return condition
    return None


def _overs(node: syntax.Select) -> OverCalls:
    return OverCalls({each.name.name: each for each in node.windows})


def _identity(expr: Expr) -> Expr:
    return expr


def _project(plan: Plan, items: Sequence[_Item], select: _Select) -> Project:
    return Project(
        input=plan,
        expressions=tuple(item.value for item in items),
        names=tuple(item.name for item in items),
        span=select.node.span,
    )


def deduplicate_rows(plan: Plan, context: Context, node: syntax.Node) -> Plan:
    """Return a plan without duplicate rows."""
    keys = column_references(plan.schema)
    grouping = Grouping(keys, (tuple(range(len(keys))),))
    grouped = group_by(plan, grouping, (), context, node)
    return Project(input=grouped.plan, expressions=grouped.keys, names=plan.schema.names)


# --- with groups ----------------------------------------------------------------------------------


def _bind_grouped(select: _Select) -> Plan:
    node, context, relation = select.node, select.context, select.relation
    width = len(relation.plan.schema)
    calls, overs, subqueries = Calls(width), _overs(node), Subqueries(OVER_GROUPS)
    window = _group_window(select)
    before = len(select.problems)
    grouping = _grouping(select)
    keys = grouping.keys
    keys_known = len(select.problems) == before
    in_list = ExpressionBinder(
        relation, context, "the SELECT list", calls=calls, overs=overs, window=window, subqueries=subqueries
    )
    items = _items(select, in_list)
    having = _Having()
    if node.having is not None:
        in_having = ExpressionBinder(relation, context, "HAVING", calls=calls, window=window, subqueries=subqueries)
        having = _having(node.having, in_having, select)
    aliases = {item.name: item.value for item in items}
    over_windows = ExpressionBinder(
        relation, context, "QUALIFY", calls=calls, overs=overs, window=window, aliases=aliases
    )
    qualify = _qualify(select, over_windows)
    in_order = ExpressionBinder(relation, context, "ORDER BY", calls=calls, overs=overs, window=window, aliases=aliases)
    sort_keys = _sort_keys(select, items, in_order)
    # Ungrouped columns are found before the aggregate is built: errors of the author are reported
    # before features that are not supported.
    dry = Grouped(
        plan=relation.plan,
        keys=keys,
        calls=tuple(InputRef(type=call.type, position=0) for call in calls.calls),
        grouping=grouping,
        window=(InputRef(type=BIGINT, position=0),) * 3,
    )
    for value in (
        *(item.value for item in items),
        *having.expressions,
        *([] if qualify is None else [qualify]),
        *(key.expression for key in sort_keys),
        *overs.expressions,
    ):
        with select.problems:
            if keys_known:
                rewrite_over_groups(value, dry, width)
    select.problems.check()
    location = node.group or _first_aggregate(node, context)
    if window is None:
        grouped = group_by(relation.plan, grouping, calls.calls, context, location)
    else:
        grouped = group_by_window(relation.plan, window, grouping, calls.calls, context, location)

    def over(value: Expr) -> Expr:
        return rewrite_over_groups(value, grouped, width)

    plan = grouped.plan
    for join in having.joins:
        plan = join.join_to(plan, over)
    plan = subqueries.join_to(plan)
    if having.condition is not None:
        plan = Filter(input=plan, condition=over(having.condition), span=span_of(node.having))
    plan, resolve_calls = overs.build_plan(plan, over, context)
    outputs = [_Item(item.name, resolve_calls(over(item.value))) for item in items]
    if qualify is not None:
        plan = _apply_condition(plan, resolve_calls(over(qualify)), span_of(node.qualify), context)
    if node.distinct is not None:
        return _distinct(plan, outputs, _rewrite_keys(sort_keys, items, select), select)
    over_keys = [replace(key, expression=resolve_calls(over(key.expression))) for key in sort_keys]
    return _project_sorted(plan, outputs, over_keys, select)


@dataclass(frozen=True, slots=True)
class _Having:
    """HAVING over the columns and calls of a query: joins with subqueries, and a condition."""

    joins: tuple[SemiJoin, ...] = ()
    condition: Expr | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        values = (value for join in self.joins for value in join.values)
        return (*values, *([] if self.condition is None else [self.condition]))


def _having(node: syntax.Clause, binder: ExpressionBinder, select: _Select) -> _Having:
    joins: list[SemiJoin] = []
    conditions: list[Expr] = []
    for part in syntax.flatten_chain(node.condition, "AND"):
        with select.problems:
            join = bind_semi_join(part, binder)
            if join is not None:
                joins.append(join)
            else:
                conditions.append(binder.condition(part))
    condition = join_balanced(conditions, lambda one, other: _and(one, other, node)) if conditions else None
    return _Having(tuple(joins), condition)


def _first_aggregate(node: syntax.Select, context: Context) -> syntax.Node:
    calls = (each for item in node.items for each in syntax.walk(item) if is_aggregate_call(each, context))
    return next(calls, node.having or node)


def _group_window(select: _Select) -> GroupWindow | None:
    """Return the group window in GROUP BY, if there is one."""
    clause = select.node.group
    if clause is None:
        return None
    window = bind_group_window(clause.elements, select.relation, select.context)
    sets = [each for each in clause.elements if isinstance(each, syntax.GroupingSets)]
    if window is not None and sets:
        raise select.context.unsupported(
            "window-in-sets",
            "a window in GROUP BY cannot be combined with GROUPING SETS, ROLLUP or CUBE",
            sets[0],
            "use a window TVF: FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES) "
            "GROUP BY window_start, window_end, …",
        )
    return window


def _grouping(select: _Select) -> Grouping:
    context, relation = select.context, select.relation
    clause = select.node.group
    if clause is None:
        return Grouping((), ((),))
    binder = ExpressionBinder(relation, context, "GROUP BY")
    names = {item.alias.name: item.value for item in select.node.items if item.alias is not None}
    bound: list[syntax.Expression] = []
    for node in clause.elements:
        if is_group_window(node):
            continue
        with select.problems:
            bind_grouping([node], lambda key: _key(key, binder, names, context))
            bound.append(node)
    return bind_grouping(bound, lambda key: _key(key, binder, names, context))


def _key(
    node: syntax.Expression, binder: ExpressionBinder, names: dict[str, syntax.Expression], context: Context
) -> Expr:
    try:
        return binder.bind(node)
    except SqlError as error:
        if error.code == "unknown-column" and isinstance(node, syntax.ColumnPath) and node.names[-1] in names:
            found = error.diagnostics[0]
            help_ = f"GROUP BY cannot use names of the SELECT list: write `{context.sql(names[node.names[-1]])}`"
            raise SqlError(Diagnostic(found.code, found.message, found.span, help_)) from None
        raise


# --- ORDER BY -------------------------------------------------------------------------------------


def _sort_keys(select: _Select, items: Sequence[_Item], binder: ExpressionBinder) -> list[SortKey]:
    keys: list[SortKey] = []
    if select.node.order is None:
        return keys
    select.problems.check()
    with select.problems:
        for each in order_items(select.node, select.context):
            with select.problems:
                at = resolve_ordinal(each.value, len(items), select.context)
                keys.append(build_sort_key(each, items[at].value if at is not None else binder.bind(each.value)))
    select.problems.check()
    return keys


def _project_sorted(plan: Plan, items: Sequence[_Item], keys: Sequence[SortKey], select: _Select) -> Plan:
    """Return the SELECT list over a plan, sorted by keys over the same plan.

    The keys need not be in the list.
    """
    projected = _project(plan, items, select)
    if not keys:
        return projected
    hidden = tuple(dict.fromkeys(key.expression for key in keys if key.expression not in projected.expressions))
    wide = Project(
        input=plan,
        expressions=(*projected.expressions, *hidden),
        names=(*projected.names, *(f"$sort{at}" for at in range(len(hidden)))),
        span=projected.span,
    )
    outputs = column_references(wide.schema)
    over = [
        SortKey(
            expression=outputs[wide.expressions.index(key.expression)],
            descending=key.descending,
            nulls_first=key.nulls_first,
        )
        for key in keys
    ]
    sorted_plan = sort_rows(wide, over, select.node, select.context)
    if hidden:
        width = len(items)
        sorted_plan = Project(input=sorted_plan, expressions=outputs[:width], names=projected.names)
    return sorted_plan


def _distinct(plan: Plan, items: Sequence[_Item], keys: Sequence[SortKey], select: _Select) -> Plan:
    """Return the distinct rows of the SELECT list, sorted by keys over that list."""
    context, node = select.context, select.node
    distinct = deduplicate_rows(_project(plan, items, select), context, node.distinct or node)
    if not keys:
        return distinct
    if all(isinstance(key.expression, InputRef) for key in keys):
        return sort_rows(distinct, keys, node, context)
    return _project_sorted(
        distinct, [_Item(each.name, each) for each in column_references(distinct.schema)], keys, select
    )


def _rewrite_keys(keys: Sequence[SortKey], items: Sequence[_Item], select: _Select) -> list[SortKey]:
    """Return sort keys over the SELECT list: only its columns can sort a SELECT DISTINCT."""
    outputs: dict[Expr, Expr] = {
        item.value: InputRef(type=item.value.type, position=at, name=item.name)
        for at, item in reversed([*enumerate(items)])
        if not isinstance(item.value, Literal)
    }

    def change(part: Expr) -> Expr | None:
        if part not in outputs and isinstance(part, InputRef):
            what = "ORDER BY of a SELECT DISTINCT can only use columns of the SELECT list"
            raise SqlError(Diagnostic("not-in-select", what, part.span))
        return outputs.get(part)

    return [replace(key, expression=transform(key.expression, change)) for key in keys]
