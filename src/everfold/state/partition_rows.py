"""Rows of a partition in a keyed table: numbered in the order of arrival, and stored next to each other.

The upper half of a row's place is the hash of its partition, the lower half tells it from the other rows of the partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

NUMBER = "number"
"""Column of rows, BIGINT: which they are by arrival in their bucket, from 0."""
_HALF = 1 << 32


def numbered(prepared: Sequence[pl.DataFrame], first: int) -> pl.DataFrame:
    """The rows of a batch's tasks, one at least, in the order of their `seq`, those of one `seq` as they are, and instead of that with `number`, counted on from `first`."""
    rows = pl.concat(prepared).sort("seq", maintain_order=True).drop("seq")
    return rows.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(NUMBER))


def low_place(column: str = "hash") -> pl.Expr:
    """The lowest place of a partition, by its hash, or by the place of one of its rows."""
    return pl.col(column) // _HALF * _HALF


def place(number: pl.Expr) -> pl.Expr:
    """The place of a row in its partition. number: what tells it from the others there, of which the lower half counts."""
    return low_place() + number % _HALF


def ranges(partitions: pl.DataFrame) -> pl.DataFrame:
    """All places of partitions, `low` and `high`. `partitions`: with `hash`; two of one hash share theirs."""
    return partitions.select(low_place().alias("low"), (low_place() + (_HALF - 1)).alias("high")).unique()
