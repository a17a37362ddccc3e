"""FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG, JSON_ARRAYAGG, JSON_OBJECTAGG, SINGLE_VALUE.

Expected values come from Flink 2.3.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import polars as pl
import pytest
from unit.aggregates.calls import call, compute_all_ways, compute_in_duckdb, rows, value

from everfold.aggregates.folding import Fold, fold_rows, fold_slots
from everfold.aggregates.registry import Signature, lookup
from everfold.errors import ConnectorError
from everfold.types import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    NULL,
    STRING,
    TIME,
    ArrayType,
    DataType,
    DecimalType,
    RowField,
    RowType,
    StringType,
)

INTS = ArrayType(element=INT)
ROW = RowType(fields=(RowField(name="a", type=INT), RowField(name="b", type=STRING)))
TEXTS = [None, "b", "a", "b", 'c,"q"']

CASES: list[tuple[str, DataType, tuple[object, ...], list[Any], Any]] = [
    ("FIRST_VALUE", INT, (), [None, 2, 1, 2, 3], 2),
    ("LAST_VALUE", INT, (), [None, 2, 1, 3, None], 3),
    ("FIRST_VALUE", STRING, (), [None], None),
    ("FIRST_VALUE", BYTES, (), [None, b"\xab", b"\xcd"], b"\xab"),
    ("LAST_VALUE", INTS, (), [[1, 2], [3], None], [3]),
    ("LAST_VALUE", BOOLEAN, (), [True, False], False),
    ("FIRST_VALUE", ROW, (), [{"a": None, "b": None}, {"a": 1, "b": "x"}], {"a": None, "b": None}),
    ("LISTAGG", STRING, (), TEXTS, 'b,a,b,c,"q"'),
    ("LISTAGG", STRING, ("|",), TEXTS, 'b|a|b|c,"q"'),
    ("LISTAGG", STRING, ("",), TEXTS, 'babc,"q"'),
    ("LISTAGG", STRING, (), ["", None, ""], ","),
    ("LISTAGG", STRING, (), [""], ""),
    ("LISTAGG", STRING, (), [None, None], None),
    ("LISTAGG", STRING, (), [], None),
    ("ARRAY_AGG", INT, (), [None, 2, 1, 2, 3], [None, 2, 1, 2, 3]),
    ("ARRAY_AGG", INT, ("IGNORE",), [None, 2, 1, 2, 3], [2, 1, 2, 3]),
    ("ARRAY_AGG", INT, ("IGNORE",), [None], None),
    ("ARRAY_AGG", INT, (), [None], [None]),
    ("ARRAY_AGG", INT, (), [], None),
    ("ARRAY_AGG", INTS, (), [None, [1, 2], []], [None, [1, 2], []]),
    ("ARRAY_AGG", DATE, (), [date(2020, 1, 2)], [date(2020, 1, 2)]),
    ("JSON_ARRAYAGG", STRING, (), [None, '"b"', "1.50"], '["b",1.50]'),
    ("JSON_ARRAYAGG", STRING, ("NULL",), [None, '"b"', "1.50"], '[null,"b",1.50]'),
    ("JSON_ARRAYAGG", STRING, (), [None], "[]"),
    ("JSON_ARRAYAGG", STRING, (), [], "[]"),
    ("SINGLE_VALUE", INT, (), [7], 7),
    ("SINGLE_VALUE", INT, (), [None], None),
    ("SINGLE_VALUE", INT, (), [], None),
]


@pytest.mark.parametrize(("name", "of", "constants", "values", "expected"), CASES)
def test_value(name: str, of: DataType, constants: tuple[object, ...], values: list[Any], expected: Any) -> None:
    frame = rows([of], values)
    for retracting in (False, True):
        fold = call(name, of, constants=constants, retracting=retracting)
        taken = frame.with_columns(pl.lit(1, dtype=pl.Int64).alias("sign"))
        assert all(found == expected for found in compute_all_ways(taken, fold))
    fold = call(name, of, constants=constants)
    twin, type_ = compute_in_duckdb(frame, fold)
    assert twin == expected
    result = fold.entry.result_type(fold.of)
    assert result is not None
    assert not values or type_ == result.duckdb.replace('"', "")


PAIRS = [('"b"', "2"), ('"a"', None), ('"ab"', '"x"')]


def test_json_object() -> None:
    for retracting in (False, True):
        for nulls, expected in (("NULL", '{"a":null,"ab":"x","b":2}'), ("ABSENT", '{"ab":"x","b":2}')):
            fold = call("JSON_OBJECTAGG", STRING, STRING, constants=(nulls,), retracting=retracting)
            frame = rows([STRING, STRING], PAIRS, [1] * 3)
            assert set(compute_all_ways(frame, fold)) == {expected}
            assert set(compute_all_ways(frame.head(0), fold)) == {"{}"}
            assert compute_in_duckdb(frame, fold)[0] == expected


def test_json_object_refuses_a_duplicate_key() -> None:
    frame = rows([STRING, STRING], [*PAIRS, ('"b"', "3")], [1] * 4)
    for retracting in (False, True):
        with pytest.raises(ConnectorError, match="occurs more than once"):
            list(compute_all_ways(frame, call("JSON_OBJECTAGG", STRING, STRING, retracting=retracting)))
    # The first occurrence was retracted before.
    frame = rows([STRING, STRING], [*PAIRS, PAIRS[0], ('"b"', "3")], [1, 1, 1, -1, 1])
    fold = call("JSON_OBJECTAGG", STRING, STRING, retracting=True)
    assert set(compute_all_ways(frame, fold)) == {'{"a":null,"ab":"x","b":3}'}


def test_json_object_refuses_a_null_key() -> None:
    with pytest.raises(ConnectorError, match="is NULL"):
        list(compute_all_ways(rows([STRING, STRING], [(None, "1")]), call("JSON_OBJECTAGG", STRING, STRING)))


def test_single_value_refuses_two_rows() -> None:
    for values in ([1, 2], [None, 1], [1, 1]):
        with pytest.raises(ConnectorError, match="more than one row"):
            list(compute_all_ways(rows([INT], values), call("SINGLE_VALUE", INT)))
    fold = call("SINGLE_VALUE", INT, retracting=True)
    assert set(compute_all_ways(rows([INT], [1, 1, None], [1, -1, 1]), fold)) == {None}
    assert set(compute_all_ways(rows([INT], [None, None, 1], [1, -1, 1]), fold)) == {1}


RETRACTED: list[tuple[str, DataType, list[tuple[int, Any]], Any]] = [
    ("LISTAGG", STRING, [(1, "a"), (1, "b"), (-1, "a"), (1, "a")], "b,a"),
    ("LISTAGG", STRING, [(1, "a"), (1, "b"), (1, "a"), (-1, "a")], "b,a"),
    ("LISTAGG", STRING, [(1, "a"), (-1, "a")], None),
    ("FIRST_VALUE", INT, [(1, 1), (1, 2), (1, 1), (-1, 1)], 2),
    ("LAST_VALUE", INT, [(1, 1), (1, 2), (-1, 2)], 1),
    ("LAST_VALUE", INT, [(1, 2), (1, 1), (1, 2), (-1, 2)], 2),
    ("FIRST_VALUE", INT, [(1, None), (1, 2), (-1, None)], 2),
    ("ARRAY_AGG", INT, [(1, None), (1, 2), (1, None), (-1, None)], [2, None]),
    ("ARRAY_AGG", INTS, [(1, [1]), (1, []), (-1, [1]), (1, [1])], [[], [1]]),
    ("JSON_ARRAYAGG", STRING, [(1, "1"), (1, '"x"'), (-1, "1")], '["x"]'),
]


@pytest.mark.parametrize(("name", "of", "changes", "expected"), RETRACTED)
def test_a_retraction_removes_the_first_equal_value(name: str, of: DataType, changes: list[Any], expected: Any) -> None:
    frame = rows([of], [x for _, x in changes], [sign for sign, _ in changes])
    for found in compute_all_ways(frame, call(name, of, retracting=True)):
        assert found == expected


def test_a_retraction_before_its_insertion_cancels_it() -> None:
    fold = call("ARRAY_AGG", INT, retracting=True)
    frame = rows([INT], [5, 1, 5, 5], [-1, 1, 1, 1])
    assert all(found == [1, 5] for found in compute_all_ways(frame, fold))


def test_a_filter_excludes_rows_where_null_counts() -> None:
    frame = rows([INT], [None, 2, 1, None]).with_columns(pl.Series("f", [True, False, None, True]))
    for name, expected in (("ARRAY_AGG", [None, None]), ("SINGLE_VALUE", None)):
        fold = call(name, INT, kept="f")
        chosen = frame if name == "ARRAY_AGG" else frame.head(3)
        assert all(found == expected for found in compute_all_ways(chosen, fold))
        assert compute_in_duckdb(chosen, fold)[0] == expected
    fold = call("ARRAY_AGG", INT, kept="f", retracting=True)
    signed = frame.with_columns(pl.Series("sign", [1, 1, 1, -1], dtype=pl.Int64))
    assert set(compute_all_ways(signed, fold)) == {None}


def test_slices_of_a_hop_window_are_merged_newest_first() -> None:
    def of(name: str, texts: list[list[str]]) -> Any:
        fold: Fold = call(name, STRING)
        slices = [fold_rows(rows([STRING], part), ["k"], [fold], []) for part in texts]
        return value(fold_slots(pl.concat(slices), ["k"], [fold], newest_first=True), fold)

    slices = [["a", "c"], ["b"], ["f"]]
    assert of("LISTAGG", slices) == "f,b,a,c"
    assert of("ARRAY_AGG", slices) == ["f", "b", "a", "c"]
    assert (of("FIRST_VALUE", slices), of("LAST_VALUE", slices)) == ("a", "f")


def test_types() -> None:
    def of(name: str, *args: DataType, constants: tuple[object, ...] = ()) -> str:
        entry = lookup(name)
        assert entry is not None
        return str(entry.result_type(Signature(args, constants)))

    short = StringType(length=5)
    assert (of("LISTAGG", STRING), of("LISTAGG", short), of("LISTAGG", INT)) == ("STRING", "VARCHAR(5)", "None")
    assert of("ARRAY_AGG", DecimalType(precision=10, scale=2, nullable=False)) == "ARRAY<DECIMAL(10, 2) NOT NULL>"
    assert of("JSON_ARRAYAGG", DOUBLE) == "VARCHAR(2000) NOT NULL"
    assert (of("JSON_ARRAYAGG", DATE), of("JSON_OBJECTAGG", STRING, TIME)) == ("None", "None")
    assert (of("JSON_OBJECTAGG", INT, INT), of("JSON_OBJECTAGG", STRING, INT)) == ("None", "VARCHAR(2000) NOT NULL")
    assert (of("FIRST_VALUE", INT.as_nullable(False)), of("FIRST_VALUE", NULL)) == ("INT", "None")
