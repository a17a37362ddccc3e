"""Aggregates over frames: for each of many rows the aggregate of the rows from one position to
another.

The rows are sorted by partition, and each carries the slots of an aggregate over it alone. Frames
are assembled from shared pieces. For slots that add up (counts, sums of exact numbers) a frame is
the difference of two running totals. For all others the rows are merged in blocks of two, four,
eight and so on, and a frame of n rows consists of at most 2 log n of those blocks, in row order. So
any aggregate that can be merged works over any frame, and nothing has to be retracted: a sum of
floats never drifts, a MAX never searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.aggregates.folding import Fold, fold_rows, fold_slots
from everfold.plan.nodes import Frame

Positions: TypeAlias = npt.NDArray[np.int64]
_FRAME, _PIECE = "__frame", "__piece"
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
PART = "part"
"""Column of sorted rows: the number of their partition, ascending."""


def frame_retention_ms(frame: Frame) -> int:
    """Return how long rows are kept for a frame that is bounded by time: one and a half times its
    length, because that is how long Flink recognizes late rows.
    """
    assert frame.first is not None, frame
    return -frame.first * 3 // 2 + 1


def aggregate_frames(rows: pl.DataFrame, folds: Sequence[Fold], first: Positions, last: Positions) -> pl.DataFrame:
    """Return the slots of each frame.

    rows: slots of single rows, in order, with `part`. first, last: the positions of a frame's first
    and last row. A frame whose last row is before its first is empty, and its slots are those of no
    rows (NULL).

    The slots depend only on the rows of the frame's own partition, to the last bit of a float: the
    same rows produce them again in a later batch.
    """
    adding = [fold for fold in folds if fold.is_additive and all(rows[slot].dtype == pl.Int64 for slot in fold.slots)]
    others = [fold for fold in folds if fold not in adding]
    columns = [column for fold in adding for column in _differences(rows, fold, first, last)]
    if others:
        columns += _merge_pieces(rows, others, first, last).get_columns()
    return pl.DataFrame(columns).select(slot for fold in folds for slot in fold.slots)


def _differences(rows: pl.DataFrame, fold: Fold, first: Positions, last: Positions) -> list[pl.Series]:
    found = []
    for slot in fold.slots:
        values = rows[slot].fill_null(0).to_numpy()
        # Sums of 64 bits wrap around, and so do their differences.
        running = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values, dtype=np.int64)))
        found.append(pl.Series(slot, running[np.maximum(last + 1, first)] - running[first]))
    return found


def _merge_pieces(rows: pl.DataFrame, folds: Sequence[Fold], first: Positions, last: Positions) -> pl.DataFrame:
    """Return the slots of each frame, merged from its pieces."""
    slots = [slot for fold in folds for slot in fold.slots]
    longest = int((last - first).max()) + 1 if len(first) else 0
    # The partition number of each row, without gaps, and the position where each partition begins.
    part = np.unique(rows[PART].to_numpy(), return_inverse=True)[1]
    begins = [_start_positions(part)]
    levels = [rows.select(slots)]
    while longest >= 2 << (len(levels) - 1):
        pairs = (np.arange(len(part)) - begins[-1][part]) // 2 + begins[-1][part]
        levels.append(_merge_pairs(levels[-1], pairs, folds))
        part = part[np.append(True, pairs[1:] != pairs[:-1])]
        begins.append(_start_positions(part))
    of = np.unique(rows[PART].to_numpy(), return_inverse=True)[1][np.minimum(first, rows.height - 1)]
    frames, pieces = _pieces(first, last, [each[of] for each in begins], [level.height for level in levels])
    whole = pl.concat(levels)[pieces]
    while frames.size and (frames[1:] == frames[:-1]).any():
        nth = np.arange(len(frames)) - np.searchsorted(frames, frames)
        whole = _merge_pairs(whole, np.arange(len(frames)) - nth % 2, folds)
        frames = frames[nth % 2 == 0]
    wanted = pl.DataFrame({_FRAME: np.arange(len(first))})
    whole = whole.with_columns(pl.Series(_FRAME, frames).set_sorted())
    return wanted.join(whole, on=_FRAME, how="left", maintain_order="left").select(slots)


def _start_positions(part: Positions) -> Positions:
    """Return the position where each partition begins.

    part: the number of each row's partition, from 0 without gaps.
    """
    return np.flatnonzero(np.append(True, part[1:] != part[:-1])) if len(part) else np.zeros(0, dtype=np.int64)


def _merge_pairs(rows: pl.DataFrame, pairs: Positions, folds: Sequence[Fold]) -> pl.DataFrame:
    """Merge neighboring rows that have the same number in `pairs`.

    Numbers are ascending; a row may be alone.
    """
    numbered = rows.with_columns(pl.Series(_PIECE, pairs).set_sorted())
    return fold_slots(numbered, [_PIECE], folds).sort(_PIECE).drop(_PIECE)


def _pieces(
    first: Positions, last: Positions, begins: Sequence[Positions], heights: Sequence[int]
) -> tuple[Positions, Positions]:
    """Return the pieces of each frame, in row order: the numbers of the frames, and the positions
    of the pieces where all levels are concatenated.

    begins: for each level, where the partition of each frame begins in it.
    """
    low, high = first - begins[0], np.maximum(last + 1, first) - begins[0]
    who = np.arange(len(first))
    start = 0
    found: list[tuple[Positions, Positions, Positions]] = []
    for level, (begin, height) in enumerate(zip(begins, heights, strict=True)):
        left = (low < high) & (low & 1 == 1)
        found.append((who[left], (start + begin + low)[left], np.full(int(left.sum()), level)))
        low[left] += 1
        right = (low < high) & (high & 1 == 1)
        high[right] -= 1
        found.append((who[right], (start + begin + high)[right], np.full(int(right.sum()), 2 * len(heights) - level)))
        low, high, start = low >> 1, high >> 1, start + height
    frames, positions, turns = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((turns, frames))
    return frames[order], positions[order]


def frame_bounds(
    part: Positions, at: Positions, frame: Frame, *, peers: bool, block: Positions | None = None
) -> tuple[Positions, Positions]:
    """Return the positions of the first and last row of each row's frame.

    part: the partition numbers of the rows. at: the value of the sort order of each row, ascending
    within a partition. peers: whether rows with the same `at` are peers, in a frame that does not
    count rows. block: ascending numbers of the parts of partitions within which distances are
    defined; by default whole partitions.
    """
    position = np.arange(len(part))
    starts, ends = np.searchsorted(part, part), np.searchsorted(part, part, "right") - 1
    if frame.rows:
        first = starts if frame.first is None else np.clip(position + frame.first, starts, ends + 1)
        last = ends if frame.last is None else np.clip(position + frame.last, starts - 1, ends)
        return first, last
    block = part if block is None else block
    first = starts if frame.first is None else _search(block, at, frame.first, frame.scale, "left")
    if not peers:
        return first, position
    last = ends if frame.last is None else _search(block, at, frame.last, frame.scale, "right") - 1
    return first, last


def _search(block: Positions, at: Positions, distance: int, scale: int, side: Literal["left", "right"]) -> Positions:
    """Return the position in its block at which a row would be inserted that is `distance` away
    from each row, before or after its peers.
    """
    if not np.issubdtype(at.dtype, np.floating):
        lowest, highest = int(at.min()), int(at.max())
        stretch = highest - lowest + 1
        distance = min(max(distance, -stretch, _LEAST), stretch, _MOST)
        if (int(block[-1]) + 2) * stretch < 1 << 62:
            # Blocks cover disjoint ranges in ascending order, so one search serves all.
            moved = block * stretch + (at - lowest)
            found = np.searchsorted(moved, moved + distance, side)
            return np.clip(found, np.searchsorted(block, block), np.searchsorted(block, block, "right"))
        wanted = at + np.clip(distance, _LEAST - np.minimum(at, 0), _MOST - np.maximum(at, 0))
    else:
        wanted = at + distance / 10**scale
    # Sort the rows and the wanted values together: a value's position is the number of rows before
    # it.
    count = len(at)
    sought = np.repeat([0, 1] if side == "right" else [1, 0], count)
    order = np.lexsort((sought, np.concatenate((at, wanted)), np.concatenate((block, block))))
    rows_before = np.cumsum(order < count)
    found = np.empty(count, dtype=np.int64)
    is_sought = order >= count
    found[order[is_sought] - count] = rows_before[is_sought]
    return found


def add_slots(rows: pl.DataFrame, folds: Sequence[Fold]) -> pl.DataFrame:
    """Add to each row the slots of an aggregate over it alone."""
    lifted = [fold.lift() for fold in folds]
    rows = rows.with_columns(expr for each in lifted if each is not None for expr in each)
    others = [fold for fold, each in zip(folds, lifted, strict=True) if each is None]
    if not others or rows.is_empty():
        return rows.with_columns(pl.lit(None).alias(slot) for fold in others for slot in fold.slots)
    alone = fold_rows(rows.with_row_index("__row"), ["__row"], others, []).sort("__row").drop("__row")
    return rows.hstack(alone)


def sort_by_partition(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sort rows by partition, keeping their order within each, and add the partition number as
    `part`.
    """
    if keys:
        rows = rows.sort("hash", maintain_order=True)
        begins = _begins(rows, ["hash", *keys])
        if begins.sum() != _begins(rows, ["hash"]).sum():
            # Two partitions have the same hash: only sorting by the keys separates them.
            rows = rows.sort("hash", *keys, maintain_order=True)
            begins = _begins(rows, ["hash", *keys])
        return rows.with_columns((begins.cum_sum().cast(pl.Int64) - 1).alias(PART))
    return rows.with_columns(pl.lit(0, dtype=pl.Int64).alias(PART))


def _begins(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in columns)
    return rows.select((differs | (pl.int_range(pl.len()) == 0)).alias("begins"))["begins"]
