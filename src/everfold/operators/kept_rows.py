"""The rows of partitions that an operator stores whole: touched partitions are read, updated and
written back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.operators.frame_pieces import Positions
from everfold.operators.frames import PART
from everfold.operators.normalize import SWEPT_PAGES
from everfold.operators.protocol import END_OF_TIME
from everfold.operators.ranking import RankedRows
from everfold.state.keyed import KeyedTable
from everfold.state.partition_rows import NUMBER, number_positions, position_ranges, row_position
from everfold.state.segments import take_rows
from everfold.state.store import Store

OLD, ALIVE, TURN = "old", "alive", "turn"
"""Columns of rows: whether they were stored before the batch, whether they still exist after it,
and the number of the batch's first row in their partition.
"""


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """All rows of the partitions that a batch touches, by partition and order: wide rows are only
    copied where they are needed.

    rows: with `hash` and `number`, in no particular order. at: the index of each row in them. part:
    the numbers of their partitions, ascending. old, alive, turn: as the columns of these names.
    """

    rows: pl.DataFrame
    at: Positions
    part: Positions
    old: npt.NDArray[np.bool_]
    alive: npt.NDArray[np.bool_]
    turn: Positions

    def pick(self, wanted: Positions) -> TouchedRows:
        """Return the rows with these indexes."""
        return TouchedRows(
            rows=self.rows,
            at=self.at[wanted],
            part=self.part[wanted],
            old=self.old[wanted],
            alive=self.alive[wanted],
            turn=self.turn[wanted],
        )

    def collect(self) -> pl.DataFrame:
        """Return the rows themselves with `old`, `alive`, `turn` and `part`."""
        values = {OLD: self.old, ALIVE: self.alive, TURN: self.turn, PART: self.part}
        return take_rows(self.rows, self.at).with_columns_seq(pl.Series(name, each) for name, each in values.items())


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

    def merge(self, rows: pl.DataFrame, *, updating: bool) -> tuple[TouchedRows, int]:
        """Return all rows of the partitions that a batch touches, and the number of retractions
        that matched no row.

        rows: those of the batch, at least one, with `number`, and with `sign` where they may be
        retractions (`updating`).
        """
        stored = self._from_page(self._table.scan(position_ranges(rows), expired_before=self._expired))
        old, ignored = np.arange(stored.height + rows.height) < stored.height, 0
        rows = pl.concat([stored, rows], how="diagonal", rechunk=True)
        if updating:
            rows, ignored = retract(rows.hstack([pl.Series(OLD, old)]), ["hash", *self._rows.keys, *self._rows.columns])
            old = rows[OLD].to_numpy()
        at, part = self._rows.order_rows(rows)
        # The stored rows may be of other partitions whose positions are in the same range.
        arrived = np.where(old, END_OF_TIME, rows[NUMBER].to_numpy())[at]
        turn = np.minimum.reduceat(arrived, np.flatnonzero(np.diff(part, prepend=-1)))[part]
        is_touched = turn < END_OF_TIME
        alive = rows[ALIVE].to_numpy() if updating else np.ones(rows.height, dtype=bool)
        if updating:
            is_touched &= (rows["sign"].to_numpy() > 0)[at]
        found = TouchedRows(rows, at, part, old[at], alive[at], turn)
        return (found if is_touched.all() else found.pick(np.flatnonzero(is_touched))), ignored

    def keep(self, touched: TouchedRows, stays: npt.NDArray[np.bool_]) -> None:
        """Store the rows that are marked, and discard the others.

        touched: all rows of the touched partitions.
        """
        rows, old = touched.rows, touched.old
        dead = np.flatnonzero(old & ~stays)
        added = int((stays & ~old).sum()) - len(dead)
        # A partition expires as a whole, so with a TTL all its rows are touched.
        written = np.flatnonzero(stays if self._ttl_ms else stays & ~old)
        keys = ["hash", NUMBER, *self._rows.keys]
        self._table.write(
            self._to_page(self._take_by_position(rows, touched.at[written]), self._columns),
            self._to_page(take_rows(rows[keys], touched.at[dead]), self._rows.keys),
            added=added,
            expired_before=self._expired,
        )

    def _take_by_position(self, rows: pl.DataFrame, at: Positions) -> pl.DataFrame:
        """Return the rows with these indexes, by their position in the table."""
        positions = number_positions(rows[["hash", NUMBER]]).to_numpy()[at]
        return take_rows(rows, at[np.argsort(positions, kind="stable")])

    def rewrite(self, rows: pl.DataFrame) -> None:
        """Write stored rows again, with other values in columns that are not keys."""
        self._table.write(self._to_page(rows, self._columns), added=0, expired_before=self._expired)

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        fixed = {"hash": pl.Int64(), NUMBER: pl.Int64()}
        if page.is_empty():
            return pl.DataFrame(schema={**fixed, **self._rows.types})
        return self._rows.from_page(page, list(fixed))

    def _to_page(self, rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        touched = [pl.lit(self._now_ms, dtype=pl.Int64).alias("touched")] if self._ttl_ms else []
        return self._rows.to_page(rows, [row_position(pl.col(NUMBER)).alias("h"), "hash", NUMBER, *touched], columns)


def retract(rows: pl.DataFrame, like: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Mark the added rows that were not retracted as `alive`; return the number of retractions that
    matched no row too.

    rows: with `sign` (NULL for stored ones). Each retraction removes the first of the earlier rows
    that equal it in the columns `like`.
    """
    rows = rows.with_columns_seq(pl.col("sign").fill_null(1)).sort(NUMBER)
    is_added, is_retracted = pl.col("sign") > 0, pl.col("sign") < 0
    missed = (-pl.col("sign").cum_sum().min()).clip(0)
    nth, leaving = is_added.cum_sum().over(like), (is_retracted.sum() - missed).over(like)
    rows = rows.with_columns_seq((is_added & (nth > leaving)).alias(ALIVE))
    retracted = int((rows["sign"] < 0).sum())
    return rows, retracted - (rows.height - retracted - int(rows[ALIVE].sum()))
