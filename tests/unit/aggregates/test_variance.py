"""Variance and standard deviation.

Expected values come from Flink 2.3: it computes in DOUBLE and converts as Java does.
"""

from __future__ import annotations

import math
from decimal import Decimal as D  # noqa: N817
from typing import Any

import polars as pl
import pytest
from unit.aggregates.calls import call, compute_all_ways, compute_in_duckdb, rows

from everfold.aggregates.registry import Signature, lookup
from everfold.types import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, STRING, TIMESTAMP3, TINYINT, DataType, DecimalType

D10, D4, D30, D38 = (DecimalType(precision=p, scale=s) for p, s in ((10, 2), (10, 4), (30, 10), (38, 2)))
NAN, INFINITY = float("nan"), float("inf")
FUNCTIONS = ("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP")

CASES: list[tuple[DataType, list[Any], tuple[Any, Any, Any, Any]]] = [
    (TINYINT, [1, 2], (0, 0, 0, 0)),
    (TINYINT, [1, 2, 4], (1, 2, 1, 1)),
    (TINYINT, [100, -100, 7], (21, 32, 81, 100)),  # 6677 and 10016 wrap
    (TINYINT, [None], (None, None, None, None)),
    (TINYINT, [5], (0, None, 0, None)),
    (INT, [100000, -100000, 3], (2147483647, 2147483647, 81649, 100000)),
    (INT, [1, 1, 1, 4], (1, 2, 1, 1)),
    (INT, [2, 4, 4, 4, 5, 5, 7, 9], (4, 4, 2, 2)),
    (INT, [None, 6, 9, 9], (2, 3, 1, 1)),
    (BIGINT, [3000000000, -3000000000], (9000000000000000000, 9223372036854775807, 3000000000, 4242640687)),
    (BIGINT, [10, 20, 35], (105, 158, 10, 12)),
    (FLOAT, [0.1, 0.2, 0.4], (0.015555556, 0.023333333, 0.124721915, 0.15275252)),
    (FLOAT, [3.5], (0.0, None, 0.0, None)),
    (DOUBLE, [0.1, 0.2, 0.4], (0.015555555555555557, 0.023333333333333334, 0.12472191289246472, 0.15275252316519466)),
    (
        DOUBLE,
        [1000000000.1, 1000000000.2, 1000000000.4],
        (0.015555544429356397, 0.023333316644034596, 0.12472186828842967, 0.1527524685366315),
    ),
    (DOUBLE, [NAN, 1.0], (NAN, NAN, NAN, NAN)),
    (DOUBLE, [INFINITY, 1.0], (NAN, NAN, NAN, NAN)),
    (D10, [D("1.10"), D("2.25"), D("4.33")], (D("1.786867"), D("2.680300"), D("1.336737"), D("1.637162"))),
    (D10, [D("0.01"), D("0.02"), D("0.02")], (D("0.000022"), D("0.000033"), D("0.004714"), D("0.005774"))),
    (D10, [D(5)], (D("0.000000"), None, D("0.000000"), None)),
    (D4, [D("1.1111"), D("2.2222"), D("4.3333")], (D("1.785984"), D("2.678977"), D("1.336407"), D("1.636758"))),
    (
        D30,
        [D("1.1111111111"), D("2.2222222222"), D("4.4")],
        (D("1.8660082305"), D("2.7990123457"), D("1.3660191179"), D("1.6730249089")),
    ),
    (D38, [D(10**21), D(1)], (None, None, D("500000000000000000000.000000"), D("707106781186547500000.000000"))),
]


@pytest.mark.parametrize(("of", "values", "expected"), CASES)
def test_value(of: DataType, values: list[Any], expected: tuple[Any, ...]) -> None:
    frame = rows([of], values)
    tolerance = 1e-6 if of in (FLOAT, D38) or 1000000000.1 in values else 1e-14
    for name, wanted in zip(FUNCTIONS, expected, strict=True):
        fold = call(name, of)
        for found in [*compute_all_ways(frame, fold), compute_in_duckdb(frame, fold)[0]]:
            assert _is_same(found, wanted, tolerance), (name, found, wanted)


def _is_same(found: Any, wanted: Any, tolerance: float) -> bool:
    if isinstance(wanted, float):
        return bool(found == pytest.approx(wanted, rel=tolerance, nan_ok=True))
    if isinstance(wanted, D) and found is not None:
        return bool(abs(found - wanted) <= abs(wanted) * D("1e-15"))
    return bool(found == wanted)


def test_small_distances_from_a_large_number_are_not_lost() -> None:
    # Sums of the squares themselves, about 1e24, would lose a variance of 2/3 entirely.
    values = [1e12, 1e12 + 1, 1e12 + 2]
    for found in compute_all_ways(rows([DOUBLE], values), call("VAR_POP", DOUBLE)):
        assert found == pytest.approx(2 / 3, rel=1e-12)


def test_large_integers_are_exact() -> None:
    moment = 1_763_700_000_000_000_000  # nanoseconds: their squares have 37 digits
    values = [moment + each for each in (2, 4, 4, 4, 5, 5, 7, 9)]
    assert set(compute_all_ways(rows([BIGINT], values), call("VAR_POP", BIGINT))) == {4}
    changes = rows([BIGINT], [*values, -(2**63), 2**63 - 1, -(2**63), 2**63 - 1], [1] * 10 + [-1] * 2)
    assert set(compute_all_ways(changes, call("VAR_POP", BIGINT, retracting=True))) == {4}
    extremes = rows([BIGINT], [-(2**63), 2**63 - 1])
    assert set(compute_all_ways(extremes, call("STDDEV_POP", BIGINT))) == {2**63 - 1}


def test_variance_retracts() -> None:
    values = [4, 9, None, 4, 6, 9, 1e300, 1e300]
    signs = [1, 1, 1, -1, 1, 1, 1, -1]
    for of, expected in ((INT, 3), (D10, D("3.000000"))):
        kept = [(value, sign) for value, sign in zip(values, signs, strict=True) if value != 1e300]
        frame = rows(
            [of], [value if of is INT or value is None else D(value) for value, _ in kept], [s for _, s in kept]
        )
        assert set(compute_all_ways(frame, call("VAR_SAMP", of, retracting=True))) == {expected}
    for special in (NAN, INFINITY):
        frame = rows([DOUBLE], [4.0, 9.0, special, 6.0, special, 9.0, 4.0], [1, 1, 1, 1, -1, 1, -1])
        fold = call("VAR_SAMP", DOUBLE, retracting=True)
        assert list(compute_all_ways(frame, fold)) == pytest.approx([3.0] * len(list(compute_all_ways(frame, fold))))
        (found, *_) = compute_all_ways(frame.head(4), fold)
        assert found != found


def test_a_part_retracts_as_many_values_as_it_inserts() -> None:
    frame = rows([INT], [10, 20, 10, 13], [1, 1, -1, 1])
    assert set(compute_all_ways(frame, call("VAR_POP", INT, retracting=True))) == {12}


def test_types() -> None:
    for name in (*FUNCTIONS, "VARIANCE", "STDDEV"):
        entry = lookup(name)
        assert entry is not None
        found = [str(entry.result_type(Signature((of,)))) for of in (TINYINT, BIGINT, FLOAT, DOUBLE, D10, D30)]
        assert found == ["TINYINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38, 6)", "DECIMAL(38, 10)"]
        assert all(entry.result_type(Signature((of,))) is None for of in (STRING, BOOLEAN, TIMESTAMP3))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_is_never_negative_zero(name: str) -> None:
    entry, of = lookup(name), Signature((DOUBLE,), (), retracting=True)
    assert entry is not None
    slots = {"nonnull": 2, "origin": 2.5, "distances": 0.0, "squares": -0.0, "special": 0}
    columns = [pl.col(slot.name) for slot in entry.slots(of)]
    (found,) = pl.DataFrame([slots]).select(entry.result(of, columns).alias("value"))["value"]
    assert math.copysign(1, found) == 1
