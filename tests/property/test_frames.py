"""Properties of aggregates over frames: every kernel computes what a loop in plain Python computes,
for random frames with ties, NULLs, empty frames and special values.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everfold.aggregates.folding import Fold, compute_results, settle
from everfold.aggregates.registry import Signature, lookup
from everfold.operators.frame_pieces import merge_pieces
from everfold.operators.frames import PART, add_slots, aggregate_frames, frame_bounds, partition_order
from everfold.plan.nodes import Frame
from everfold.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP3, DataType, DecimalType

LAW = settings(max_examples=40, deadline=None)
SPECIAL = [0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, 1e300, math.inf, -math.inf, math.nan]
ROUNDED = [0.1, 0.2, 0.3, 0.7, 1.1, 1e16, -1e16, 3e15 + 1]
"""Numbers whose sums are rounded, and so depend on the order in which they are added."""
WIDE = DecimalType(precision=38, scale=2)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BIGINT: st.one_of(st.integers(-3, 3), st.sampled_from([-(1 << 63), (1 << 63) - 1])),
    INT: st.integers(-5, 5),
    DOUBLE: st.sampled_from(SPECIAL),
    STRING: st.sampled_from(["", "a", "ab", "é", "z"]),
    BOOLEAN: st.booleans(),
    TIMESTAMP3: st.integers(-5, 5).map(lambda ms: datetime(2020, 1, 1) + timedelta(milliseconds=ms)),
    DecimalType(precision=10, scale=2): st.integers(-500, 500).map(lambda n: Decimal(n).scaleb(-2)),
    WIDE: st.sampled_from(["1.25", "-3.5", "9" * 36 + ".99", "-" + "9" * 36 + ".99"]).map(Decimal),
}
EXACT = Context(prec=60)
Rows = Sequence[tuple[int, Any]]


def least(values: list[Any]) -> Any:
    return min((value for value in values if value == value), default=values[0] if values else None)


def greatest(values: list[Any]) -> Any:
    return next((value for value in values if value != value), max(values, default=None))


def wrap(total: int, bits: int = 64) -> int:
    return (total + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def total(values: list[Any]) -> Any:
    if not values:
        return None
    if isinstance(values[0], int):
        return wrap(sum(values))
    found = sum(int(EXACT.scaleb(value, 2)) for value in values)
    return EXACT.scaleb(Decimal(found), -2) if abs(found) < 10**38 else None


CASES: list[tuple[str, DataType, Callable[[list[Any]], Any]]] = [
    ("COUNT", BIGINT, len),
    ("SUM", BIGINT, total),
    ("SUM", DecimalType(precision=10, scale=2), total),
    ("SUM", WIDE, total),
    ("FIRST_VALUE", STRING, lambda values: next(iter(values), None)),
    ("LAST_VALUE", DOUBLE, lambda values: next(reversed(values), None)),
    *(("MIN", of, least) for of in VALUES),
    *(("MAX", of, greatest) for of in VALUES),
]


def fold_of(function: str, of: DataType) -> Fold:
    entry, signature = lookup(function), Signature((of.as_nullable(),))
    assert entry is not None
    return Fold(entry, signature, ("v",), tuple(f"s{at}" for at in range(len(entry.slots(signature)))))


def frame_of(rows: Rows, of: DataType) -> pl.DataFrame:
    """Return rows with `part` and `v`, sorted by part."""
    ordered = sorted(rows, key=lambda row: row[0])
    return pl.DataFrame(
        {PART: [part for part, _ in ordered], "v": [value for _, value in ordered]},
        schema={PART: pl.Int64(), "v": of.polars},
    )


def bounds_of(rows: pl.DataFrame, drawn: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return a frame for each pair: from a row to a number of rows later, in the row's partition;
    empty where the number is negative.
    """
    parts = rows[PART].to_list()
    last_of = {part: at for at, part in enumerate(parts)}
    first = [at % len(parts) for at, _ in drawn]
    return first, [max(at - 1, min(at + more, last_of[parts[at]])) for at, (_, more) in zip(first, drawn, strict=True)]


def compute(rows: pl.DataFrame, fold: Fold, first: list[int], last: list[int]) -> list[Any]:
    merged = aggregate_frames(
        add_slots(rows, [fold]), [fold], np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)
    )
    (values,) = compute_results(settle(merged, [fold], whole=True), [fold], ["x"])
    return values.to_list()


def bits(value: float | None) -> bytes | None:
    return None if value is None else b"nan" if value != value else struct.pack(">d", value)


@pytest.mark.parametrize(("function", "of", "expected"), CASES, ids=[f"{name} {of}" for name, of, _ in CASES])
def test_a_kernel_computes_what_a_loop_computes(
    function: str, of: DataType, expected: Callable[[list[Any]], Any]
) -> None:
    fold = fold_of(function, of)

    @LAW
    @given(
        st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), VALUES[of])), min_size=1, max_size=40),
        st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 40)), min_size=1, max_size=20),
    )
    def law(drawn: Rows, spans: list[tuple[int, int]]) -> None:
        rows = frame_of(drawn, of)
        first, last = bounds_of(rows, spans)
        values = rows["v"].to_list()
        wanted = [
            expected([value for value in values[at : to + 1] if value is not None])
            for at, to in zip(first, last, strict=True)
        ]
        found = compute(rows, fold, first, last)
        if function in ("MIN", "MAX") and of == DOUBLE:
            wanted = [0.0 if value == 0 else value for value in wanted]
        if of == DOUBLE:
            assert [*map(bits, found)] == [*map(bits, wanted)]
        else:
            assert found == wanted

    law()


def pieces_of(first: int, last: int) -> list[range]:
    """Return the aligned pieces of a frame, counted from the start of its partition."""
    found = []
    while first <= last:
        size = 1
        while first % (size * 2) == 0 and first + size * 2 - 1 <= last:
            size *= 2
        found.append(range(first, first + size))
        first += size
    return found


def add_pairs(values: list[float]) -> float:
    """Add neighbors, then the sums of neighbors, and so on."""
    while len(values) > 1:
        values = [sum(values[at : at + 2], 0.0) for at in range(0, len(values), 2)] if len(values) > 2 else [
            0.0 + values[0] + values[1]
        ]  # fmt: skip
    return values[0]


def sum_in_pairs(values: list[float | None]) -> float | None:
    """Return the sum of the values of a piece or of the pieces of a frame; NULL counts as 0."""
    return None if all(value is None for value in values) else add_pairs([value or 0.0 for value in values])


def check_sums(rows: pl.DataFrame, spans: list[tuple[int, int]]) -> None:
    """Compare sums of floats with those of a loop over the aligned pieces of each frame.

    A sum is computed in both ways: as one of floats, and as an aggregate that can only be merged.
    """
    fold = fold_of("SUM", DOUBLE)
    first, last = bounds_of(rows, spans)
    parts, values = rows[PART].to_list(), rows["v"].to_list()
    wanted: list[float | None] = []
    for at, to in zip(first, last, strict=True):
        start = parts.index(parts[at])
        pieces = [[values[start + position] for position in piece] for piece in pieces_of(at - start, to - start)]
        is_null = all(value is None for value in values[at : to + 1])
        wanted.append(None if is_null else add_pairs([sum_in_pairs(piece) or 0.0 for piece in pieces]))
    bounds = np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)
    merged = merge_pieces(add_slots(rows, [fold]), rows[PART].to_numpy(), [fold], *bounds)
    (sums,) = compute_results(settle(merged, [fold], whole=True), [fold], ["x"])
    # A zero may have either sign.
    zero = [bits(0.0 if value == 0 else value) for value in wanted]
    assert [bits(0.0 if value == 0 else value) for value in compute(rows, fold, first, last)] == zero
    assert [bits(0.0 if value == 0 else value) for value in sums.to_list()] == zero


@LAW
@given(
    st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), VALUES[DOUBLE])), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 60)), min_size=1, max_size=20),
)
def test_a_sum_of_floats_adds_aligned_pieces_in_pairs(drawn: Rows, spans: list[tuple[int, int]]) -> None:
    check_sums(frame_of(drawn, DOUBLE), spans)


@settings(LAW, max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(ROUNDED)), min_size=40, max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(8, 60)), min_size=10, max_size=20),
)
def test_the_pieces_of_long_frames_are_added_in_pairs(drawn: Rows, spans: list[tuple[int, int]]) -> None:
    """With five pieces or more, adding them in pairs and one after another give other digits."""
    check_sums(frame_of(drawn, DOUBLE), spans)


@LAW
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=40),
    st.booleans(),
    st.one_of(st.none(), st.integers(-5, 2)),
    st.one_of(st.none(), st.integers(-2, 5)),
)
def test_bounds_are_those_of_a_loop(
    drawn: list[tuple[int, int]], rows: bool, first: int | None, last: int | None
) -> None:
    drawn.sort()
    part, at = (np.array(each, dtype=np.int64) for each in zip(*drawn, strict=True))
    found = frame_bounds(part, at, Frame(rows=rows, first=first, last=last), peers=True)
    for position, (one, time) in enumerate(drawn):
        inside = [
            other
            for other, (two, when) in enumerate(drawn)
            if one == two
            and (first is None or (other - position if rows else when - time) >= first)
            and (last is None or (other - position if rows else when - time) <= last)
        ]
        low, high = found[0][position], found[1][position]
        assert [*range(low, high + 1)] == inside


@LAW
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None])), max_size=30))
def test_rows_are_ordered_by_partition_even_if_hashes_collide(drawn: list[tuple[int, str | None]]) -> None:
    rows = pl.DataFrame(drawn, schema={"hash": pl.Int64(), "k": pl.String()}, orient="row")
    order, part = partition_order(rows, ["k"])
    assert sorted(order.tolist()) == [*range(rows.height)]
    assert (np.diff(part) >= 0).all()
    groups: dict[int, list[int]] = {}
    for position, number in zip(order.tolist(), part.tolist(), strict=True):
        groups.setdefault(number, []).append(position)
    wanted: dict[Any, list[int]] = {}
    for position, row in enumerate(drawn):
        wanted.setdefault(row, []).append(position)
    assert sorted(groups.values()) == sorted(wanted.values())
