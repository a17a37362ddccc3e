"""Values on their way between Arrow and Python.

Values of the right type are unchanged, and others are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from everfold.sql.dialects.flink import parse_type
from everfold.types import DataType
from everfold.udf import ListView, MapView, Row
from everfold.udf.columns import from_function_column
from everfold.udf.values import WrongValue, arrow_column, python_values, round_trip

NOON = datetime(2026, 1, 1, 12)

SAME: list[tuple[str, object]] = [
    ("BOOLEAN", True),
    ("TINYINT", -128),
    ("BIGINT", 2**63 - 1),
    ("FLOAT", 1.5),
    ("DOUBLE", -math.inf),
    ("DECIMAL(10, 2)", Decimal("1.50")),
    ("DECIMAL(38, 10)", Decimal("9999999999999999999999999999.0123456789")),
    ("STRING", "äöü 😀"),
    ("CHAR(3)", "abc"),
    ("BYTES", b"\x00\xff"),
    ("DATE", date(2026, 1, 1)),
    ("TIME(3)", time(23, 59, 59, 999000)),
    ("TIMESTAMP(6)", datetime(2026, 1, 1, 12, 0, 0, 123456)),
    ("TIMESTAMP_LTZ(3)", datetime(2026, 1, 1, 12, tzinfo=UTC)),
    ("INTERVAL DAY TO SECOND(3)", timedelta(days=1, milliseconds=5)),
    ("INTERVAL YEAR TO MONTH", 14),
    ("ARRAY<INT>", [1, None, 3]),
    ("ARRAY<ARRAY<TIME(0)>>", [[time(1)], None, []]),
    ("MAP<STRING, INT>", {"a": 1, "b": None}),
    ("MULTISET<STRING>", {"a": 2}),
    ("ROW<a INT, b STRING>", Row(a=1, b=None)),
    ("ARRAY<ROW<at TIMESTAMP(3), m MAP<INT, DATE>>>", [Row(at=NOON, m={1: date(2026, 1, 1)}), None]),
]
"""Values that are converted back unchanged."""

MADE: list[tuple[str, object, object]] = [
    ("BIGINT", np.int32(7), 7),
    ("DOUBLE", np.float32(0.5), 0.5),
    ("DOUBLE", 3, 3.0),
    ("BOOLEAN", np.bool_(True), True),
    ("DECIMAL(5, 2)", 7, Decimal("7.00")),
    ("DECIMAL(5, 2)", Decimal("1.005"), Decimal("1.01")),
    ("BYTES", bytearray(b"x"), b"x"),
    ("TIMESTAMP(3)", datetime(2026, 1, 1, 12, 0, 0, 123999), datetime(2026, 1, 1, 12, 0, 0, 123000)),
    (
        "TIMESTAMP_LTZ(3)",
        datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=8))),
        datetime(2026, 1, 1, 4, tzinfo=UTC),
    ),
    ("ARRAY<INT>", (1, 2), [1, 2]),
    ("ARRAY<INT>", np.array([1, 2]), [1, 2]),
    ("ROW<a INT, b STRING>", (1, "x"), Row(1, "x")),
    ("ROW<a INT, b STRING>", [1, "x"], Row(1, "x")),
    ("ROW<a INT, b STRING>", {"b": "x", "a": 1}, Row(1, "x")),
]
"""Values that are converted to their declared type."""

WRONG: list[tuple[str, object, str]] = [
    ("BIGINT", "7", "is not of type BIGINT"),
    ("BIGINT", 7.0, "is not of type BIGINT"),
    ("BIGINT", True, "is not of type BIGINT"),
    ("TINYINT", 128, "is too large for TINYINT"),
    ("BIGINT", 2**63, "is too large for BIGINT"),
    ("DOUBLE", "1", "is not of type DOUBLE"),
    ("DOUBLE", True, "is not of type DOUBLE"),
    ("BOOLEAN", 1, "is not of type BOOLEAN"),
    ("DECIMAL(3, 1)", 0.5, "is not of type DECIMAL(3, 1)"),
    ("DECIMAL(3, 1)", Decimal("NaN"), "is not of type DECIMAL(3, 1)"),
    ("DECIMAL(3, 1)", Decimal("99.96"), "is too large for DECIMAL(3, 1)"),
    ("STRING", b"x", "is not of type STRING"),
    ("STRING", "\ud800", "half of a surrogate pair"),
    ("BYTES", "x", "is not of type BYTES"),
    ("DATE", NOON, "is not of type DATE"),
    ("TIMESTAMP(3)", date(2026, 1, 1), "is not of type TIMESTAMP(3)"),
    ("TIMESTAMP(3)", NOON.replace(tzinfo=UTC), "has a time zone"),
    ("TIMESTAMP_LTZ(3)", NOON, "has no time zone"),
    ("INTERVAL DAY TO SECOND(3)", 5, "is not of type INTERVAL DAY TO SECOND(3)"),
    ("ARRAY<INT>", "12", "is not of type ARRAY<INT>"),
    ("ARRAY<INT>", [1, "x"], "has element 2 that is not of type INT"),
    ("ARRAY<INT NOT NULL>", [1, None], "has element 2 that is not of type INT NOT NULL"),
    ("MAP<STRING, INT>", [("a", 1)], "is not of type MAP<STRING, INT>"),
    ("MAP<STRING, INT>", {1: 1}, "has a key that is not of type STRING"),
    ("MAP<STRING, INT>", {"a": "x"}, "has the value of key 'a' that is not of type INT"),
    ("ROW<a INT>", (1, 2), "is not of type ROW<`a` INT>"),
    ("ROW<a INT>", {"b": 1}, "is not of type ROW<`a` INT>"),
    ("ROW<a ARRAY<INT>>", ([1.5],), "has field `a` that has element 1 that is not of type INT"),
    ("INT NOT NULL", None, "is not of type INT NOT NULL"),
]


def convert_there_and_back(
    of: DataType, value: object, column: Callable[[pa.Array], Any] = lambda array: array
) -> object:
    read: object = python_values(column(arrow_column([None, value], of.as_nullable())), of)[1]
    return read


def through_polars(column: pa.Array) -> pa.Array:
    return pl.Series(pl.from_arrow(column)).to_arrow(compat_level=pl.CompatLevel.oldest())


@pytest.mark.parametrize(("type_", "value"), SAME)
def test_a_value_is_converted_back_unchanged(type_: str, value: object) -> None:
    of = parse_type(type_)
    assert convert_there_and_back(of, value) == value
    assert convert_there_and_back(of, value, through_polars) == value
    assert round_trip(of)(value) == value


@pytest.mark.parametrize(("type_", "value", "made"), MADE)
def test_similar_values_are_converted_to_the_type(type_: str, value: object, made: object) -> None:
    found = convert_there_and_back(parse_type(type_), value)
    assert found == made
    assert type(found) is type(made)


@pytest.mark.parametrize(("type_", "value", "why"), WRONG)
def test_values_of_another_type_are_refused(type_: str, value: object, why: str) -> None:
    of = parse_type(type_)
    good = [] if value is None else [None]
    with pytest.raises(WrongValue) as caught:
        arrow_column([*good, value], of)
    assert why in caught.value.why
    assert caught.value.at == len(good)


@given(some.lists(some.none() | some.integers(-(2**63), 2**63 - 1)))
def test_columns_of_exact_types_are_converted_back_unchanged(values: list[int | None]) -> None:
    of = parse_type("BIGINT")
    assert python_values(arrow_column(values, of), of) == values


def test_lists_and_dicts_of_accumulators_are_views() -> None:
    of = parse_type("ROW<l ARRAY<INT>, m MAP<STRING, ARRAY<INT>>>")
    (row,) = python_values(arrow_column([([1], {"a": [2]})], of), of, views=True)
    row.l.add(3)
    row.m.put("b", ListView([4]))
    assert isinstance(row.m, MapView)
    assert isinstance(row.m["a"], ListView)
    assert (row.l, row.m) == ([1, 3], {"a": [2], "b": [4]})
    assert round_trip(of, views=True)(([], {})).l.get() == []


COLUMNS: list[tuple[str, object]] = [
    ("BIGINT", pa.array([1, 2], pa.int32())),
    ("BIGINT", pa.chunked_array([[1], [2]])),
    ("BIGINT", pl.Series([1, 2])),
    ("BIGINT", np.array([1, 2])),
    ("DOUBLE", pl.Series([1, 2])),
    ("DECIMAL(5, 2)", pl.Series([Decimal("1.5"), None])),
    ("STRING", pl.Series(["a", "b"])),
    ("STRING", pa.array(["a", "b"]).dictionary_encode()),
    ("INT", pa.nulls(2)),
    ("ARRAY<INT>", pl.Series([[1], [2]])),
    ("ROW<a INT>", pl.Series([{"a": 1}, {"a": 2}])),
    ("TIMESTAMP(3)", pa.array([NOON, None])),
]


@pytest.mark.parametrize(("type_", "column"), COLUMNS)
def test_columns_of_the_type_are_accepted(type_: str, column: object) -> None:
    of = parse_type(type_)
    assert from_function_column(column, of, 2).type == of.arrow


@pytest.mark.parametrize(
    ("type_", "column", "why"),
    [
        ("BIGINT", pa.array([1]), "has 1 values for 2 rows"),
        ("BIGINT", 7, "is of type int, not a column"),
        ("BIGINT", pa.array(["1", "2"]), "is an Arrow column of string"),
        ("STRING", pa.array([1, 2]), "is an Arrow column of int64"),
        ("INT", pa.array([1, 2**40]), "does not fit into INT"),
        ("INT NOT NULL", pa.array([1, None]), "contains NULLs"),
        ("TIMESTAMP_LTZ(3)", pa.array([NOON, NOON]), "is an Arrow column of timestamp[us]"),
        ("ROW<a INT>", pa.array([{"b": 1}, {"b": 2}]), "is an Arrow column of struct"),
    ],
)
def test_columns_of_another_type_are_refused(type_: str, column: object, why: str) -> None:
    with pytest.raises(WrongValue) as caught:
        from_function_column(column, parse_type(type_), 2)
    assert why in caught.value.why
