"""ORDER BY: its keys, and the columns that numbers refer to."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Expr
from everfold.plan.nodes import SortKey
from everfold.sql import syntax
from everfold.sql.binder.context import Context


def order_items(query: syntax.FlinkQuery, context: Context) -> Sequence[syntax.SortKey]:
    """Return the keys of a query's ORDER BY.

    A stream supports ORDER BY with LIMIT only. In a script that is only checked, the list is empty
    instead.
    """
    if query.order is None:
        return ()
    if context.streaming and query.limit is None:
        context.reject(
            context.unsupported(
                "streaming-order-by",
                "ORDER BY is not supported in streaming: the input never ends",
                query.order,
                "add LIMIT n to follow the first n rows, or run in batch",
            )
        )
        return ()
    return query.order.keys


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
