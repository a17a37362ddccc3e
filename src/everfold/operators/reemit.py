"""Re-emit the current result of an operator, before the changes of a batch.

The receiver has not seen these rows, or has not kept what it needs of them: an operator above that
is new, or that has new aggregates over an updating input; a table that a changed query is to write
again. They are of the kind `REEMIT`, so that operators that have already counted them do not count
them twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeGuard

from everfold.operators.backfill import is_fillable
from everfold.operators.protocol import NO_WATERMARK, Operator
from everfold.plan.changelog import KIND, ORDER, REEMIT, RowKind
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import (
    ChangelogNormalize,
    GroupAggregate,
    OverAggregate,
    Plan,
    Rank,
    Root,
    StatefulNode,
    TimeKind,
)
from everfold.plan.walk import last_operators, operators_of
from everfold.state.bucket_head import has_head

if TYPE_CHECKING:
    import polars as pl

    from everfold.state.store import Store


class ReemittingOperator(Operator, Protocol):
    """An operator that can re-emit its result."""

    def current(self, store: Store) -> pl.DataFrame:
        """Return all rows of the bucket's result, as `Step.rows`, of the kind `REEMIT`."""


class RecountingOperator(Operator, Protocol):
    """An operator whose newest aggregates can be computed from re-emitted rows."""

    def recount(self, store: Store, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Fold rows that have already been counted, as `prepare` returns them for inserts, into the
        aggregates that began last. Return the rows that change, as `Step.rows`.
        """


def can_reemit(node: Plan) -> bool:
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


def operators_to_reemit(
    root: Root, version: int, *, refresh: bool, fresh: Collection[str] = ()
) -> Iterator[StatefulNode]:
    """Yield the operators that re-emit their rows when a version begins.

    These are the operators below one that begins with the version, or that has aggregates that do,
    over an updating input. refresh: also those whose rows are written to the table. fresh: the
    ids of the operators that begin with the version.
    """
    for node in operators_of([root]):
        if not is_updating(node.input):
            continue
        begins = isinstance(node, GroupAggregate) and any(call.since == version for call in node.calls)
        if begins or node.operator_id in fresh:
            yield from (each for each in last_operators(node.input) if each.operator_id not in fresh)
    if refresh:
        yield from (node for node in last_operators(root.input) if can_reemit(node))


def is_reemitting(operator: Operator) -> TypeGuard[ReemittingOperator]:
    """Whether the operator can re-emit its result."""
    return hasattr(operator, "current")


def is_recounting(operator: Operator) -> TypeGuard[RecountingOperator]:
    """Whether the operator can fold rows into its newest aggregates only."""
    return hasattr(operator, "recount")


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What a bucket processes first in a new version.

    changes: as `Step.rows`, before those of the batch. rows: prepared rows that are new to the
    operator, before those of the batch.
    """

    changes: list[pl.DataFrame]
    rows: Sequence[pl.DataFrame] = ()


def bootstrap(
    operator: Operator,
    store: Store,
    epoch: int,
    *,
    repeat: bool,
    past: Sequence[pl.DataFrame],
    given: Sequence[pl.DataFrame],
) -> Bootstrap:
    """Prepare an operator for a new version of the query.

    repeat: whether it re-emits its rows. past: see `backfill`. given: prepared rows that the
    operator before it has re-emitted; an operator that has no state yet processes them as new rows.
    """
    found: list[pl.DataFrame] = []
    if repeat and is_reemitting(operator) and has_head(store, epoch):
        found.append(operator.current(store))
    if past and is_fillable(operator):
        found.append(operator.fill(store, past, repeated=bool(found)))
    if not given:
        return Bootstrap(found)
    if not has_head(store, epoch):
        return Bootstrap(found, given)
    assert is_recounting(operator), operator
    return Bootstrap([*found, operator.recount(store, given)])


def mark_reemitted(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark the rows of a result as re-emitted: they come before all other rows."""
    import polars as pl

    return rows.with_columns_seq(
        pl.lit(REEMIT, dtype=pl.Int8).alias(KIND), pl.lit(NO_WATERMARK, dtype=pl.Int64).alias(ORDER)
    )


def split_reemitted(rows: pl.DataFrame, kind: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split the rows of a batch into its own and the re-emitted ones, which become inserts.

    kind: the column of their kinds.
    """
    import polars as pl

    is_reemitted = rows[kind] >= REEMIT
    if not is_reemitted.any():
        return rows, rows.clear()
    reemitted = rows.filter(pl.col(kind) == REEMIT)
    return rows.filter(~is_reemitted), reemitted.with_columns_seq(
        pl.lit(RowKind.INSERT.value, dtype=rows.schema[kind]).alias(kind)
    )
