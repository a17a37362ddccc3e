"""Aggregates whose state is the value itself: COUNT, SUM, MIN, MAX.

Parts of a group merge by the same function. SUM supports retraction; MIN and MAX need a bag of all
values for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import decimals, floats, lists
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Distinct, Signature, Slot, SqlArguments, aggregate
from everfold.plan.nodes import HAS_ROW
from everfold.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    BooleanType,
    DataType,
    DecimalType,
    FloatingType,
    FloatType,
    IntegerType,
    NullType,
    NumericType,
    StringType,
    TemporalType,
)


@aggregate("COUNT")
class Count(Aggregate):
    """Number of rows (`COUNT(*)`), or of rows whose argument is not NULL.

    `COUNT(*)` has no argument; with FILTER its kernels get one column that is NULL for the excluded
    rows.
    """

    arity = (0, 1)
    is_additive = True

    def result_type(self, of: Signature) -> DataType | None:
        return None if any(isinstance(arg, NullType) for arg in of.args) else BIGINT.as_nullable(False)

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return (Slot("count", BIGINT),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        if sign is None:
            return ((columns[0].count() if columns else pl.len()).cast(pl.Int64),)
        return (self.lift(of, columns, sign)[0].sum(),)

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        one = pl.lit(1, dtype=pl.Int64) if sign is None else sign
        return (columns[0].is_not_null().cast(pl.Int64) * one if columns else one,)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (slots[0].sum(),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return slots[0].fill_null(0)

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"COUNT({over.first_argument if over.texts else '*'})"

    duckdb_sql = spark_sql


@aggregate(HAS_ROW)
class HasRow(Aggregate):
    """Whether there is a row. It is not called by queries."""

    arity = (0, 0)
    dialect = ""

    def result_type(self, of: Signature) -> DataType | None:
        return BOOLEAN.as_nullable(False)

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return (Slot("seen", BOOLEAN),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return (pl.len() > 0,)

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return (pl.lit(True),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (slots[0].any(),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return slots[0].fill_null(False)

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return "COUNT(*) > 0"

    duckdb_sql = spark_sql


@aggregate("SUM")
class Sum(Aggregate):
    """Sum of the non-null values; NULL if there is none.

    Integers keep their type and wrap, as in Flink. FLOAT is summed in DOUBLE. DECIMAL(p, s) gives
    DECIMAL(38, s), exact; NULL while the total has more digits. (Flink starts from scratch with the
    next row, so its result depends on row order.)
    """

    is_additive = True

    def result_type(self, of: Signature) -> DataType | None:
        (arg,) = of.args
        if isinstance(arg, DecimalType):
            return DecimalType(precision=38, scale=arg.scale)
        return arg.as_nullable() if isinstance(arg, NumericType) else None

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        (arg,) = of.args
        nonnull = Slot("nonnull", BIGINT, internal=True)
        if decimals.needs_limbs(arg):
            return (*decimals.LIMB_SLOTS, nonnull)
        total = Slot("sum", sum_type(arg))
        special = floats.SPECIAL_SLOTS if of.retracting and isinstance(arg, FloatingType) else ()
        return (total, nonnull, *special)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        (arg,), (column,) = of.args, columns
        if sign is None and not decimals.needs_limbs(arg):
            return cast_for_sum(arg, column).sum(), column.count().cast(pl.Int64)
        return [each.sum() for each in self.lift(of, columns, sign)]

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        (arg,), (column,) = of.args, columns
        known, value = column.is_not_null().cast(pl.Int64), cast_for_sum(arg, column)
        if sign is not None:
            known = known * sign
        if decimals.needs_limbs(arg):
            return *decimals.split_limbs(value, sign), known
        if sign is None:
            return value.fill_null(0), known
        if isinstance(arg, DecimalType):
            return decimals.multiply_by_sign(value, sign, arg.scale), known
        if isinstance(arg, FloatingType):
            return floats.zero_if_not_finite(value) * sign, known, *floats.special_counts(value, sign)
        return value.fill_null(0) * sign, known

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return [slot.sum() for slot in slots]

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        (arg,), (value, nonnull) = of.args, self.total_and_count(of, slots)
        if isinstance(arg, IntegerType):
            value = value.cast(arg.polars, wrap_numerical=True)
        elif isinstance(arg, FloatType):
            value = value.cast(pl.Float32)
        return pl.when(nonnull != 0).then(value)

    def total_and_count(self, of: Signature, slots: Sequence[pl.Expr]) -> tuple[pl.Expr, pl.Expr]:
        """Return the sum, in the type used for summing, and the number of values."""
        (arg,) = of.args
        if isinstance(arg, DecimalType) and decimals.needs_limbs(arg):
            return decimals.combine_limbs(slots[0], slots[1], arg.scale), slots[2]
        if len(slots) > 2:
            return floats.add_special_counts(slots[0], slots[2:]), slots[1]
        return slots[0], slots[1]

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"CAST({write_spark_total(of.args[0], over)} AS {result_type_of(self, of).spark})"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        (arg,) = of.args
        if isinstance(arg, IntegerType):
            return f"CAST({write_duckdb_wraparound(f'SUM({over.first_argument})', arg.bits)} AS {arg.duckdb})"
        if isinstance(arg, DecimalType):
            return decimals.write_duckdb_sum(over, arg)
        return f"CAST(SUM({over.first_argument}) AS {result_type_of(self, of).duckdb})"


class _Extreme(Aggregate):
    """MIN and MAX of every type that has an order.

    A zero is 0.0, never -0.0, so that the result does not depend on which of the two came first.
    """

    greatest: bool
    distinct = Distinct.NO_DIFFERENCE

    def result_type(self, of: Signature) -> DataType | None:
        (arg,) = of.args
        ordered = isinstance(arg, NumericType | StringType | BooleanType | TemporalType)
        return arg.as_nullable() if ordered else None

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        (arg,) = of.args
        return (lists.bag_slot(arg) if of.retracting else Slot("value", arg.as_nullable()),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        if sign is None:
            return (self._pick(of.args[0], columns[0]),)
        return (lists.collect_bag(columns[0], columns[0].is_not_null(), sign),)

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr] | None:
        return (columns[0],) if sign is None else None

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (lists.concat_lists(slots[0]) if of.retracting else self._pick(of.args[0], slots[0]),)

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        return (lists.net_bag(slots[0]),) if of.retracting else None

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        (arg,), (value,) = of.args, slots
        if of.retracting:
            value = lists.present_values(value).list.agg(self._pick(arg, pl.element()))
        return pl.when(value == 0).then(value.abs()).otherwise(value) if isinstance(arg, FloatingType) else value

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return self._sql(f"{self.name}({over.first_argument})", of.args[0], of.args[0].spark)

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return self._sql(f"{self.name}({over.first_argument})", of.args[0], of.args[0].duckdb)

    @staticmethod
    def _sql(value: str, arg: DataType, name: str) -> str:
        return (
            f"CASE WHEN {value} = 0 THEN CAST(0 AS {name}) ELSE {value} END" if isinstance(arg, FloatingType) else value
        )

    def _pick(self, arg: DataType, column: pl.Expr) -> pl.Expr:
        if not self.greatest:
            return column.min()
        return column.nan_max() if isinstance(arg, FloatingType) else column.max()


@aggregate("MIN")
class Min(_Extreme):
    """Least non-null value; NULL if there is none. Strings compare by their UTF-8 bytes.

    NaN is greater than every number, as in Spark. (In Flink, NaN wins if it comes first and is
    ignored later. That is not copied.)
    """

    greatest = False
    extreme = "least"


@aggregate("MAX")
class Max(_Extreme):
    """Greatest non-null value; NULL if there is none. Strings compare by their UTF-8 bytes.

    NaN is greater than every number, as in Spark. (In Flink, NaN wins if it comes first and is
    ignored later. That is not copied.)
    """

    greatest = True
    extreme = "greatest"


def sum_type(arg: DataType) -> DataType:
    """Return the type in which values of a type are summed."""
    if isinstance(arg, DecimalType):
        return DecimalType(precision=38, scale=arg.scale)
    return DOUBLE if isinstance(arg, FloatingType) else BIGINT


def cast_for_sum(arg: DataType, column: pl.Expr) -> pl.Expr:
    """Cast a column to the type in which it is summed."""
    wide = sum_type(arg)
    return column if wide.same_as(arg) else column.cast(wide.polars)


def write_spark_total(arg: DataType, over: SqlArguments) -> str:
    """Return the exact sum in Spark SQL, at least as wide as the type used for summing."""
    if isinstance(arg, DecimalType) and decimals.needs_limbs(arg):
        return decimals.write_spark_sum(over, arg)
    return f"SUM({over.first_argument})"


def write_duckdb_wraparound(text: str, bits: int) -> str:
    """Return a HUGEINT wrapped around at the given number of bits, in DuckDB SQL."""
    half, whole = 1 << (bits - 1), 1 << bits
    return f"((({text}) + {half}::HUGEINT) % {whole}::HUGEINT + {whole}::HUGEINT) % {whole}::HUGEINT - {half}::HUGEINT"


def result_type_of(entry: Aggregate, of: Signature) -> DataType:
    """Return the result type of a valid call."""
    found = entry.result_type(of)
    assert found is not None, (entry.name, of)
    return found
