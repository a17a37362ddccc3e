"""Changes of keyed rows: at most one retraction and one new row per key and batch, and none where
the row is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from everfold.operators.protocol import NO_WATERMARK
from everfold.plan.changelog import KIND, ORDER, RETRACTIONS, RowKind
from everfold.state.segments import keep_rows
from everfold.types import Schema, physical_name

INPUT_KIND = "kind"
"""The column with the kind of a row in the input of `prepare`."""


def is_retraction() -> pl.Expr:
    """Whether a row retracts an earlier one."""
    return pl.col(INPUT_KIND).is_in(RETRACTIONS)


def sign() -> pl.Expr:
    """Return +1 for a row that is added, -1 for one that is retracted."""
    return pl.when(is_retraction()).then(pl.lit(-1, dtype=pl.Int64)).otherwise(pl.lit(1, dtype=pl.Int64))


def diff_rows(
    rows: pl.DataFrame, new: Sequence[str], old: Sequence[str], *, had: pl.Expr, has: pl.Expr
) -> pl.DataFrame:
    """Return the changes of keys from the columns `old` to the columns `new`, as the columns `new`,
    `__kind`, `__order`.

    rows: one per key, with `seq`. had, has: whether the key had a row before, and whether it has
    one now.
    """
    differs = pl.any_horizontal(pl.col(now).ne_missing(pl.col(before)) for now, before in zip(new, old, strict=True))
    changed = had & has & differs if new else pl.lit(False)
    rows = rows.with_columns_seq(
        had.alias("__had"),
        has.alias("__has"),
        (changed | (had & ~has)).alias("__retracted"),
        (changed | (has & ~had)).alias("__added"),
    )
    order = pl.col("seq").alias(ORDER)
    before = [pl.col(column).alias(name) for column, name in zip(old, new, strict=True)]
    parts = [
        keep_rows(rows, rows["__retracted"]).select_seq(
            *before, _kind(pl.col("__has"), RowKind.UPDATE_BEFORE, RowKind.DELETE), order
        ),
        keep_rows(rows, rows["__added"]).select_seq(
            *new, _kind(pl.col("__had"), RowKind.UPDATE_AFTER, RowKind.INSERT), order
        ),
    ]
    return parts[0].vstack(parts[1]).sort(ORDER, maintain_order=True)


def sort_deletes_first(found: pl.DataFrame) -> pl.DataFrame:
    """Sort changes so that each -D comes before the other kinds.

    A key whose row moves to another bucket is then deleted in the old bucket before it is inserted
    in the new one.
    """
    deleted = pl.col(KIND) == RowKind.DELETE.value
    order = pl.when(deleted).then(pl.lit(NO_WATERMARK, dtype=pl.Int64)).otherwise(pl.col(ORDER))
    return found.with_columns_seq(order.alias(ORDER)).sort(ORDER, maintain_order=True)


def empty_changes(schema: Schema) -> pl.DataFrame:
    """Return an empty table of changes for a schema."""
    fields = {physical_name(at): of.type.polars for at, of in enumerate(schema)}
    return pl.DataFrame(schema={**fields, KIND: pl.Int8(), ORDER: pl.Int64()})


def _kind(when: pl.Expr, then: RowKind, otherwise: RowKind) -> pl.Expr:
    kinds = pl.when(when).then(pl.lit(then.value, dtype=pl.Int8)).otherwise(pl.lit(otherwise.value, dtype=pl.Int8))
    return kinds.alias(KIND)
