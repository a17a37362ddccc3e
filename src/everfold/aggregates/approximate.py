"""APPROX_COUNT_DISTINCT.

The sketch is the least `SKETCH_VALUES` of the 64-bit hashes of the values: a bottom-k sketch, which
DataSketches calls a theta sketch. Up to that many values the count is exact. Beyond, the count is
estimated from the share of all hashes below the greatest kept one, with a relative standard error
of 1 / sqrt(k - 2): 1.6 %. The sketch is a sorted list of numbers, so whole columns of sketches
merge at once. DataSketches' own sketches take one value per call in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import lists
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Distinct, Signature, Slot, SqlArguments, aggregate
from everfold.types import (
    BIGINT,
    ArrayType,
    BooleanType,
    DataType,
    NumericType,
    StringType,
    TemporalType,
)

SKETCH_VALUES = 4096


@aggregate("APPROX_COUNT_DISTINCT")
class ApproxCountDistinct(Aggregate):
    """Approximate number of distinct non-null values: exact up to 4096, then 1.6 % standard error.

    It does not support retraction.
    """

    takes_hashes = True
    is_retractable = False
    distinct = Distinct.NO_DIFFERENCE

    def result_type(self, of: Signature) -> DataType | None:
        countable = isinstance(of.args[0], NumericType | StringType | BooleanType | TemporalType)
        return BIGINT.as_nullable(False) if countable else None

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return (Slot("hashes", ArrayType(element=BIGINT)),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        hashes, known = columns
        return (hashes.filter(known).unique().implode(),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (lists.explode_lists(slots[0]).unique().implode(),)

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        (hashes,) = slots
        least = hashes.list.sort().list.head(SKETCH_VALUES)
        return (pl.when(hashes.list.len() > SKETCH_VALUES).then(least).otherwise(hashes),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        (hashes,) = slots
        kept = hashes.list.len().fill_null(0).cast(pl.Int64)
        share = (hashes.list.max().cast(pl.Float64) + 2.0**63) / 2.0**64
        estimate = ((SKETCH_VALUES - 1) / share).round().cast(pl.Int64)
        return pl.when(kept < SKETCH_VALUES).then(kept).otherwise(estimate)

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"approx_count_distinct({over.texts[0]}, 0.01)"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"COUNT(DISTINCT {over.texts[0]})"
