"""Folding of many rows, window by window."""

from __future__ import annotations

from collections import Counter

import polars as pl

from everfold.aggregates.folding import fold_rows


def test_windows_before_and_after_the_largest_32_bit_time() -> None:
    """In January 1970 the ends of windows in milliseconds no longer fit into 32 bits; one row has
    no window.
    """
    ends = [(1 << 31) - 2_000, (1 << 31) + 8_000]
    rows = [(None if at == 0 else ends[at % 2], at % 3) for at in range(10_000)]
    frame = pl.DataFrame(rows, schema={"slice": pl.Int64, "k": pl.Int64}, orient="row")
    found = fold_rows(frame, ["slice", "k"], [], [pl.len().cast(pl.Int64).alias("n")])
    assert found.schema == {"slice": pl.Int64, "k": pl.Int64, "n": pl.Int64}
    assert {row[:2]: row[2] for row in found.rows()} == Counter(rows)
