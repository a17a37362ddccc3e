"""The rows of partitions that an operator stores whole: touched partitions are read, updated and
written back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from everfold.operators.normalize import SWEPT_PAGES
from everfold.operators.ranking import RankedRows
from everfold.state.keyed import KeyedTable
from everfold.state.partition_rows import NUMBER, position_ranges, row_position
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

    def of(self, partitions: pl.DataFrame) -> pl.DataFrame:
        """Return the stored rows of partitions."""
        found = self._from_page(self._table.scan(position_ranges(partitions), expired_before=self._expired))
        return found.join(partitions, on=["hash", *self._rows.keys], how="semi", nulls_equal=True)

    def all(self) -> pl.DataFrame:
        """Return all stored rows."""
        return self._from_page(self._table.all(expired_before=self._expired))

    def merge(self, rows: pl.DataFrame, *, updating: bool) -> tuple[pl.DataFrame, int]:
        """Return all rows of the partitions that a batch touches, with `old`, `alive` and `turn`,
        and the number of retractions that matched no row.

        rows: those of the batch, with `number`, and with `sign` where they may be retractions
        (`updating`).
        """
        partition = ["hash", *self._rows.keys]
        first = rows.group_by(partition).agg(pl.col(NUMBER).min().alias(TURN))
        old = self.of(first).with_columns_seq(pl.lit(True).alias(OLD))
        rows = pl.concat([old, rows.with_columns_seq(pl.lit(False).alias(OLD))], how="diagonal")
        ignored = 0
        if updating:
            rows, ignored = retract(rows, [*partition, *self._rows.columns])
        else:
            rows = rows.with_columns_seq(pl.lit(True).alias(ALIVE))
        return rows.join(first, on=partition, nulls_equal=True, maintain_order="left"), ignored

    def keep(self, rows: pl.DataFrame, stays: pl.Expr) -> None:
        """Store the rows for which `stays` holds, and discard the others.

        rows: all rows of the touched partitions, with `old`.
        """
        rows = rows.with_columns_seq(stays.alias("stays"))
        dead = rows.filter(pl.col(OLD) & ~pl.col("stays"))
        # A partition expires as a whole, so with a TTL all its rows are touched.
        written = rows.filter("stays" if self._ttl_ms else pl.col("stays") & ~pl.col(OLD))
        added = rows.filter(pl.col("stays") & ~pl.col(OLD)).height - dead.height
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
    """Return the added rows, `alive` unless one was retracted, and the number of retractions that
    matched no row.

    rows: with `sign` (NULL for stored ones). Each retraction removes the first of the rows that
    equal it in the columns `like`.
    """
    rows = rows.with_columns_seq(pl.col("sign").fill_null(1)).sort(NUMBER)
    is_added, is_retracted = pl.col("sign") > 0, pl.col("sign") < 0
    rows = rows.with_columns_seq(
        is_added.cum_sum().over(like).alias("nth"), is_retracted.sum().over(like).alias("leaving")
    )
    added, retracted = rows.filter(is_added), rows.filter(is_retracted)
    added = added.with_columns_seq((pl.col("nth") > pl.col("leaving")).alias(ALIVE))
    return added.drop("sign", "nth", "leaving"), retracted.height - int((~added[ALIVE]).sum())
