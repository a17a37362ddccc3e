"""GROUP BY: collect aggregate calls, and build the aggregate over windows or over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from everfold.errors import Diagnostic, SqlError
from everfold.plan.expressions import Call, Expr, InputRef, substitute, transform
from everfold.plan.nodes import (
    ONE_ROW,
    AggCall,
    Filter,
    GroupAggregate,
    Plan,
    Project,
    TimeKind,
    Unnest,
    WindowAggregate,
    WindowTableFunction,
)
from everfold.plan.windows import Cumulate, Hop, Session, Tumble, Window
from everfold.sql import syntax
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.binder.emission import apply_emit_options
from everfold.sql.binder.grouping import GROUPING, Grouping, bind_grouping_value, expand_grouping_sets
from everfold.sql.binder.legacy_windows import GroupWindow, window_part
from everfold.sql.binder.over import is_call_over_window
from everfold.sql.binder.subqueries import OVER_GROUPS
from everfold.sql.binder.windows import END, START, ExtractedWindow, check_size, extract_window


class Calls:
    """The distinct aggregate calls of a query.

    Their references follow the `width` columns of the aggregate's input.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._positions: dict[AggCall, int] = {}

    def reference(self, call: AggCall) -> InputRef:
        """Return a reference to the result of a call."""
        at = self._positions.setdefault(call, len(self._positions))
        return InputRef(type=call.type, position=self.width + at, name=call.function, span=call.span)

    @property
    def calls(self) -> list[AggCall]:
        """The calls, in the order of their first use."""
        return list(self._positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The plan of an aggregate, and each key and call as an expression over its columns.

    `set_number` is the number of a row's grouping set. `window` has start, end and time of the
    group window in GROUP BY.
    """

    plan: Plan
    keys: tuple[Expr, ...]
    calls: tuple[Expr, ...]
    grouping: Grouping | None = None
    set_number: Expr | None = None
    window: tuple[Expr, ...] = ()


def rewrite_over_groups(expr: Expr, grouped: Grouped, width: int) -> Expr:
    """Rewrite an expression over the input's columns and calls to one over the groups.

    Columns of subqueries follow those of the groups.

    Raises SqlError `not-in-group-by` for a column that is neither a key nor inside a call.
    """
    assert grouped.grouping is not None
    grouping, keys = grouped.grouping, grouped.grouping.keys
    positions = {key: at for at, key in reversed(tuple(enumerate(keys)))}

    def change(part: Expr) -> Expr | None:
        if isinstance(part, Call) and part.function == GROUPING:
            return bind_grouping_value(part, grouping, grouped.set_number)
        if (at := positions.get(part)) is not None:
            return grouped.keys[at]
        of_window = window_part(part)
        if of_window is not None:
            return grouped.window[of_window]
        if not isinstance(part, InputRef) or is_call_over_window(part):
            return None
        if part.position >= OVER_GROUPS:
            return replace(part, position=len(grouped.plan.schema) + part.position - OVER_GROUPS)
        if part.position >= width:
            return grouped.calls[part.position - width]
        shown = quote_names(key.name for key in keys if isinstance(key, InputRef))
        raise SqlError(
            Diagnostic(
                "not-in-group-by",
                f"`{part.name}` is neither in GROUP BY nor inside an aggregate",
                part.span,
                f"the grouping keys are {shown}" if shown else f"add `{part.name}` to GROUP BY",
            )
        )

    return transform(expr, change)


def group_by(plan: Plan, grouping: Grouping, calls: Sequence[AggCall], context: Context, node: syntax.Node) -> Grouped:
    """Build the aggregate of a plan by one or more grouping sets."""
    if not grouping.has_several_sets:
        return replace(group(plan, grouping.keys, calls, context, node), grouping=grouping)
    over, keys = expand_grouping_sets(plan, grouping)
    grouped = group(over, keys, calls, context, node)
    return replace(grouped, keys=grouped.keys[:-1], grouping=grouping, set_number=grouped.keys[-1])


def group_by_window(
    plan: Plan,
    window: GroupWindow,
    grouping: Grouping,
    calls: Sequence[AggCall],
    context: Context,
    node: syntax.Node,
) -> Grouped:
    """Build the aggregate of a plan by a group window in GROUP BY and other keys."""
    aggregate = window.aggregate(plan, grouping.keys, calls, context, node)
    first, emitted = len(aggregate.keys) + len(calls), apply_emit_options(aggregate, context, node)
    return Grouped(
        plan=emitted,
        keys=tuple(_output(emitted, aggregate.keys.index(key)) for key in grouping.keys),
        calls=tuple(_output(emitted, len(aggregate.keys) + at) for at in range(len(calls))),
        grouping=grouping,
        window=tuple(_output(emitted, first + at) for at in range(3)),
    )


def group(plan: Plan, keys: Sequence[Expr], calls: Sequence[AggCall], context: Context, node: syntax.Node) -> Grouped:
    """Build the aggregate of a plan by keys.

    It is a window aggregate if both window_start and window_end are among the keys.
    """
    unwound = extract_window(plan)
    if unwound is not None:
        over = [substitute(key, unwound.columns) for key in keys]
        if {START, END} <= {unwound.kind_of(key) for key in over}:
            return _window_group(plan, unwound, keys, over, calls, context, node)
    return _group_rows(plan, keys, calls, context, node)


def _group_rows(
    plan: Plan, keys: Sequence[Expr], calls: Sequence[AggCall], context: Context, node: syntax.Node
) -> Grouped:
    if not keys and not calls:
        return Grouped(plan=ONE_ROW, keys=(), calls=())
    distinct_keys = tuple(dict.fromkeys(keys))
    ttl_ms = context.settings.state_ttl_ms or 0 if context.state_ttl_ms is None else context.state_ttl_ms
    aggregate = GroupAggregate(input=plan, keys=distinct_keys, calls=tuple(calls), ttl_ms=ttl_ms, span=node.span)
    return Grouped(
        plan=aggregate,
        keys=tuple(_output(aggregate, distinct_keys.index(key)) for key in keys),
        calls=tuple(_output(aggregate, len(distinct_keys) + at) for at in range(len(calls))),
    )


def _output(plan: Plan, position: int) -> InputRef:
    field = plan.schema[position]
    return InputRef(type=field.type, position=position, name=field.name)


# --- windows --------------------------------------------------------------------------------------


def _window_group(
    plan: Plan,
    unwound: ExtractedWindow,
    keys: Sequence[Expr],
    over: Sequence[Expr],
    calls: Sequence[AggCall],
    context: Context,
    node: syntax.Node,
) -> Grouped:
    source = unwound.source
    if isinstance(source, WindowTableFunction):
        check_size(source, context)
    of_calls = [_substitute_call(call, unwound.columns) for call in calls]
    mixed = unwound.is_entangled or any(all(unwound.column_use(key)) for key in over)
    mixed = mixed or any(unwound.column_use(part)[1] for call in of_calls for part in _parts(call))
    if mixed or isinstance(source, WindowAggregate) or not _is_window_per_group(unwound, over):
        if not context.streaming:
            return _group_rows(plan, keys, calls, context, node)
        return _aggregate_with_window(plan, unwound, keys, over, calls, context, node)
    aggregate = WindowAggregate(
        input=unwound.inner,
        window=source.window,
        time_column=source.time_column,
        time=source.time,
        keys=_row_keys(unwound, over),
        calls=tuple(of_calls),
        zone=source.zone,
        span=node.span,
    )
    return _results_over_window(apply_emit_options(aggregate, context, node), unwound, over, aggregate.keys, len(calls))


def _parts(call: AggCall) -> tuple[Expr, ...]:
    return call.args if call.filter is None else (*call.args, call.filter)


def _substitute_call(call: AggCall, columns: tuple[Expr, ...]) -> AggCall:
    condition = None if call.filter is None else substitute(call.filter, columns)
    return replace(call, args=tuple(substitute(arg, columns) for arg in call.args), filter=condition)


def _row_keys(unwound: ExtractedWindow, over: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(dict.fromkeys(key for key in over if not unwound.column_use(key)[1]))


def _is_window_per_group(unwound: ExtractedWindow, over: Sequence[Expr]) -> bool:
    """Return whether an aggregate by these keys can form the windows itself.

    The sessions of other keys than PARTITION BY depend on rows of several groups.
    """
    source = unwound.source
    if not isinstance(source, WindowTableFunction) or not isinstance(source.window, Session):
        return True
    schema = unwound.inner.schema
    partition = {InputRef(type=schema[at].type, position=at) for at in source.partition_keys}
    return set(_row_keys(unwound, over)) == partition


def _results_over_window(
    aggregate: Plan, unwound: ExtractedWindow, over: Sequence[Expr], row_keys: tuple[Expr, ...], calls: int
) -> Grouped:
    """Return keys and calls over a window aggregate.

    Filters on the window alone are applied on top of it.
    """
    first = len(row_keys) + calls
    window = tuple(_output(aggregate, first + at) for at in range(3))
    plan = aggregate
    for condition in unwound.window_conditions:
        plan = Filter(input=plan, condition=_over_window(condition, unwound, window))
    results = tuple(
        _output(aggregate, row_keys.index(key)) if key in row_keys else _over_window(key, unwound, window)
        for key in over
    )
    return Grouped(plan=plan, keys=results, calls=tuple(_output(aggregate, len(row_keys) + at) for at in range(calls)))


def _over_window(expr: Expr, unwound: ExtractedWindow, window: Sequence[Expr]) -> Expr:
    """Rewrite an expression over only the three window columns to their current positions."""
    return transform(expr, lambda part: window[part.position - unwound.width] if isinstance(part, InputRef) else None)


# --- windows whose rows are used together with the window -----------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithWindow:
    """A plan that keeps the three window columns.

    `columns` and `window` are the positions of the original columns and of the window columns.
    """

    plan: Plan
    columns: tuple[int, ...]
    window: tuple[int, int, int]

    def references(self) -> tuple[Expr, ...]:
        return tuple(_output(self.plan, at) for at in self.columns)


def _keep_window(plan: Plan) -> _WithWindow:
    match plan:
        case WindowTableFunction() | WindowAggregate():
            end = len(plan.schema)
            return _WithWindow(plan=plan, columns=tuple(range(end)), window=(end - 3, end - 2, end - 1))
        case Filter():
            below = _keep_window(plan.input)
            extended: Plan = replace(plan, input=below.plan, condition=substitute(plan.condition, below.references()))
            return replace(below, plan=extended)
        case Project():
            below = _keep_window(plan.input)
            width = len(plan.expressions)
            window = tuple(_output(below.plan, at) for at in below.window)
            extended = replace(
                plan,
                input=below.plan,
                expressions=(*(substitute(each, below.references()) for each in plan.expressions), *window),
                names=(*plan.names, *(each.name for each in window)),
            )
            return _WithWindow(plan=extended, columns=tuple(range(width)), window=(width, width + 1, width + 2))
        case Unnest():
            below = _keep_window(plan.input)
            extended = replace(plan, input=below.plan, collection=substitute(plan.collection, below.references()))
            width = len(below.plan.schema)
            return _WithWindow(
                plan=extended, columns=(*below.columns, *range(width, width + len(plan.fields))), window=below.window
            )
        case _:
            raise AssertionError(plan)


def _aggregate_with_window(
    plan: Plan,
    unwound: ExtractedWindow,
    keys: Sequence[Expr],
    over: Sequence[Expr],
    calls: Sequence[AggCall],
    context: Context,
    node: syntax.Node,
) -> Grouped:
    """Build an aggregate over rows that already have window columns.

    window_time lies in the last slice of its window, and no two windows end in the same slice. So
    the windows can be formed as slices over window_time. If windows overlap, the slice determines
    only the end, and window_start becomes one more key. All sessions with the same end are complete
    at the same time, so their rows arrive in the batch in which their slice fires.
    """
    source = unwound.source
    if source.time is TimeKind.PROCTIME and not isinstance(source.window, Session):
        raise context.unsupported(
            "proctime-window",
            "an aggregate that uses the window together with columns of its rows needs event time",
            node,
        )
    extended = _keep_window(plan)
    references = extended.references()
    window_only = [unwound.column_use(key) == (False, True) for key in over]
    row_keys = tuple(
        dict.fromkeys(substitute(key, references) for key, skip in zip(keys, window_only, strict=True) if not skip)
    )
    bounds = tuple(_output(extended.plan, at) for at in extended.window[: _count_key_bounds(source.window)])
    aggregate = WindowAggregate(
        input=extended.plan,
        window=_slices(source.window),
        time_column=extended.window[2],
        time=source.time,
        keys=(*bounds, *row_keys),
        calls=tuple(_substitute_call(call, references) for call in calls),
        zone=source.zone,
        span=node.span,
    )
    first = len(aggregate.keys) + len(aggregate.calls)
    window = tuple(_output(aggregate, at if at < len(bounds) else first + at) for at in range(3))
    results = tuple(
        _over_window(key, unwound, window)
        if skip
        else _output(aggregate, row_keys.index(substitute(original, references)) + len(bounds))
        for key, original, skip in zip(over, keys, window_only, strict=True)
    )
    return Grouped(
        plan=aggregate,
        keys=results,
        calls=tuple(_output(aggregate, len(aggregate.keys) + at) for at in range(len(calls))),
    )


def _count_key_bounds(window: Window) -> int:
    """Return how many of window_start and window_end are keys of an aggregate by slices."""
    match window:
        case Tumble():
            return 0
        case Session():
            # The clock of a time zone may skip the end of a session, and window_time is after it.
            return 2
        case Hop() | Cumulate():
            return 1


def _slices(window: Window) -> Tumble:
    if isinstance(window, Session):
        return Tumble(size_ms=1)
    return Tumble(size_ms=window.slice_ms, offset_ms=window.offset_ms % window.slice_ms)
