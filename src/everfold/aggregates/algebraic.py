"""Aggregates that are a formula over a few distributive ones: AVG."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import decimals
from everfold.aggregates.distributive import Sum, result_type_of, write_duckdb_wraparound, write_spark_total
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Signature, SqlArguments, aggregate
from everfold.types import DataType, DecimalType, FloatType, IntegerType, NumericType


@aggregate("AVG")
class Avg(Sum):
    """Mean of the non-null values; NULL if there is none.

    Integers keep their type: the sum (64 bits, wraps) divided by the count, truncated towards zero.
    FLOAT is averaged in DOUBLE. DECIMAL(p, s) gives DECIMAL(38, max(s, 6)), rounded half up, exact;
    NULL if that has too few digits.
    """

    def result_type(self, of: Signature) -> DataType | None:
        (arg,) = of.args
        if isinstance(arg, DecimalType):
            return DecimalType(precision=38, scale=max(arg.scale, 6))
        return arg.as_nullable() if isinstance(arg, NumericType) else None

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        (arg,), (total, nonnull) = of.args, self.total_and_count(of, slots)
        if isinstance(arg, DecimalType):
            return decimals.compute_mean(total, nonnull, arg.scale, max(arg.scale, 6))
        some = pl.when(nonnull != 0).then(nonnull)
        if isinstance(arg, IntegerType):
            return total.truncdiv(some).cast(arg.polars, wrap_numerical=True)
        value = total / some
        return value.cast(pl.Float32) if isinstance(arg, FloatType) else value

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        (arg,), kept = of.args, result_type_of(self, of)
        if isinstance(arg, IntegerType):
            return f"CAST(SUM({over.first_argument}) DIV COUNT({over.first_argument}) AS {kept.spark})"
        if isinstance(arg, DecimalType):
            whole = f"CAST({write_spark_total(arg, over)} AS DECIMAL(38,{arg.scale}))"
            return f"CAST({whole} / COUNT({over.first_argument}) AS {kept.spark})"
        return f"CAST(AVG({over.first_argument}) AS {kept.spark})"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        (arg,) = of.args
        if isinstance(arg, IntegerType):
            # NULLIF is for a group without values. The sum wraps at 64 bits as the slot does.
            total = write_duckdb_wraparound(f"SUM({over.first_argument})", 64)
            return f"CAST(({total}) // NULLIF(COUNT({over.first_argument}), 0) AS {arg.duckdb})"
        if isinstance(arg, DecimalType):
            return decimals.write_duckdb_mean(over, arg, max(arg.scale, 6))
        return f"CAST(AVG({over.first_argument}) AS {arg.duckdb})"
