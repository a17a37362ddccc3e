"""Read the tables of an operator's state from its pages and what the manifest stores about the
operator, without its plan and without a job.

They are read as the operator itself would read them in the next batch: the newest version of each
row, without removed or expired rows, and with parts merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from everfold.compat.shape import OperatorShape
from everfold.inspection.slots import add_shared_slots, merge_parts
from everfold.operators.clock import Clock
from everfold.operators.frames import frame_retention_ms
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
"""Column of tables that are stored in runs: the position of a row, a time in ms or a number."""
START, END = "start", "end"
"""Columns of sessions: their bounds in ms."""
KEY, VALUE, COLUMN, ORDER = "key ", "value ", "column ", "order "
"""Prefixes of column names in pages, by what the columns are."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table as it is stored.

    name: as in pages. rows: of all buckets, with the column names of pages; without columns if
    there are no rows.
    """

    name: str
    rows: pl.DataFrame


def read_tables(shape: OperatorShape, stores: Iterable[Store], epoch: int) -> list[StoredTable]:
    """Return the tables of an operator, read from the pages of its buckets.

    epoch: of its state. StateError `damaged-page`, `unknown-aggregate-state`.
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    for store in stores:
        head = read_head(store, epoch)
        expired = _expired_before(shape, head) if head else None
        for name, state in _tables(head):
            if "base" in state:
                rows = _use_names_of_today(_read_keyed(store, epoch, name, state, expired), shape)
                parts.setdefault(name, []).append(add_shared_slots(rows, shape.calls))
            else:
                rows = _use_names_of_today(_read_runs(store, epoch, name, state), shape)
                parts.setdefault(name, []).append(_merge_parts(shape, add_shared_slots(rows, shape.calls)))
    tables = [StoredTable(name, _concat(frames)) for name, frames in parts.items()]
    # Among windows only CUMULATE has totals.
    return [each for each in tables if each.rows.width or (shape.kind, each.name) != ("WindowAggregate", "totals")]


def has_update_time(shape: OperatorShape) -> bool:
    """Whether the column `touched` is the time when a row was updated; elsewhere it is a time in
    the rows.
    """
    return bool(shape.kept.ttl_ms) and not _in_windows(shape) and _retention_ms(shape) is None


def _tables(head: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables of a head page, each with its entry there."""
    for name, state in head.items():
        if name == "values":
            yield from state.items()
        elif isinstance(state, dict) and "runs" in state:
            yield name, state


def _read_keyed(store: Store, epoch: int, name: str, state: dict[str, Any], expired: int | None) -> pl.DataFrame:
    """Return the rows of a keyed table, whose keys are recognized by their names."""
    table = KeyedTable.decode(store, epoch, name, (), state, FrameCache(limit_bytes=0))
    segments = [*table.base, *(each for run in table.runs for each in run.segments)]
    if not segments:
        return pl.DataFrame()
    columns = table.segments.read(segments[0]).columns
    keys = tuple(each for each in columns if each.startswith((KEY, VALUE)) or each == NUMBER)
    return replace(table, keys=keys).all(expired_before=expired)


def _read_runs(store: Store, epoch: int, name: str, state: dict[str, Any]) -> pl.DataFrame:
    """Return the rows of all positions of a table of runs, oldest runs first, with their
    position.
    """
    table = Runs.decode(store, epoch, name, state)
    return _concat(
        [page.with_columns(pl.lit(at, dtype=pl.Int64).alias(AT)) for at in table.index for page in table.read(at)]
    )


def _use_names_of_today(rows: pl.DataFrame, shape: OperatorShape) -> pl.DataFrame:
    """Rename the columns that an earlier release named differently.

    A column is named by a text, or by the text of a call and what follows `|` or ` since`.
    """
    names = {earlier: name for name, earlier in shape.state_names}
    if not names:
        return rows
    renamed = {}
    for column in rows.columns:
        text, separator, rest = column.rpartition("|") if "|" in column else column.partition(" since ")
        name = names.get(column) or (names.get(text, text) + separator + rest)
        renamed[column] = name
    return rows.rename(renamed)


def _merge_parts(shape: OperatorShape, rows: pl.DataFrame) -> pl.DataFrame:
    """Merge rows that are stored in parts: one row per slice or session and key; for a Top-N the
    first rows of the partitions of a window.
    """
    keys = [each for each in rows.columns if each.startswith(KEY)]
    match shape.kind:
        case _ if not rows.width:
            return rows
        case "WindowAggregate":
            window = [AT] if shape.kept.slice_ms else [START, END]
            return merge_parts(rows, [*window, *keys], shape.calls, retracting=shape.input.updating)
        case "Rank":
            return _first(shape, rows, keys)
        case _:
            return rows


def _first(shape: OperatorShape, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the rows that may be among the first of their partition."""
    by, descending, nulls_last = [], [], []
    for key in shape.kept.order:
        names = [name for kind in (COLUMN, KEY, ORDER) if (name := kind + key.text) in rows.columns]
        by.append(names[0] if names else NUMBER)
        descending.append(key.descending and bool(names))
        nulls_last.append(not key.nulls_first)
    rows = rows.sort([*by, NUMBER], descending=[*descending, False], nulls_last=[*nulls_last, False])
    _, last = shape.counted
    return rows.filter(pl.int_range(1, pl.len() + 1).over(AT, *keys) <= last)


def _concat(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames; a column that some lack is NULL there."""
    filled = [frame for frame in frames if frame.height]
    return pl.concat(filled, how="diagonal_relaxed") if filled else pl.DataFrame()


# --- what has expired -----------------------------------------------------------------------------


def _expired_before(shape: OperatorShape, head: Mapping[str, Any]) -> int | None:
    """Return the time such that rows last touched before it no longer count in the next batch."""
    clock = Clock.decode(ClockSpec(splits=()), head["clock"])
    if _in_windows(shape):
        return None if clock.watermark == NO_WATERMARK else closed_until(clock.watermark, shape.kept.zone) + 1
    retention_ms = _retention_ms(shape)
    if retention_ms is not None:
        now: int = clock.now_ms if shape.kept.on_arrival else head["time"]
        return None if now == NO_WATERMARK else now - retention_ms
    return clock.now_ms - shape.kept.ttl_ms if shape.kept.ttl_ms else None


def _in_windows(shape: OperatorShape) -> bool:
    """Whether the operator keeps groups until their windows accept no more rows."""
    return shape.kind == "GroupAggregate" and bool(shape.emission)


def _retention_ms(shape: OperatorShape) -> int | None:
    """Return how long OVER keeps rows by their own time, None if it does not."""
    if shape.kept.frame is None:
        return None
    rows, first, last = shape.kept.frame
    return None if rows or first is None else frame_retention_ms(Frame(rows=rows, first=first, last=last))
