"""Aggregate functions over groups.

However rows are split into parts, inserted and retracted, the value is that of the remaining rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from everfold.aggregates.folding import SIGN, Fold, compact_slots, compute_results, fold_rows, fold_slots, settle
from everfold.aggregates.python import create_python_entry
from everfold.aggregates.registry import Signature
from everfold.errors import Diagnostic, FunctionError
from everfold.sql.dialects.flink import parse_type
from everfold.types import BIGINT, DOUBLE, STRING
from everfold.udf import AggregateFunction, udaf
from everfold.udf.declared import ColumnsFunction, DeclaredFunction
from everfold.udf.function import FuncType, PythonFunction


class Total(AggregateFunction):
    """Sum and count of the values that are not NULL.

    `opened` is 1 while the function is open.
    """

    opened = 0

    def open(self, function_context: object) -> None:
        self.opened += 1

    def close(self) -> None:
        self.opened -= 1

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def accumulate(self, accumulator: list[int], value: int | None) -> None:
        assert self.opened == 1
        if value is not None:
            accumulator[0] += value
            accumulator[1] += 1

    def get_value(self, accumulator: list[int]) -> int | None:
        return accumulator[0] if accumulator[1] else None

    def get_result_type(self) -> str:
        return "BIGINT"

    def get_accumulator_type(self) -> str:
        return "ARRAY<BIGINT>"


class Retracting(Total):
    def retract(self, accumulator: list[int], value: int | None) -> None:
        if value is not None:
            accumulator[0] -= value
            accumulator[1] -= 1


class Merging(Retracting):
    def merge(self, accumulator: list[int], accumulators: Iterable[list[int]]) -> None:
        for other in accumulators:
            accumulator[0] += other[0]
            accumulator[1] += other[1]


class OfColumns(Merging):
    def accumulate(self, accumulator: list[int], values: pa.Array) -> None:
        for value in values.to_pylist():
            super().accumulate(accumulator, value)

    def retract(self, accumulator: list[int], values: pa.Array) -> None:
        for value in values.to_pylist():
            super().retract(accumulator, value)


@udaf(result_type="BIGINT", func_type="polars")
def whole(values: pl.Series) -> object:
    return values.sum() if values.count() else None


def function_of(of: DeclaredFunction, func_type: FuncType = "general") -> PythonFunction:
    accumulator = None if isinstance(of.function, ColumnsFunction) else parse_type(str(of.accumulator_type))
    return PythonFunction(
        name="f", identifier="m.f", function=of.function, func_type=func_type, accumulator=accumulator
    )


FUNCTIONS = [
    pytest.param(function_of(udaf(Retracting())), id="rows travel"),
    pytest.param(function_of(udaf(Merging())), id="accumulators merge"),
    pytest.param(function_of(udaf(OfColumns()), "arrow"), id="of columns"),
    pytest.param(function_of(whole, "polars"), id="whole columns"),
]
VALUES = some.none() | some.integers(-5, 5)
CUTS = some.lists(some.integers(0, 30), max_size=3)
Rows = list[tuple[int, int | None]]
"""Groups and values."""


def fold_of(function: PythonFunction, *, retracting: bool) -> Fold:
    of = Signature((BIGINT,), retracting=retracting)
    entry = create_python_entry(function, BIGINT, None)
    return Fold(entry, of, ("a",), tuple(f"s{at}" for at in range(len(entry.slots(of)))))


def frame_of(rows: Rows, signs: list[int]) -> pl.DataFrame:
    schema = {"k": pl.Int64(), "a": pl.Int64(), SIGN: pl.Int64()}
    return pl.DataFrame(
        [(key, value, sign) for (key, value), sign in zip(rows, signs, strict=True)], schema, orient="row"
    )


def compute_values(frame: pl.DataFrame, fold: Fold, cuts: list[int], *, grouped: bool = True) -> dict[int, object]:
    """Return the values of groups whose rows arrive in parts.

    Each part is folded, then merged with the state of the parts before it.

    grouped: the state is that of unbounded groups, otherwise that of slices, which are kept
    separately until a window is emitted.
    """
    bounds = sorted({0, frame.height, *(min(cut, frame.height) for cut in cuts)})
    state: pl.DataFrame | None = None
    for start, end in pairwise(bounds):
        part = settle(fold_rows(frame[start:end], ["k"], [fold], []), [fold], whole=False)
        both = part if state is None else pl.concat([state, part])
        state = settle(fold_slots(both, ["k"], [fold]), [fold], whole=True)
        if grouped:
            state = compact_slots(state, [fold])
    if state is None:
        return {}
    (values,) = compute_results(state, [fold], ["value"])
    return dict(zip(state["k"].to_list(), values.to_list(), strict=True))


def compute_expected(rows: Rows) -> dict[int, object]:
    groups: dict[int, list[int]] = {}
    for key, value in rows:
        groups.setdefault(key, []).extend([] if value is None else [value])
    return {key: sum(values) if values else None for key, values in groups.items()}


@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=40, deadline=None)
@given(rows=some.lists(some.tuples(some.integers(0, 2), VALUES), max_size=20), cuts=CUTS, grouped=some.booleans())
def test_parts_have_the_same_values_as_the_whole(
    function: PythonFunction, rows: Rows, cuts: list[int], grouped: bool
) -> None:
    frame = frame_of(rows, [1] * len(rows))
    assert compute_values(frame, fold_of(function, retracting=False), cuts, grouped=grouped) == compute_expected(rows)


@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=40, deadline=None)
@given(data=some.data())
def test_retracted_rows_have_no_effect(function: PythonFunction, data: some.DataObject) -> None:
    rows: Rows = data.draw(some.lists(some.tuples(some.integers(0, 2), VALUES), max_size=15))
    changes = [(row, 1) for row in rows]
    gone = data.draw(some.lists(some.sampled_from(range(len(rows))), unique=True)) if rows else []
    for at in gone:
        changes.insert(data.draw(some.integers(changes.index((rows[at], 1)) + 1, len(changes))), (rows[at], -1))
    frame = frame_of([row for row, _ in changes], [sign for _, sign in changes])
    left = compute_expected([row for at, row in enumerate(rows) if at not in gone])
    grouped = data.draw(some.booleans())
    found = compute_values(frame, fold_of(function, retracting=True), data.draw(CUTS), grouped=grouped)
    assert {key: found[key] for key in left} == left
    assert all(value is None for key, value in found.items() if key not in left)


@pytest.mark.parametrize("function", FUNCTIONS[:1])
def test_slices_of_a_function_without_merge_are_combined(function: PythonFunction) -> None:
    fold = fold_of(function, retracting=True)
    slices = [settle(fold_rows(frame_of([(1, value)], [1]), ["k"], [fold], []), [fold], whole=True) for value in (2, 3)]
    window = settle(fold_slots(pl.concat(slices), ["k"], [fold]), [fold], whole=True)
    assert [values.to_list() for values in compute_results(window, [fold], ["value"])] == [[5]]


def test_a_function_is_closed_after_use() -> None:
    total = Merging()
    fold = fold_of(function_of(udaf(total)), retracting=False)
    assert compute_values(frame_of([(1, 2), (1, 3)], [1, 1]), fold, [1]) == {1: 5}
    assert total.opened == 0


def test_accumulators_are_stored_in_their_declared_type() -> None:
    fold = fold_of(function_of(udaf(Merging())), retracting=False)
    state = settle(fold_rows(frame_of([(1, 2), (2, None)], [1, 1]), ["k"], [fold], []), [fold], whole=True).sort("k")
    assert state["s0"].dtype == pl.List(pl.List(pl.Int64))
    assert state["s0"].to_list() == [[[2, 1]], [[0, 0]]]
    assert state["s1"].list.len().to_list() == [0, 0]


class Failing(Merging):
    """Fails in the method `method`."""

    def __init__(self, method: str) -> None:
        self.method = method

    def create_accumulator(self) -> list[int]:
        self._fail_if("create_accumulator")
        return super().create_accumulator()

    def accumulate(self, accumulator: list[int], value: int | None) -> None:
        self._fail_if("accumulate")
        super().accumulate(accumulator, value)

    def retract(self, accumulator: list[int], value: int | None) -> None:
        self._fail_if("retract")

    def merge(self, accumulator: list[int], accumulators: Iterable[list[int]]) -> None:
        self._fail_if("merge")

    def get_value(self, accumulator: list[int]) -> int | None:
        self._fail_if("get_value")
        return super().get_value(accumulator)

    def _fail_if(self, method: str) -> None:
        if method == self.method:
            raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    ("method", "retracting", "call"),
    [
        ("create_accumulator", False, "f.create_accumulator()"),
        ("accumulate", False, "f.accumulate([0, 0], 2)"),
        ("retract", True, "f.retract([2, 1], 2)"),
        ("merge", False, "f.merge([2, 1], [[2, 1]])"),
        ("get_value", False, "f.get_value([2, 1])"),
    ],
)
def test_a_failing_method_is_reported_with_its_arguments(method: str, retracting: bool, call: str) -> None:
    fold = fold_of(function_of(udaf(Failing(method))), retracting=retracting)
    frame = frame_of([(1, 2), (1, 2)], [1, -1 if retracting else 1])
    with pytest.raises(FunctionError) as caught:
        compute_values(frame, fold, [] if method == "get_value" and frame.height == 0 else [1])
    found = caught.value.diagnostics[0]
    assert found.message == "the Python function `f` raised RuntimeError: on purpose"
    assert found.notes[0].startswith("it was called as " + call.split("[")[0])
    assert found.notes[-1].endswith('raise RuntimeError("on purpose")')


def test_a_result_of_another_type_is_refused() -> None:
    class Text(Merging):
        def get_value(self, accumulator: list[int]) -> int:
            return "seven"  # type: ignore[return-value]

    fold = fold_of(function_of(udaf(Text())), retracting=False)
    with pytest.raises(FunctionError) as caught:
        compute_values(frame_of([(1, 2)], [1]), fold, [])
    assert caught.value.diagnostics == (
        Diagnostic(
            "wrong-result",
            "the Python function `f` returned 'seven', which is not of type BIGINT",
            notes=("it was called as f.get_value([2, 1])",),
        ),
    )


def test_columns_of_a_group_have_the_declared_types() -> None:
    seen: list[pa.DataType] = []

    @udaf(result_type="BIGINT", func_type="arrow")
    def count_rows(*columns: pa.Array) -> int:
        seen.extend(column.type for column in columns)
        return len(columns[0])

    types = (STRING, DOUBLE, parse_type("ARRAY<STRING>"), parse_type("ROW<a STRING>"))
    of = Signature(types)
    entry = create_python_entry(function_of(count_rows, "arrow"), BIGINT, None)
    fold = Fold(entry, of, ("a", "b", "c", "d"), ("s0",))
    frame = pl.DataFrame({"k": [1], "a": ["x"], "b": [1.0], "c": [["x"]], "d": [{"a": "x"}]})
    (values,) = compute_results(fold_rows(frame, ["k"], [fold], []), [fold], ["value"])
    assert values.to_list() == [1]
    assert seen == [each.arrow for each in types]
