"""Where the rows of a partition lie in a keyed table: side by side, the upper half of their place being the partition's hash."""

from __future__ import annotations

import polars as pl

_HALF = 1 << 32


def low_place(column: str = "hash") -> pl.Expr:
    """The lowest place of a partition, by its hash, or by the place of one of its rows."""
    return pl.col(column) // _HALF * _HALF


def place(number: pl.Expr) -> pl.Expr:
    """The place of a row in its partition. number: what tells it from the others there, of which the lower half counts."""
    return low_place() + number % _HALF


def ranges(partitions: pl.DataFrame) -> pl.DataFrame:
    """All places of partitions, `low` and `high`. `partitions`: with `hash`; two of one hash share theirs."""
    return partitions.select(low_place().alias("low"), (low_place() + (_HALF - 1)).alias("high")).unique()
