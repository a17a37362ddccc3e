"""Backfill: aggregates that begin with a new version of a query get what the rows of the past would have given them.

The past is computed apart from the stream, by an operator of the new calls alone (`beginning`): `Fillable.history` makes a task's rows few, and names them as
pages do. So the operator that runs can read them, whatever its own columns are called: `Fillable.fill` merges them into the state, before the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

from everfold.errors import Span, StateError
from everfold.operators.protocol import NO_WATERMARK, Operator
from everfold.plan.changelog import is_updating
from everfold.plan.expressions import Call, Expr, InputRef, Literal, references
from everfold.plan.nodes import (
    Filter,
    GroupAggregate,
    Join,
    OverAggregate,
    Plan,
    StatefulNode,
    TimeKind,
    WatermarkAssigner,
    WindowAggregate,
    WindowTableFunction,
    children,
    is_stateful,
    runs_on_arrival,
    with_children,
)
from everfold.types import BOOLEAN

if TYPE_CHECKING:
    import polars as pl

    from everfold.state.store import Store

_EPOCH = datetime(1970, 1, 1)

Aggregating: TypeAlias = GroupAggregate | WindowAggregate | OverAggregate


class Fillable(Operator, Protocol):
    """An operator whose aggregates can be given their past."""

    def reached(self, head: Mapping[str, Any]) -> int:
        """Up to when a bucket's rows are final, in milliseconds of its windows: of its head page."""

    def history(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """A task's rows of the past, as `prepare` gets them, as columns of pages. since: the least of what the buckets have `reached`."""

    def fill(self, store: Store, histories: Sequence[pl.DataFrame], *, repeated: bool = False) -> pl.DataFrame:
        """Merges what `history` made into what the bucket's state has, adding nothing that it has not; the rows that change by that, as `Step.rows`.

        repeated: whether rows have been given again just now, with what is new; else those that are out lack it.
        """


def beginning(node: Plan, version: int) -> Aggregating | None:
    """The node with those of its calls that begin with a version of the query; None without any, and over rows that change, which are given again as they are (`again`). StateError
    `no-backfill` if they cannot get their past."""
    if not isinstance(node, GroupAggregate | WindowAggregate | OverAggregate) or is_updating(node.input):
        return None
    calls = tuple(call for call in node.calls if call.since == version)
    if not calls:
        return None
    begun = replace(node, calls=calls)
    why = _obstacle(begun)
    if why is not None:
        raise unfillable(why, node.span)
    return begun


def unfillable(why: str, span: Span | None = None) -> StateError:
    """The error `no-backfill`: why something new in a query cannot get its past."""
    what = f"what is new in the query cannot be computed from the beginning: {why}"
    return StateError.of("no-backfill", what, span, help="--on-change accept starts it now")


NEW_OPERATOR = "an operator that is new has no state into which its past could go"


def _obstacle(node: Aggregating) -> str | None:
    """Why the calls of a node cannot get their past, None if they can."""
    if isinstance(node, OverAggregate) and node.time is TimeKind.PROCTIME:
        return "its rows are in the order of their arrival, which the past does not tell"
    if not isinstance(node, OverAggregate) and runs_on_arrival(node):
        return "its windows are of processing time, and the past does not tell when a row arrived"
    if isinstance(node, GroupAggregate) and any(call.distinct for call in node.calls):
        return "the values of a DISTINCT call are not kept with the group"
    if isinstance(node, WindowAggregate) and node.lateness_ms is not None:
        return "its sessions are given while they grow"
    return None


def as_given(node: Plan, reached: Callable[[StatefulNode], int | None]) -> Plan:
    """The plan of the past, without the rows that had no time, and in which each operator gives no more than it has given. reached: up to when its rows are final, by `Fillable.reached`; None for one
    whose input is no past of its own.

    StateError `no-backfill` for an operator whose results are not given once and for all.
    """
    made = tuple(
        each if isinstance(node, Join) and at == 1 else as_given(each, reached)
        for at, each in enumerate(children(node))
    )
    again = with_children(node, made)
    if isinstance(again, WatermarkAssigner):
        time = references(again.schema)[again.column]
        return Filter(input=again, condition=Call(type=BOOLEAN, function="IS NOT NULL", args=(time,)))
    if not is_stateful(node):
        return again
    upto = reached(node)
    match again:
        case WindowAggregate(lateness_ms=None) | WindowTableFunction() if upto is not None:
            at = len(again.schema) - 2
            end: Expr = InputRef(type=again.schema[at].type, position=at, name=again.schema[at].name)
        case OverAggregate() if upto is not None:
            end = again.order[0].expression
        case _:
            raise StateError.of("no-backfill", f"an aggregate over {type(node).__name__} cannot be given its past")
    if upto == NO_WATERMARK:
        condition: Expr = Literal(type=BOOLEAN, value=False)
    else:
        moment = Literal(type=end.type, value=_EPOCH + timedelta(milliseconds=upto))
        condition = Call(type=BOOLEAN, function="<=", args=(end, moment))
    return Filter(input=again, condition=condition)


def is_fillable(operator: Operator) -> TypeGuard[Fillable]:
    """Whether the operator takes a past."""
    return hasattr(operator, "fill")


def in_order(histories: Sequence[pl.DataFrame]) -> Sequence[pl.DataFrame]:
    """What several tasks have made of the past, in the order of the rows' arrival where it matters (column `seq`)."""
    import polars as pl

    if "seq" not in histories[0].columns:
        return histories
    return [pl.concat(histories).sort("seq")]
