"""Arithmetic of DECIMAL in the memory engine is exact, rounded half away from zero to the scale of
the result, and NULL where the result has too many digits.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import trunc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property.queries import Query

from everfold.types import DecimalType

Operand = tuple[int, int, int]
"""Precision, scale and unscaled value."""


@st.composite
def operands(draw: st.DrawFn) -> Operand:
    precision = draw(st.one_of(st.just(38), st.integers(1, 38)))
    scale = draw(st.integers(0, precision))
    digits = draw(st.integers(1, precision))
    value = draw(st.one_of(st.integers(1, 10**digits - 1), st.sampled_from([10**digits - 1, 10 ** (digits - 1)])))
    return precision, scale, value * draw(st.sampled_from([1, -1]))


def to_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


def compute(operator: str, left: Fraction, right: Fraction) -> Fraction:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
    return left - right * trunc(left / right)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(left=operands(), right=operands())
@example(left=(38, 18, 2 * 10**32), right=(38, 18, 25 * 10**17))
@example(left=(38, 3, 10**38 - 1), right=(38, 3, 10**38 - 1))
@example(left=(38, 0, 10**38 - 1), right=(38, 38, -(10**38) + 1))
def test_a_result_is_exact_or_null(operator: str, left: Operand, right: Operand) -> None:
    types = [f"DECIMAL({precision}, {scale})" for precision, scale, _ in (left, right)]
    query = Query(f"CREATE TABLE t (a {types[0]}, b {types[1]}); SELECT a {operator} b FROM t")
    a, b = (to_decimal(value, scale) for _, scale, value in (left, right))
    ((result,),) = query.batch(t=[{"a": a, "b": b}])
    (field,) = query.root.input.schema
    assert isinstance(field.type, DecimalType)
    exact = compute(operator, Fraction(a), Fraction(b)) * 10**field.type.scale
    unscaled = trunc(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
    expected = None if abs(unscaled) >= 10**field.type.precision else to_decimal(unscaled, field.type.scale)
    assert result == expected
