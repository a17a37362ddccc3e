"""Rows that stand: what an operator has given so far and has not taken back. They are the whole input of an operator that is put above it, so that one begins
with them, and what comes afterwards are changes of rows that it has seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard

from everfold.operators.contract import NO_WATERMARK, Operator

if TYPE_CHECKING:
    import polars as pl

    from everfold.state.store import Store

BEFORE_ALL = 2 * NO_WATERMARK
"""The order of rows that stand: they come before all changes, those of a backfill (`operators.backfill`) among them."""


class Standing(Operator, Protocol):
    """An operator whose result is in its state."""

    def standing(self, store: Store) -> pl.DataFrame:
        """The rows of a bucket that stand, as `Step.rows`: all of them +I."""


def is_standing(operator: Operator) -> TypeGuard[Standing]:
    """Whether the operator can tell which of its rows stand."""
    return hasattr(operator, "standing")
