"""Changes of keyed rows: at most one retraction and one new row per key and batch, and none where
the row is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.operators.frame_pieces import Positions
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
    marks = rows.select_seq(had=had, has=has, changed=changed)
    before, now, changes = (marks[name].to_numpy() for name in ("had", "has", "changed"))
    retracted = _select_changes(rows, zip(old, new, strict=True), now, RowKind.UPDATE_BEFORE, RowKind.DELETE)
    added = _select_changes(rows, zip(new, new, strict=True), before, RowKind.UPDATE_AFTER, RowKind.INSERT)
    retracted = keep_rows(retracted, pl.Series(changes | (before & ~now)))
    found = retracted.vstack(keep_rows(added, pl.Series(changes | (now & ~before))))
    return found if found[ORDER].is_sorted() else found.sort(ORDER, maintain_order=True)


def diff_pairs(
    rows: pl.DataFrame, columns: Sequence[str], old: Positions, new: Positions
) -> tuple[Positions, Positions, npt.NDArray[np.int8]]:
    """Return the changes of keys as indexes of rows, indexes of pairs and kinds, retractions first.

    columns: of `rows`; their values are compared. old, new: for each key a pair of indexes in
    `rows`, of the row that it had and of the row that it has, -1 where there is none.
    """
    had, has = old >= 0, new >= 0
    changed = had & has
    changed[changed] = _differ(rows[list(columns)], old[changed], new[changed])
    gone, come = np.flatnonzero(changed | (had & ~has)), np.flatnonzero(changed | (has & ~had))
    retractions = np.where(has[gone], RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)
    additions = np.where(had[come], RowKind.UPDATE_AFTER.value, RowKind.INSERT.value)
    kinds = np.concatenate((retractions, additions)).astype(np.int8)
    return np.concatenate((old[gone], new[come])), np.concatenate((gone, come)), kinds


def _differ(rows: pl.DataFrame, left: Positions, right: Positions) -> npt.NDArray[np.bool_]:
    """Return whether rows with these indexes differ; a column is compared where those before it are
    equal.
    """
    found = np.zeros(len(left), dtype=bool)
    equal = np.flatnonzero(left != right)
    for column in rows.iter_columns():
        if not len(equal):
            break
        pairs = pl.DataFrame([column.gather(each[equal]).alias(name) for name, each in (("l", left), ("r", right))])
        differs = pairs.select_seq(pl.col("l").ne_missing(pl.col("r"))).to_series().to_numpy()
        found[equal[differs]] = True
        equal = equal[~differs]
    return found


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


def _select_changes(
    rows: pl.DataFrame,
    names: Iterable[tuple[str, str]],
    is_update: npt.NDArray[np.bool_],
    update: RowKind,
    other: RowKind,
) -> pl.DataFrame:
    """Return columns of rows under new names, with the kind and order of the changes."""
    kinds = pl.Series(KIND, np.where(is_update, update.value, other.value).astype(np.int8))
    return pl.DataFrame([*(rows[name].alias(known) for name, known in names), kinds, rows["seq"].alias(ORDER)])
