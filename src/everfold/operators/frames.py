"""Aggregates over frames: for each of many rows the aggregate of the rows from one position to
another.

The rows are sorted by partition, and each carries the slots of an aggregate over it alone. For
slots that add up (counts, sums of exact numbers) a frame is the difference of two running totals.
MIN and MAX are in `frame_extremes`, all others in `frame_pieces`. So any aggregate that can be
merged works over any frame, and nothing has to be retracted from a sum of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.aggregates.folding import Fold, fold_rows
from everfold.operators.frame_extremes import extremes_of_frames
from everfold.operators.frame_pieces import Positions, merge_pieces, sum_pieces
from everfold.plan.nodes import Frame
from everfold.state.segments import take_rows

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
    rows (0 or NULL). The slots of a frame are unset if those of all its rows are.

    The slots depend only on the rows of the frame's own partition, to the last bit of a float: the
    same rows produce them again in a later batch.
    """
    columns: list[pl.Series] = []
    others: list[Fold] = []
    part = rows[PART].to_numpy()
    for fold in folds:
        slots = [rows[name] for name in fold.slots]
        if fold.entry.extreme is not None:
            columns += [extremes_of_frames(slots[0], fold.entry.extreme == "greatest", first, last)]
        elif fold.is_additive and all(slot.dtype == pl.Float64 or _is_exact(slot) for slot in slots):
            columns += [
                _differences(slot, first, last) if _is_exact(slot) else _float_sums(slot, part, first, last)
                for slot in slots
            ]
        else:
            others.append(fold)
    if others:
        columns += merge_pieces(rows, part, others, first, last).get_columns()
    found = pl.DataFrame(columns)[[slot for fold in folds for slot in fold.slots]]
    for fold in folds:
        unset = fold.find_unset(rows)
        if unset is not None and unset.any():
            running = np.concatenate(([0], np.cumsum(~unset.to_numpy())))
            missing = pl.Series((last >= first) & (running[np.maximum(last + 1, first)] == running[first]))
            found = found.with_columns_seq(pl.when(~missing).then(pl.col(slot)).alias(slot) for slot in fold.slots)
    return found


def is_exact_fold(rows: pl.DataFrame, fold: Fold) -> bool:
    """Return whether the slots of rows do not depend on how they are merged, down to the last
    digit.
    """
    return fold.entry.extreme is not None or (fold.is_additive and all(_is_exact(rows[slot]) for slot in fold.slots))


def _is_exact(slot: pl.Series) -> bool:
    return slot.dtype == pl.Int64 or slot.dtype.is_decimal()


def _differences(slot: pl.Series, first: Positions, last: Positions) -> pl.Series:
    # Sums of 64 or 128 bits wrap around, and so do their differences.
    end = np.maximum(last + 1, first)
    if slot.dtype == pl.Int64:
        values = (slot.fill_null(0) if slot.has_nulls() else slot).to_numpy()
        if len(values) and (values == values[0]).all():  # as a count of rows
            return pl.Series(slot.name, (end - first) * values[0])
        running = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values, dtype=np.int64)))
        return pl.Series(slot.name, running[end] - running[first])
    unscaled = slot.to_physical().fill_null(0)
    totals = unscaled.clear().extend_constant(0, 1).append(unscaled).cum_sum()
    found = totals.gather(end) - totals.gather(first)
    return found.reinterpret(dtype=slot.dtype).alias(slot.name)


def _float_sums(slot: pl.Series, part: Positions, first: Positions, last: Positions) -> pl.Series:
    return pl.Series(slot.name, sum_pieces(slot.fill_null(0.0).to_numpy(), part, first, last))


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
    starts, ends = _spans(part)
    ends = ends - 1
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


def _spans(*columns: npt.NDArray[Any]) -> tuple[Positions, Positions]:
    """Return where the run of equal rows that each row is in begins, and where it ends.

    columns: by which the rows are sorted.
    """
    changes = np.ones(len(columns[0]), dtype=bool)
    changes[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in columns])
    begins = np.flatnonzero(changes)
    ends = np.append(begins[1:], len(changes))
    return np.repeat(begins, ends - begins), np.repeat(ends, ends - begins)


def count_within(part: Positions, marked: npt.NDArray[np.bool_]) -> Positions:
    """Return the number of each marked row among those of its partition, from 1; 0 for the other
    rows.

    part: the partition numbers of the rows, ascending.
    """
    if not len(part):
        return part
    starts, _ = _spans(part)
    running = np.cumsum(marked)
    return np.where(marked, running - running[starts] + marked[starts], 0)


def number_within(part: Positions) -> Positions:
    """Return the number of each row in its partition, from 1.

    part: the partition numbers of the rows, ascending.
    """
    return count_within(part, np.ones(len(part), dtype=bool))


def _search(block: Positions, at: Positions, distance: int, scale: int, side: Literal["left", "right"]) -> Positions:
    """Return the position in its block at which a row would be inserted that is `distance` away
    from each row, before or after its peers.
    """
    if not np.issubdtype(at.dtype, np.floating):
        if distance == 0:
            return _spans(block, at)[side == "right"]
        lowest, highest = int(at.min()), int(at.max())
        stretch = highest - lowest + 1
        distance = min(max(distance, -stretch, _LEAST), stretch, _MOST)
        if (int(block[-1]) + 2) * stretch < 1 << 62:
            # Blocks cover disjoint ranges in ascending order, so one search serves all.
            moved = block * stretch + (at - lowest)
            found = np.searchsorted(moved, moved + distance, side)
            return np.clip(found, *_spans(block))
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
    lifted = [fold.lifted for fold in folds]
    rows = rows.with_columns_seq(expr for each in lifted if each is not None for expr in each)
    others = [fold for fold, each in zip(folds, lifted, strict=True) if each is None]
    if not others:
        return rows
    if rows.is_empty():
        return rows.with_columns_seq(pl.lit(None).alias(slot) for fold in others for slot in fold.slots)
    alone = fold_rows(rows.with_row_index("__row"), ["__row"], others, []).sort("__row").drop("__row")
    return rows.hstack(alone)


def sort_by_partition(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sort rows by partition, keeping their order within each, and add the partition number as
    `part`.
    """
    order, part = partition_order(rows, keys)
    return take_rows(rows, order).with_columns_seq(pl.Series(PART, part))


def partition_order(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[Positions, Positions]:
    """Return the positions of rows sorted by partition, those of a partition in their order, and
    the number of the partition of each.
    """
    if not keys or rows.height == 1:
        return np.arange(rows.height), np.zeros(rows.height, dtype=np.int64)
    groups = rows.select_seq("hash", row=pl.int_range(pl.len())).group_by("hash", maintain_order=True).agg("row")
    order = groups["row"].explode().to_numpy() if rows.height else np.zeros(0, dtype=np.int64)
    begins = np.zeros(rows.height, dtype=bool)
    begins[np.cumsum(groups["row"].list.len().to_numpy(), dtype=np.int64)[:-1]] = True
    if rows.height:
        begins[0] = True
    ordered = take_rows(rows[list(keys)], order)
    differs = ordered.select_seq(pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys))
    if (differs.to_series().to_numpy() & ~begins).any():
        # Two partitions have the same hash: only sorting by the keys separates them.
        rows = rows.select_seq("hash", *keys, row=pl.int_range(pl.len())).sort("hash", *keys, maintain_order=True)
        differs = rows.select_seq(
            pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in ["hash", *keys])
        )
        order, begins = rows["row"].to_numpy(), differs.to_series().to_numpy().copy()
        begins[0] = True
    return order, np.cumsum(begins) - 1
