"""DISTINCT over any function.

Expected values come from Flink 2.3, except for the order within one batch: first come, first
served.
"""

from __future__ import annotations

from decimal import Decimal as D  # noqa: N817
from typing import Any

import pytest
from unit.aggregates.calls import call, compute_all_ways, compute_in_duckdb, rows

from everfold.aggregates.distinct import OverDistinct
from everfold.aggregates.registry import Signature, lookup, names
from everfold.types import BYTES, DOUBLE, INT, STRING, ArrayType, DataType, DecimalType

INTS = ArrayType(element=INT)
D10, D38 = DecimalType(precision=10, scale=2), DecimalType(precision=38, scale=2)
VALUES = [None, 2, 1, 2, 3]
TEXTS = [None, "b", "a", "b", 'c,"q"']

CASES: list[tuple[str, DataType, tuple[object, ...], list[Any], Any]] = [
    ("COUNT", INT, (), VALUES, 3),
    ("COUNT", INTS, (), [[1, 2], [1], [1, 2], None], 2),
    ("COUNT", DOUBLE, (), [0.0, -0.0, float("nan"), float("nan")], 2),
    ("COUNT", INT, (), [None], 0),
    ("SUM", INT, (), VALUES, 6),
    ("SUM", D10, (), [D("1.50"), D("2.00"), D("1.50"), D(3)], D("6.50")),
    ("SUM", D38, (), [D("1.50"), D("2.00"), D("1.50"), None], D("3.50")),
    ("SUM", INT, (), [None], None),
    ("AVG", INT, (), VALUES, 2),
    ("AVG", D10, (), [D("1.50"), D("2.00"), D("1.50"), D(3)], D("2.166667")),
    ("AVG", D38, (), [D("1.50"), D("2.00"), D("1.50"), D(3)], D("2.166667")),
    ("STDDEV_POP", INT, (), VALUES, 0),
    ("STDDEV_POP", D10, (), [D("1.50"), D("2.00"), D("1.50"), D(3)], D("0.623610")),
    ("MIN", INT, (), VALUES, 1),
    ("FIRST_VALUE", INT, (), VALUES, 2),
    ("LAST_VALUE", INT, (), [1, 0, 1, 1], 0),
    ("LISTAGG", STRING, (), TEXTS, 'b,a,c,"q"'),
    ("LISTAGG", STRING, (";",), TEXTS, 'b;a;c,"q"'),
    ("ARRAY_AGG", INT, (), [None, 2, 1, None, 2], [None, 2, 1]),
    ("ARRAY_AGG", INT, ("IGNORE",), [None, 2, 1, None, 2], [2, 1]),
    ("ARRAY_AGG", INT, (), [], None),
    ("PERCENTILE", INT, (0.5,), VALUES, 2.0),
]


@pytest.mark.parametrize(("name", "of", "constants", "values", "expected"), CASES)
def test_value(name: str, of: DataType, constants: tuple[object, ...], values: list[Any], expected: Any) -> None:
    frame = rows([of], values, [1] * len(values))
    for retracting in (False, True):
        fold = call(name, of, constants=constants, retracting=retracting, distinct=True)
        for found in compute_all_ways(frame, fold):
            assert found == expected
    twin, type_ = compute_in_duckdb(frame, call(name, of, constants=constants), distinct=True)
    assert twin == expected
    result = call(name, of, constants=constants).entry.result_type(
        Signature((of,), call(name, of, constants=constants).of.constants)
    )
    assert result is not None
    assert type_ == result.duckdb


def test_collect() -> None:
    for retracting in (False, True):
        fold = call("COLLECT", INT, distinct=True, retracting=retracting)
        for found in compute_all_ways(rows([INT], VALUES, [1] * 5), fold):
            assert {(each["key"], each["value"]) for each in found} == {(1, 1), (2, 1), (3, 1)}
    assert compute_in_duckdb(rows([INT], VALUES), call("COLLECT", INT), distinct=True)[0] == {1: 1, 2: 1, 3: 1}


def test_distinct_retracts() -> None:
    frame = rows([INT], [1, 2, 1, None, 1, 2, 2, None, 9], [1, 1, 1, 1, -1, -1, 1, -1, 1])
    for name, expected in (("ARRAY_AGG", [1, 2, 9]), ("SUM", 12), ("COUNT", 3), ("LAST_VALUE", 9), ("FIRST_VALUE", 1)):
        for found in compute_all_ways(frame, call(name, INT, distinct=True, retracting=True)):
            assert found == expected, name


def test_a_value_that_is_retracted_and_inserted_again_comes_last() -> None:
    fold = call("LISTAGG", STRING, distinct=True, retracting=True)
    frame = rows([STRING], ["a", "b", "a", "a"], [1, 1, -1, 1])
    assert set(compute_all_ways(frame, fold)) == {"b,a"}
    # One of two occurrences is retracted: the position stays.
    assert set(compute_all_ways(rows([STRING], ["a", "b", "a", "a"], [1, 1, 1, -1]), fold)) == {"a,b"}


def test_two_arguments_are_compared_as_one_value() -> None:
    frame = rows((INT, INT), [(1, 1), (1, 1), (2, 1), (2, 4), (5, None)])
    for found in compute_all_ways(frame, call("PERCENTILE", INT, INT, constants=(0.5,), distinct=True)):
        assert found == 2.0


def test_which_functions_refuse_or_ignore_distinct() -> None:
    assert OverDistinct(_entry("COUNT")).result_type(Signature((BYTES,))) is None
    kinds = {name: _entry(name).distinct.value for name in names()}
    assert {name for name, kind in kinds.items() if kind == "refused"} == {"JSON_ARRAYAGG", "JSON_OBJECTAGG"}
    no_difference = {"MIN", "MAX", "SINGLE_VALUE", "APPROX_COUNT_DISTINCT"}
    assert {name for name, kind in kinds.items() if kind == "no-difference"} == no_difference


def _entry(name: str) -> Any:
    entry = lookup(name)
    assert entry is not None
    return entry
