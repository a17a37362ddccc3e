"""WINDOW BY: bind the window, and build the aggregate by it.

Every change of a result is emitted, including those by late records within the grace period.
Source: the seed on Lenses streaming aggregations, which leaves the kinds of windows to another
page.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import column_references
from everfold.plan.nodes import AggCall, Plan, WindowAggregate
from everfold.plan.windows import Hop, Session, Tumble, Window
from everfold.sql import syntax
from everfold.sql.binder.aggregates import Grouped
from everfold.sql.binder.context import Context
from everfold.sql.binder.emission import Emission, apply_emission
from everfold.sql.binder.grouping import Grouping
from everfold.sql.binder.lenses.sources import Source
from everfold.sql.binder.lenses.times import time_column
from everfold.types import TimestampType


def check_window(node: syntax.TopicQuery, source: Source, context: Context) -> None:
    """Raise SqlError `window-on-table`, `window-size` for an invalid window."""
    if node.window is None:
        return
    if source.is_table:
        raise context.error(
            "window-on-table",
            f"a table cannot be windowed: `{source.name}` holds the latest state of each key, "
            "not a series of events over time",
            node.window,
            "write SELECT STREAM, or leave WINDOW BY out",
        )
    window_of(node.window, context)


def window_of(node: syntax.WindowBy, context: Context) -> Window:
    """Return the window. Raises SqlError `window-size`."""
    sizes = [each.ms for each in node.sizes]
    for each in node.sizes:
        if not each.ms:
            raise context.error("window-size", f"a duration of {node.kind} must be positive", each)
    match node.kind:
        case "TUMBLE":
            return Tumble(size_ms=sizes[0])
        case "SESSION":
            return Session(gap_ms=sizes[0])
        case _:
            size, hop = sizes
            if size % hop:
                raise context.error(
                    "window-size",
                    "the size of HOP must be a multiple of its hop, "
                    f"and {node.sizes[0].text} is not a multiple of {node.sizes[1].text}",
                    node,
                    "HOP takes the size first, then the hop: HOP 1h 5m",
                )
            return Hop(slide_ms=hop, size_ms=size)


def group_by_window(
    node: syntax.TopicQuery, source: Source, grouping: Grouping, calls: Sequence[AggCall], context: Context
) -> Grouped:
    """Build the aggregate of a source by WINDOW BY and other keys. The source must have a time."""
    assert node.window is not None
    schema = source.plan.schema
    at, time = time_column(source, context)
    of = schema[at].type
    assert isinstance(of, TimestampType)
    aggregate = WindowAggregate(
        input=source.plan,
        window=window_of(node.window, context),
        time_column=at,
        time=time,
        keys=tuple(dict.fromkeys(grouping.keys)),
        calls=tuple(calls),
        zone="UTC" if of.local_zone else None,
        span=node.window.span,
    )
    plan: Plan = aggregate
    if context.streaming:
        grace = node.window.grace.ms if node.window.grace else 0
        plan = apply_emission(aggregate, Emission(early_ms=0, late_ms=0 if grace else None, lateness_ms=grace))
    columns = column_references(plan.schema)
    first = len(aggregate.keys) + len(aggregate.calls)
    return Grouped(
        plan=plan,
        keys=tuple(columns[aggregate.keys.index(key)] for key in grouping.keys),
        calls=columns[len(aggregate.keys) : first],
        grouping=grouping,
        window=columns[first:],
    )
