"""VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP.

The result is a DOUBLE converted to the result type, as in Flink. The state has two forms:

- Integers, and decimals of up to 18 digits: their count, sum and sum of squares, exact in whole
  numbers. So retracted values leave no trace.
- Other numbers: their count, a number near them (`origin`), and the sum and the sum of squares of
  the distances from it. Small distances keep their digits, where sums of the squares of the values
  themselves would lose them. Unlike mean and moment, these slots can be added and subtracted in any
  order. A retracted value leaves an error of about 1e-16 of the square of its distance.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import decimals
from everfold.aggregates.distributive import result_type_of
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Signature, Slot, SqlArguments, aggregate
from everfold.types import BIGINT, DOUBLE, DataType, DecimalType, FloatType, IntegerType, NumericType

_EXACT_DIGITS = 18
"""The squares of decimals with more digits do not fit into 128 bits."""
_WHOLE = DecimalType(precision=38, scale=0)


class _Variance(Aggregate):
    """A variance or a standard deviation.

    sample: divide by one less than the number of values. root: take the square root.
    """

    sample: bool
    root: bool

    def result_type(self, of: Signature) -> DataType | None:
        (arg,) = of.args
        if isinstance(arg, DecimalType):
            return DecimalType(precision=38, scale=max(arg.scale, 6))
        return arg.as_nullable() if isinstance(arg, NumericType) else None

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        nonnull = Slot("nonnull", BIGINT, internal=True)
        if _is_exact(of):
            return nonnull, Slot("sum", _WHOLE), Slot("squares_high", _WHOLE), Slot("squares_low", _WHOLE)
        moments = (nonnull, Slot("origin", DOUBLE), Slot("distances", DOUBLE), Slot("squares", DOUBLE))
        return (*moments, Slot("special", BIGINT, internal=True)) if of.retracting else moments

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        if _is_exact(of):
            return [each.sum() for each in self.lift(of, columns, sign)]
        value = columns[0].cast(pl.Float64)
        if sign is None:
            origin = value.min()
            distance = value - origin
            return value.count().cast(pl.Int64), origin, distance.sum(), (distance * distance).sum()
        kept = pl.when(value.is_finite()).then(value)
        origin = kept.min()
        distance = kept - origin
        special = (~value.is_finite()).fill_null(False).cast(pl.Int64) * sign
        known = value.is_not_null().cast(pl.Int64) * sign
        return known.sum(), origin, (distance * sign).sum(), (distance * distance * sign).sum(), special.sum()

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        (column,) = columns
        known = column.is_not_null().cast(pl.Int64) * (pl.lit(1, dtype=pl.Int64) if sign is None else sign)
        if _is_exact(of):
            whole = _unscaled(of, column)
            total = (whole if sign is None else whole * sign.cast(pl.Int128)).reinterpret(dtype=pl.Decimal(38, 0))
            return known, total, *decimals.split_limbs(whole * whole, sign)
        value, none = column.cast(pl.Float64), pl.lit(0.0)
        if sign is None:
            # The distance of NaN or an infinity from itself is NaN, so the variance is NaN too.
            distance = (value - value).fill_null(0.0)
            return known, value, distance, distance
        special = (~value.is_finite()).fill_null(False).cast(pl.Int64) * sign
        return known, pl.when(value.is_finite()).then(value), none, none, special

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        if _is_exact(of):
            return [slot.sum() for slot in slots]
        nonnull, origin, distances, squares, *special = slots
        finite = nonnull - special[0] if special else nonnull
        count = finite.sum()
        center = (origin * finite + distances).sum() / pl.when(count != 0).then(count)
        center = center.fill_null(origin.drop_nulls().first())
        shift = origin - center
        return (
            nonnull.sum(),
            center,
            (distances + shift * finite).sum(),
            (squares + shift * 2.0 * distances + shift * shift * finite).sum(),
            *(each.sum() for each in special),
        )

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        nonnull, *others = slots
        least = 1 if self.sample else 0
        value = _exact_squares(of, nonnull, *others) if _is_exact(of) else _squares(nonnull, *others)
        # Drop the sign of a negative zero, which depends on the order of the additions.
        value = value / (nonnull - least) + 0.0
        if self.root:
            value = value.sqrt()
        return convert_double(pl.when(nonnull > least).then(value), result_type_of(self, of))

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        kept = result_type_of(self, of)
        if isinstance(kept, IntegerType) and kept.bits < 64:
            value = self._exact_sql(over, "CAST({} AS DECIMAL(10, 0))", "div")
            return f"CAST(CAST({value} AS INT) AS {kept.spark})"
        value = f"{self._function}({'DISTINCT ' if over.distinct else ''}CAST({over.texts[0]} AS DOUBLE))"
        if isinstance(kept, IntegerType):
            # A rounding error must not make a whole-number variance one smaller by truncation.
            value = f"CAST(ROUND({value}, 9) AS BIGINT)"
        return f"CAST({value} AS {kept.spark})"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        kept = result_type_of(self, of)
        if isinstance(kept, IntegerType) and kept.bits < 64:
            return write_duckdb_integer(self._exact_sql(over, "CAST({} AS HUGEINT)", "//"), kept)
        each = f"CAST({over.texts[0]} AS DOUBLE)"
        distinct = "DISTINCT " if over.distinct else ""
        finite = f"{self._function}({distinct}{each}) FILTER (WHERE isfinite({each}))"
        special = (
            f"COUNT({each}) FILTER (WHERE NOT isfinite({each})) > 0 AND COUNT({distinct}{each}) > {int(self.sample)}"
        )
        value = f"CASE WHEN {special} THEN CAST('NaN' AS DOUBLE) ELSE {finite} END"
        if isinstance(kept, IntegerType):
            return write_duckdb_integer(f"ROUND({value}, 9)", kept)
        if isinstance(kept, DecimalType):
            return f"TRY_CAST(CAST({value} AS VARCHAR) AS {kept.duckdb})"
        return f"CAST({value} AS {kept.duckdb})"

    def _exact_sql(self, over: SqlArguments, widen: str, divide: str) -> str:
        """Return SQL for a DOUBLE without a fraction: the result, computed in whole numbers.

        widen: the template of a cast to numbers of 128 bits. divide: their integer division.
        """
        value, distinct = over.texts[0], "DISTINCT " if over.distinct else ""
        wide = widen.format(value)
        count, total = f"COUNT({distinct}{value})", f"SUM({distinct}{wide})"
        # The squares of a number and of its negative are distinct summands.
        parts = [f"CASE WHEN {value} {sign} 0 THEN {wide} * {wide} ELSE 0 END" for sign in (">=", "<")]
        squares = " + ".join(f"SUM({distinct}{each})" for each in parts)
        spread = f"{count} * ({squares}) - {total} * {total}"
        least = int(self.sample)
        variance = f"CASE WHEN {count} > {least} THEN ({spread}) {divide} ({count} * ({count} - {least})) END"
        whole = f"CAST({variance} AS DOUBLE)"
        return f"SQRT({whole})" if self.root else whole

    @property
    def _function(self) -> str:
        return f"{'stddev' if self.root else 'var'}_{'samp' if self.sample else 'pop'}"


@aggregate("VAR_POP")
class VarPop(_Variance):
    """Population variance of the non-null values; NULL if there is none.

    Integers keep their type: the fraction is truncated. DECIMAL(p, s) gives DECIMAL(38, max(s, 6)),
    computed in DOUBLE.
    """

    sample, root = False, False


@aggregate("VAR_SAMP")
class VarSamp(_Variance):
    """Sample variance of the non-null values; NULL if there are fewer than two.

    Types as in VAR_POP.
    """

    sample, root = True, False


@aggregate("VARIANCE")
class Variance(VarSamp):
    """The same as VAR_SAMP."""


@aggregate("STDDEV_POP")
class StddevPop(_Variance):
    """Population standard deviation of the non-null values; NULL if there is none.

    Types as in VAR_POP.
    """

    sample, root = False, True


@aggregate("STDDEV_SAMP")
class StddevSamp(_Variance):
    """Sample standard deviation of the non-null values; NULL if there are fewer than two.

    Types as in VAR_POP.
    """

    sample, root = True, True


@aggregate("STDDEV")
class Stddev(StddevSamp):
    """The same as STDDEV_SAMP."""


def _is_exact(of: Signature) -> bool:
    (arg,) = of.args
    return isinstance(arg, IntegerType) or (isinstance(arg, DecimalType) and arg.precision <= _EXACT_DIGITS)


def _unscaled(of: Signature, column: pl.Expr) -> pl.Expr:
    """Return the values as whole numbers, 0 for NULL: decimals without their decimal point."""
    whole = column.to_physical() if isinstance(of.args[0], DecimalType) else column
    return whole.cast(pl.Int128).fill_null(0)


def _exact_squares(of: Signature, count: pl.Expr, total: pl.Expr, high: pl.Expr, low: pl.Expr) -> pl.Expr:
    """Return the sum of the squared distances from the mean, a DOUBLE.

    The whole number below the mean is subtracted first, exactly. Intermediate wraparound at 128
    bits cancels out, unless the result itself is that large. After that the digits of a DOUBLE are
    enough.
    """
    (arg,) = of.args
    some = pl.when(count != 0).then(count).cast(pl.Int128)
    total, high, low = (each.to_physical() for each in (total, high, low))
    limb, two = pl.lit(decimals.LIMB, dtype=pl.Int128), pl.lit(2, dtype=pl.Int128)
    below = total // some
    exact = high * limb + low - two * below * total + some * below * below
    rest = (total - below * some).cast(pl.Float64)
    number = count.cast(pl.Float64)
    fine = exact.cast(pl.Float64) - rest * rest / number
    sum_, large = total.cast(pl.Float64), high.cast(pl.Float64) * float(decimals.LIMB) + low.cast(pl.Float64)
    rough = large - sum_ * sum_ / number
    squares = pl.when(rough > 1e37).then(rough).otherwise(fine)
    return squares / float(10 ** (2 * arg.scale)) if isinstance(arg, DecimalType) else squares


def _squares(count: pl.Expr, origin: pl.Expr, distances: pl.Expr, squares: pl.Expr, *special: pl.Expr) -> pl.Expr:
    """Return the sum of the squared distances from the mean."""
    value = (squares - distances * distances / count).clip(lower_bound=0.0)
    return pl.when(special[0] > 0).then(pl.lit(float("nan"))).otherwise(value) if special else value


def convert_double(value: pl.Expr, to: DataType) -> pl.Expr:
    """Convert a DOUBLE as Java does.

    It is truncated towards zero. A value that is too large becomes the largest INT or BIGINT;
    smaller integer types then wrap.
    """
    match to:
        case IntegerType(bits=64):
            large = value >= 2.0**63
            whole = pl.when(~large).then(value).cast(pl.Int64)
            return pl.when(large).then(pl.lit(2**63 - 1, dtype=pl.Int64)).otherwise(whole)
        case IntegerType():
            return value.clip(-(2.0**31), 2.0**31 - 1).cast(pl.Int32).cast(to.polars, wrap_numerical=True)
        case DecimalType():
            return decimals.decimal_from_double(value, to.scale)
        case FloatType():
            return value.cast(pl.Float32)
        case _:
            return value


def write_duckdb_integer(text: str, to: IntegerType) -> str:
    """Return the conversion of `converted` in DuckDB SQL."""
    bits = 64 if to.bits == 64 else 32
    largest = (1 << (bits - 1)) - 1
    value = f"(CASE WHEN {text} >= {2.0 ** (bits - 1)!r} THEN {largest} ELSE CAST(TRUNC({text}) AS BIGINT) END)"
    if to.bits >= 32:
        return f"CAST({value} AS {to.duckdb})"
    half, whole = 1 << (to.bits - 1), 1 << to.bits
    return f"CAST(({value} + {half}) % {whole} - {half} AS {to.duckdb})"
