"""Exact sums and means of decimals in Polars and DuckDB.

A decimal is its unscaled 128-bit integer; 38 digits is the limit. Polars sums the integers. In a
group-by they wrap without an error, and values between 38 digits and 128 bits are wrong. So sums
that could have more than 38 digits are kept as two halves ("limbs") that cannot overflow, and
combined when the value is needed.
"""

from __future__ import annotations

from decimal import Decimal

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Slot, SqlArguments
from everfold.types import DataType, DecimalType

SAFE_DIGITS = 28
"""Ten billion values with this many digits can be summed within 38 digits."""
LIMB = 10**19
"""The base of a limb, which has 19 digits."""
_WHOLE = DecimalType(precision=38, scale=0)
LIMB_SLOTS = (Slot("high", _WHOLE), Slot("low", _WHOLE))


def needs_limbs(arg: DataType) -> bool:
    """Return whether sums of a type are kept in limbs."""
    return isinstance(arg, DecimalType) and arg.precision > SAFE_DIGITS


def split_limbs(column: pl.Expr, sign: pl.Expr | None) -> tuple[pl.Expr, pl.Expr]:
    """Return the limbs of DECIMAL(38, s) values or 128-bit integers, multiplied by their signs.

    The limbs of NULL are 0.
    """
    unscaled = column.to_physical().fill_null(0)
    if sign is not None:
        unscaled = unscaled * sign.cast(pl.Int128)
    high, low = unscaled // _i128(LIMB), unscaled % _i128(LIMB)
    return high.reinterpret(dtype=pl.Decimal(38, 0)), low.reinterpret(dtype=pl.Decimal(38, 0))


def combine_limbs(high: pl.Expr, low: pl.Expr, scale: int) -> pl.Expr:
    """Combine sums of limbs into a DECIMAL(38, scale); NULL if it has more than 38 digits."""
    upper, lower = high.to_physical(), low.to_physical()
    carry = lower // _i128(LIMB)
    upper, lower = upper + carry, lower - carry * _i128(LIMB)
    fits = (upper < _i128(LIMB)) & ((upper > _i128(-LIMB)) | ((upper == _i128(-LIMB)) & (lower > _i128(0))))
    return (pl.when(fits).then(upper) * _i128(LIMB) + lower).reinterpret(dtype=pl.Decimal(38, scale))


def multiply_by_sign(column: pl.Expr, sign: pl.Expr, scale: int) -> pl.Expr:
    """Multiply DECIMAL(38, scale) values by their signs; 0 for NULL."""
    unscaled = column.to_physical().fill_null(0) * sign.cast(pl.Int128)
    return unscaled.reinterpret(dtype=pl.Decimal(38, scale))


def compute_mean(total: pl.Expr, nonnull: pl.Expr, scale: int, kept: int) -> pl.Expr:
    """Return total / nonnull with `kept` digits after the decimal point, rounded half up.

    NULL if it has more than 38 digits.
    """
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


def write_spark_sum(over: SqlArguments, arg: DecimalType) -> str:
    """Return the sum in Spark SQL as DECIMAL(38, s), NULL on overflow.

    It is computed from three limbs, as no Spark type is wider than 38 digits for the intermediate
    results. Spark's `div` returns a BIGINT, and its arithmetic on decimals of scale 0 is exact: so
    the limbs have 18, 10 and 10 digits.
    """
    whole, half = f"{10**20}BD", f"{10**10}BD"
    upper, middle, lower = (_spark_limb_sum(over, arg, at) for at in range(3))
    below = f"({middle} * {half} + {lower})"
    parts = f"named_struct('high', {upper} + ({below} div {whole}), 'low', {below} % {whole})"
    unscaled = (
        f"transform(array({parts}), of -> CASE"
        f" WHEN of.high < 0 AND of.low > 0 THEN (of.high + 1) * {whole} + (of.low - {whole})"
        f" WHEN of.high > 0 AND of.low < 0 THEN (of.high - 1) * {whole} + (of.low + {whole})"
        f" ELSE of.high * {whole} + of.low END)[0]"
    )
    if not arg.scale:
        return f"CAST({unscaled} AS DECIMAL(38,0))"
    digits = "lpad(replace(CAST(of AS STRING), '-', ''), 40, '0')"  # Spark's `abs` keeps only 34 digits
    sign = "CASE WHEN of < 0 THEN '-' ELSE '' END"
    pointed = f"concat({sign}, left({digits}, {40 - arg.scale}), '.', right({digits}, {arg.scale}))"
    return f"transform(array({unscaled}), of -> CAST({pointed} AS DECIMAL(38,{arg.scale})))[0]"


def _spark_limb_sum(over: SqlArguments, arg: DecimalType, at: int) -> str:
    """Return the sum of one limb of the values, as a decimal of scale 0."""

    def limb(value: str) -> str:
        for digits in (20, 10, 0)[:at]:
            value = f"({value} % {_power(digits - arg.scale)})"
        return f"CAST({value} div {_power((20, 10, 0)[at] - arg.scale)} AS DECIMAL(20,0))"

    if over.distinct:
        step = f"(sum, of) -> CAST(sum + {limb('of')} AS DECIMAL(38,0))"
        limb_sum = f"aggregate(collect_set({over.texts[0]}), CAST(0 AS DECIMAL(38,0)), {step})"
        return f"CASE WHEN COUNT({over.texts[0]}) > 0 THEN {limb_sum} END"
    return f"SUM({limb(over.texts[0])})"


def _power(exponent: int) -> str:
    """Return a power of ten as a Spark literal."""
    return f"{Decimal(1).scaleb(exponent):f}BD"


def write_duckdb_sum(over: SqlArguments, arg: DecimalType) -> str:
    """Return the sum in DuckDB SQL as DECIMAL(38, s), NULL on overflow (DuckDB's SUM raises)."""
    if arg.precision <= SAFE_DIGITS:
        return f"CAST(SUM({over.first_argument}) AS DECIMAL(38,{arg.scale}))"
    return _duckdb_scaled(_duckdb_unscaled_sum(over, arg), arg.scale)


def write_duckdb_mean(over: SqlArguments, arg: DecimalType, kept: int) -> str:
    """Return the mean in DuckDB SQL as DECIMAL(38, kept), rounded half up."""
    total, count = _duckdb_unscaled_sum(over, arg), f"NULLIF(COUNT({over.first_argument}), 0)::HUGEINT"
    wider = 10 ** (kept - arg.scale)
    rest = f"(({total}) % {count}) * {wider}::HUGEINT"
    part = f"SIGN({rest})::HUGEINT * ((ABS({rest}) * 2::HUGEINT + {count}) // ({count} * 2::HUGEINT))"
    whole = f"(({total}) // {count})"
    fits = f"ABS({whole}) < {10 ** (38 - kept + arg.scale)}::HUGEINT"
    return _duckdb_scaled(f"CASE WHEN {fits} THEN {whole} * {wider}::HUGEINT + {part} END", kept)


def _duckdb_unscaled_sum(over: SqlArguments, arg: DecimalType) -> str:
    """Return the unscaled sum as HUGEINT; NULL if it has more than 38 digits."""
    if arg.precision <= SAFE_DIGITS:
        return _duckdb_unscaled(f"CAST(SUM({over.first_argument}) AS DECIMAL(38,{arg.scale}))")
    limb = f"{LIMB}::HUGEINT"

    def limb_sum(operator: str) -> str:
        if over.distinct:
            values = (
                f"list_transform(list({over.first_argument}), lambda x: ({_duckdb_unscaled('x')}) {operator} {limb})"
            )
            return f"list_sum({values})"
        return f"SUM(({_duckdb_unscaled(over.texts[0])}) {operator} {limb})"

    upper, lower = limb_sum("//"), limb_sum("%")
    high = f"({upper} + {lower} // {limb})"
    fits = f"ABS({high}) < {limb}"
    return f"CASE WHEN {fits} THEN {high} * {limb} + {lower} % {limb} END"


def _duckdb_unscaled(text: str) -> str:
    return f"CAST(REPLACE(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def _duckdb_scaled(text: str, scale: int) -> str:
    """Return the decimal with a HUGEINT as its unscaled value.

    It is converted through its digits, since no type is wider than 38 digits.
    """
    digits = f"LPAD(CAST(ABS({text}) AS VARCHAR), 40, '0')"
    sign = f"CASE WHEN ({text}) < 0 THEN '-' ELSE '' END"
    pointed = f"LEFT({digits}, {40 - scale}) || '.' || RIGHT({digits}, {scale})" if scale else digits
    return f"TRY_CAST({sign} || {pointed} AS DECIMAL(38,{scale}))"


def _i128(value: int) -> pl.Expr:
    return pl.lit(value, dtype=pl.Int128)


def decimal_from_double(value: pl.Expr, scale: int) -> pl.Expr:
    """Convert a non-negative DOUBLE to DECIMAL(38, scale), rounded half up.

    The digits are those of its string form; NULL if there are more than 38.
    """
    text = value.cast(pl.String)
    # Polars rounds half to even. A DOUBLE has 17 digits: one that does not fit here has none after
    # the scale.
    finest = 25
    if scale >= finest - 1:
        return text.cast(pl.Decimal(38, scale), strict=False)
    finer, unit = text.cast(pl.Decimal(38, finest), strict=False).to_physical(), 10 ** (finest - scale)
    rounded = ((finer + _i128(unit // 2)) // _i128(unit)).reinterpret(dtype=pl.Decimal(38, scale))
    return pl.when(finer.is_not_null()).then(rounded).otherwise(text.cast(pl.Decimal(38, scale), strict=False))
