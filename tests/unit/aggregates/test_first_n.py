"""MAXK and similar functions, COLLECT_LIST and COLLECT_SET: every way to compute them, and DuckDB,
compared with plain Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.aggregates.calls import call, compute_all_ways, compute_in_duckdb, rows

from everfold.aggregates.registry import Signature, lookup, names
from everfold.types import BIGINT, DOUBLE, INT, STRING, ArrayType, DataType, MapType

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    INT: st.integers(-3, 3),
    DOUBLE: st.sampled_from([-1.5, 0.0, 2.5, float("inf")]),
    STRING: st.text(max_size=1, alphabet="aßé"),
}


def _by_count(values: Sequence[Any], sign: int) -> list[Any]:
    return [value for value, _ in sorted(Counter(values).items(), key=lambda each: (sign * each[1], _bytes(each[0])))]


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


MODELS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "MAXK": lambda values: sorted(values, key=_bytes, reverse=True),
    "MINK": lambda values: sorted(values, key=_bytes),
    "MAXK_UNIQUE": lambda values: sorted(set(values), key=_bytes, reverse=True),
    "MINK_UNIQUE": lambda values: sorted(set(values), key=_bytes),
    "TOPK": lambda values: _by_count(values, -1),
    "BOTTOMK": lambda values: _by_count(values, 1),
    "COLLECT_LIST": lambda values: values,
    "COLLECT_SET": lambda values: list(dict.fromkeys(values)),
}


def test_the_models_cover_all_lenses_functions() -> None:
    assert set(names("lenses")) == set(MODELS)


def _compute_expected(name: str, values: Sequence[Any], most: int) -> Any:
    found = MODELS[name]([each for each in values if each is not None])[:most]
    return found if most > 1 or name.startswith("COLLECT") else (found[0] if found else None)


@pytest.mark.parametrize("of", list(VALUES), ids=str)
@pytest.mark.parametrize("name", list(MODELS))
def test_over_inserts(name: str, of: DataType) -> None:
    @settings(max_examples=8, deadline=None)
    @given(st.lists(st.one_of(st.none(), VALUES[of]), max_size=8), st.integers(1, 3))
    def law(values: list[Any], most: int) -> None:
        frame, fold = rows([of], values), call(name, of, constants=(most,))
        expected = _compute_expected(name, values, most)
        assert all(found == expected for found in compute_all_ways(frame, fold))
        assert compute_in_duckdb(frame, fold)[0] == expected

    law()


@pytest.mark.parametrize("of", list(VALUES), ids=str)
@pytest.mark.parametrize("name", list(MODELS))
def test_retracted_values_are_removed(name: str, of: DataType) -> None:
    @settings(max_examples=8, deadline=None)
    @given(st.lists(st.one_of(st.none(), VALUES[of]), max_size=8), st.integers(1, 3), st.integers(0, 8))
    def law(values: list[Any], most: int, back: int) -> None:
        gone = values[:back]
        signs = [1] * len(values) + [-1] * len(gone)
        frame = rows([of], [*values, *gone], signs)
        fold = call(name, of, constants=(most,), retracting=True)
        expected = _compute_expected(name, values[back:], most)
        found = list(compute_all_ways(frame, fold))
        assert all(each == expected for each in found), (found, expected)

    law()


@pytest.mark.parametrize("name", ["COLLECT_LIST", "COLLECT_SET"])
def test_without_a_number_all_values_are_collected(name: str) -> None:
    frame, fold = rows([INT], [3, 1, 3, None, 2]), call(name, INT)
    assert all(found == MODELS[name]([3, 1, 3, 2]) for found in compute_all_ways(frame, fold))
    assert compute_in_duckdb(frame, fold)[0] == MODELS[name]([3, 1, 3, 2])


def test_types() -> None:
    entry = lookup("MAXK")
    assert entry is not None
    assert entry.result_type(Signature((BIGINT,), (1,))) == BIGINT
    assert entry.result_type(Signature((STRING,), (2,))) == ArrayType(element=STRING, nullable=False)
    assert entry.result_type(Signature((MapType(key=INT, value=INT),), (1,))) is None


@pytest.mark.parametrize(("given_", "taken"), [(3, 3), (0, None), (-1, None), (1.5, None), ("2", None), (True, None)])
def test_the_number_of_values_is_a_positive_integer(given_: object, taken: object) -> None:
    entry = lookup("TOPK")
    assert entry is not None
    assert entry.constant_value(given_) == taken


def test_negative_zero_becomes_zero() -> None:
    fold = call("MAXK", DOUBLE, constants=(2,))
    assert {repr(found) for found in compute_all_ways(rows([DOUBLE], [-0.0, -1.0]), fold)} == {"[0.0, -1.0]"}
