"""ORDER BY: its keys, and the columns that numbers refer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.errors import UnsupportedFeature
from everfold.plan.emitted_changes import is_updating
from everfold.plan.expressions import Expr, InputRef, column_references
from everfold.plan.nodes import Frame, OverAggregate, Plan, Project, Sort, SortKey, TimeKind, time_attribute
from everfold.sql import syntax
from everfold.sql.binder.context import Context

_CURRENT_ROW = Frame(rows=True, first=0, last=0)


def order_items(query: syntax.FlinkQuery, context: Context) -> Sequence[syntax.SortKey]:
    """Return the keys of a query's ORDER BY.

    Within another query of a stream the list is empty, unless there is a LIMIT: the order of those
    rows has no meaning, as in Flink.
    """
    if query.order is None or (context.streaming and context.is_nested and query.limit is None):
        return ()
    return query.order.keys


def sort_rows(plan: Plan, keys: Sequence[SortKey], query: syntax.FlinkQuery, context: Context) -> Plan:
    """Return a plan with the rows sorted by keys over it.

    A stream without LIMIT can only be sorted by time: a row is emitted when the watermark has
    passed it. In a script that is only checked, rows stay unsorted where that is impossible.
    """
    node = query.order
    assert node is not None
    if not context.streaming or query.limit is not None:
        return Sort(input=plan, keys=tuple(keys), span=node.span)
    try:
        time = _check_time(plan, keys[0], node, context)
    except UnsupportedFeature as error:
        context.reject(error)
        return plan
    if time is TimeKind.PROCTIME and len(keys) == 1:
        return plan  # rows arrive in this order
    width = len(plan.schema)
    hidden = [key.expression for key in keys if not isinstance(key.expression, InputRef)]
    if hidden:
        names = (*plan.schema.names, *(f"$sort{position}" for position in range(len(hidden))))
        plan = Project(input=plan, expressions=(*column_references(plan.schema), *hidden), names=names)
        computed = iter(column_references(plan.schema)[width:])
        keys = [
            key if isinstance(key.expression, InputRef) else replace(key, expression=next(computed)) for key in keys
        ]
    plan = OverAggregate(
        input=plan, partition=(), order=tuple(keys), frame=_CURRENT_ROW, calls=(), time=time, span=node.span
    )
    if not hidden:
        return plan
    outputs = column_references(plan.schema)[:width]
    return Project(input=plan, expressions=outputs, names=plan.schema.names[:width], span=node.span)


def _check_time(plan: Plan, key: SortKey, node: syntax.OrderBy, context: Context) -> TimeKind:
    """Return the clock of the first key.

    Raises UnsupportedFeature `streaming-order-by` for a key that cannot sort the rows of a stream.
    """
    written = f"`{context.sql(node.keys[0])}`"
    time = time_attribute(key.expression, plan.schema)
    if is_updating(plan):
        what, help_ = "these rows change", "sort the rows where the result is read, add LIMIT n, or run in batch"
    elif time is None:
        what, help_ = f"{written} is not one", "add LIMIT n to follow the first n rows, or run in batch"
    elif key.descending:
        what = f"{written} is descending: the last row never arrives"
        help_ = "leave DESC out, add LIMIT n to follow the last n rows, or run in batch"
    else:
        return TimeKind(time)
    message = f"a stream can only be sorted by an ascending time attribute of rows that do not change, and {what}"
    raise context.unsupported("streaming-order-by", message, node, help_)


def resolve_ordinal(node: syntax.Expression, width: int, context: Context) -> int | None:
    """Return the column, from 0, that a number in ORDER BY refers to; None for others."""
    if not isinstance(node, syntax.NumberLiteral) or not node.text.isdecimal():
        return None
    at = int(node.text)
    if not 1 <= at <= width:
        raise context.error("unknown-column", f"ORDER BY {at} is outside the {width} columns of the result", node)
    return at - 1


def build_sort_key(node: syntax.SortKey, value: Expr) -> SortKey:
    """Return the sort key of a value. By default NULL is the smallest value."""
    nulls_first = not node.descending if node.nulls_first is None else node.nulls_first
    return SortKey(expression=value, descending=node.descending, nulls_first=nulls_first)
