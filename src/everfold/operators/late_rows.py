"""Examples of the rows that operators drop as late.

A bucket takes the first few of a batch, so that their number does not grow with that of the rows.
Nothing is taken from a batch without late rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from everfold.operators.protocol import NO_WATERMARK, LateRow

_PER_BATCH = 2
_COLUMNS = 8
_CHARACTERS = 200
_PREFIXES = ("key ", "column ")
"""What names in pages begin with."""


def take_late_rows(
    late: pl.DataFrame, time: pl.Expr, names: Mapping[str, str], watermark_ms: int, *, is_window_end: bool = True
) -> tuple[LateRow, ...]:
    """Return examples of the late rows of a bucket in a batch.

    time: their time in milliseconds. names: columns to keep, with their names in pages.
    watermark_ms: before the batch. is_window_end: whether the time is the end of their last window.
    """
    if late.is_empty():
        return ()
    shown = dict(list(names.items())[:_COLUMNS])
    found = late.head(_PER_BATCH).select_seq(time.alias("__time"), *shown)
    return tuple(
        LateRow(
            time_ms=row.pop("__time"),
            is_window_end=is_window_end,
            watermark_ms=None if watermark_ms == NO_WATERMARK else watermark_ms,
            values={_strip_prefix(shown[name]): _format(value) for name, value in row.items()},
        )
        for row in found.iter_rows(named=True)
    )


def _strip_prefix(name: str) -> str:
    return next((name.removeprefix(each) for each in _PREFIXES if name.startswith(each)), name)


def _format(value: object) -> str:
    return "NULL" if value is None else str(value)[:_CHARACTERS]
