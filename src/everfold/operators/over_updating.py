"""OVER in a stream that is ordered by any column: emit every row at once, and every change of its
aggregates.

A row may be inserted between others or removed, which changes the aggregates of later rows.
`prepare` computes the slots of every row alone. `step` merges a batch's rows with the stored rows
of their partitions, and computes the frames that may include a changed row, before and after the
batch. So nothing has to be retracted from an accumulator, and any aggregate works over an updating
input.

State, the table `rows`: all rows of all partitions, with the slots of each alone, since any of them
may be in the frame of a future row. A batch reads only the partitions that it touches.

Changes are keyed by the unique key of the input if there is one; otherwise a removed row is -D and
an added one +I. Retractions that match no row are ignored and counted, as in Flink. Source: flink
2.3 through `tests/cases/over`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from everfold.aggregates.calls import looks_up_row
from everfold.aggregates.folding import compute_results, settle
from everfold.operators.changelog import diff_rows, empty_changes, sign, sort_deletes_first
from everfold.operators.clock import Clock
from everfold.operators.frames import PART, add_slots, aggregate_frames, frame_bounds
from everfold.operators.kept_rows import ALIVE, OLD, TURN, KeptRows
from everfold.operators.layout import Layout, folds_of, page_columns
from everfold.operators.protocol import NO_WATERMARK, ClockSpec, InputColumn, Meta, Stats, Step
from everfold.operators.ranking import RankedRows
from everfold.operators.reemit import mark_reemitted
from everfold.plan.keys import unique_key
from everfold.plan.nodes import OverAggregate
from everfold.state.bucket_head import read_head, write_head
from everfold.state.partition_rows import NUMBER, number_rows
from everfold.state.store import Store
from everfold.types import physical_name

_AT, _AFFECTED = "at", "affected"
"""Columns of sorted rows: the number of their peer group, and whether their frame may have changed.
"""


class UpdatingOverOperator:
    """The operator of an OverAggregate in a stream without a clock."""

    ordered = follows_order = True

    def __init__(
        self, name: str, node: OverAggregate, clock: ClockSpec, epoch: int = 0, updating: bool = False
    ) -> None:
        self.name, self._node, self._clock, self._epoch = name, node, clock, epoch
        self.updating = updating
        self.schema = node.schema
        self._rows = _OverRows(node)
        self._layout = self._rows.layout
        self.inputs, self.hash_columns = self._rows.inputs, self._rows.keys
        key = unique_key(node.input)
        self._identity = None if key is None else [physical_name(at) for at in key]
        self._columns = [physical_name(at) for at in range(len(self.schema))]

    def __reduce__(self) -> tuple[type[UpdatingOverOperator], tuple[str, OverAggregate, ClockSpec, int, bool]]:
        return type(self), (self.name, self._node, self._clock, self._epoch, self.updating)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return each row with the slots of it alone, and `sign` where rows may be retracted."""
        rows = add_slots(self._rows.normalize(rows), self._layout.folds)
        signs = [sign().alias("sign")] if self.updating else []
        return rows.select_seq("hash", "seq", *self._rows.types, *signs)

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Process a batch's rows, advance the clock, and emit the changes."""
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        live = clock.advance(metas)
        kept = self._load(store, head, clock.now_ms)
        arrived, ignored = head.get("arrived", 0), head.get("ignored", 0)
        frames = [frame for frame in prepared if frame.height]
        found = empty_changes(self.schema)
        if frames:
            rows = number_rows(frames, arrived)
            arrived += rows.height
            rows, missed = self._merge(rows, kept)
            ignored += missed
            found = self._diff(rows)
        head = {"clock": clock.encode(), "rows": kept.encode(), "arrived": arrived, "ignored": ignored}
        write_head(store, self._epoch, head)
        stats = Stats(self.name, clock.watermark, 0, kept.rows, ignored)
        return Step(found, clock.forward_meta(self.name, live, metas), stats)

    def current(self, store: Store) -> pl.DataFrame:
        """Return all rows with their aggregates."""
        head = read_head(store, self._epoch)
        rows = self._load(store, head, Clock.decode(self._clock, head.get("clock")).now_ms).all()
        return mark_reemitted(self._result_rows(self._all(rows), "has").select_seq(self._columns))

    # --- backfill ---------------------------------------------------------------------------------

    def final_until(self, head: Mapping[str, Any]) -> int:
        """Return NO_WATERMARK: a partition accepts rows of all times."""
        return NO_WATERMARK

    def history(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return each row with the slots of it alone: `hash`, `seq`, columns, slots."""
        return self._rows.to_page(self.prepare(rows), ["hash", "seq"], list(self._rows.page_names))

    def fill(self, store: Store, histories: Sequence[pl.DataFrame], *, repeated: bool = False) -> pl.DataFrame:
        """Add past slots to the stored rows, without adding rows, and return the changes.

        The old results lack the values of new calls. A call without slots can be computed for them,
        but is not in the results that were emitted unless they have just been re-emitted
        (`repeated`). A row is found by its columns, which determine everything that an aggregate
        reads from it.
        """
        head = read_head(store, self._epoch)
        kept = self._load(store, head, Clock.decode(self._clock, head.get("clock")).now_ms)
        rows = kept.all()
        if rows.is_empty():
            return empty_changes(self.schema)
        named = self._layout.page_names
        slots = [slot for slot in self._layout.slots if named[slot] in histories[0].columns]
        like = ["hash", *self._rows.columns]
        past = pl.concat([self._rows.from_page(each, ["hash"]) for each in histories]).unique(like)
        filled = rows.drop(slots).join(past.select_seq(*like, *slots), on=like, how="left", nulls_equal=True)
        filled = filled.select_seq(rows.columns)
        kept.rewrite(filled)
        write_head(store, self._epoch, head | {"rows": kept.encode()})
        newest = max(call.since for call in self._node.calls)
        new = self._columns[len(self._rows.columns) :]
        calls = zip(new, self._node.calls, strict=True)
        missing = [name for name, call in calls if call.since == newest and looks_up_row(call) and not repeated]
        before = self._result_rows(self._all(rows), "had")
        before = before.with_columns_seq(pl.lit(None, dtype=before.schema[name]).alias(name) for name in missing)
        return self._differences(before, self._result_rows(self._all(filled), "has"))

    # --- the rows of a batch ----------------------------------------------------------------------

    def _load(self, store: Store, head: dict[str, Any], now_ms: int) -> KeptRows:
        columns = list(self._rows.page_names)
        return KeptRows(self._rows, columns, self._node.ttl_ms, self._epoch, store, head.get("rows"), now_ms)

    def _merge(self, rows: pl.DataFrame, kept: KeptRows) -> tuple[pl.DataFrame, int]:
        """Return all rows of the touched partitions, in order, with their status before and after
        the batch, and the number of retractions that matched no row.
        """
        touched, ignored = kept.merge(rows, updating=self.updating)
        kept.keep(touched, touched.alive)
        rows = self._number_peers(touched.collect())
        changed = pl.col(_AT).filter(~(pl.col(OLD) & pl.col(ALIVE))).min().over(PART)
        return rows.with_columns_seq((pl.col(_AT) >= changed).fill_null(False).alias(_AFFECTED)), ignored

    def _number_peers(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add the number of the peer group to rows in order."""
        columns = [PART, *self._rows.order]
        differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in columns)
        return rows.with_columns_seq(differs.fill_null(True).cum_sum().cast(pl.Int64).alias(_AT))

    def _all(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return stored rows in order, as if each were affected, before those of a batch."""
        turn = pl.lit(NO_WATERMARK, dtype=pl.Int64).alias(TURN)
        rows = self._rows.sort_rows(rows.with_columns_seq(turn, pl.lit(True).alias(_AFFECTED)))
        return self._number_peers(rows)

    # --- output -----------------------------------------------------------------------------------

    def _diff(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the changes between the rows before and after the batch."""
        return self._differences(
            self._result_rows(rows.filter(OLD), "had"), self._result_rows(rows.filter(ALIVE), "has")
        )

    def _differences(self, before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
        """Return the changes from the old result rows to the new ones."""
        old_columns = [f"old_{name}" for name in self._columns]
        before = before.rename(dict(zip(self._columns, old_columns, strict=True)))
        pairs = now.join(before, on=["id", "nth"], how="full", coalesce=True, nulls_equal=True, suffix="_before")
        pairs = pairs.with_columns_seq(pl.coalesce(name, f"{name}_before").alias(name) for name in (TURN, "place"))
        had, has = pl.col("had").fill_null(False), pl.col("has").fill_null(False)
        rows = pairs.rename({TURN: "seq"}).sort("seq", "place")
        return sort_deletes_first(diff_rows(rows, self._columns, old_columns, had=had, has=has))

    def _result_rows(self, rows: pl.DataFrame, flag: str) -> pl.DataFrame:
        """Return the result rows whose frame may have changed, with the columns that identify them.

        rows: all rows of some partitions, in order.
        """
        wanted = rows[_AFFECTED].to_numpy()
        shown = rows.filter(_AFFECTED)
        columns = [pl.col(name).alias(column) for name, column in zip(self._rows.columns, self._columns, strict=False)]
        names = self._columns[len(columns) :]
        if shown.height:
            first, last = frame_bounds(rows[PART].to_numpy(), rows[_AT].to_numpy(), self._node.frame, peers=True)
            folds = self._layout.folds
            merged = settle(aggregate_frames(rows, folds, first[wanted], last[wanted]), folds, whole=True)
            values = compute_results(merged, [folds[at] for at in self._layout.calls], names)
        else:
            types = [call.type.polars for call in self._node.calls]
            values = [pl.Series(name, [], of) for name, of in zip(names, types, strict=True)]
        shown = shown.select_seq(
            *columns, *values, TURN, NUMBER, pl.int_range(pl.len()).alias("place"), pl.lit(True).alias(flag)
        )
        same = [NUMBER] if self._identity is None else self._identity
        shown = shown.with_columns_seq(pl.struct(same).alias("id") if same else pl.lit(0).alias("id"))
        return shown.with_columns_seq(pl.int_range(pl.len()).over("id").alias("nth")).drop(NUMBER)


class _OverRows(RankedRows):
    """The rows of an OVER with the slots of each alone, which are stored with them by name."""

    def __init__(self, node: OverAggregate) -> None:
        super().__init__(node)
        inputs: list[InputColumn] = [*self.inputs]
        folds = folds_of(node, node.calls, inputs)
        self.layout = Layout(tuple(inputs), (), folds.folds, folds.calls, folds.page_names, folds.slot_types)
        self.inputs = tuple(inputs)
        self._own = dict(self.page_names)
        self.page_names = {**self.page_names, **folds.page_names}
        self.types = {**self.types, **folds.slot_types}

    def from_page(self, page: pl.DataFrame, fixed: Sequence[str]) -> pl.DataFrame:
        """Return the rows of a page; a column or slot that it lacks is NULL."""
        columns = page_columns(page, self._own, self.types)
        return page.select_seq(*fixed, *columns).hstack(self.layout.from_page(page))
