"""Exact sums and means of decimals in Polars and DuckDB. A decimal is its unscaled 128-bit integer; 38 digits is the limit.

Polars adds the integers up; in a group-by they wrap without an error, and what lies between 38 digits and 128 bits shows as nonsense.
A sum that overflowed is kept as NULL beside a positive count of values: it stays NULL whatever is merged into it.
"""

from __future__ import annotations

from everfold.aggregates.lazy import pl
from everfold.types import DataType, DecimalType

SAFE_DIGITS = 28
"""Values of so many digits can be added up ten thousand million times within 38 digits."""
_LIMB = 10**19
"""Sums are split into upper and lower 19 digits where they could overflow."""


def rows_at_risk(arg: DataType, column: pl.Expr) -> pl.Expr | None:
    """Whether a sum of values of a frame could have more than 38 digits."""
    if not isinstance(arg, DecimalType) or arg.precision <= SAFE_DIGITS:
        return None
    return _large(column, arg.scale)


def slots_at_risk(arg: DataType, total: pl.Expr, nonnull: pl.Expr) -> pl.Expr | None:
    """Whether a sum of sums of a frame could have more than 38 digits, or one has overflowed already."""
    if not isinstance(arg, DecimalType):
        return None
    return _large(total, arg.scale) | (total.is_null() & (nonnull > 0)).any()


def _large(column: pl.Expr, scale: int) -> pl.Expr:
    bound = pl.max_horizontal(column.max().cast(pl.Float64).abs(), column.min().cast(pl.Float64).abs())
    return (bound * pl.len() >= 0.9 * 10.0 ** (38 - scale)).fill_null(False)


def careful_sum(column: pl.Expr, scale: int) -> pl.Expr:
    """Sum of a group of DECIMAL(38, scale): NULL if it has more than 38 digits, 0 if there is nothing to add."""
    unscaled = column.to_physical()
    upper, lower = unscaled // _i128(_LIMB), unscaled % _i128(_LIMB)
    carry = lower.sum() // _i128(_LIMB)
    high, low = upper.sum() + carry, lower.sum() - carry * _i128(_LIMB)
    fits = (high < _i128(_LIMB)) & ((high > _i128(-_LIMB)) | ((high == _i128(-_LIMB)) & (low > _i128(0))))
    return (pl.when(fits).then(high) * _i128(_LIMB) + low).reinterpret(dtype=pl.Decimal(38, scale))


def careful_merge(total: pl.Expr, nonnull: pl.Expr, scale: int) -> tuple[pl.Expr, pl.Expr]:
    """Merged sums: NULL if one of them has overflowed, or all together do."""
    lost = (total.is_null() & (nonnull > 0)).any()
    return pl.when(~lost).then(careful_sum(total, scale)), nonnull.sum()


def mean(total: pl.Expr, nonnull: pl.Expr, scale: int, kept: int) -> pl.Expr:
    """total / nonnull with `kept` digits behind the point, rounded half up; NULL if it has more than 38 digits."""
    wider = _i128(10 ** (kept - scale))
    count = pl.when(nonnull > 0).then(nonnull).cast(pl.Int128)
    unscaled = total.to_physical()
    whole = unscaled.truncdiv(count)
    rest = (unscaled - whole * count) * wider
    part = (rest.abs() * _i128(2) + count) // (count * _i128(2))
    rounded = pl.when(rest < _i128(0)).then(_i128(0) - part).otherwise(part)
    value = pl.when(whole.abs() < _i128(10 ** (38 - kept + scale))).then(whole) * wider + rounded
    fits = value.abs() < _i128(10**38)
    return pl.when(fits).then(value).reinterpret(dtype=pl.Decimal(38, kept))


def duckdb_sum(text: str, arg: DecimalType) -> str:
    """Sum in DuckDB as DECIMAL(38, s), NULL on overflow (its own raises)."""
    if arg.precision <= SAFE_DIGITS:
        return f"CAST(SUM({text}) AS DECIMAL(38,{arg.scale}))"
    return _duckdb_scaled(_duckdb_unscaled_sum(text, arg), arg.scale)


def duckdb_mean(text: str, arg: DecimalType, kept: int) -> str:
    """Mean in DuckDB as DECIMAL(38, kept), rounded half up."""
    total, count = _duckdb_unscaled_sum(text, arg), f"NULLIF(COUNT({text}), 0)::HUGEINT"
    wider = 10 ** (kept - arg.scale)
    rest = f"(({total}) % {count}) * {wider}::HUGEINT"
    part = f"SIGN({rest})::HUGEINT * ((ABS({rest}) * 2::HUGEINT + {count}) // ({count} * 2::HUGEINT))"
    whole = f"(({total}) // {count})"
    fits = f"ABS({whole}) < {10 ** (38 - kept + arg.scale)}::HUGEINT"
    return _duckdb_scaled(f"CASE WHEN {fits} THEN {whole} * {wider}::HUGEINT + {part} END", kept)


def _duckdb_unscaled_sum(text: str, arg: DecimalType) -> str:
    """The sum as HUGEINT without its point; NULL if it has more than 38 digits."""
    if arg.precision <= SAFE_DIGITS:
        return _duckdb_unscaled(f"CAST(SUM({text}) AS DECIMAL(38,{arg.scale}))")
    value, limb = _duckdb_unscaled(text), f"{_LIMB}::HUGEINT"
    upper, lower = f"SUM(({value}) // {limb})", f"SUM(({value}) % {limb})"
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
