"""A batch of changes by key: what it comes to in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def last_by_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order in which those came."""
    import polars as pl

    frame = pl.from_arrow(rows.select(list(keys)))
    assert isinstance(frame, pl.DataFrame)
    last = frame.with_row_index("__at").group_by(keys).agg(pl.col("__at").last()).sort("__at")
    return rows if last.height == rows.num_rows else rows.take(last["__at"].to_arrow())
