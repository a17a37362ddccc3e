"""Create the operator that runs a stateful plan node."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.operators.protocol import TABLES, ClockSpec, Operator
from everfold.plan.nodes import (
    ChangelogNormalize,
    GroupAggregate,
    InWindow,
    OverAggregate,
    Rank,
    StatefulNode,
    TimeKind,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
    runs_on_arrival,
)
from everfold.plan.windows import Session


def clock_of(
    node: StatefulNode, splits: Sequence[str], idle_timeout_ms: int | None, inputs: tuple[str, ...] = (TABLES,)
) -> ClockSpec:
    """Return the clock of a stateful node.

    splits: of its input. inputs: see `ClockSpec`.
    """
    on_arrival = runs_on_arrival(node)
    return ClockSpec(
        splits=() if on_arrival else tuple(splits),
        idle_timeout_ms=idle_timeout_ms,
        processing_time=on_arrival,
        inputs=inputs,
    )


def operator_of(node: StatefulNode, name: str, clock: ClockSpec, epoch: int = 0, updating: bool = False) -> Operator:
    """Return the operator of a stateful node. updating: whether its input may contain changes."""
    match node:
        case WindowAggregate(window=Session()):
            from everfold.operators.session import GrowingSessionOperator, SessionOperator

            operator = SessionOperator if node.lateness_ms is None else GrowingSessionOperator
            return operator(name, node, clock, epoch, updating)
        case WindowAggregate():
            from everfold.operators.window import WindowOperator

            return WindowOperator(name, node, clock, epoch, updating)
        case WindowTableFunction(window=Session()):
            from everfold.operators.session import SessionRowsOperator

            return SessionRowsOperator(name, node, clock, epoch, updating)
        case GroupAggregate():
            from everfold.operators.group import GroupOperator

            return GroupOperator(name, node, clock, epoch, updating)
        case WindowEmit():
            from everfold.operators.window_emit import EmitOperator

            return EmitOperator(name, node, clock, epoch)
        case OverAggregate(time=TimeKind.BOUNDED):
            from everfold.operators.over_updating import UpdatingOverOperator

            return UpdatingOverOperator(name, node, clock, epoch, updating)
        case OverAggregate():
            from everfold.operators.over import OverOperator

            return OverOperator(name, node, clock, epoch)
        case Rank(window=InWindow() as window):
            from everfold.operators.window_rank import WindowRankOperator

            assert not updating, "checked by the planner"
            return WindowRankOperator(name, node, window, clock, epoch)
        case Rank():
            from everfold.operators.rank import RankOperator

            return RankOperator(name, node, clock, epoch, updating)
        case ChangelogNormalize():
            from everfold.operators.normalize import NormalizeOperator

            return NormalizeOperator(name, node, clock, epoch)
        case _:
            raise AssertionError(f"{type(node).__name__} is not stateful")
