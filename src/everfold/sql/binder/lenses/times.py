"""When a record happened, and how far time is: EVENTTIME BY, the record's timestamp, the watermark of windows.

Time is the greatest timestamp seen: a window has ended when a record with a timestamp at or behind its end has come, and takes late records for as long as
GRACE BY says (Kafka Streams' stream time; the seed leaves it to another page).
"""

from __future__ import annotations

from dataclasses import replace

from everfold.plan.expressions import Expr, Literal, references
from everfold.plan.nodes import Project, TimeKind, WatermarkAssigner
from everfold.sql.binder.context import Context
from everfold.sql.binder.lenses.facets import FacetBinder
from everfold.sql.binder.lenses.sources import Source
from everfold.sql.binder.literals import whole
from everfold.sql.catalog import ROWTIME_PRECISION
from everfold.sql.dialects.lenses import META, METADATA
from everfold.sql.dialects.lenses_nodes import TopicQuery
from everfold.sql.dialects.nodes import ColumnPath
from everfold.sql.functions import build, cast
from everfold.types import AnyType, IntegerType, IntervalType, TimestampType

TIMESTAMP = f"{META}.timestamp"
"""The column with the time of a record."""


def timed(node: TopicQuery, source: Source, context: Context) -> Source:
    """The source with the time that EVENTTIME BY says as its `_meta.timestamp`; as it is without that clause.

    SqlError `wrong-event-time`, `eventtime-on-table`.
    """
    field: ColumnPath | None = node.args.get("eventtime")
    if field is None:
        return source
    if source.table:
        raise context.error(
            "eventtime-on-table",
            f"EVENTTIME BY says when events happened, and `{source.name}` is read as a table, which holds the latest state of each key",
            field,
            "write SELECT STREAM, or leave it out",
        )
    names = source.plan.schema.names
    expressions: dict[str, Expr] = dict(zip(names, references(source.plan.schema), strict=True))
    expressions |= {TIMESTAMP: _instant(FacetBinder(source, context, "EVENTTIME BY").bind(field), field, context)}
    return source.over(Project(input=source.plan, expressions=tuple(expressions.values()), names=tuple(expressions)))


def _instant(value: Expr, node: ColumnPath, context: Context) -> Expr:
    match value.type:
        case AnyType():
            return cast(value, METADATA["timestamp"], value.span)
        case IntegerType():
            return build("TO_TIMESTAMP_LTZ", (value, whole(3)), value.span)
        case TimestampType():
            return cast(value, replace(value.type, precision=ROWTIME_PRECISION), value.span)
    raise context.error(
        "wrong-event-time",
        f"EVENTTIME BY takes milliseconds since 1970 or a timestamp, and `{context.sql(node)}` is {value.type.sql}",
        node,
    )


def with_watermark(source: Source, node: TopicQuery, context: Context) -> Source:
    """The source with a time attribute in a stream. SqlError `no-time-attribute`."""
    schema = source.plan.schema
    if not _times(source):
        raise context.error(
            "no-time-attribute",
            f"the records of `{source.name}` have no time, and windows are made by it",
            node.window,
            "say which field it is: EVENTTIME BY field",
        )
    at, _ = time_of(source, context)
    if not context.streaming or schema[at].time == "rowtime":
        return source
    passed = build("-", (references(schema)[at], Literal(type=IntervalType(nullable=False), value=1)))
    plan = WatermarkAssigner(input=source.plan, column=at, watermark=passed, span=context.span(node.window))
    return source.over(plan)


def time_of(source: Source, context: Context) -> tuple[int, TimeKind]:
    """The column with the time of a source that has one, and which clock it is."""
    return _times(source)[0], TimeKind.ROWTIME if context.streaming else TimeKind.BOUNDED


def _times(source: Source) -> list[int]:
    """The columns that can be the time, the best one first: what EVENTTIME BY or a watermark says, else the time of the record."""
    schema = source.plan.schema
    declared = [at for at, field in enumerate(schema) if field.time == "rowtime"]
    return declared + [at for at, field in enumerate(schema) if field.name == TIMESTAMP and at not in declared]
