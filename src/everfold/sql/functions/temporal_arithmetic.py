"""Operators on points in time and intervals: `+`, `-`, `*` and OVERLAPS.

A point plus an interval is the internal function SHIFT(point, interval). An interval is a whole
number of milliseconds or of months. As in Flink, there is no difference of two points (use
TIMESTAMPDIFF) and no quotient of an interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.coercion import convert_to, kind, least_restrictive
from everfold.sql.functions.comparison import build_comparison, join_conditions
from everfold.sql.functions.entry import Args, Function, Typed
from everfold.sql.functions.writer import Writer
from everfold.types import BIGINT, INT, IntervalType

INTERVALS = ("millis", "months")
POINTS = ("date", "time", "timestamp", "ltz")


def negate_interval(interval: Expr) -> Expr:
    """Negate an interval."""
    if isinstance(interval, Literal) and isinstance(interval.value, int):
        return Literal(value=-interval.value, type=interval.type, span=interval.span)
    return Call(function="UNARY_MINUS", args=(interval,), type=interval.type, span=interval.span)


def add_interval(operator: str, args: Args) -> Typed | Expr | None:
    """Type `point ± interval`, `interval + point`, `interval ± interval`; else None."""
    a, b = args
    if kind(a.type) in INTERVALS and kind(b.type) == kind(a.type):
        return args, a.type
    if operator == "+" and kind(a.type) in INTERVALS:
        a, b = b, a
    if kind(a.type) not in POINTS or kind(b.type) not in INTERVALS:
        return None
    if (kind(a.type), kind(b.type)) == ("time", "months"):
        return None
    return Call(function="SHIFT", args=(a, negate_interval(b) if operator == "-" else b), type=a.type)


def scale_interval(args: Args) -> Typed | None:
    """Type `interval * number` and `number * interval`; None for anything else."""
    a, b = args
    if kind(b.type) in INTERVALS:
        a, b = b, a
    if kind(a.type) not in INTERVALS or kind(b.type) != "integer":
        return None
    assert isinstance(a.type, IntervalType)
    factor = INT if a.type.months else BIGINT
    return (a, convert_to(b, factor) if b.type.sql != "BIGINT" else b), a.type


def _shift_rule(args: Args) -> Typed | None:
    if len(args) == 2 and kind(args[0].type) in POINTS and kind(args[1].type) in INTERVALS:
        return args, args[0].type
    return None


def _spark(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    point, interval = texts
    match kind(call.type), kind(call.args[1].type):
        case "time", _:
            return f"CAST(pmod({point} + {interval}, 86400000) AS INT)"
        case "date", "months":
            return f"add_months({point}, {interval})"
        case "date", _:
            return f"date_add({point}, CAST({interval} div 86400000 AS INT))"
        case "ltz", "months":
            # Months are those of the UTC calendar, as days have 24 hours.
            return f"CAST((CAST({point} AS TIMESTAMP_NTZ) + {interval} * INTERVAL '1' MONTH) AS TIMESTAMP)"
        case _, "months":
            return f"({point} + {interval} * INTERVAL '1' MONTH)"
    return f"({point} + {interval} * INTERVAL '0.001' SECOND)"


def _duckdb(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    point, interval = texts
    match kind(call.type), kind(call.args[1].type):
        case "time", _:
            return f"CAST((({point} + {interval}) % 86400000 + 86400000) % 86400000 AS INTEGER)"
        case "date", "months":
            return f"CAST(({point} + to_months(CAST({interval} AS INTEGER))) AS DATE)"
        case "date", _:
            return f"({point} + CAST({interval} // 86400000 AS INTEGER))"
        case _, "months":
            return f"({point} + to_months(CAST({interval} AS INTEGER)))"
    return f"({point} + to_microseconds({interval} * 1000))"


def _ends(start: Expr, end: Expr) -> tuple[Expr, Expr] | None:
    """Return the earlier and the later end of a period, in any order; None if it is not a period.

    If one end is NULL, Calcite treats the second as the earlier one: then `>=` may still be FALSE.
    """
    if kind(start.type) not in POINTS:
        return None
    if kind(end.type) in INTERVALS:
        moved = add_interval("+", (start, end))
        if not isinstance(moved, Call):
            return None
        end = moved
    common = least_restrictive([start.type, end.type])
    in_order = build_comparison("<=", start, end)
    if kind(end.type) != kind(start.type) or common is None or in_order is None:
        return None
    one, other = convert_to(start, common), convert_to(end, common)
    return (
        Call(function="CASE", args=(in_order, one, other), type=common),
        Call(function="CASE", args=(in_order, other, one), type=common),
    )


def _overlaps_rule(args: Args) -> Expr | None:
    """Type OVERLAPS: each period ends no earlier than the other starts.

    Adjacent periods overlap too, as in Flink.
    """
    if len(args) != 4:
        return None
    first, second = _ends(*args[:2]), _ends(*args[2:])
    if first is None or second is None or kind(first[0].type) != kind(second[0].type):
        return None
    reach = [build_comparison(">=", first[1], second[0]), build_comparison(">=", second[1], first[0])]
    return join_conditions("AND", [each for each in reach if each is not None])


FUNCTIONS = (
    Function(
        name="OVERLAPS",
        rule=_overlaps_rule,
        spark="",
        duckdb="",
        doc="Whether two periods overlap; a period is (start, end) or (start, INTERVAL).",
        usage="(<point>, <point or INTERVAL>) OVERLAPS (<point>, <point or INTERVAL>)",
        operator=True,
    ),
    Function(
        name="SHIFT",
        rule=_shift_rule,
        spark=_spark,
        duckdb=_duckdb,
        doc="Adds an interval to a point in time; months keep the day, or use the last day of the month.",
        usage="<DATE, TIME, TIMESTAMP> + <INTERVAL>",
        operator=True,
    ),
)
