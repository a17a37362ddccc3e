"""Event time and watermarks: EVENTTIME BY, the timestamps of records, the watermark of windows.

Time is the greatest timestamp seen. A window ends when a record arrives whose timestamp is at or
after its end, and accepts late records for the duration of GRACE BY (Kafka Streams' stream time;
the seed leaves it to another page).
"""

from __future__ import annotations

from dataclasses import replace

from everfold.plan.expressions import Expr, Literal, column_references
from everfold.plan.nodes import Project, TimeKind, WatermarkAssigner
from everfold.plan.topic_storage import META
from everfold.sql import syntax
from everfold.sql.binder.constants import int_literal
from everfold.sql.binder.context import Context, span_of
from everfold.sql.binder.lenses.facets import FacetBinder
from everfold.sql.binder.lenses.sources import Source
from everfold.sql.catalog import ROWTIME_PRECISION
from everfold.sql.dialects.lenses_columns import METADATA
from everfold.sql.functions import build, cast
from everfold.types import AnyType, IntegerType, IntervalType, TimestampType

TIMESTAMP = f"{META}.timestamp"
"""The column with the timestamp of a record."""


def assign_event_time(node: syntax.TopicQuery, source: Source, context: Context) -> Source:
    """Return the source with the time of EVENTTIME BY as its `_meta.timestamp`.

    Without that clause it is unchanged. Raises SqlError `wrong-event-time`, `eventtime-on-table`.
    """
    field = node.eventtime
    if field is None:
        return source
    if source.is_table:
        raise context.error(
            "eventtime-on-table",
            f"EVENTTIME BY needs a stream of events, and `{source.name}` is read as a table, "
            "which holds the latest state of each key",
            field,
            "write SELECT STREAM, or leave it out",
        )
    names = source.plan.schema.names
    expressions: dict[str, Expr] = dict(zip(names, column_references(source.plan.schema), strict=True))
    expressions |= {TIMESTAMP: _to_timestamp(FacetBinder(source, context, "EVENTTIME BY").bind(field), field, context)}
    return source.with_plan(
        Project(input=source.plan, expressions=tuple(expressions.values()), names=tuple(expressions))
    )


def _to_timestamp(value: Expr, node: syntax.ColumnPath, context: Context) -> Expr:
    match value.type:
        case AnyType():
            return cast(value, METADATA["timestamp"], value.span)
        case IntegerType():
            return build("TO_TIMESTAMP_LTZ", (value, int_literal(3)), value.span)
        case TimestampType():
            return cast(value, replace(value.type, precision=ROWTIME_PRECISION), value.span)
    raise context.error(
        "wrong-event-time",
        f"EVENTTIME BY takes milliseconds since 1970 or a timestamp, and `{context.sql(node)}` is {value.type.sql}",
        node,
    )


def with_watermark(source: Source, node: syntax.TopicQuery, context: Context) -> Source:
    """Return the source with a time attribute, in a stream. Raises SqlError `no-time-attribute`."""
    schema = source.plan.schema
    if not _times(source):
        raise context.error(
            "no-time-attribute",
            f"the records of `{source.name}` have no time, and windows need one",
            node.window,
            "specify the field: EVENTTIME BY field",
        )
    at, _ = time_column(source, context)
    if not context.streaming or schema[at].time == "rowtime":
        return source
    passed = build("-", (column_references(schema)[at], Literal(type=IntervalType(nullable=False), value=1)))
    plan = WatermarkAssigner(input=source.plan, column=at, watermark=passed, span=span_of(node.window))
    return source.with_plan(plan)


def time_column(source: Source, context: Context) -> tuple[int, TimeKind]:
    """Return the time column of a source that has one, and its clock."""
    return _times(source)[0], TimeKind.ROWTIME if context.streaming else TimeKind.BOUNDED


def _times(source: Source) -> list[int]:
    """Return the columns that can be the time, the best one first.

    That of EVENTTIME BY or a watermark comes before the timestamp of the record.
    """
    schema = source.plan.schema
    declared = [at for at, field in enumerate(schema) if field.time == "rowtime"]
    return declared + [at for at, field in enumerate(schema) if field.name == TIMESTAMP and at not in declared]
