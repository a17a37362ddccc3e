"""Backfill: compute over past input what aggregates would contain that begin with a new version of
a query.

The past is processed apart from the stream, by an operator that has only the new calls
(`beginning`). `Fillable.history` reduces the rows of a task and names the columns as pages do, so
that the running operator can read them under any column names. `Fillable.fill` merges
them into the state before the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

from everfold.errors import Span, StateError
from everfold.operators.protocol import NO_WATERMARK, Operator
from everfold.plan.emitted_changes import is_updating
from everfold.plan.explain import call_sql
from everfold.plan.expressions import Call, Expr, InputRef, Literal, column_references
from everfold.plan.nodes import (
    HAS_ROW,
    Filter,
    GroupAggregate,
    OverAggregate,
    Plan,
    StatefulNode,
    TimeKind,
    WatermarkAssigner,
    WindowAggregate,
    WindowTableFunction,
    is_stateful,
    runs_on_arrival,
)
from everfold.plan.parts import map_streamed_inputs
from everfold.types import BOOLEAN

if TYPE_CHECKING:
    import polars as pl

    from everfold.state.store import Store

_EPOCH = datetime(1970, 1, 1)

Aggregating: TypeAlias = GroupAggregate | WindowAggregate | OverAggregate


class Fillable(Operator, Protocol):
    """An operator whose aggregates can be backfilled."""

    def final_until(self, head: Mapping[str, Any]) -> int:
        """Return the time up to which a bucket's rows are final, from its head page, in
        milliseconds of its windows.
        """

    def history(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return past rows of a task, given as `prepare` receives them, as columns of pages.

        since: the least value of `final_until` in any bucket.
        """

    def fill(self, store: Store, histories: Sequence[pl.DataFrame], *, repeated: bool = False) -> pl.DataFrame:
        """Merge what `history` returned into the bucket's state and add no new entries. Return the
        rows that change, as `Step.rows`.

        repeated: whether the rows have just been re-emitted with the new columns; otherwise the
        emitted rows lack them.
        """


def restrict_to_new_calls(node: Plan, version: int) -> Aggregating | None:
    """Return the node with only those calls that begin with a version of the query.

    None if there are none, and for an updating input, which is re-emitted instead (`reemit`).
    StateError `no-backfill` if they cannot be backfilled.
    """
    if not isinstance(node, GroupAggregate | WindowAggregate | OverAggregate) or is_updating(node.input):
        return None
    calls = tuple(call for call in node.calls if call.since == version)
    if not calls:
        return None
    found = replace(node, calls=calls)
    why = _obstacle(found)
    if why is not None:
        raise no_backfill_error(why, node.span)
    return found


def list_calls(node: Aggregating) -> tuple[str, ...]:
    """Return the calls of a node in SQL, for people."""
    return tuple(call_sql(call, node.input.schema.names) for call in node.calls if call.function != HAS_ROW)


def no_backfill_error(why: str, span: Span | None = None) -> StateError:
    """Return the error `no-backfill`, with the reason why a new part of a query cannot be
    backfilled.
    """
    what = f"the new part of the query cannot be backfilled: {why}"
    return StateError.of("no-backfill", what, span, help="use `--on-change accept` to start it at the restart")


NEW_OPERATOR = "a new operator has no state to backfill"


def _obstacle(node: Aggregating) -> str | None:
    """Return why the calls of a node cannot be backfilled, None if they can."""
    if isinstance(node, OverAggregate) and node.time is TimeKind.PROCTIME:
        return "its rows are in arrival order, which past input does not record"
    if not isinstance(node, OverAggregate) and runs_on_arrival(node):
        return "its windows use processing time, and past input does not record when a row arrived"
    if isinstance(node, GroupAggregate) and any(call.distinct for call in node.calls):
        return "the values of a DISTINCT call are not stored with the group"
    if isinstance(node, WindowAggregate) and node.lateness_ms is not None:
        return "its sessions are emitted while they grow"
    return None


def restrict_to_emitted(node: Plan, reached: Callable[[StatefulNode], int | None]) -> Plan:
    """Return the plan over past input, without rows that had no time, in which each operator emits
    only what it has already emitted.

    reached: returns the time up to which an operator's rows are final (`Fillable.final_until`),
    None for an operator that does not support backfill. StateError `no-backfill` for an operator
    whose results are not final when they are emitted.
    """
    past = map_streamed_inputs(node, lambda each: restrict_to_emitted(each, reached))
    if isinstance(past, WatermarkAssigner):
        time = column_references(past.schema)[past.column]
        return Filter(input=past, condition=Call(type=BOOLEAN, function="IS NOT NULL", args=(time,)))
    if not is_stateful(node):
        return past
    upto = reached(node)
    match past:
        case WindowAggregate(lateness_ms=None) | WindowTableFunction() if upto is not None:
            at = len(past.schema) - 2
            end: Expr = InputRef(type=past.schema[at].type, position=at, name=past.schema[at].name)
        case OverAggregate() if upto is not None:
            end = past.order[0].expression
        case _:
            raise StateError.of("no-backfill", f"an aggregate over {type(node).__name__} cannot be backfilled")
    if upto == NO_WATERMARK:
        condition: Expr = Literal(type=BOOLEAN, value=False)
    else:
        moment = Literal(type=end.type, value=_EPOCH + timedelta(milliseconds=upto))
        condition = Call(type=BOOLEAN, function="<=", args=(end, moment))
    return Filter(input=past, condition=condition)


def is_fillable(operator: Operator) -> TypeGuard[Fillable]:
    """Whether the operator supports backfill."""
    return hasattr(operator, "fill")


def sort_histories(histories: Sequence[pl.DataFrame]) -> Sequence[pl.DataFrame]:
    """Return the past rows of several tasks, in arrival order where it matters (column `seq`)."""
    import polars as pl

    if "seq" not in histories[0].columns:
        return histories
    return [pl.concat(histories).sort("seq")]
