"""OVER: windows over the rows of a query, and the aggregates computed over them.

While the SELECT list is bound, calls are collected, each represented by a reference far after the
columns. Then each window becomes an `OverAggregate`, one on top of the other, and the references
get their final positions. Source: the seed on OVER; flink 2.3 through `tests/cases/over`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import count
from math import ceil, floor

from everfold.aggregates.calls import entry_of
from everfold.aggregates.registry import Aggregate
from everfold.errors import SqlError, suggest_or_list_names
from everfold.limits import MAX_HEIGHT, too_complex_error
from everfold.plan.emitted_changes import is_updating
from everfold.plan.expressions import Expr, InputRef, Literal, transform
from everfold.plan.nodes import AggCall, Frame, OverAggregate, Plan, SortKey, TimeKind, time_attribute
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.binder.legacy_windows import window_part
from everfold.sql.binder.literals import bind_literal
from everfold.sql.binder.order_by import build_sort_key
from everfold.sql.binder.topn import add_top_n_help, is_row_number
from everfold.types import DecimalType, FloatingType, IntegerType, IntervalType, NumericType, TemporalType, with_article

_FAR = 1 << 20
"""First provisional position of references to calls: no relation has so many columns."""
_TO_CURRENT_ROW = Frame(rows=False, first=None, last=0)
_ALL = Frame(rows=False, first=None, last=None)
_EXACT_DIGITS = 18
"""This many digits of a DECIMAL fit into 64 bits, in which distances are computed."""


@dataclass(frozen=True, slots=True)
class OverWindow:
    """A window as written: partition, order and frame, over the columns of the query's input."""

    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    frame: Frame


@dataclass(slots=True)
class OverCalls:
    """The windows of a SELECT and the calls over each of them.

    `named_windows` holds the windows of the WINDOW clause, by name.
    """

    named_windows: Mapping[str, syntax.NamedWindow] = field(default_factory=dict)
    _windows: dict[OverWindow, syntax.WindowSpec] = field(default_factory=dict)
    _calls: dict[tuple[OverWindow, AggCall], int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def reference(self, window: OverWindow, call: AggCall, node: syntax.WindowSpec) -> InputRef:
        """Return a reference to the result of a call over a window."""
        self._windows.setdefault(window, node)
        at = self._calls.setdefault((window, call), len(self._calls))
        return InputRef(type=call.type, position=_FAR + at, name=call.function, span=call.span)

    @property
    def expressions(self) -> list[Expr]:
        """The expressions that the windows and their calls use."""
        found: list[Expr] = []
        for window, call in self._calls:
            found += [*window.partition, *(key.expression for key in window.order), *call.args]
            found += [call.filter] if call.filter is not None else []
        return found

    def build_plan(
        self, plan: Plan, rewrite: Callable[[Expr], Expr], context: Context
    ) -> tuple[Plan, Callable[[Expr], Expr]]:
        """Return the plan with all windows on top, and a function that places references to calls.

        That function rewrites an expression to one over the returned plan. `rewrite` rewrites an
        expression over the query's input to one over `plan` (over groups, say).
        """
        if len(self._windows) > MAX_HEIGHT:
            node = next(reversed(self._windows.values()))
            what = f"a SELECT has {len(self._windows):,} different OVER windows, each of which adds a plan node"
            raise too_complex_error(what, MAX_HEIGHT, node.span)
        positions: dict[int, int] = {}
        for window, (node, calls) in self._order_windows(plan, rewrite, context).items():
            width = len(plan.schema)
            plan = _build_over(plan, window, [call for _, call in calls], rewrite, context, node)
            positions |= {_FAR + at: width + nth for nth, (at, _) in enumerate(calls)}

        def over(expr: Expr) -> Expr:
            def change(part: Expr) -> Expr | None:
                if isinstance(part, InputRef) and part.position in positions:
                    return replace(part, position=positions[part.position])
                return None

            return transform(expr, change)

        return plan, over

    def _order_windows(
        self, plan: Plan, rewrite: Callable[[Expr], Expr], context: Context
    ) -> dict[OverWindow, tuple[syntax.WindowSpec, list[tuple[int, AggCall]]]]:
        """Return the windows with their nodes and numbered calls, lowest first.

        In a stream, windows ordered by time come first, because the others produce rows that
        change.
        """
        found: dict[OverWindow, tuple[syntax.WindowSpec, list[tuple[int, AggCall]]]] = {}
        timed = {}
        for window in self._windows:
            order = tuple(replace(key, expression=rewrite(key.expression)) for key in window.order)
            timed[window] = context.streaming and _clock(plan, order) is not None
        windows = sorted(self._windows.items(), key=lambda each: not timed[each[0]])
        calls: dict[OverWindow, list[tuple[int, AggCall]]] = {window: [] for window in self._windows}
        for at, (window, call) in enumerate(self._calls):
            calls[window].append((at, call))
        for window, node in windows:
            for at, call in calls[window]:
                # Ordered by time, LAG sees rows of equal time together, as in Flink.
                # In any other order it counts rows, as in batch.
                by_count = call.python is None and entry_of(call).ignores_peers_in_batch
                by_rows = context.streaming and not timed[window] and by_count
                target = replace(window, frame=replace(window.frame, rows=True)) if by_rows else window
                found.setdefault(target, (node, []))[1].append((at, call))
        return found


def is_call_over_window(expr: Expr) -> bool:
    """Return whether an expression is a reference to a call over a window."""
    return isinstance(expr, InputRef) and expr.position >= _FAR and window_part(expr) is None


def _build_over(
    plan: Plan,
    window: OverWindow,
    calls: Sequence[AggCall],
    rewrite: Callable[[Expr], Expr],
    context: Context,
    node: syntax.WindowSpec,
) -> OverAggregate:
    order = tuple(replace(key, expression=rewrite(key.expression)) for key in window.order)
    time, refused = TimeKind.BOUNDED, None
    if context.streaming:
        try:
            time = _stream_time(plan, window, order, context, node)
        except SqlError as error:
            refused = add_top_n_help(error, calls)
            if not is_row_number(calls):
                context.reject(refused)
    return OverAggregate(
        input=plan,
        partition=tuple(map(rewrite, window.partition)),
        order=order,
        frame=window.frame,
        calls=tuple(
            replace(
                call,
                args=tuple(map(rewrite, call.args)),
                filter=None if call.filter is None else rewrite(call.filter),
            )
            for call in calls
        ),
        time=time,
        ttl_ms=context.settings.state_ttl_ms or 0,
        stream_error=refused,
        span=node.span,
    )


def _clock(plan: Plan, order: Sequence[SortKey]) -> TimeKind | None:
    """Return the clock of an order by a single ascending time attribute over insert-only rows.

    None for any other order or input.
    """
    if len(order) != 1 or order[0].descending or is_updating(plan):
        return None
    time = time_attribute(order[0].expression, plan.schema)
    return None if time is None else TimeKind(time)


def _stream_time(
    plan: Plan, window: OverWindow, order: Sequence[SortKey], context: Context, node: syntax.WindowSpec
) -> TimeKind:
    """Return the clock of a window in a stream; BOUNDED if its result is updated with every change.

    Rejects processing time unless it is the only, ascending order of insert-only rows, and
    distances over anything but time.
    """
    clock = _clock(plan, order)
    if clock is not None:
        return clock
    for key, at in zip(order, node.order or [node] * len(order), strict=True):
        if time_attribute(key.expression, plan.schema) == "proctime":
            raise _proctime_error(plan, order, context, node, at)
    frame = window.frame
    if not frame.rows and frame.first:
        raise context.unsupported(
            "over-bound",
            "in a stream, RANGE with a distance needs ORDER BY a single ascending time attribute over insert-only rows",
            node,
            "write RANGE UNBOUNDED PRECEDING, ROWS for a count, or run in batch",
        )
    return TimeKind.BOUNDED


def _proctime_error(
    plan: Plan, order: Sequence[SortKey], context: Context, node: syntax.WindowSpec, at: syntax.Node
) -> SqlError:
    """Return the error that explains why processing time cannot order the rows here."""
    if is_updating(plan):
        return context.unsupported(
            "over-changes",
            "OVER by processing time needs insert-only rows, and these rows change",
            node,
            "order by a column, compute OVER first and aggregate its result, or run in batch",
        )
    if len(order) > 1:
        what = f"`{context.sql(at)}` is processing time, which cannot be one of several ORDER BY columns"
        return context.unsupported("over-order", what, at, "order by it alone, or leave it out")
    return context.unsupported(
        "over-descending",
        "a stream cannot be ordered by descending processing time: the last row never arrives",
        at,
        "leave DESC out, or run in batch",
    )


class WindowBinder:
    """Binds the windows of a SELECT. `bind` binds an expression over the query's input."""

    def __init__(self, context: Context, overs: OverCalls, bind: Callable[[syntax.Expression], Expr]) -> None:
        self._context, self._overs, self._bind = context, overs, bind

    def window(
        self, node: syntax.Over, entry: Aggregate, name: str | None = None
    ) -> tuple[OverWindow, syntax.WindowSpec]:
        """Return the window of a call, and the node that has its ORDER BY, at the call's location.

        `name` is the function name as written.
        """
        name = name or entry.name
        parts = replace(self._parts(node.window, node, ()), span=node.span)
        keys = tuple(dict.fromkeys(map(self._bind, parts.partition_by)))
        order = tuple(self._sort_key(each) for each in parts.order)
        if not order and self._context.streaming:
            raise self._context.error(
                "over-without-order",
                "OVER in a stream needs ORDER BY: rows have no inherent order",
                node,
                "write OVER (PARTITION BY … ORDER BY …)",
            )
        if entry.is_window_function and not order:
            raise self._context.error("over-without-order", f"`{name}` needs an ORDER BY in its window", node)
        return OverWindow(keys, order, self._frame(parts.frame, order, entry, name)), parts

    def _parts(self, spec: syntax.WindowSpec, node: syntax.Node, seen: tuple[str, ...]) -> syntax.WindowSpec:
        """Return a window, completed with the parts of the named window that it refers to.

        `node` is the call or the window that `spec` belongs to.
        """
        if spec.base is None:
            return spec
        name = spec.base.name
        if name not in self._overs.named_windows:
            raise self._context.error(
                "unknown-window",
                f"no window is named `{name}`",
                spec.base,
                suggest_or_list_names(name, self._overs.named_windows)
                if self._overs.named_windows
                else "define it: WINDOW w AS (…)",
            )
        if name in seen:
            raise self._context.error("unknown-window", f"the window `{name}` refers to itself", spec.base)
        named = self._overs.named_windows[name]
        base = self._parts(named.window, named, (*seen, name))
        for what, own, inherited in (
            ("PARTITION BY", spec.partition_by, True),
            ("ORDER BY", spec.order, base.order),
            ("a frame", spec.frame, base.frame),
        ):
            if own and inherited:
                raise self._context.error(
                    "window-twice", f"the window `{name}` has {what} already, or cannot get it here", node
                )
        return replace(
            base,
            partition_by=spec.partition_by or base.partition_by,
            order=spec.order or base.order,
            frame=spec.frame or base.frame,
        )

    def _sort_key(self, node: syntax.SortKey) -> SortKey:
        return build_sort_key(node, self._bind(node.value))

    # --- frames -----------------------------------------------------------------------------------

    def _frame(self, spec: syntax.Frame | None, order: Sequence[SortKey], entry: Aggregate, name: str) -> Frame:
        if entry.is_window_function:
            if spec is not None:
                what = f"`{name}` takes no frame: its rows are fixed"
                raise self._context.error("over-frame", what, spec, "leave ROWS or RANGE out")
            if entry.looks_ahead:
                return Frame(rows=True, first=0, last=None)
            rows = entry.ignores_peers or (entry.ignores_peers_in_batch and not self._context.streaming)
            return Frame(rows=rows, first=None, last=0)
        if spec is None:
            return _TO_CURRENT_ROW if order else _ALL
        rows = spec.unit == "ROWS"
        bounds = [self._bound(each, rows, order) for each in (spec.start, spec.end)]
        scale = 0 if rows else _scale(order, bounds)
        first = None if bounds[0] is None else ceil(bounds[0] * 10**scale)
        last = None if bounds[1] is None else floor(bounds[1] * 10**scale)
        if spec.start.distance is None and spec.start.side == "FOLLOWING":
            raise self._context.error("over-frame", "a frame cannot begin at UNBOUNDED FOLLOWING", spec)
        if spec.end.distance is None and spec.end.side == "PRECEDING":
            raise self._context.error("over-frame", "a frame cannot end at UNBOUNDED PRECEDING", spec)
        sides = (spec.start.side, spec.end.side)
        crossed = sides in ((None, "PRECEDING"), ("FOLLOWING", None), ("FOLLOWING", "PRECEDING"))
        if crossed or (self._context.streaming and first is not None and last is not None and first > last):
            raise self._context.error(
                "over-frame", "the frame ends before it begins", spec, "put the earlier bound first"
            )
        if self._context.streaming and last != 0:
            raise self._context.unsupported(
                "over-upper-bound",
                "in a stream, a frame must end at CURRENT ROW: later rows are not there yet, "
                "and a frame that ends earlier is not supported",
                spec,
                "write … AND CURRENT ROW, or run in batch",
            )
        if self._context.streaming and first is not None and first > 0:
            raise self._context.unsupported("over-upper-bound", "in a stream, a frame cannot begin after its row", spec)
        return Frame(rows=rows, first=first, last=last, scale=scale)

    def _bound(self, bound: syntax.FrameBound, rows: bool, order: Sequence[SortKey]) -> Fraction | None:
        """Return a bound relative to the current row; negative before it."""
        context, value = self._context, bound.distance
        if value is None:
            return Fraction(0) if bound.side is None else None
        amount = value.operand if isinstance(value, syntax.Negative) else value
        literal = bind_literal(amount, context, negative=amount is not value)
        if not isinstance(literal, Literal):
            raise context.error(
                "over-bound", "the bound of a frame must be a constant", value, "write a number of rows, or an INTERVAL"
            )
        sign = -1 if bound.side == "PRECEDING" else 1
        if rows:
            return sign * self._count(literal, value)
        return sign * self._distance(literal, value, order)

    def _count(self, literal: Literal, node: syntax.Expression) -> Fraction:
        if not isinstance(literal.type, IntegerType) or not isinstance(literal.value, int):
            raise self._context.error(
                "over-bound",
                f"ROWS counts rows, and `{self._context.sql(node)}` is not a count",
                node,
                "write ROWS 10 PRECEDING, or RANGE for a time",
            )
        if literal.value < 0:
            raise self._context.error("over-bound", "the bound of a frame must not be negative", node)
        return Fraction(literal.value)

    def _distance(self, literal: Literal, node: syntax.Expression, order: Sequence[SortKey]) -> Fraction:
        context = self._context
        if len(order) != 1:
            raise context.error("over-bound", "RANGE with a distance needs one column in ORDER BY", node)
        of = order[0].expression.type
        if isinstance(of, TemporalType):
            if not isinstance(literal.type, IntervalType):
                raise context.error(
                    "over-bound",
                    f"RANGE over a time takes an interval, and `{context.sql(node)}` is {with_article(literal.type)}",
                    node,
                    "write RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW, or ROWS for a count",
                )
            if literal.type.months:
                raise context.unsupported("over-bound", "RANGE takes distances of days to milliseconds", node)
        elif not (isinstance(of, NumericType) and isinstance(literal.type, NumericType)):
            raise context.unsupported(
                "over-bound", f"RANGE with a distance over {with_article(of)} is not supported", node
            )
        elif isinstance(of, DecimalType) and of.precision > _EXACT_DIGITS:
            message = f"RANGE with a distance takes a DECIMAL of {_EXACT_DIGITS} digits at most, and this is {of.sql}"
            raise context.unsupported("over-bound", message, node, "CAST the column in ORDER BY")
        assert isinstance(literal.value, int | float | Decimal)
        distance = Fraction(Decimal(repr(literal.value)) if isinstance(literal.value, float) else literal.value)
        if distance < 0 and context.streaming:
            raise context.error("over-bound", "the bound of a frame must not be negative", node)
        return distance


def _scale(order: Sequence[SortKey], bounds: Sequence[Fraction | None]) -> int:
    """Return the number of decimal places in which the distances of a frame are computed.

    It is the scale of the order key or, if that is a FLOAT or DOUBLE, as many places as the
    distances have.
    """
    distances = [each for each in bounds if each]
    if not distances:
        return 0
    of = order[0].expression.type
    if isinstance(of, DecimalType):
        return of.scale
    if not isinstance(of, FloatingType):
        return 0
    return next(places for places in count() if all((each * 10**places).denominator == 1 for each in distances))
