"""Aggregate functions in plain Python, over the rows that remain after a changelog: without
slots, signs or merging.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from everfold.types import BIGINT, DataType, DecimalType, FloatingType, IntegerType

Change = tuple[int, Any]
"""+1 and an inserted value, or -1 and a retracted value."""


def survivors(changes: Sequence[Change]) -> list[Any]:
    """Return the remaining values in the order of arrival; of equal values, the first is
    removed first.
    """
    left: list[Any] = []
    for sign, value in changes:
        if sign > 0:
            left.append(value)
        else:
            del left[_position(left, value)]
    return left


def distinct_survivors(changes: Sequence[Change]) -> list[Any]:
    """Return each remaining value once, in the order in which they last became present."""
    left: list[Any] = []
    there: list[Any] = []
    for sign, value in changes:
        if sign > 0:
            if not _contains(there, value):
                there.append(value)
            left.append(value)
        else:
            del left[_position(left, value)]
            if not _contains(left, value):
                del there[_position(there, value)]
    return there


def _position(values: Sequence[Any], value: Any) -> int:
    return next(at for at, each in enumerate(values) if _is_same(each, value))


def _contains(values: Sequence[Any], value: Any) -> bool:
    return any(_is_same(each, value) for each in values)


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other)) and type(one) is type(other)


def compute_value(name: str, of: DataType, values: Sequence[Any]) -> Any:
    """Return the value of a function over these values."""
    if name == "ARRAY_AGG":
        return list(values) or None
    return _FUNCTIONS[name](of, [value for value in values if value is not None])


def _sum(of: DataType, values: list[Any]) -> Any:
    if not values:
        return None
    if isinstance(of, FloatingType):
        return _float_sum(values)
    if isinstance(of, IntegerType):
        return _wrap(sum(values), of.bits)
    with decimal.localcontext(prec=80):  # by default a sum is rounded to 28 digits
        return sum(values)


def _float_sum(values: list[float]) -> float:
    if any(math.isnan(value) for value in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)


def _avg(of: DataType, values: list[Any]) -> Any:
    if not values:
        return None
    if isinstance(of, FloatingType):
        return _float_sum(values) / len(values)
    if isinstance(of, IntegerType):
        return _wrap(_truncate(Fraction(_wrap(sum(values), BIGINT.bits), len(values))), of.bits)
    assert isinstance(of, DecimalType)
    return _round(sum(map(Fraction, values), Fraction()) / len(values), max(of.scale, 6))


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[[DataType, list[Any]], Any]:
    def value(of: DataType, values: list[Any]) -> Any:
        numbers = [each for each in values if each == each]
        nan = len(numbers) < len(values)
        if nan and (pick is max or not numbers):
            return math.nan
        return pick(numbers) if numbers else None

    return value


def _variance(sample: bool, root: bool) -> Callable[[DataType, list[Any]], Any]:
    def value(of: DataType, values: list[Any]) -> Any:
        count = len(values) - sample
        if count < 1:
            return None
        if any(isinstance(each, float) and not math.isfinite(each) for each in values):
            return math.nan
        exact = [Fraction(each) for each in values]
        mean = sum(exact, Fraction()) / len(exact)
        found = sum(((each - mean) ** 2 for each in exact), Fraction()) / count
        if isinstance(of, IntegerType):
            whole = _truncate(found) if not root else math.isqrt(math.floor(found))
            return _wrap(min(whole, 2**31 - 1), of.bits)
        return math.sqrt(found) if root else float(found)

    return value


def _percentile(of: DataType, values: list[Any]) -> Any:
    ordered = sorted((float(value) for value in values), key=lambda each: (each != each, each))
    if not ordered:
        return None
    position = (len(ordered) - 1) * 0.25
    below, above = math.floor(position), math.ceil(position)
    if below == above:
        return ordered[below]
    return (above - position) * ordered[below] + (position - below) * ordered[above]


def _collect(of: DataType, values: list[Any]) -> list[tuple[Any, int]]:
    found: list[tuple[Any, int]] = []
    for value in values:
        if not _contains([each for each, _ in found], value):
            found.append((value, sum(_is_same(each, value) for each in values)))
    return found


def _wrap(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _truncate(value: Fraction) -> int:
    return math.trunc(value)


def _round(value: Fraction, scale: int) -> Fraction | None:
    unscaled = abs(value) * 10**scale
    rounded = math.floor(unscaled + Fraction(1, 2))
    if rounded >= 10**38:
        return None
    return Fraction(rounded if value >= 0 else -rounded, 10**scale)


_FUNCTIONS: dict[str, Callable[[DataType, list[Any]], Any]] = {
    "COUNT": lambda of, values: len(values),
    "SUM": _sum,
    "AVG": _avg,
    "MIN": _extreme(min),
    "MAX": _extreme(max),
    "VAR_POP": _variance(sample=False, root=False),
    "VAR_SAMP": _variance(sample=True, root=False),
    "VARIANCE": _variance(sample=True, root=False),
    "STDDEV_POP": _variance(sample=False, root=True),
    "STDDEV_SAMP": _variance(sample=True, root=True),
    "STDDEV": _variance(sample=True, root=True),
    "FIRST_VALUE": lambda of, values: values[0] if values else None,
    "LAST_VALUE": lambda of, values: values[-1] if values else None,
    "LISTAGG": lambda of, values: ",".join(values) if values else None,
    "JSON_ARRAYAGG": lambda of, values: f"[{','.join(values)}]",
    "COLLECT": _collect,
    "PERCENTILE": _percentile,
}
