"""The order in which rows come, over all batches of a job."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

NUMBER = "number"
"""Column of rows, BIGINT: which they are by arrival in their bucket, from 0."""


def numbered(prepared: Sequence[pl.DataFrame], first: int) -> pl.DataFrame:
    """The rows of a batch's tasks, one at least, in the order of their `seq`, those of one `seq` as they are, and instead of that with `number`, counted on from `first`."""
    rows = pl.concat(prepared).sort("seq", maintain_order=True).drop("seq")
    return rows.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(NUMBER))
