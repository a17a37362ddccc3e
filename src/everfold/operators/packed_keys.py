"""Groups of rows by several columns as one integer, which is much cheaper to group and to sort than
the columns, and an estimate of how often groups repeat.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

FEW_ROWS = 4096
"""With fewer rows, looking at the groups first costs more than it saves."""
_MOST = 1 << 62
_NUMBER = "__number"
_MIX = 0x1E3779B97F4A7C15


def pack_columns(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series | None:
    """Return an integer per row: equal if the columns are equal, and ordered like them, NULL first.

    None if a column is not of an integer, a date or a time, or if the values have too wide a range.
    """
    physical = [rows[name].to_physical() for name in columns]
    if not physical or not rows.height or any(rows[name].dtype.is_decimal() for name in columns):
        return None
    if not all(each.dtype.is_signed_integer() for each in physical):
        return None
    found, room = pl.lit(0, dtype=pl.Int64), 1
    for at, each in enumerate(physical):
        low, high = each.min(), each.max()
        if not isinstance(low, int) or not isinstance(high, int):
            low = high = 0
        count = high - low + 2  # and NULL
        room *= count
        if room >= _MOST or not -_MOST < low <= high < _MOST:
            return None
        found = found * count + (pl.nth(at).cast(pl.Int64) - (low - 1)).fill_null(0)
    return (
        pl.DataFrame([each.alias(str(at)) for at, each in enumerate(physical)]).select_seq(found.alias("")).to_series()
    )


def number_by_hash(rows: pl.DataFrame, hash: str, columns: Sequence[str]) -> pl.Series | None:
    """Return an integer per row: equal if the columns are equal, which have the column `hash`.

    None if different values share a hash.
    """
    firsts = rows.filter(rows[hash].is_first_distinct())[[hash, *columns]].with_row_index(_NUMBER)
    if firsts.height == 1:
        equal = all(rows[name].eq_missing(firsts[name]).all() for name in columns)
        return pl.Series(np.zeros(rows.height, np.int64)) if equal else None
    found = rows[[hash]].join(firsts, on=hash, how="left", maintain_order="left")
    if not all(found[name].equals(rows[name]) for name in columns):
        return None
    return found[_NUMBER].cast(pl.Int64)


def repeat_rarely(groups: pl.Series, share: float) -> bool:
    """Return whether rows have more different groups than this share of their number.

    groups: an integer or a hash of each row's group. An estimate from a sixteenth of the groups.
    """
    mixed = pl.first() * _MIX
    sample = groups.to_frame().select_seq(pl.first().filter((mixed & (0xF << 58)) == 0)).to_series()
    return sample.n_unique() > share * len(sample)
