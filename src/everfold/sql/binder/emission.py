"""Emit control: results of windows before they are complete, and again for late rows, as the options `table.exec.emit.*` say.

Such a window is a group with the window's bounds among its keys, and a session one that is given as it grows; their changes are held back until it is time for
them. Source: flink 2.3 through
`tests/cases/window/emit.case.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from everfold.plan.expressions import references
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
from everfold.sql.binder.context import Context


@dataclass(frozen=True, slots=True)
class Emission:
    """When windows give their results. early_ms, late_ms: how long changes wait, as in `WindowEmit`; lateness_ms: how long a window takes rows after its end."""

    early_ms: int | None
    late_ms: int | None
    lateness_ms: int = 0


def emitting(made: WindowAggregate, context: Context, node: exp.Expression) -> Plan:
    """A plan with the columns of the aggregate that gives its results as the options say; the aggregate itself if they say nothing.

    SqlError `emit-delay`, `emit-lateness`.
    """
    settings = context.settings
    if not context.streaming or not (settings.early_fire or settings.late_fire):
        return made
    _check(context, node)
    emission = Emission(
        early_ms=settings.early_delay_ms if settings.early_fire else None,
        late_ms=settings.late_delay_ms if settings.late_fire else None,
        lateness_ms=settings.lateness_ms if settings.late_fire else 0,
    )
    return emitted(made, emission)


def emitted(made: WindowAggregate, emission: Emission) -> Plan:
    """A plan with the columns of the aggregate that gives its results as it is told, in a stream."""
    lateness = emission.lateness_ms
    window = InWindow(of=made.window, end=1, time=made.time, zone=made.zone, lateness_ms=lateness)
    if isinstance(made.window, Session):
        values, width = len(made.keys) + len(made.calls), len(made.schema)
        return _gate(
            replace(made, lateness_ms=lateness),
            (*range(len(made.keys)), *range(values, width)),
            replace(window, end=width - 2),
            emission,
        )
    windowed = WindowTableFunction(
        input=made.input,
        window=made.window,
        time_column=made.time_column,
        time=made.time,
        zone=made.zone,
        span=made.span,
    )
    bounds = references(windowed.schema)[-3:]
    grouped = GroupAggregate(
        input=windowed, keys=(*bounds, *made.keys), calls=made.calls, window=window, span=made.span
    )
    gated = _gate(grouped, tuple(range(len(grouped.keys))), window, emission)
    columns = references(gated.schema)
    return Project(input=gated, expressions=(*columns[3:], *columns[:3]), names=made.schema.names, span=made.span)


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


def _check(context: Context, node: exp.Expression) -> None:
    settings = context.settings
    if settings.early_fire and settings.early_delay_ms is None:
        raise context.error(
            "emit-delay",
            "early firing is enabled, and nothing says how long changes wait",
            node,
            "SET 'table.exec.emit.early-fire.delay' = '1 min', or '0 ms' for every batch",
        )
    if settings.late_fire and settings.lateness_ms <= 0:
        raise context.error(
            "emit-lateness",
            "late firing is enabled, and nothing says how long windows take late rows",
            node,
            "SET 'table.exec.emit.allow-lateness' = '1 h'",
        )
    if settings.late_fire and settings.lateness_ms < settings.late_delay_ms:
        raise context.error(
            "emit-lateness",
            f"windows take late rows for {settings.lateness_ms} ms, and their changes would wait for {settings.late_delay_ms} ms",
            node,
            "SET 'table.exec.emit.late-fire.delay' to less than 'table.exec.emit.allow-lateness'",
        )
