"""From slices to windows: merge the slots of the slices that each due window consists of, for all
windows and keys at once.

With few windows per slice, the rows of every slice are repeated for each due window and folded.
With many, runs of 1, 2, 4, … slices are folded from two halves, so that the work grows with the
logarithm of the number of slices in a window.

Where order matters, older slices come before newer ones in every frame that is folded.
"""

from __future__ import annotations

import polars as pl

from everfold.aggregates.folding import fold_slots
from everfold.operators.layout import Layout
from everfold.plan.windows import Cumulate, Hop, Tumble, last_window_end

_REPEATS = 8
"""Up to this average number of repetitions, repeating rows is cheaper than doubling runs."""


def merge_into_hops(rows: pl.DataFrame, window: Tumble | Hop, layout: Layout, since: int, upto: int) -> pl.DataFrame:
    """Return slots of the windows that end in (since, upto], by `end` and keys.

    rows: one per slice and key, slices up to `upto`.
    """
    if isinstance(window, Tumble):
        return rows.filter(pl.col("slice") > since).rename({"slice": "end"})
    slices = rows["slice"].unique().sort().to_list()
    by = ["end", *layout.keys]
    due = {at: _due(at, window, since, upto) for at in slices}
    if sum(map(len, due.values())) <= _REPEATS * len(slices):
        return _repeat(rows, due, layout, newest_first=True)
    parts: list[pl.DataFrame] = []
    offset, span = 0, 1
    table = rows.rename({"slice": "end"})
    width = window.slice_ms
    pieces = window.size_ms // width
    while True:
        if pieces & span:
            parts.insert(0, table.with_columns_seq(pl.col("end") + offset * width))
            offset += span
        if offset == pieces:
            break
        later = table.with_columns_seq(pl.col("end") + span * width)
        both = pl.concat([later, table]).filter(pl.col("end") <= upto)
        table = fold_slots(both, by, layout.folds, newest_first=True)
        span *= 2
    spread = pl.concat(parts).filter((pl.col("end") > since) & (pl.col("end") <= upto))
    if not window.is_whole_slides:
        spread = spread.filter((pl.col("end") - window.size_ms - window.offset_ms) % window.slide_ms == 0)
    return fold_slots(spread, by, layout.folds, newest_first=True)


def merge_into_steps(rows: pl.DataFrame, window: Cumulate, layout: Layout, upto: int) -> pl.DataFrame:
    """Return slots of every step up to `upto`, starting at a key's first slice in its window, by
    `end` and keys.

    rows: one per slice and key.
    """
    slices = rows["slice"].unique().to_list()
    limits = {at: min(last_window_end(window, at), upto) for at in slices}
    due = {at: range(at, limits[at] + 1, window.step_ms) for at in slices}
    by = ["end", *layout.keys]
    if sum(map(len, due.values())) <= _REPEATS * len(slices):
        return _repeat(rows, due, layout)
    limit = pl.col("end").replace_strict(limits, return_dtype=pl.Int64)
    table = rows.rename({"slice": "end"}).with_columns_seq(limit.alias("limit"))
    span = 1
    while span < max(map(len, due.values())):
        later = table.with_columns_seq(pl.col("end") + span * window.step_ms).filter(pl.col("end") <= pl.col("limit"))
        table = fold_slots(pl.concat([later, table]), by, layout.folds, [pl.col("limit").first()])
        table = table.select_seq(*by, *layout.slots, "limit")
        span *= 2
    return table.drop("limit")


def _due(at: int, window: Hop, since: int, upto: int) -> range:
    """Return the ends in (since, upto] of the windows that contain a slice."""
    start = max(at, since + 1)
    first = start + (window.size_ms + window.offset_ms - start) % window.slide_ms
    return range(first, min(last_window_end(window, at), upto) + 1, window.slide_ms)


def _repeat(rows: pl.DataFrame, due: dict[int, range], layout: Layout, newest_first: bool = False) -> pl.DataFrame:
    """Repeat each row once for every due window that contains its slice, and fold by window."""
    if layout.ordered:
        rows = rows.sort("slice")
    if len(ends := {end for each in due.values() for end in each}) == 1 and all(due.values()):
        spread = rows.with_columns_seq(pl.lit(ends.pop(), dtype=pl.Int64).alias("end"))
    else:
        pairs = {"slice": [at for at in due for _ in due[at]], "end": [end for each in due.values() for end in each]}
        table = pl.DataFrame(pairs, schema={"slice": pl.Int64, "end": pl.Int64})
        spread = rows.join(table, on="slice", maintain_order="left" if layout.ordered else None)
    return fold_slots(spread, ["end", *layout.keys], layout.folds, newest_first=newest_first)
