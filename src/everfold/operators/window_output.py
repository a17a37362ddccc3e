"""The final rows of windows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from everfold.aggregates.folding import compute_results, settle
from everfold.operators.layout import Layout, has_local_zone, window_columns
from everfold.operators.packed_keys import FEW_ROWS, pack_columns
from everfold.operators.time_zones import to_utc
from everfold.state.segments import take_rows
from everfold.types import Schema, physical_name


def window_rows(merged: pl.DataFrame, layout: Layout, schema: Schema, zone: str | None) -> pl.DataFrame:
    """Return keys, values and bounds of windows, sorted by window and keys.

    merged: merged slots with `start`, `end` and keys. A window whose rows have all been retracted
    emits none.
    """
    if layout.rows is not None:
        merged = merged.filter(pl.col(layout.rows) != 0)
    merged = settle(sort_windows(merged, layout.keys), layout.folds, whole=True)
    keys = [pl.col(key).alias(physical_name(at)) for at, key in enumerate(layout.keys)]
    names = [physical_name(len(keys) + at) for at in range(len(layout.calls))]
    values = compute_results(merged, [layout.folds[fold] for fold in layout.calls], names)
    return merged.select_seq(*keys, *values, *window_values(merged["end"], schema, zone, has_local_zone(schema)))


def sort_windows(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sort rows by `end`, `start` and keys, packed into one column or one column after the other,
    which is faster than all at once.
    """
    packed = pack_columns(rows, ["start", *keys]) if rows.height > FEW_ROWS else None
    if packed is not None:
        rows = take_rows(rows, packed.arg_sort().to_numpy())
    elif keys:
        rows = rows.sort(keys, maintain_order=True)
    for bound in ("start", "end"):
        if not rows[bound].is_sorted():
            rows = rows.sort(bound, maintain_order=True)
    return rows


def window_values(ends: pl.Series, schema: Schema, zone: str | None, local: bool) -> list[pl.Expr]:
    """Return window_start, window_end and window_time, computed from `start` and `end` in local
    milliseconds.

    ends: the values of `end`.
    """
    start_name, end_name, time_name = window_columns(schema)
    time = pl.col("end") - 1
    if local and zone is not None and len(ends):
        time = time.replace_strict(to_utc([end - 1 for end in ends.unique().to_list()], zone), return_dtype=pl.Int64)
    return [
        _timestamp(pl.col("start")).alias(start_name),
        _timestamp(pl.col("end")).alias(end_name),
        _timestamp(time, "UTC" if local else None).alias(time_name),
    ]


def _timestamp(ms: pl.Expr, zone: str | None = None) -> pl.Expr:
    return (ms * 1000).cast(pl.Datetime("us", zone))
