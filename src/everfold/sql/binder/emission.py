"""Emit control: early results of windows, and updates for late rows.

The options `table.exec.emit.*` enable it. Such a window becomes a group aggregate with the window
bounds among its keys; a session window becomes an aggregate that emits while the session grows.
Their changes are held back until they are due. Source: flink 2.3 through
`tests/cases/window/emit.case.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from everfold.plan.expressions import column_references
from everfold.plan.nodes import (
    GroupAggregate,
    InWindow,
    Plan,
    Project,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.windows import Session
from everfold.sql import syntax
from everfold.sql.binder.context import Context


@dataclass(frozen=True, slots=True)
class Emission:
    """When windows emit results.

    `early_ms` and `late_ms` are the delays of changes, as in `WindowEmit`. `lateness_ms` is how
    long a window accepts rows after its end.
    """

    early_ms: int | None
    late_ms: int | None
    lateness_ms: int = 0


def apply_emit_options(aggregate: WindowAggregate, context: Context, node: syntax.Node) -> Plan:
    """Return a plan with the aggregate's columns that emits as the options say.

    Without such options it is the aggregate itself. Raises SqlError `emit-delay`, `emit-lateness`.
    """
    settings = context.settings
    if not context.streaming or not (settings.early_fire or settings.late_fire):
        return aggregate
    _check(context, node)
    emission = Emission(
        early_ms=settings.early_delay_ms if settings.early_fire else None,
        late_ms=settings.late_delay_ms if settings.late_fire else None,
        lateness_ms=settings.lateness_ms if settings.late_fire else 0,
    )
    return apply_emission(aggregate, emission)


def apply_emission(aggregate: WindowAggregate, emission: Emission) -> Plan:
    """Return a streaming plan with the aggregate's columns that emits as `emission` says."""
    lateness = emission.lateness_ms
    window = InWindow(of=aggregate.window, end=1, time=aggregate.time, zone=aggregate.zone, lateness_ms=lateness)
    if isinstance(aggregate.window, Session):
        values, width = len(aggregate.keys) + len(aggregate.calls), len(aggregate.schema)
        return _gate(
            replace(aggregate, lateness_ms=lateness),
            (*range(len(aggregate.keys)), *range(values, width)),
            replace(window, end=width - 2),
            emission,
        )
    windowed = WindowTableFunction(
        input=aggregate.input,
        window=aggregate.window,
        time_column=aggregate.time_column,
        time=aggregate.time,
        zone=aggregate.zone,
        span=aggregate.span,
    )
    bounds = column_references(windowed.schema)[-3:]
    grouped = GroupAggregate(
        input=windowed, keys=(*bounds, *aggregate.keys), calls=aggregate.calls, window=window, span=aggregate.span
    )
    gated = _gate(grouped, tuple(range(len(grouped.keys))), window, emission)
    columns = column_references(gated.schema)
    return Project(
        input=gated, expressions=(*columns[3:], *columns[:3]), names=aggregate.schema.names, span=aggregate.span
    )


def _gate(
    plan: GroupAggregate | WindowAggregate, keys: tuple[int, ...], window: InWindow, emission: Emission
) -> WindowEmit:
    return WindowEmit(
        input=plan,
        keys=keys,
        window=window,
        time_column=window.end + 1,
        early_ms=emission.early_ms,
        late_ms=emission.late_ms,
        span=plan.span,
    )


def _check(context: Context, node: syntax.Node) -> None:
    settings = context.settings
    if settings.early_fire and settings.early_delay_ms is None:
        raise context.error(
            "emit-delay",
            "early firing is enabled, but the delay of changes is not set",
            node,
            "SET 'table.exec.emit.early-fire.delay' = '1 min', or '0 ms' for every batch",
        )
    if settings.late_fire and settings.lateness_ms <= 0:
        raise context.error(
            "emit-lateness",
            "late firing is enabled, but the allowed lateness is not set",
            node,
            "SET 'table.exec.emit.allow-lateness' = '1 h'",
        )
    if settings.late_fire and settings.lateness_ms < settings.late_delay_ms:
        raise context.error(
            "emit-lateness",
            f"windows accept late rows for {settings.lateness_ms} ms, "
            f"but their changes are held back for {settings.late_delay_ms} ms",
            node,
            "SET 'table.exec.emit.late-fire.delay' to less than 'table.exec.emit.allow-lateness'",
        )
