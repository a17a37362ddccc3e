"""Aggregates over frames whose parts can be merged but not subtracted: sums of floats, lists, first
values.

The rows of a partition are merged in pieces of two, four, eight and so on, and a frame of n rows
consists of at most 2 log n of those pieces, in row order. So nothing has to be retracted: a sum of
floats never drifts. The pieces of a frame are merged in pairs of neighbors, then the pairs, and so
on. A sum depends on this order in its last digits, so the order is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.aggregates.folding import Fold, fold_slots

Positions: TypeAlias = npt.NDArray[np.int64]
_FRAME, _PIECE = "__frame", "__piece"
_BLOCK_FRAMES = 1 << 16
"""The pieces of this many frames are merged at a time, to bound the memory."""


@dataclass(frozen=True, slots=True)
class _Level:
    """The pieces of 2^n rows.

    begins: the position of each partition's first piece. pairs: for each piece of the level below,
    the number of the piece here that it is part of. height: the number of pieces.
    """

    begins: Positions
    pairs: Positions
    height: int


def merge_pieces(
    rows: pl.DataFrame, part: Positions, folds: Sequence[Fold], first: Positions, last: Positions
) -> pl.DataFrame:
    """Return the slots of each frame, merged from its pieces.

    part: the number of each row's partition, ascending.
    """
    slots = [slot for fold in folds for slot in fold.slots]
    levels = _levels(part, first, last)
    merged = [rows.select_seq(slots)]
    for level in levels[1:]:
        merged.append(_merge_pairs(merged[-1], level.pairs, folds))
    every = pl.concat(merged)
    found = [every.clear()]
    for start, pieces in _pieces(levels, part, first, last):
        is_piece = pieces >= 0
        frames = np.nonzero(is_piece)[0]
        whole = every[pieces[is_piece]]
        while frames.size and (frames[1:] == frames[:-1]).any():
            nth = np.arange(len(frames)) - np.searchsorted(frames, frames)
            whole = _merge_pairs(whole, np.arange(len(frames)) - nth % 2, folds)
            frames = frames[nth % 2 == 0]
        wanted = pl.DataFrame({_FRAME: np.arange(min(_BLOCK_FRAMES, len(first) - start))})
        whole = whole.with_columns_seq(pl.Series(_FRAME, frames).set_sorted())
        found.append(wanted.join(whole, on=_FRAME, how="left", maintain_order="left").select_seq(slots))
    return pl.concat(found)


@np.errstate(over="ignore", invalid="ignore")
def sum_pieces(
    values: npt.NDArray[np.float64], part: Positions, first: Positions, last: Positions
) -> npt.NDArray[np.float64]:
    """Return the sum of each frame, with the same digits as `merge_pieces`; 0 for an empty frame.

    part: the number of each row's partition, ascending.
    """
    levels = _levels(part, first, last)
    merged = [values]
    for level in levels[1:]:
        heads = np.flatnonzero(np.append(True, level.pairs[1:] != level.pairs[:-1]))
        sums = merged[-1][heads]
        two = np.append(heads[1:], len(level.pairs)) - heads == 2
        sums[two] += merged[-1][heads[two] + 1]
        sums[two] += 0.0
        merged.append(sums)
    # Nothing changes when -0.0 is added, so it stands for a piece that a frame lacks (position -1).
    every = np.concatenate([*merged, [-0.0]])
    found = np.zeros(len(first), dtype=np.float64)
    for start, pieces in _pieces(levels, part, first, last):
        count = (pieces >= 0).sum(axis=1)
        whole = list(every[pieces.T])
        while len(whole) > 1:
            rest = whole[len(whole) & ~1 :]
            whole = [left + right for left, right in zip(whole[::2], whole[1::2], strict=False)] + rest
        # Like the sum of a group, that of several pieces is never -0.0.
        found[start : start + len(count)] = np.where(count == 1, whole[0], whole[0] + 0.0) if whole else 0.0
    return found


def _levels(part: Positions, first: Positions, last: Positions) -> list[_Level]:
    """Return the levels up to the largest pieces that a frame can have."""
    longest = int((last - first).max()) + 1 if len(first) else 0
    levels = [_Level(_start_positions(part), np.zeros(0, dtype=np.int64), len(part))]
    numbers = np.cumsum(np.append(0, part[1:] != part[:-1])) if len(part) else part
    while longest >= 2 << (len(levels) - 1):
        nth = np.arange(len(numbers)) - levels[-1].begins[numbers]
        is_first = nth % 2 == 0
        numbers = numbers[is_first]
        levels.append(_Level(_start_positions(numbers), np.cumsum(is_first) - 1, len(numbers)))
    return levels


def _start_positions(part: Positions) -> Positions:
    """Return the position where each partition begins."""
    return np.flatnonzero(np.append(True, part[1:] != part[:-1])) if len(part) else np.zeros(0, dtype=np.int64)


def _merge_pairs(rows: pl.DataFrame, pairs: Positions, folds: Sequence[Fold]) -> pl.DataFrame:
    """Merge neighboring rows that have the same number in `pairs`.

    Numbers are ascending; a row may be alone.
    """
    numbered = rows.with_columns_seq(pl.Series(_PIECE, pairs).set_sorted())
    return fold_slots(numbered, [_PIECE], folds).sort(_PIECE).drop(_PIECE)


def _pieces(
    levels: Sequence[_Level], part: Positions, first: Positions, last: Positions
) -> Iterator[tuple[int, Positions]]:
    """Yield the pieces of the frames, for a block of frames at a time: the number of its first
    frame, and a row per frame with the positions of its pieces in row order, then -1.

    Positions are those where all levels are concatenated.
    """
    numbers = np.cumsum(np.append(0, part[1:] != part[:-1])) if len(part) else part
    for start in range(0, len(first), _BLOCK_FRAMES):
        block = slice(start, start + _BLOCK_FRAMES)
        of = numbers[np.minimum(first[block], len(part) - 1)]
        begins = levels[0].begins[of]
        low, high = first[block] - begins, np.maximum(last[block] + 1, first[block]) - begins
        lefts, rights = np.zeros(len(of), dtype=np.int64), np.zeros(len(of), dtype=np.int64)
        found: list[tuple[Positions, Positions, Positions, bool]] = []
        base = 0
        for level in levels:
            begin = level.begins[of] + base
            left = np.flatnonzero((low < high) & (low & 1 == 1))
            found.append((left, lefts[left], (begin + low)[left], True))
            lefts[left] += 1
            low[left] += 1
            right = np.flatnonzero((low < high) & (high & 1 == 1))
            high[right] -= 1
            found.append((right, rights[right], (begin + high)[right], False))
            rights[right] += 1
            low, high, base = low >> 1, high >> 1, base + level.height
        count = lefts + rights
        pieces = np.full((len(of), int(count.max())), -1, dtype=np.int64)
        for who, nth, positions, from_left in found:
            # Pieces from the left grow towards the middle of the frame, those from the right too.
            pieces[who, nth if from_left else count[who] - 1 - nth] = positions
        yield start, pieces
