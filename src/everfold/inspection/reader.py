"""The tables of an operator's state as its pages hold them, read by what the manifest knows of the operator: without its plan, and without a job.

They are read as the operator itself would read them in the next batch: the newest version of each row, without rows that have left or expired; what lies in parts
is put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from everfold.compat.shape import OperatorShape
from everfold.inspection.slots import completed, merged
from everfold.operators.clock import Clock
from everfold.operators.frames import reach_ms
from everfold.operators.protocol import NO_WATERMARK, ClockSpec
from everfold.operators.time_zones import closed_until
from everfold.plan.nodes import Frame
from everfold.state.bucket_head import read_head
from everfold.state.cache import FrameCache
from everfold.state.keyed import KeyedTable
from everfold.state.partition_rows import NUMBER
from everfold.state.runs import Runs
from everfold.state.store import Store

AT = "place"
"""Column of tables that lie in runs: the place of a row, a time in ms or a number."""
START, END = "start", "end"
"""Columns of sessions: their bounds in ms."""
KEY, VALUE, COLUMN, ORDER = "key ", "value ", "column ", "order "
"""What the names of columns in pages begin with, by what the columns are."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """name: as pages have it. rows: columns as pages name them, of all buckets; no column if there is no row."""

    name: str
    rows: pl.DataFrame


def stored_tables(shape: OperatorShape, stores: Iterable[Store], epoch: int) -> list[StoredTable]:
    """The tables of an operator, out of the pages of its buckets. epoch: of its state.

    StateError `damaged-page`, `unknown-aggregate-state`.
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    for store in stores:
        head = read_head(store, epoch)
        expired = _expired_before(shape, head) if head else None
        for name, state in _tables(head):
            if "base" in state:
                rows = completed(_keyed(store, epoch, name, state, expired), shape.calls)
            else:
                rows = _whole(shape, completed(_runs(store, epoch, name, state), shape.calls))
            parts.setdefault(name, []).append(rows)
    tables = [StoredTable(name, _together(frames)) for name, frames in parts.items()]
    # Of the windows only those of CUMULATE have totals.
    return [each for each in tables if each.rows.width or (shape.kind, each.name) != ("WindowAggregate", "totals")]


def knows_updates(shape: OperatorShape) -> bool:
    """Whether the column `touched` says when a row was updated; elsewhere it is a time of the rows' own."""
    return bool(shape.kept.ttl_ms) and not _in_windows(shape) and _remembered_ms(shape) is None


def _tables(head: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables that a head page knows, with what it knows of each."""
    for name, state in head.items():
        if name == "values":
            yield from state.items()
        elif isinstance(state, dict) and "runs" in state:
            yield name, state


def _keyed(store: Store, epoch: int, name: str, state: dict[str, Any], expired: int | None) -> pl.DataFrame:
    """The rows that a keyed table has, whose keys are told by their names."""
    table = KeyedTable.decode(store, epoch, name, (), state, FrameCache(limit_bytes=0))
    segments = [*table.base, *(each for run in table.runs for each in run.segments)]
    if not segments:
        return pl.DataFrame()
    columns = table.segments.read(segments[0]).columns
    keys = tuple(each for each in columns if each.startswith((KEY, VALUE)) or each == NUMBER)
    return replace(table, keys=keys).all(expired_before=expired)


def _runs(store: Store, epoch: int, name: str, state: dict[str, Any]) -> pl.DataFrame:
    """The rows of all places of a table of runs, oldest runs first, with their place."""
    table = Runs.decode(store, epoch, name, state)
    return _together(
        [page.with_columns(pl.lit(at, dtype=pl.Int64).alias(AT)) for at in table.index for page in table.read(at)]
    )


def _whole(shape: OperatorShape, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that lie in parts as the parts make them together: one row a slice or session and key; the first rows of the partitions of a window."""
    keys = [each for each in rows.columns if each.startswith(KEY)]
    match shape.kind:
        case _ if not rows.width:
            return rows
        case "WindowAggregate":
            window = [AT] if shape.kept.slice_ms else [START, END]
            return merged(rows, [*window, *keys], shape.calls, retracting=shape.input.updating)
        case "Rank":
            return _first(shape, rows, keys)
        case _:
            return rows


def _first(shape: OperatorShape, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The rows that may be among the first of their partition."""
    by, descending, nulls_last = [], [], []
    for key in shape.kept.order:
        named = [name for kind in (COLUMN, KEY, ORDER) if (name := kind + key.text) in rows.columns]
        by.append(named[0] if named else NUMBER)
        descending.append(key.descending and bool(named))
        nulls_last.append(not key.nulls_first)
    rows = rows.sort([*by, NUMBER], descending=[*descending, False], nulls_last=[*nulls_last, False])
    _, last = shape.counted
    return rows.filter(pl.int_range(1, pl.len() + 1).over(AT, *keys) <= last)


def _together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all frames; a column that some lack is NULL there."""
    filled = [frame for frame in frames if frame.height]
    return pl.concat(filled, how="diagonal_relaxed") if filled else pl.DataFrame()


# --- what has expired -----------------------------------------------------------------------------


def _expired_before(shape: OperatorShape, head: Mapping[str, Any]) -> int | None:
    """The time such that a row touched before it does not count in the next batch any more."""
    clock = Clock.decode(ClockSpec(splits=()), head["clock"])
    if _in_windows(shape):
        return None if clock.watermark == NO_WATERMARK else closed_until(clock.watermark, shape.kept.zone) + 1
    remembered = _remembered_ms(shape)
    if remembered is not None:
        now: int = clock.now_ms if shape.kept.on_arrival else head["time"]
        return None if now == NO_WATERMARK else now - remembered
    return clock.now_ms - shape.kept.ttl_ms if shape.kept.ttl_ms else None


def _in_windows(shape: OperatorShape) -> bool:
    """Whether it keeps groups until their windows take no rows any more."""
    return shape.kind == "GroupAggregate" and bool(shape.emission)


def _remembered_ms(shape: OperatorShape) -> int | None:
    """For how long OVER keeps rows by their own time, if it does."""
    if shape.kept.frame is None:
        return None
    rows, first, last = shape.kept.frame
    return None if rows or first is None else reach_ms(Frame(rows=rows, first=first, last=last))
