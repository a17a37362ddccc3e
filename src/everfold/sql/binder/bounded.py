"""What a stream is joined with: relations that come to an end, which are bound and read as a batch."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from everfold.plan.nodes import Plan, tables_of, walk_plan
from everfold.sql.binder.context import Context


def beside_stream(context: Context) -> Context:
    """Where the other side of a join, or a subquery, is bound: as a batch, whatever the session's mode is."""
    return replace(context, as_batch=True)


def check_bounded(plan: Plan, node: exp.Expression, context: Context) -> None:
    """Raises UnsupportedFeature `streaming-join` for a plan that has no end, beside a stream."""
    if not context.streaming:
        return
    endless = next((table for table in tables_of(walk_plan(plan)) if not table.bounded), None)
    if endless is not None:
        raise context.unsupported(
            "streaming-join",
            f"a stream is joined with a bounded table only, and `{endless.name}` has no end: all rows of both sides would have to be kept",
            node,
            "put the stream on the left and the bounded table on the right, UNION ALL the streams and aggregate, or run in batch",
        )
