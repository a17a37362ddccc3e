"""The rows of partitions that an operator stores whole: touched partitions are read, updated and
written back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.operators.frames import PART
from everfold.operators.normalize import SWEPT_PAGES
from everfold.operators.protocol import END_OF_TIME
from everfold.operators.ranking import RankedRows
from everfold.state.keyed import KeyedTable
from everfold.state.partition_rows import NUMBER, position_ranges, row_position
from everfold.state.segments import keep_rows, take_rows
from everfold.state.store import Store

OLD, ALIVE, TURN = "old", "alive", "turn"
"""Columns of rows: whether they were stored before the batch, whether they still exist after it,
and the number of the batch's first row in their partition.
"""


class KeptRows:
    """The table `rows` during a batch, by partition and arrival.

    columns: those that are stored. ttl_ms: a partition that was not touched for this long expires
    (0: never).
    """

    def __init__(
        self,
        rows: RankedRows,
        columns: Sequence[str],
        ttl_ms: int,
        epoch: int,
        store: Store,
        known: dict[str, Any] | None,
        now_ms: int,
    ) -> None:
        self._rows, self._columns, self._ttl_ms, self._now_ms = rows, columns, ttl_ms, now_ms
        keys = [*(rows.page_names[key] for key in rows.keys), NUMBER]
        self._table = KeyedTable.decode(store, epoch, "rows", keys, known)
        self._expired = now_ms - ttl_ms if ttl_ms else None

    @property
    def rows(self) -> int:
        """Rows in the table."""
        return self._table.rows

    def encode(self) -> dict[str, Any]:
        """Return the state for the head page, after sweeping a few cold pages."""
        if self._expired is not None:
            self._table.sweep(self._expired, SWEPT_PAGES)
        return self._table.encode()

    def all(self) -> pl.DataFrame:
        """Return all stored rows."""
        return self._from_page(self._table.all(expired_before=self._expired))

    def merge(self, rows: pl.DataFrame, *, updating: bool) -> tuple[pl.DataFrame, int]:
        """Return all rows of the partitions that a batch touches, by partition and order, with
        `old`, `alive`, `turn` and `part`, and the number of retractions that matched no row.

        rows: those of the batch, at least one, with `number`, and with `sign` where they may be
        retractions (`updating`).
        """
        stored = self._from_page(self._table.scan(position_ranges(rows), expired_before=self._expired))
        old = pl.Series(OLD, np.ones(stored.height, dtype=bool))
        new = pl.Series(OLD, np.zeros(rows.height, dtype=bool))
        rows = pl.concat([stored.hstack([old]), rows.hstack([new])], how="diagonal")
        ignored = 0
        if updating:
            rows, ignored = retract(rows, ["hash", *self._rows.keys, *self._rows.columns])
        else:
            rows = rows.with_columns_seq(pl.lit(True).alias(ALIVE))
        at, part = self._rows.order_rows(rows)
        rows = take_rows(rows, at)
        # The stored rows may be of other partitions whose positions are in the same range.
        arrived = np.where(rows[OLD].to_numpy(), END_OF_TIME, rows[NUMBER].to_numpy())
        turn = np.minimum.reduceat(arrived, np.flatnonzero(np.diff(part, prepend=-1)))[part]
        rows = rows.hstack([pl.Series(TURN, turn), pl.Series(PART, part)])
        rows = keep_rows(rows, rows[TURN] < END_OF_TIME)
        return (rows.filter(pl.col("sign") > 0) if updating else rows), ignored

    def keep(self, rows: pl.DataFrame, stays: npt.NDArray[np.bool_]) -> None:
        """Store the rows that are marked, and discard the others.

        rows: all rows of the touched partitions, with `old`.
        """
        old = rows[OLD].to_numpy()
        dead = take_rows(rows, np.flatnonzero(old & ~stays))
        added = int((stays & ~old).sum()) - dead.height
        # A partition expires as a whole, so with a TTL all its rows are touched.
        written = take_rows(rows, np.flatnonzero(stays if self._ttl_ms else stays & ~old))
        self._table.write(self._to_page(written), self._to_page(dead), added=added, expired_before=self._expired)

    def rewrite(self, rows: pl.DataFrame) -> None:
        """Write stored rows again, with other values in columns that are not keys."""
        self._table.write(self._to_page(rows), added=0, expired_before=self._expired)

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        fixed = {"hash": pl.Int64(), NUMBER: pl.Int64()}
        if page.is_empty():
            return pl.DataFrame(schema={**fixed, **self._rows.types})
        return self._rows.from_page(page, list(fixed))

    def _to_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        touched = [pl.lit(self._now_ms, dtype=pl.Int64).alias("touched")] if self._ttl_ms else []
        return self._rows.to_page(
            rows, [row_position(pl.col(NUMBER)).alias("h"), "hash", NUMBER, *touched], self._columns
        )


def retract(rows: pl.DataFrame, like: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Mark the added rows that were not retracted as `alive`; return the number of retractions that
    matched no row too.

    rows: with `sign` (NULL for stored ones). Each retraction removes the first of the rows that
    equal it in the columns `like`.
    """
    rows = rows.with_columns_seq(pl.col("sign").fill_null(1)).sort(NUMBER)
    is_added, is_retracted = pl.col("sign") > 0, pl.col("sign") < 0
    nth, leaving = is_added.cum_sum().over(like), is_retracted.sum().over(like)
    rows = rows.with_columns_seq((is_added & (nth > leaving)).alias(ALIVE))
    retracted = int((rows["sign"] < 0).sum())
    return rows, retracted - (rows.height - retracted - int(rows[ALIVE].sum()))
