"""Rows of a partition in a keyed table: numbered by arrival and stored next to each other.

The upper half of a row's position is the hash of its partition; the lower half distinguishes it
from the other rows of the partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from everfold.state.segments import POSITION, Positions

NUMBER = "number"
"""Column with a row's arrival number in its bucket, BIGINT, from 0."""
_HALF = 1 << 32


def number_rows(prepared: Sequence[pl.DataFrame], first: int) -> pl.DataFrame:
    """Return the rows of a batch's tasks sorted by `seq`, with `number` instead of it.

    There is at least one task. Rows of equal `seq` keep their order. Numbers count up from `first`.
    """
    rows = pl.concat(prepared, rechunk=True) if len(prepared) > 1 else prepared[0]
    rows = rows if rows["seq"].is_sorted() else rows.sort("seq", maintain_order=True)
    numbers = pl.Series(NUMBER, np.arange(first, first + rows.height))
    return rows[[name for name in rows.columns if name != "seq"]].hstack([numbers])


def lowest_position(column: str = "hash") -> pl.Expr:
    """Return the lowest position of a partition, given its hash or a position of one of its
    rows.
    """
    return pl.col(column) // _HALF * _HALF


def row_position(number: pl.Expr) -> pl.Expr:
    """Return the position of a row in its partition.

    number: distinguishes the rows of the partition; only its lower half counts.
    """
    return lowest_position() + number % _HALF


def number_positions(rows: pl.DataFrame) -> pl.Series:
    """Return the position `h` of rows with `hash` and `number`, as `row_position` does."""
    return pl.Series(POSITION, rows["hash"].to_numpy() & -_HALF | rows[NUMBER].to_numpy() & (_HALF - 1))


def position_ranges(partitions: pl.DataFrame) -> tuple[Positions, Positions]:
    """Return the lowest and the highest position of each partition.

    partitions: has `hash`; partitions of equal hash have equal ranges.
    """
    lows = partitions["hash"].to_numpy() & -_HALF
    return lows, lows | (_HALF - 1)
