"""Operations on frames that are quicker for few rows.

Many batches touch few keys. A Polars operation takes 15 to 300 µs for a single row, so the number
of operations decides how long such a batch takes (docs/design/small-batches.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def pick_rows(rows: pl.DataFrame, wanted: pl.Series) -> pl.DataFrame:
    """Filter rows; nothing is copied if all are wanted, as often for a single row."""
    return rows if wanted.all(ignore_nulls=False) else rows.filter(wanted)


def join_found(rows: pl.DataFrame, found: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Return rows in their order with the other columns of the found row of their keys, NULL if
    there is none.

    found: no key twice. NULL keys are equal. Nothing is joined if it has the keys of `rows` one by
    one, as often for a single row.
    """
    if found.height == rows.height and all(found[key].equals(rows[key]) for key in on):
        return rows.hstack(found[[name for name in found.columns if name not in on]])
    return rows.join(found, on=on, how="left", nulls_equal=True, maintain_order="left")
