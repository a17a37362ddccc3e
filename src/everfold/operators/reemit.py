"""Rows that are given again: the result of an operator as it is, ahead of a batch's changes.

Who takes them has not seen them, or has forgotten what it needs of them: an operator above that is new, or that has new aggregates over rows that change; a
table whose rows are to be written by a changed query. They are of the kind `AGAIN`, so that whoever has counted them does not count them twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeGuard

from everfold.operators.backfill import is_fillable
from everfold.operators.protocol import NO_WATERMARK, Operator
from everfold.plan.changelog import AGAIN, KIND, ORDER, RowKind, is_updating
from everfold.plan.nodes import (
    ChangelogNormalize,
    GroupAggregate,
    OverAggregate,
    Plan,
    Rank,
    Root,
    StatefulNode,
    TimeKind,
    is_stateful,
    last_operators,
    streamed,
)
from everfold.state.bucket_head import is_begun

if TYPE_CHECKING:
    import polars as pl

    from everfold.state.store import Store


class Repeating(Operator, Protocol):
    """An operator that can give its result again."""

    def current(self, store: Store) -> pl.DataFrame:
        """All rows of the bucket's result, as `Step.rows`, of the kind `AGAIN`."""


class Recounting(Operator, Protocol):
    """An operator whose newest aggregates can be computed of rows that are given again."""

    def recount(self, store: Store, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Takes rows that it has counted already, as `prepare` made them of inserts, for the aggregates that began last; the rows that change by that, as `Step.rows`."""


def repeats(node: Plan) -> bool:
    """Whether the operator of a node has its whole result in its state."""
    if not is_updating(node):
        return False
    match node:
        case GroupAggregate():
            return node.window is None
        case Rank():
            return node.window is None
        case OverAggregate():
            return node.time is TimeKind.BOUNDED
        case _:
            return isinstance(node, ChangelogNormalize)


def repeating(root: Root, version: int, *, refresh: bool, fresh: Collection[int] = ()) -> Iterator[StatefulNode]:
    """The operators that give their rows again when a version begins: those below an operator that begins with it, or whose aggregates do, over rows that change; refresh: and those
    whose rows come to the table. fresh: the identities of the operators that begin with it."""
    for node in (node for node in streamed(root.input) if is_stateful(node) and is_updating(node.input)):
        begins = isinstance(node, GroupAggregate) and any(call.since == version for call in node.calls)
        if begins or id(node) in fresh:
            yield from (each for each in last_operators(node.input) if id(each) not in fresh)
    if refresh:
        yield from (node for node in last_operators(root.input) if repeats(node))


def is_repeating(operator: Operator) -> TypeGuard[Repeating]:
    """Whether the operator can give its result again."""
    return hasattr(operator, "current")


def is_recounting(operator: Operator) -> TypeGuard[Recounting]:
    """Whether the operator takes rows for its newest aggregates alone."""
    return hasattr(operator, "recount")


@dataclass(frozen=True, slots=True)
class Begun:
    """What a version begins with in a bucket. changes: as `Step.rows`, ahead of those of the batch. rows: prepared ones that are new to it, ahead of the batch's own."""

    changes: list[pl.DataFrame]
    rows: Sequence[pl.DataFrame] = ()


def begun(
    operator: Operator,
    store: Store,
    epoch: int,
    *,
    repeat: bool,
    past: Sequence[pl.DataFrame],
    given: Sequence[pl.DataFrame],
) -> Begun:
    """Has an operator begin with a version of the query. repeat: it is to give its rows again. past: see `backfill`. given: prepared rows that the one before has given
    again: an operator that has no state yet takes them as new ones."""
    found: list[pl.DataFrame] = []
    if repeat and is_repeating(operator) and is_begun(store, epoch):
        found.append(operator.current(store))
    if past and is_fillable(operator):
        found.append(operator.fill(store, past, repeated=bool(found)))
    if not given:
        return Begun(found)
    if not is_begun(store, epoch):
        return Begun(found, given)
    assert is_recounting(operator), operator
    return Begun([*found, operator.recount(store, given)])


def as_again(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a result as rows that are given again: ahead of everything else."""
    import polars as pl

    return rows.with_columns(
        pl.lit(AGAIN, dtype=pl.Int8).alias(KIND), pl.lit(NO_WATERMARK, dtype=pl.Int64).alias(ORDER)
    )


def parted(rows: pl.DataFrame, kind: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of a batch and those that are given again, which come as inserts. kind: the column of their kinds."""
    import polars as pl

    again = rows[kind] >= AGAIN
    if not again.any():
        return rows, rows.clear()
    given = rows.filter(pl.col(kind) == AGAIN)
    return rows.filter(~again), given.with_columns(pl.lit(RowKind.INSERT.value, dtype=rows.schema[kind]).alias(kind))
