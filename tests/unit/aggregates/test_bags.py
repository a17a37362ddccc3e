"""COLLECT, PERCENTILE, and MIN and MAX over retracted rows. Expected values come from Flink 2.3."""

from __future__ import annotations

from decimal import Decimal as D  # noqa: N817
from typing import Any

import pytest
from unit.aggregates.calls import call, compute_all_ways, compute_in_duckdb, rows

from everfold.aggregates.registry import Signature, lookup
from everfold.types import (
    BIGINT,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    STRING,
    TINYINT,
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
)

INTS = ArrayType(element=INT)
D10 = DecimalType(precision=10, scale=2)
NAN = float("nan")

COLLECTED: list[tuple[DataType, list[Any], list[tuple[Any, int]]]] = [
    (INT, [None, 2, 1, 2, 3], [(2, 2), (1, 1), (3, 1)]),
    (STRING, ["b", None], [("b", 1)]),
    (DOUBLE, [1.5, 1.5, -0.5], [(1.5, 2), (-0.5, 1)]),
    (BYTES, [b"a", b"a"], [(b"a", 2)]),
    (INTS, [[1, 2], [1], [1, 2], None], [([1, 2], 2), ([1], 1)]),
    (INT, [None], []),
    (INT, [], []),
]


def entries(found: Any) -> list[tuple[Any, int]]:
    """Convert a multiset of Polars or DuckDB to pairs."""
    pairs = found.items() if isinstance(found, dict) else [(each["key"], each["value"]) for each in found]
    return sorted(((list(key) if isinstance(key, tuple) else key, count) for key, count in pairs), key=repr)


@pytest.mark.parametrize(("of", "values", "expected"), COLLECTED)
def test_collect(of: DataType, values: list[Any], expected: list[tuple[Any, int]]) -> None:
    frame = rows([of], values, [1] * len(values))
    for retracting in (False, True):
        for found in compute_all_ways(frame, call("COLLECT", of, retracting=retracting)):
            assert entries(found) == sorted(expected, key=repr)
    if of is not INTS:  # a list cannot be a key of a Python dict
        twin, type_ = compute_in_duckdb(frame, call("COLLECT", of))
        assert entries(twin) == sorted(expected, key=repr)
        assert type_ == f"MAP({of.duckdb}, INTEGER)"


def test_collect_retracts() -> None:
    frame = rows([INT], [7, 4, 9, None, 4, 6, 9, None], [-1, 1, 1, 1, -1, 1, 1, -1])
    for found in compute_all_ways(frame, call("COLLECT", INT, retracting=True)):
        assert entries(found) == [(6, 1), (9, 2)]


SHARES: list[tuple[DataType, list[Any], object, Any]] = [
    (INT, [None, 2, 1, 2, 3], 0.5, 2.0),
    (INT, [None, 2, 1, 2, 3], (0.25, 0.5, 0.9), [1.75, 2.0, 2.7]),
    (INT, [None, 2, 1, 2, 3], (0.0, 1.0), [1.0, 3.0]),
    (DOUBLE, [1.5, -0.5, 1.5, NAN], 0.5, 1.5),
    (D10, [D("1.50"), D("2.00"), D("1.50"), D(3)], 0.5, 1.75),
    (D10, [D("1.50"), D("2.00"), D("1.50"), D(3)], 0.3, 1.5),
    (INT, [None], 0.5, None),
    (INT, [None], (0.5,), None),
    (FLOAT, [0.5], 0.7, 0.5),
]


@pytest.mark.parametrize(("of", "values", "share", "expected"), SHARES)
def test_percentile(of: DataType, values: list[Any], share: object, expected: Any) -> None:
    frame = rows([of], values, [1] * len(values))
    for retracting in (False, True):
        fold = call("PERCENTILE", of, constants=(share,), retracting=retracting)
        for found in compute_all_ways(frame, fold):
            assert found == expected
    twin, type_ = compute_in_duckdb(frame, call("PERCENTILE", of, constants=(share,)))
    assert twin == expected
    assert type_ == ("DOUBLE[]" if isinstance(share, tuple) else "DOUBLE")


def test_percentile_with_frequencies() -> None:
    values = [(1.5, 2), (-0.5, 1), (1.5, 2), (7.0, 0), (8.0, -3), (9.0, None), (None, 100), (3.0, 3)]
    of = (DOUBLE, INT)
    expected = [1.5, 2.25]  # of -0.5, four times 1.5, three times 3.0
    fold = call("PERCENTILE", *of, constants=((0.5, 0.6),))
    for found in [*compute_all_ways(rows(of, values), fold), compute_in_duckdb(rows(of, values), fold)[0]]:
        assert found == pytest.approx([1.5, 1.5 + 1.5 * 0.2], rel=1e-12) or found == expected
    taken = call("PERCENTILE", *of, constants=(0.5,), retracting=True)
    changes = rows(
        of, [(1.0, 1), (2.0, 2), (3.0, 1), (4.0, 1), (1.0, 1), (2.0, 2), (5.0, 2), (9.0, 9)], [1, 1, 1, 1, -1, -1, 1, 1]
    )
    assert set(compute_all_ways(changes, taken)) == {9.0}


def test_percentile_accepts_fractions_from_0_to_1() -> None:
    entry = lookup("PERCENTILE")
    assert entry is not None
    assert [
        entry.constant_value(each) for each in (1, D("0.5"), (0, D(1)), 1.5, -0.1, None, "x", True, (0.5, None))
    ] == [
        1.0,
        0.5,
        (0.0, 1.0),
        *[None] * 6,
    ]
    for args in ((INT,), (D10, BIGINT), (DOUBLE, TINYINT)):
        assert str(entry.result_type(Signature(args, (0.5,)))) == "DOUBLE"
    assert str(entry.result_type(Signature((INT,), ((0.5,),)))) == "ARRAY<DOUBLE>"
    refused: list[tuple[DataType, ...]] = [(STRING,), (INT, DOUBLE), (BooleanType(),)]
    for each in refused:
        assert entry.result_type(Signature(each, (0.5,))) is None


@pytest.mark.parametrize("of", [INT, STRING, DOUBLE, D10])
def test_extremes_are_recomputed_after_a_retraction(of: DataType) -> None:
    values: dict[DataType, tuple[object, object, object]]
    values = {INT: (1, 2, 3), STRING: ("a", "b", "c"), DOUBLE: (-0.0, 1.0, NAN)}
    low, middle, high = values.get(of, (D(1), D(2), D(3)))
    frame = rows([of], [middle, high, low, None, high, low], [1, 1, 1, 1, -1, -1])
    for name in ("MIN", "MAX"):
        assert set(compute_all_ways(frame, call(name, of, retracting=True))) == {middle}
        assert set(compute_all_ways(frame.filter(frame["x"] != middle), call(name, of, retracting=True))) == {None}


def test_types() -> None:
    entry = lookup("COLLECT")
    assert entry is not None
    assert str(entry.result_type(Signature((INTS,)))) == "MULTISET<ARRAY<INT>> NOT NULL"
    assert entry.result_type(Signature((NULL,))) is None
