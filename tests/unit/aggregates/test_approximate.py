"""The sketch of APPROX_COUNT_DISTINCT, compared with the exact count."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from unit.aggregates.calls import call, compute_all_ways, value

from everfold.aggregates.approximate import SKETCH_VALUES
from everfold.aggregates.folding import fold_rows, fold_slots, settle
from everfold.types import STRING

FOLD = call("APPROX_COUNT_DISTINCT", STRING)


def hashes(seed: int, count: int) -> pl.DataFrame:
    """Return rows with `count` different hashes."""
    found = np.random.default_rng(seed).integers(-(2**63), 2**63, count)
    return pl.DataFrame({"k": np.ones(count, dtype=np.int64), "x": found, "known": np.ones(count, dtype=bool)})


def test_few_values_are_counted_exactly() -> None:
    frame = hashes(1, 20)
    frame = pl.concat([frame, frame.head(7), frame.head(1).with_columns(known=pl.lit(False), x=pl.lit(42, pl.Int64))])
    assert set(compute_all_ways(frame, FOLD)) == {20}
    assert set(compute_all_ways(frame.filter(~pl.col("known")), FOLD)) == {0}


@pytest.mark.parametrize("count", [SKETCH_VALUES - 1, SKETCH_VALUES, 20_000, 1_000_000])
def test_many_values_are_counted_within_the_error(count: int) -> None:
    found = value(fold_rows(hashes(7, count), ["k"], [FOLD], []), FOLD)
    assert found == count if count < SKETCH_VALUES else found == pytest.approx(count, rel=4 / SKETCH_VALUES**0.5)


def test_merged_parts_have_the_same_sketch_as_the_whole() -> None:
    frame = hashes(3, 30_000)
    whole = settle(fold_rows(frame, ["k"], [FOLD], []), [FOLD], whole=True)
    state = fold_rows(frame.head(0), ["k"], [FOLD], [])
    for at in range(0, frame.height, 7000):
        part = settle(fold_rows(frame.slice(at, 9000), ["k"], [FOLD], []), [FOLD], whole=False)
        state = settle(fold_slots(pl.concat([state, part]), ["k"], [FOLD]), [FOLD], whole=False)
    assert state["hashes"].list.len().item() == SKETCH_VALUES
    assert state["hashes"].list.sort().to_list() == whole["hashes"].list.sort().to_list()
