"""Sums of floating-point numbers that support retraction.

NaN and the infinities are counted separately, since nothing can be subtracted from a sum with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Slot
from everfold.types import BIGINT

SPECIAL_SLOTS = tuple(Slot(name, BIGINT, internal=True) for name in ("nan", "infinite", "minus_infinite"))


def special_counts(column: pl.Expr, sign: pl.Expr) -> list[pl.Expr]:
    """Return what each row adds to the special slots."""
    infinity = float("inf")
    kinds = (column.is_nan(), column == infinity, column == -infinity)
    return [kind.fill_null(False).cast(pl.Int64) * sign for kind in kinds]


def zero_if_not_finite(column: pl.Expr) -> pl.Expr:
    """Return the column with 0 in place of NULL, NaN and the infinities."""
    return pl.when(column.is_finite()).then(column).otherwise(pl.lit(0.0))


def add_special_counts(total: pl.Expr, counts: Sequence[pl.Expr]) -> pl.Expr:
    """Return the sum of the finite numbers and the given counts of special ones."""
    nan, plus, minus = ((count > 0).fill_null(False) for count in counts)
    return (
        pl.when(nan | (plus & minus))
        .then(pl.lit(float("nan")))
        .when(plus)
        .then(pl.lit(float("inf")))
        .when(minus)
        .then(pl.lit(float("-inf")))
        .otherwise(total)
    )
