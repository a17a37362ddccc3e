"""Properties of aggregates over random changelogs: the value is that of the surviving rows,
independent of the parts, and agrees with DuckDB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.aggregate_model import Change, compute_value, distinct_survivors, survivors
from unit.aggregates.calls import call, compute_in_duckdb, rows, value

from everfold.aggregates.folding import Fold, fold_rows, fold_slots, settle
from everfold.aggregates.registry import Distinct, Signature, lookup, names
from everfold.types import BIGINT, DOUBLE, INT, STRING, TINYINT, DataType, DecimalType

D10, D38 = DecimalType(precision=10, scale=2), DecimalType(precision=38, scale=3)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    TINYINT: st.integers(-128, 127),
    INT: st.one_of(st.integers(-3, 3), st.integers(-10_000, 10_000)),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.one_of(st.integers(-(2**40), 2**40).map(float), st.sampled_from([float("nan"), float("inf"), 0.0])),
    D10: st.decimals(-99_999_999, 99_999_999, places=2),
    D38: st.integers(-(10**36), 10**36).map(lambda unscaled: Decimal(unscaled).scaleb(-3)),
    STRING: st.text(max_size=2, alphabet='ab"é,'),
}
ROUGH = {"VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"}
ANY_TYPE = {"COUNT", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "ARRAY_AGG", "COLLECT"}
OTHERS = {"SINGLE_VALUE", "APPROX_COUNT_DISTINCT", "JSON_OBJECTAGG", "VARIANCE", "STDDEV"}
"""Functions that stop early or are inexact, which have separate tests, and aliases."""


def calls() -> Iterator[tuple[str, DataType, bool]]:
    """Yield every function with the types that matter to it, also over distinct values."""
    for name in names():
        entry = lookup(name)
        assert entry is not None
        for of in VALUES:
            if name in OTHERS or entry.result_type(Signature((of,), (0.25,))) is None:
                continue
            if name in ANY_TYPE and of not in (INT, DOUBLE, STRING):
                continue
            if (name in ROUGH and of in (BIGINT, D38)) or (name == "JSON_ARRAYAGG" and of is not STRING):
                continue
            yield name, of, False
            if entry.distinct is Distinct.APPLIES and of in (INT, DOUBLE, STRING):
                yield name, of, True


@st.composite
def changelogs(draw: st.DrawFn, of: DataType) -> list[Change]:
    """Make changes that retract only rows that are present."""
    changes: list[Change] = []
    for _ in range(draw(st.integers(1, 12))):
        left = survivors(changes)
        if left and draw(st.integers(0, 2)) == 0:
            changes.append((-1, draw(st.sampled_from(left))))
        else:
            changes.append((1, draw(st.one_of(st.none(), VALUES[of], VALUES[of]))))
    return changes


@pytest.mark.parametrize(("name", "of", "distinct"), list(calls()), ids=str)
def test_the_value_of_a_changelog_is_that_of_its_survivors(name: str, of: DataType, distinct: bool) -> None:
    @settings(max_examples=8, deadline=None)
    @given(changelogs(of), st.lists(st.integers(0, 12), max_size=3))
    def law(changes: list[Change], cuts: list[int]) -> None:
        loss = _loss(name, of, [x for _, x in changes])
        wanted = compute_value(name, of, distinct_survivors(changes) if distinct else survivors(changes))
        signed = rows([of], [x for _, x in changes], [sign for sign, _ in changes])
        fold = call(name, of, constants=(0.25,) if name == "PERCENTILE" else (), retracting=True, distinct=distinct)
        for found in (value(fold_rows(signed, [], [fold], []), fold), value(_fold_parts(signed, fold, cuts), fold)):
            assert _is_same(name, found, wanted, loss), (found, wanted)
        if distinct and all(sign > 0 for sign, _ in changes):
            plain = call(name, of, constants=fold.of.constants, distinct=distinct)
            for found in (
                value(fold_rows(signed, [], [plain], []), plain),
                value(_fold_parts(signed, plain, cuts), plain),
            ):
                assert _is_same(name, found, wanted, loss), (found, wanted)
            twin, _ = compute_in_duckdb(signed, plain, distinct)
            assert _is_same(name, twin, wanted, loss), (twin, wanted)

    law()


@pytest.mark.parametrize(("name", "of", "distinct"), [each for each in calls() if not each[2]], ids=str)
def test_the_value_of_inserts_is_the_same_in_parts_and_in_duckdb(name: str, of: DataType, distinct: bool) -> None:
    @settings(max_examples=8, deadline=None)
    @given(
        st.lists(st.one_of(st.none(), VALUES[of]), min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=3)
    )
    def law(values: list[Any], cuts: list[int]) -> None:
        frame = rows([of], values)
        fold = call(name, of, constants=(0.25,) if name == "PERCENTILE" else ())
        wanted, loss = compute_value(name, of, values), _loss(name, of, values)
        lifted = fold.lifted
        ways = [fold_rows(frame, [], [fold], []), _fold_parts(frame, fold, cuts)]
        if lifted is not None:
            ways.append(fold_slots(frame.select(lifted), [], [fold]))
        for found in (*(value(each, fold) for each in ways), compute_in_duckdb(frame, fold)[0]):
            assert _is_same(name, found, wanted, loss), (found, wanted)

    law()


def _fold_parts(frame: pl.DataFrame, fold: Fold, cuts: list[int]) -> pl.DataFrame:
    """Return the slots when the rows come in parts, each merged into a settled state."""
    bounds = [0, *sorted(min(cut, frame.height) for cut in cuts), frame.height]
    state = fold_rows(frame.head(0), [], [fold], [])
    for start, end in pairwise(bounds):
        part = settle(fold_rows(frame.slice(start, end - start), [], [fold], []), [fold], whole=False)
        state = settle(fold_slots(pl.concat([state, part]), [], [fold]), [fold], whole=True)
    return state


def _loss(name: str, of: DataType, values: list[Any]) -> float:
    """Return the tolerance of a variance of DOUBLE: a part in 10^13 of the largest square that
    was ever in it.
    """
    if name not in ROUGH or of is not DOUBLE:
        return 0.0
    largest = (
        max((value * value for value in values if value is not None and math.isfinite(value)), default=0.0) * 1e-13
    )
    return math.sqrt(largest) if "STDDEV" in name else largest


def _is_same(name: str, found: Any, wanted: Any, loss: float) -> bool:
    if name == "COLLECT":
        pairs = found.items() if isinstance(found, dict) else [(each["key"], each["value"]) for each in found]
        return sorted(map(repr, pairs)) == sorted(map(repr, wanted))
    if isinstance(wanted, list) and isinstance(found, list):
        return list(map(repr, found)) == list(map(repr, wanted))
    if found is None or wanted is None:
        return found is wanted
    if name in ROUGH and not isinstance(wanted, int):
        near = 1e-6 if isinstance(found, Decimal) else loss
        return bool(float(found) == pytest.approx(float(wanted), rel=1e-9, abs=near, nan_ok=True))
    if isinstance(wanted, float):
        return bool(found == pytest.approx(wanted, rel=1e-12, nan_ok=True))
    return bool(Fraction(found) == wanted) if isinstance(found, Decimal) else bool(found == wanted)
