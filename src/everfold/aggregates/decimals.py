"""Exact sums and means of decimals in Polars and DuckDB. A decimal is its unscaled 128-bit integer; 38 digits is the limit.

Polars adds the integers up; in a group-by they wrap without an error, and what lies between 38 digits and 128 bits shows as nonsense. So sums
that could have more than 38 digits are kept as two halves ("limbs") that cannot, and put together when the value is wanted.
"""

from __future__ import annotations

from decimal import Decimal

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Over, Slot
from everfold.types import DataType, DecimalType

SAFE_DIGITS = 28
"""Values of so many digits can be added up ten thousand million times within 38 digits."""
LIMB = 10**19
"""A limb has 19 digits."""
_WHOLE = DecimalType(precision=38, scale=0)
LIMB_SLOTS = (Slot("high", _WHOLE), Slot("low", _WHOLE))


def in_limbs(arg: DataType) -> bool:
    """Whether sums of a type are kept in limbs."""
    return isinstance(arg, DecimalType) and arg.precision > SAFE_DIGITS


def limbs(column: pl.Expr, sign: pl.Expr | None) -> tuple[pl.Expr, pl.Expr]:
    """The limbs of DECIMAL(38, s) values, or of 128-bit integers, with their signs; 0 for NULL."""
    unscaled = column.to_physical().fill_null(0)
    if sign is not None:
        unscaled = unscaled * sign.cast(pl.Int128)
    high, low = unscaled // _i128(LIMB), unscaled % _i128(LIMB)
    return high.reinterpret(dtype=pl.Decimal(38, 0)), low.reinterpret(dtype=pl.Decimal(38, 0))


def whole(high: pl.Expr, low: pl.Expr, scale: int) -> pl.Expr:
    """The DECIMAL(38, scale) that sums of limbs are; NULL if it has more than 38 digits."""
    upper, lower = high.to_physical(), low.to_physical()
    carry = lower // _i128(LIMB)
    upper, lower = upper + carry, lower - carry * _i128(LIMB)
    fits = (upper < _i128(LIMB)) & ((upper > _i128(-LIMB)) | ((upper == _i128(-LIMB)) & (lower > _i128(0))))
    return (pl.when(fits).then(upper) * _i128(LIMB) + lower).reinterpret(dtype=pl.Decimal(38, scale))


def signed(column: pl.Expr, sign: pl.Expr, scale: int) -> pl.Expr:
    """DECIMAL(38, scale) values times their signs; 0 for NULL."""
    unscaled = column.to_physical().fill_null(0) * sign.cast(pl.Int128)
    return unscaled.reinterpret(dtype=pl.Decimal(38, scale))


def mean(total: pl.Expr, nonnull: pl.Expr, scale: int, kept: int) -> pl.Expr:
    """total / nonnull with `kept` digits behind the point, rounded half up; NULL if it has more than 38 digits."""
    wider = _i128(10 ** (kept - scale))
    count = pl.when(nonnull != 0).then(nonnull.abs()).cast(pl.Int128)
    unscaled = total.to_physical() * nonnull.sign().cast(pl.Int128)
    whole = unscaled.truncdiv(count)
    rest = (unscaled - whole * count) * wider
    part = (rest.abs() * _i128(2) + count) // (count * _i128(2))
    rounded = pl.when(rest < _i128(0)).then(_i128(0) - part).otherwise(part)
    value = pl.when(whole.abs() < _i128(10 ** (38 - kept + scale))).then(whole) * wider + rounded
    fits = value.abs() < _i128(10**38)
    return pl.when(fits).then(value).reinterpret(dtype=pl.Decimal(38, kept))


def spark_sum(over: Over, arg: DecimalType) -> str:
    """Sum in Spark as DECIMAL(38, s), NULL on overflow: of three limbs, as no type of Spark's is wider than 38 digits on the way.

    Spark's `div` answers a BIGINT, its arithmetic of decimals without a point loses nothing: so limbs have 18, 10 and 10 digits.
    """
    whole, half = f"{10**20}BD", f"{10**10}BD"
    upper, middle, lower = (_spark_limb_sum(over, arg, at) for at in range(3))
    below = f"({middle} * {half} + {lower})"
    parts = f"named_struct('high', {upper} + ({below} div {whole}), 'low', {below} % {whole})"
    unscaled = (
        f"transform(array({parts}), of -> CASE WHEN of.high < 0 AND of.low > 0 THEN (of.high + 1) * {whole} + (of.low - {whole})"
        f" WHEN of.high > 0 AND of.low < 0 THEN (of.high - 1) * {whole} + (of.low + {whole})"
        f" ELSE of.high * {whole} + of.low END)[0]"
    )
    if not arg.scale:
        return f"CAST({unscaled} AS DECIMAL(38,0))"
    digits = "lpad(replace(CAST(of AS STRING), '-', ''), 40, '0')"  # its `abs` keeps 34 digits only
    pointed = f"concat(CASE WHEN of < 0 THEN '-' ELSE '' END, left({digits}, {40 - arg.scale}), '.', right({digits}, {arg.scale}))"
    return f"transform(array({unscaled}), of -> CAST({pointed} AS DECIMAL(38,{arg.scale})))[0]"


def _spark_limb_sum(over: Over, arg: DecimalType, at: int) -> str:
    """The sum of one limb of the values, as a decimal without a point."""

    def limb(value: str) -> str:
        for digits in (20, 10, 0)[:at]:
            value = f"({value} % {_power(digits - arg.scale)})"
        return f"CAST({value} div {_power((20, 10, 0)[at] - arg.scale)} AS DECIMAL(20,0))"

    if over.distinct:
        added = f"aggregate(collect_set({over.texts[0]}), CAST(0 AS DECIMAL(38,0)), (sum, of) -> CAST(sum + {limb('of')} AS DECIMAL(38,0)))"
        return f"CASE WHEN COUNT({over.texts[0]}) > 0 THEN {added} END"
    return f"SUM({limb(over.texts[0])})"


def _power(exponent: int) -> str:
    """A power of ten as a literal of Spark's."""
    return f"{Decimal(1).scaleb(exponent):f}BD"


def duckdb_sum(over: Over, arg: DecimalType) -> str:
    """Sum in DuckDB as DECIMAL(38, s), NULL on overflow (its own raises)."""
    if arg.precision <= SAFE_DIGITS:
        return f"CAST(SUM({over.each}) AS DECIMAL(38,{arg.scale}))"
    return _duckdb_scaled(_duckdb_unscaled_sum(over, arg), arg.scale)


def duckdb_mean(over: Over, arg: DecimalType, kept: int) -> str:
    """Mean in DuckDB as DECIMAL(38, kept), rounded half up."""
    total, count = _duckdb_unscaled_sum(over, arg), f"NULLIF(COUNT({over.each}), 0)::HUGEINT"
    wider = 10 ** (kept - arg.scale)
    rest = f"(({total}) % {count}) * {wider}::HUGEINT"
    part = f"SIGN({rest})::HUGEINT * ((ABS({rest}) * 2::HUGEINT + {count}) // ({count} * 2::HUGEINT))"
    whole = f"(({total}) // {count})"
    fits = f"ABS({whole}) < {10 ** (38 - kept + arg.scale)}::HUGEINT"
    return _duckdb_scaled(f"CASE WHEN {fits} THEN {whole} * {wider}::HUGEINT + {part} END", kept)


def _duckdb_unscaled_sum(over: Over, arg: DecimalType) -> str:
    """The sum as HUGEINT without its point; NULL if it has more than 38 digits."""
    if arg.precision <= SAFE_DIGITS:
        return _duckdb_unscaled(f"CAST(SUM({over.each}) AS DECIMAL(38,{arg.scale}))")
    limb = f"{LIMB}::HUGEINT"

    def added(operator: str) -> str:
        if over.distinct:
            values = f"list_transform(list({over.each}), lambda x: ({_duckdb_unscaled('x')}) {operator} {limb})"
            return f"list_sum({values})"
        return f"SUM(({_duckdb_unscaled(over.texts[0])}) {operator} {limb})"

    upper, lower = added("//"), added("%")
    high = f"({upper} + {lower} // {limb})"
    fits = f"ABS({high}) < {limb}"
    return f"CASE WHEN {fits} THEN {high} * {limb} + {lower} % {limb} END"


def _duckdb_unscaled(text: str) -> str:
    return f"CAST(REPLACE(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def _duckdb_scaled(text: str, scale: int) -> str:
    """A HUGEINT as the decimal that it is without its point: by way of its digits, since nothing wider than 38 digits exists."""
    digits = f"LPAD(CAST(ABS({text}) AS VARCHAR), 40, '0')"
    sign = f"CASE WHEN ({text}) < 0 THEN '-' ELSE '' END"
    pointed = f"LEFT({digits}, {40 - scale}) || '.' || RIGHT({digits}, {scale})" if scale else digits
    return f"TRY_CAST({sign} || {pointed} AS DECIMAL(38,{scale}))"


def _i128(value: int) -> pl.Expr:
    return pl.lit(value, dtype=pl.Int128)


def of_double(value: pl.Expr, scale: int) -> pl.Expr:
    """A DOUBLE that is not negative as DECIMAL(38, scale): the digits that show it, rounded half up; NULL if they are more than 38."""
    text = value.cast(pl.String)
    # Polars rounds half to even. A DOUBLE shows 17 digits: one that does not fit here has none behind the scale.
    finest = 25
    if scale >= finest - 1:
        return text.cast(pl.Decimal(38, scale), strict=False)
    finer, unit = text.cast(pl.Decimal(38, finest), strict=False).to_physical(), 10 ** (finest - scale)
    rounded = ((finer + _i128(unit // 2)) // _i128(unit)).reinterpret(dtype=pl.Decimal(38, scale))
    return pl.when(finer.is_not_null()).then(rounded).otherwise(text.cast(pl.Decimal(38, scale), strict=False))
