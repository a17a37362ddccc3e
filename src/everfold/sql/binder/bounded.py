"""The other side of a stream's join: bounded relations, which are bound and read in batch mode."""

from __future__ import annotations

from dataclasses import replace

from everfold.plan.nodes import Plan, Table
from everfold.plan.walk import tables_of, walk_plan
from everfold.sql import syntax
from everfold.sql.binder.context import Context


def batch_context(context: Context) -> Context:
    """Return the context for the other side of a join, or a subquery: always batch."""
    return replace(context, as_batch=True)


def find_unbounded(plan: Plan) -> Table | None:
    """Return an unbounded table of a plan, None if it has none.

    Raises the error of a table that cannot be read as declared.
    """
    tables = tables_of(walk_plan(plan))
    for table in tables:
        if table.declaration_error is not None:
            raise type(table.declaration_error)(*table.declaration_error.diagnostics)
    return next((table for table in tables if not table.bounded), None)


def check_bounded(plan: Plan, node: syntax.Node, context: Context) -> None:
    """Raise UnsupportedFeature `streaming-join` if an unbounded plan is joined with a stream.

    Whether a table is bounded is unknown if it cannot be read as declared: raises that error.
    """
    if not context.streaming:
        return
    endless = find_unbounded(plan)
    if endless is not None:
        raise context.unsupported(
            "streaming-join",
            f"a stream can only be joined with a bounded table, and `{endless.name}` is unbounded: "
            "all rows of both sides would have to be kept",
            node,
            "put the stream on the left and the bounded table on the right, "
            "UNION ALL the streams and aggregate, or run in batch",
        )
