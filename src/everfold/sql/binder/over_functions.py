"""Window functions derived from others: CUME_DIST, PERCENT_RANK, NTILE, LAG, LEAD.

The first three are ratios of counts over frames of the same window. They need complete partitions,
so they work in batch only. LAG with a negative offset is LEAD, and vice versa. Source: flink 2.3
through `tests/cases/over/shares.case.yaml` and `neighbors.case.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from everfold.errors import UnsupportedFeature
from everfold.plan.expressions import Expr, InputRef, Literal
from everfold.plan.nodes import ROW_COUNT, AggCall, Frame
from everfold.sql import syntax
from everfold.sql.binder.aggregate_calls import bind_call, constant_of, refuse_aggregate_clauses
from everfold.sql.binder.context import Context
from everfold.sql.binder.names import find_over_function
from everfold.sql.binder.over import OverCalls, WindowBinder
from everfold.sql.functions import build
from everfold.sql.functions.casts import cast
from everfold.types import BIGINT, DOUBLE, DataType, NumericType, StringType, TemporalType

SHARES = ("CUME_DIST", "PERCENT_RANK", "NTILE")
NEIGHBORS = ("LAG", "LEAD")
Bind: TypeAlias = Callable[[syntax.Expression], Expr]
_COUNT = AggCall(function="COUNT", args=(), type=ROW_COUNT)


def unsupported_function_error(name: str, call: syntax.FunctionCall, context: Context) -> UnsupportedFeature:
    """Return the error for a window function that is not supported in this mode."""
    mode = "in a stream: rows after the current one are not there yet" if context.streaming else "yet"
    return context.unsupported("over-function", f"`{name}` is not supported {mode}", call)


# --- shares of a partition ------------------------------------------------------------------------


def bind_share(node: syntax.Over, bind: Bind, overs: OverCalls, context: Context) -> Expr:
    """Bind CUME_DIST(), PERCENT_RANK() or NTILE(n) over a window in batch.

    `bind` binds an argument.
    """
    call = node.call
    entry, name, given = find_over_function("ROW_NUMBER"), call.name, call.arguments
    assert entry is not None
    if len(given) != (name == "NTILE"):
        wanted = "the number of buckets" if name == "NTILE" else "no argument"
        raise context.error("wrong-arguments", f"`{name}` takes {wanted}", call)
    refuse_aggregate_clauses(call, context)
    window, parts = WindowBinder(context, overs, bind).window(node, entry, name)

    def count(*, rows: bool = False, first: int | None = None, last: int | None = None) -> Expr:
        frame = Frame(rows=rows, first=first, last=last)
        return overs.reference(replace(window, frame=frame), replace(_COUNT, span=call.span), parts)

    total = count()
    if name == "CUME_DIST":
        return _divide(cast(count(last=0), _DOUBLE), total)
    if name == "PERCENT_RANK":
        before = build("-", (total, count(first=0)))
        share = _divide(cast(before, _DOUBLE), build("-", (total, _whole(1))))
        return build("CASE", (build("=", (total, _whole(1))), Literal(type=_DOUBLE, value=0.0), share))
    buckets = bind(given[0])
    if not isinstance(buckets, Literal) or not isinstance(buckets.value, int) or buckets.value < 1:
        raise context.error("wrong-arguments", "the number of buckets of `NTILE` must be a positive constant", given[0])
    return _bucket(build("-", (count(rows=True, last=0), _whole(1))), total, buckets.value)


def _bucket(position: Expr, total: Expr, buckets: int) -> Expr:
    """Return the bucket of a row, counted from 1.

    `place` is its position, counted from 0, among `total` rows.

    If the rows do not divide evenly, the first buckets have one row more.
    """
    size, larger = _divide(total, _whole(buckets)), build("MOD", (total, _whole(buckets)))
    in_larger = _divide(position, build("+", (size, _whole(1))))
    # With a size of 0 there are only larger buckets; still, the divisor must not be 0.
    divisor = build("CASE", (build("=", (size, _whole(0))), _whole(1), size))
    in_smaller = _divide(build("-", (position, larger)), divisor)
    is_larger = build("<", (position, build("*", (larger, build("+", (size, _whole(1)))))))
    return build("+", (build("CASE", (is_larger, in_larger, in_smaller)), _whole(1)))


_DOUBLE = DOUBLE.as_nullable(False)


def _whole(value: int) -> Literal:
    return Literal(type=BIGINT.as_nullable(False), value=value)


def _divide(by: Expr, divisor: Expr) -> Expr:
    return build("/", (by, divisor))


# --- other rows -----------------------------------------------------------------------------------


def bind_neighbor(node: syntax.Over, bind: Bind, condition: Bind, overs: OverCalls, context: Context) -> InputRef:
    """Bind LAG or LEAD over a window.

    `bind` binds an argument, `condition` that of FILTER.
    """
    call = node.call
    name, given = call.name, list(call.arguments)
    varying = False
    if len(given) > 1:
        known, offset = constant_of(bind(given[1]))
        if known and isinstance(offset, int) and offset < 0:
            name = "LEAD" if name == "LAG" else "LAG"
            given[1] = syntax.NumberLiteral(str(-offset), span=given[1].span)
        varying = not known and not context.streaming
    entry = find_over_function(name)
    assert entry is not None
    if entry.looks_ahead and context.streaming:
        raise unsupported_function_error(call.name, call, context)
    neighbor = replace(call, name=name, arguments=tuple(given))

    def bind_argument(each: syntax.Expression) -> Expr:
        bound = bind(each)
        if len(given) > 2 and each is given[2]:
            return _coerce(bound, bind(given[0]).type)
        return bound

    window, parts = WindowBinder(context, overs, bind).window(node, entry, call.name)
    if varying:
        window = replace(window, frame=Frame(rows=True, first=None, last=0))
    found = bind_call(neighbor, entry, bind_argument, condition, context, varying=varying)
    return overs.reference(window, found, parts)


def _coerce(default: Expr, of: DataType) -> Expr:
    """Cast a default to the type of the values, as in Flink.

    Casts between numbers, and between strings and types that convert to strings.
    """
    numbers = isinstance(default.type, NumericType) and isinstance(of, NumericType)
    plain = (NumericType, StringType, TemporalType)
    texts = isinstance(default.type, plain) and isinstance(of, plain)
    if numbers or (texts and StringType in (type(default.type), type(of))):
        return cast(default, of.as_nullable(default.type.nullable), default.span)
    return default
