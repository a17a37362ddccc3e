"""Aggregates whose state is the value itself: parts of a group merge by the same function (COUNT, SUM, MIN, MAX)."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import decimals
from everfold.aggregates.folding import Foldable
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Slot, Types, aggregate
from everfold.types import (
    BIGINT,
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
class Count(Foldable):
    """Number of rows (`COUNT(*)`), or of the rows whose argument is not NULL.

    `COUNT(*)` has no argument; with FILTER its kernels get one column that is NULL for the rows left out.
    """

    arity = (0, 1)

    def result_type(self, args: Types) -> DataType | None:
        return None if any(isinstance(arg, NullType) for arg in args) else BIGINT.as_nullable(False)

    def slots(self, args: Types) -> tuple[Slot, ...]:
        return (Slot("count", BIGINT),)

    def update(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return ((columns[0].count() if columns else pl.len()).cast(pl.Int64),)

    def lift(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (columns[0].is_not_null().cast(pl.Int64) if columns else pl.lit(1, dtype=pl.Int64),)

    def merge(self, args: Types, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (slots[0].sum(),)

    def result(self, args: Types, slots: Sequence[pl.Expr]) -> pl.Expr:
        return slots[0].fill_null(0)

    def spark_sql(self, args: Types, texts: Sequence[str]) -> str:
        return f"COUNT({texts[0] if texts else '*'})"

    def duckdb_sql(self, args: Types, texts: Sequence[str]) -> str:
        return f"COUNT({texts[0] if texts else '*'})"


@aggregate("SUM")
class Sum(Foldable):
    """Sum of the values that are not NULL; NULL if there is none.

    Integers keep their type and wrap, as Flink's do. FLOAT is added up in DOUBLE. DECIMAL(p, s) gives DECIMAL(38, s), exact; a
    total that needs more digits is NULL, and stays so (Flink begins anew with the next row: the order of the rows would matter).
    """

    def result_type(self, args: Types) -> DataType | None:
        (arg,) = args
        if isinstance(arg, DecimalType):
            return DecimalType(precision=38, scale=arg.scale)
        return arg.as_nullable() if isinstance(arg, NumericType) else None

    def slots(self, args: Types) -> tuple[Slot, ...]:
        return (Slot("sum", total_type(args[0])), Slot("nonnull", BIGINT))

    def update(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return total(args[0], columns[0]).sum(), columns[0].count().cast(pl.Int64)

    def lift(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return total(args[0], columns[0]).fill_null(0), columns[0].is_not_null().cast(pl.Int64)

    def merge(self, args: Types, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return slots[0].sum(), slots[1].sum()

    def rows_at_risk(self, args: Types, columns: Sequence[pl.Expr]) -> pl.Expr | None:
        return decimals.rows_at_risk(args[0], columns[0])

    def slots_at_risk(self, args: Types, slots: Sequence[pl.Expr]) -> pl.Expr | None:
        return decimals.slots_at_risk(args[0], slots[0], slots[1])

    def careful_update(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        if isinstance(args[0], DecimalType):
            return decimals.careful_sum(total(args[0], columns[0]), args[0].scale), columns[0].count().cast(pl.Int64)
        return self.update(args, columns)

    def careful_merge(self, args: Types, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        if isinstance(args[0], DecimalType):
            return decimals.careful_merge(slots[0], slots[1], args[0].scale)
        return self.merge(args, slots)

    def result(self, args: Types, slots: Sequence[pl.Expr]) -> pl.Expr:
        value = slots[0]
        if isinstance(args[0], IntegerType):
            value = value.cast(args[0].polars, wrap_numerical=True)
        elif isinstance(args[0], FloatType):
            value = value.cast(pl.Float32)
        return pl.when(slots[1] > 0).then(value)

    def spark_sql(self, args: Types, texts: Sequence[str]) -> str:
        return f"CAST({spark_total(args[0], texts[0])} AS {_result(self, args).spark})"

    def duckdb_sql(self, args: Types, texts: Sequence[str]) -> str:
        arg = args[0]
        if isinstance(arg, IntegerType):
            return f"CAST({duckdb_wrapped(f'SUM({texts[0]})', arg.bits)} AS {arg.duckdb})"
        if isinstance(arg, DecimalType):
            return decimals.duckdb_sum(texts[0], arg)
        return f"CAST(SUM({texts[0]}) AS {_result(self, args).duckdb})"


class _Extreme(Foldable):
    """MIN and MAX: of every type with an order. A zero is 0.0, never -0.0: which of the two came first must not matter."""

    greatest: bool

    def result_type(self, args: Types) -> DataType | None:
        (arg,) = args
        ordered = isinstance(arg, NumericType | StringType | BooleanType | TemporalType)
        return arg.as_nullable() if ordered else None

    def slots(self, args: Types) -> tuple[Slot, ...]:
        return (Slot("value", args[0].as_nullable()),)

    def update(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (self._pick(args[0], columns[0]),)

    def lift(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (columns[0],)

    def merge(self, args: Types, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (self._pick(args[0], slots[0]),)

    def result(self, args: Types, slots: Sequence[pl.Expr]) -> pl.Expr:
        value = slots[0]
        return pl.when(value == 0).then(value.abs()).otherwise(value) if isinstance(args[0], FloatingType) else value

    def spark_sql(self, args: Types, texts: Sequence[str]) -> str:
        return self._sql(f"{self.name}({texts[0]})", args[0], args[0].spark)

    def duckdb_sql(self, args: Types, texts: Sequence[str]) -> str:
        return self._sql(f"{self.name}({texts[0]})", args[0], args[0].duckdb)

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
    """Least value that is not NULL; NULL if there is none. Texts compare by their UTF-8 bytes.

    NaN is greater than every number, as in Spark (in Flink it wins if it comes first and is ignored later: not copied).
    """

    greatest = False


@aggregate("MAX")
class Max(_Extreme):
    """Greatest value that is not NULL; NULL if there is none. Texts compare by their UTF-8 bytes.

    NaN is greater than every number, as in Spark (in Flink it wins if it comes first and is ignored later: not copied).
    """

    greatest = True


def total_type(arg: DataType) -> DataType:
    """The type in which values of a type are added up."""
    if isinstance(arg, DecimalType):
        return DecimalType(precision=38, scale=arg.scale)
    return DOUBLE if isinstance(arg, FloatingType) else BIGINT


def total(arg: DataType, column: pl.Expr) -> pl.Expr:
    """A column as the type in which it is added up."""
    wide = total_type(arg)
    return column if wide.same_as(arg) else column.cast(wide.polars)


def spark_total(arg: DataType, text: str) -> str:
    """Exact sum in Spark, of at least the type in which we add up."""
    if isinstance(arg, DecimalType) and arg.precision > decimals.SAFE_DIGITS:
        return f"SUM(CAST({text} AS {total_type(arg).spark}))"
    return f"SUM({text})"


def duckdb_wrapped(text: str, bits: int) -> str:
    """A HUGEINT wrapped around at so many bits."""
    half, whole = 1 << (bits - 1), 1 << bits
    return f"((({text}) + {half}::HUGEINT) % {whole}::HUGEINT + {whole}::HUGEINT) % {whole}::HUGEINT - {half}::HUGEINT"


def _result(entry: Foldable, args: Types) -> DataType:
    found = entry.result_type(args)
    assert found is not None, (entry.name, args)
    return found
