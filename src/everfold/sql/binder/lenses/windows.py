"""WINDOW BY: what it says as a window, and the aggregate by it.

Each change of a result is given, also that by a late record which the grace lets in. Source: the seed on Lenses streaming aggregations, which leaves the
kinds of windows to another page.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import references
from everfold.plan.nodes import AggCall, Plan, WindowAggregate
from everfold.plan.windows import Hop, Session, Tumble, Window
from everfold.sql.binder.aggregates import Grouped
from everfold.sql.binder.context import Context
from everfold.sql.binder.emission import Emission, emitted
from everfold.sql.binder.grouping import Grouping
from everfold.sql.binder.lenses.sources import Source
from everfold.sql.binder.lenses.times import time_of
from everfold.sql.dialects.lenses_nodes import TopicQuery, WindowBy
from everfold.types import TimestampType


def check_window(node: TopicQuery, source: Source, context: Context) -> None:
    """SqlError `window-on-table`, `window-size` for a window that cannot be."""
    if node.window is None:
        return
    if source.table:
        raise context.error(
            "window-on-table",
            f"a table cannot be windowed: `{source.name}` holds the latest state of each key, and no series of events along time",
            node.window,
            "write SELECT STREAM, or leave WINDOW BY out",
        )
    window_of(node.window, context)


def window_of(node: WindowBy, context: Context) -> Window:
    """The window. SqlError `window-size`."""
    sizes = [each.ms for each in node.sizes]
    for each in node.sizes:
        if not each.ms:
            raise context.error("window-size", f"a duration of {node.name} must be longer than nothing", each)
    match node.name:
        case "TUMBLE":
            return Tumble(size_ms=sizes[0])
        case "SESSION":
            return Session(gap_ms=sizes[0])
        case _:
            size, hop = sizes
            if size % hop:
                raise context.error(
                    "window-size",
                    f"the size of HOP must be a multiple of its hop, and {node.sizes[0].name} is none of {node.sizes[1].name}",
                    node,
                    "HOP takes the size first, then the hop: HOP 1h 5m",
                )
            return Hop(slide_ms=hop, size_ms=size)


def group_by_window(
    node: TopicQuery, source: Source, grouping: Grouping, calls: Sequence[AggCall], context: Context
) -> Grouped:
    """The aggregate of a source's records by WINDOW BY and other keys; the source has a time."""
    assert node.window is not None
    schema = source.plan.schema
    at, time = time_of(source, context)
    of = schema[at].type
    assert isinstance(of, TimestampType)
    made = WindowAggregate(
        input=source.plan,
        window=window_of(node.window, context),
        time_column=at,
        time=time,
        keys=tuple(dict.fromkeys(grouping.keys)),
        calls=tuple(calls),
        zone="UTC" if of.local_zone else None,
        span=context.span(node.window),
    )
    given: Plan = made
    if context.streaming:
        grace = node.window.grace.ms if node.window.grace else 0
        given = emitted(made, Emission(early_ms=0, late_ms=0 if grace else None, lateness_ms=grace))
    columns = references(given.schema)
    first = len(made.keys) + len(made.calls)
    return Grouped(
        plan=given,
        keys=tuple(columns[made.keys.index(key)] for key in grouping.keys),
        calls=columns[len(made.keys) : first],
        grouping=grouping,
        window=columns[first:],
    )
