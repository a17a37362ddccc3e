"""SINGLE_VALUE: the value of a scalar subquery that is not known to have at most one row."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import lists, sql_lists
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Distinct, Fault, Signature, Slot, SqlArguments, aggregate
from everfold.error_transport import raise_in_duckdb, raise_in_spark
from everfold.types import BIGINT, ArrayType, DataType, NullType

_MESSAGE = "SINGLE_VALUE got more than one row"


@aggregate("SINGLE_VALUE")
class SingleValue(Aggregate):
    """Value of the only row, NULL if there is none. A second row stops the job."""

    skips_nulls = False
    is_ordered = True
    distinct = Distinct.NO_DIFFERENCE

    def result_type(self, of: Signature) -> DataType | None:
        return None if isinstance(of.args[0], NullType) else of.args[0].as_nullable()

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        # A list, to distinguish a NULL value from no value.
        return Slot("last", ArrayType(element=of.args[0].as_nullable())), Slot("count", BIGINT)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        (column,) = columns
        if sign is None:
            return column.tail(1).implode(), column.len().cast(pl.Int64)
        return column.filter(sign > 0).tail(1).implode(), sign.sum()

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return lists.explode_lists(slots[0]).tail(1).implode(), slots[1].sum()

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return pl.when(slots[1] > 0).then(slots[0].list.last())

    def faults(self, of: Signature, slots: Sequence[pl.Expr]) -> tuple[Fault, ...]:
        return (Fault("several-values", slots[1] > 1, _MESSAGE),)

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        values = sql_lists.spark_list(over, nulls=True)
        return (
            f"CASE WHEN size({values}) > 1 THEN {raise_in_spark('several-values', _MESSAGE)} ELSE get({values}, 0) END"
        )

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        values = sql_lists.duckdb_list(over, nulls=True)
        return f"CASE WHEN len({values}) > 1 THEN {raise_in_duckdb('several-values', _MESSAGE)} ELSE ({values})[1] END"
