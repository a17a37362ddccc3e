"""The rows of partitions that an operator keeps whole: those that were touched are read, retracted, and written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from everfold.operators.normalize import SWEPT_PAGES
from everfold.operators.ranking import RankedRows
from everfold.state.keyed import KeyedTable
from everfold.state.partition_rows import NUMBER, place, ranges
from everfold.state.store import Store

OLD, ALIVE, TURN = "old", "alive", "turn"
"""Columns of rows: whether they were kept before the batch, whether they still are there after it, the number of the first row of the batch in their partition."""


class KeptRows:
    """The table `rows` during a batch, by partition and arrival. columns: those that are kept. ttl_ms: a partition that was not touched for so long is
    forgotten (0: never)."""

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
        """For the head page; a few cold pages are swept before."""
        if self._expired is not None:
            self._table.sweep(self._expired, SWEPT_PAGES)
        return self._table.encode()

    def of(self, partitions: pl.DataFrame) -> pl.DataFrame:
        """What is kept of partitions."""
        found = self._from_page(self._table.scan(ranges(partitions), expired_before=self._expired))
        return found.join(partitions, on=["hash", *self._rows.keys], how="semi", nulls_equal=True)

    def all(self) -> pl.DataFrame:
        """What is kept."""
        return self._from_page(self._table.all(expired_before=self._expired))

    def merge(self, rows: pl.DataFrame, *, updating: bool) -> tuple[pl.DataFrame, int]:
        """Return all rows of the partitions that a batch touches, with `old`, `alive` and `turn`, and how many retractions met no row.

        `rows`: those of the batch, with `number`, and with `sign` where they may be retractions (`updating`).
        """
        partition = ["hash", *self._rows.keys]
        first = rows.group_by(partition).agg(pl.col(NUMBER).min().alias(TURN))
        old = self.of(first).with_columns(pl.lit(True).alias(OLD))
        rows = pl.concat([old, rows.with_columns(pl.lit(False).alias(OLD))], how="diagonal")
        ignored = 0
        if updating:
            rows, ignored = retract(rows, [*partition, *self._rows.columns])
        else:
            rows = rows.with_columns(pl.lit(True).alias(ALIVE))
        return rows.join(first, on=partition, nulls_equal=True, maintain_order="left"), ignored

    def keep(self, rows: pl.DataFrame, stays: pl.Expr) -> None:
        """Keeps the rows for which `stays` holds, and discards the others. `rows`: all of the partitions that were touched, with `old`."""
        rows = rows.with_columns(stays.alias("stays"))
        dead = rows.filter(pl.col(OLD) & ~pl.col("stays"))
        # A partition is forgotten as a whole, so with a TTL all its rows are touched.
        written = rows.filter("stays" if self._ttl_ms else pl.col("stays") & ~pl.col(OLD))
        added = rows.filter(pl.col("stays") & ~pl.col(OLD)).height - dead.height
        self._table.write(self._to_page(written), self._to_page(dead), added=added, expired_before=self._expired)

    def rewrite(self, rows: pl.DataFrame) -> None:
        """Writes kept rows again, with other values in columns that are not their keys."""
        self._table.write(self._to_page(rows), added=0, expired_before=self._expired)

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        fixed = {"hash": pl.Int64(), NUMBER: pl.Int64()}
        if page.is_empty():
            return pl.DataFrame(schema={**fixed, **self._rows.types})
        return self._rows.from_page(page, list(fixed))

    def _to_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        touched = [pl.lit(self._now_ms, dtype=pl.Int64).alias("touched")] if self._ttl_ms else []
        return self._rows.to_page(rows, [place(pl.col(NUMBER)).alias("h"), "hash", NUMBER, *touched], self._columns)


def retract(rows: pl.DataFrame, like: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """The rows that were added, `alive` unless one has retracted them, and how many retractions met no row.

    `rows`: with `sign` (NULL for those that are kept). Each retraction takes the first of the rows that are equal to it in the columns `like`.
    """
    rows = rows.with_columns(pl.col("sign").fill_null(1)).sort(NUMBER)
    comes, leaves = pl.col("sign") > 0, pl.col("sign") < 0
    rows = rows.with_columns(comes.cum_sum().over(like).alias("nth"), leaves.sum().over(like).alias("leaving"))
    came, left = rows.filter(comes), rows.filter(leaves)
    came = came.with_columns((pl.col("nth") > pl.col("leaving")).alias(ALIVE))
    return came.drop("sign", "nth", "leaving"), left.height - int((~came[ALIVE]).sum())
