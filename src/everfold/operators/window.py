"""TUMBLE, HOP and CUMULATE aggregation: state by slice, one final row per window and key once the
watermark has passed the window.

A slice is the largest interval that all windows consist of. `prepare` folds a task's rows to one
row per slice and key; `step` adds them to the slices, advances the clock and emits complete
windows. State, three tables per bucket: `slices` (runs by slice end), `totals` (CUMULATE: the sum
of the steps emitted so far, by window start), `head` (clock, index of runs, late rows: read and
written once per batch).

A row is late if its last window was complete before its batch began. Times are milliseconds of the
wall clock in the node's zone. Source: Flink's slicing windows, and flink 2.3 through
`tests/cases/window`.

Measured (2 shared cores, Polars 2.1 on one thread, batches of 1M rows 1 ms apart in two tasks, 8
buckets; SUM, MAX, COUNT by key), input rows per second of processor time, `prepare` and `step`
together, at 1 thousand / 1 million keys: TUMBLE 10 s 6.7M / 3.0M; HOP 10 s, 60 s 4.8M / 0.4M (there
each row is part of six windows: 2.4M output rows); CUMULATE 1 min, 10 min 8.5M / 0.5M; SESSION 2 s
4.5M / 1.5M.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from everfold.aggregates.folding import SIGN, fold_rows, fold_slots, settle
from everfold.operators.backfill import sort_histories
from everfold.operators.changelog import sign
from everfold.operators.clock import Clock
from everfold.operators.late_rows import take_late_rows
from everfold.operators.layout import layout_of, normalize_keys
from everfold.operators.packed_keys import FEW_ROWS, pack_columns, repeat_rarely
from everfold.operators.protocol import END_OF_TIME, NO_WATERMARK, ClockSpec, Meta, Stats, Step
from everfold.operators.slices import merge_into_hops, merge_into_steps
from everfold.operators.time_zones import closed_until
from everfold.operators.window_output import window_rows
from everfold.plan.nodes import TimeKind, WindowAggregate
from everfold.plan.windows import Cumulate, Hop, SlicedWindow, Tumble, last_window_end, slice_end, window_start
from everfold.state.bucket_head import read_head, write_head
from everfold.state.runs import Runs
from everfold.state.store import Store

_DISTINCT = 0.75
"""A task's rows are folded before the shuffle unless more than this share of them would remain."""


class WindowOperator:
    """The operator of a WindowAggregate with a sliced window."""

    def __init__(
        self, name: str, node: WindowAggregate, clock: ClockSpec, epoch: int = 0, updating: bool = False
    ) -> None:
        assert isinstance(node.window, Tumble | Hop | Cumulate), node.window
        self.name, self._node, self._clock, self._epoch, self.updating = name, node, clock, epoch, updating
        self._window: SlicedWindow = node.window
        self._layout = layout_of(node, updating)
        self.ordered = self.follows_order = self._layout.ordered
        self.inputs, self.hash_columns = self._layout.inputs, self._layout.hash_keys
        self.schema = node.schema
        self._by = ("slice", *self._layout.keys)

    def __reduce__(self) -> tuple[type[WindowOperator], tuple[str, WindowAggregate, ClockSpec, int, bool]]:
        return type(self), (self.name, self._node, self._clock, self._epoch, self.updating)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return one row per slice and key.

        It has `hash`, `slice` (its end), keys, slots, `n` (the number of rows that it represents),
        and `seq` of its first row if row order matters. If nearly every row has a different slice
        and key, the rows are returned unfolded, since folding would not pay off.
        """
        layout, order = self._layout, ["seq"] * self.ordered
        rows = rows.with_columns_seq(self._slice().alias("slice"), *normalize_keys(layout.inputs, layout.keys))
        if isinstance(self._window, Hop) and self._window.has_gaps:
            rows = rows.filter(self._last_end() >= pl.col("slice"))
        if self.updating:
            rows = rows.with_columns_seq(sign().alias(SIGN))
        lifted = [fold.lifted for fold in layout.folds]
        if rows.height > FEW_ROWS and all(each is not None for each in lifted) and self._scattered(rows):
            slots = [expr for each in lifted if each is not None for expr in each]
            return rows.select_seq("hash", *self._by, *slots, pl.lit(1, dtype=pl.Int64).alias("n"), *order)
        extra = [pl.col("hash").first(), pl.len().cast(pl.Int64).alias("n"), *(pl.col(each).min() for each in order)]
        folded = settle(fold_rows(rows, self._by, layout.folds, extra), layout.folds, whole=False)
        return folded.select_seq("hash", *self._by, *layout.slots, "n", *order)

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Add a batch's slots to the bucket's slices, advance the clock, and emit the windows that
        are complete.
        """
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        slices, totals = self._tables(store, head)

        since = self._complete(clock)
        rows, dropped = self._accept(prepared, since)
        late = head.get("late", 0) + (int(dropped["n"].sum()) if dropped.height else 0)
        examples = take_late_rows(dropped, self._last_end(), self._layout.key_names, clock.watermark)
        live = clock.advance(metas)
        upto = END_OF_TIME if clock.flush else self._complete(clock)

        rows = self._keep(rows, slices, upto)
        results = self._fire(rows, slices, totals, since, upto)
        if clock.flush and results.height:
            clock.close(int(results["end"].max()))  # type: ignore[arg-type]

        head = {"clock": clock.encode(), "slices": slices.encode(), "totals": totals.encode(), "late": late}
        write_head(store, self._epoch, head)
        stats = Stats(self.name, clock.watermark, late, slices.rows + totals.rows, late=examples)
        return Step(self._emit(results), clock.forward_meta(self.name, live, metas), stats)

    # Backfill

    def final_until(self, head: Mapping[str, Any]) -> int:
        """Return the end of the last window that is complete, in local milliseconds."""
        return self._complete(Clock.decode(self._clock, head.get("clock")))

    def history(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return one row per slice and key, of the windows that end after `since`: `hash`, `slice`,
        `seq` if row order matters, keys, slots.
        """
        found = self.prepare(rows).filter(self._last_end() > since)
        return self._layout.to_page(found, ["hash", "slice", *["seq"] * self.ordered])

    def fill(self, store: Store, histories: Sequence[pl.DataFrame], *, repeated: bool = False) -> pl.DataFrame:
        """Merge past rows into the windows and keys that exist.

        Emits no rows: they are emitted when their windows are complete.
        """
        head = read_head(store, self._epoch)
        since = self.final_until(head)
        slices, totals = self._tables(store, head)
        rows = pl.concat([self._layout.from_page(each, ["hash", "slice"]) for each in sort_histories(histories)])
        rows = rows.with_columns_seq(self._last_end().alias("last")).filter(pl.col("last") > since)
        pages = self._read_runs(slices, slices.index)
        for start in totals.index:
            pages += self._read_runs(totals, [start], label=start + self._window.slice_ms)
        alive = [page.select_seq(self._last_end().alias("last"), *self._layout.keys) for page in pages]
        present = pl.concat(alive).unique() if alive else rows.clear().select_seq("last", *self._layout.keys)
        rows = rows.join(present, on=present.columns, how="semi", nulls_equal=True, maintain_order="left")
        if isinstance(self._window, Cumulate) and since != NO_WATERMARK:
            rows = rows.with_columns_seq(pl.col("slice").clip(lower_bound=slice_end(self._window, since)))
        self._keep(rows.select_seq(*self._by, *self._layout.slots), slices, since)
        write_head(store, self._epoch, head | {"slices": slices.encode()})
        return self._no_output

    # Input

    def _slice(self) -> pl.Expr:
        ts, width = pl.col("ts"), self._window.slice_ms
        return ts - (ts - self._window.offset_ms % width) % width + width

    def _scattered(self, rows: pl.DataFrame) -> bool:
        """Whether nearly every row has a different slice and key, by a cheap estimate over the
        hashes of the keys.
        """
        mixed = rows.select_seq(pl.col("hash") ^ (pl.col("slice") * 0x1E3779B97F4A7C15)).to_series()
        return repeat_rarely(mixed, _DISTINCT)

    def _complete(self, clock: Clock) -> int:
        """Return the end of the last window that is complete, in local milliseconds."""
        return max(closed_until(clock.watermark, self._node.zone), clock.closed)

    def _accept(self, prepared: Sequence[pl.DataFrame], since: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return a batch's rows that are not late, and the late ones, which have `n`.

        Rows of a slice that has been emitted are moved to where they still count.
        """
        layout, columns = self._layout, [*self._by, *self._layout.slots, "n"]
        frames = [frame for frame in prepared if frame.height]
        if not frames:
            return layout.empty({"slice": pl.Int64()}), pl.DataFrame()
        rows, late = pl.concat(frames) if len(frames) > 1 else frames[0], pl.DataFrame()
        rows = (rows.sort("seq", maintain_order=True) if self.ordered else rows).select_seq(columns)
        if since != NO_WATERMARK and rows["slice"].min() <= since:  # type: ignore[operator]
            if self._node.time is TimeKind.PROCTIME:
                pass  # the clock has stepped back: nothing is late, and rows count in the open window
            else:
                kept = self._last_end() > since
                rows, late = rows.filter(kept), rows.filter(~kept)
            if self._node.time is TimeKind.PROCTIME or isinstance(self._window, Cumulate):
                rows = rows.with_columns_seq(pl.col("slice").clip(lower_bound=slice_end(self._window, since)))
        return rows.drop("n"), late

    def _last_end(self) -> pl.Expr:
        """Return the end of the last window that contains a slice."""
        at, window = pl.col("slice"), self._window
        match window:
            case Tumble():
                return at
            case Hop():
                last = at + (window.size_ms - window.slice_ms)
                if window.is_whole_slides:
                    return last
                return last - (last - window.size_ms - window.offset_ms) % window.slide_ms
            case Cumulate():
                started = at - 1
                return started - (started - window.offset_ms) % window.size_ms + window.size_ms

    # State

    def _keep(self, rows: pl.DataFrame, slices: Runs, upto: int) -> pl.DataFrame:
        """Write the rows of slices that a later batch needs, one run per slice.

        Return the rows that this batch emits.
        """
        if rows.is_empty():
            return rows
        needed = pl.col("slice") > upto if isinstance(self._window, Cumulate) else self._last_end() > upto
        open_rows = rows if upto == NO_WATERMARK else rows.filter(needed)
        for (at,), part in open_rows.partition_by("slice", as_dict=True).items():
            slices.append(at, self._layout.to_page(part))
            slices.compact(at, self._fold_pages)
        return rows.filter(pl.col("slice") <= upto)

    def _tables(self, store: Store, head: Mapping[str, Any]) -> tuple[Runs, Runs]:
        """Return slices and totals.

        State that an older query stored in smaller slices, or as the total of a cumulating window,
        is moved to the slices that it is part of.
        """
        slices = Runs.decode(store, self._epoch, "slices", head.get("slices"))
        totals = Runs.decode(store, self._epoch, "totals", head.get("totals"))
        width, offset = self._window.slice_ms, self._window.offset_ms
        smaller = [at for at in slices.index if (at - offset) % width]
        moved = [(slices, at, slice_end(self._window, at)) for at in sorted(smaller)]
        if not isinstance(self._window, Cumulate):
            moved += [(totals, start, slice_end(self._window, start)) for start in totals.index]
        for table, before, now in moved:
            for page in table.read(before):
                slices.append(now, page)
            table.drop(before)
            slices.compact(now, self._fold_pages)
        return slices, totals

    def _fold_pages(self, pages: list[pl.DataFrame]) -> pl.DataFrame:
        layout = self._layout
        frame = pl.concat([layout.from_page(page) for page in pages])
        return layout.to_page(settle(fold_slots(frame, layout.keys, layout.folds), layout.folds, whole=False))

    def _read_runs(self, runs: Runs, positions: Iterable[int], label: int | None = None) -> list[pl.DataFrame]:
        """Return the rows of runs, with the position of the run (or `label`) as their slice."""
        columns = [*self._by, *self._layout.slots]
        return [
            self._layout.from_page(page)
            .with_columns_seq(pl.lit(at if label is None else label, dtype=pl.Int64).alias("slice"))
            .select_seq(columns)
            for at in positions
            for page in runs.read(at)
        ]

    # Output

    def _fire(self, rows: pl.DataFrame, slices: Runs, totals: Runs, since: int, upto: int) -> pl.DataFrame:
        """Return merged slots of the windows that end after `since` and up to `upto`, by `end` and
        keys. Removes state that no window needs.
        """
        if upto <= since:
            return self._layout.empty({"end": pl.Int64()})
        if isinstance(self._window, Cumulate):
            return self._fire_cumulate(self._window, rows, slices, totals, since, upto)
        # Rows that later windows also need have just been written, and are read from the store; the
        # others come from the batch.
        stored = [at for at in slices.index if at <= upto]
        rows = rows.filter(self._last_end() <= upto)
        frames = [*self._read_runs(slices, stored), *([rows] if rows.height else [])]
        for at in stored:
            if last_window_end(self._window, at) <= upto:
                slices.drop(at)
        if not frames:
            return self._layout.empty({"end": pl.Int64()})
        return merge_into_hops(self._merge(frames), self._window, self._layout, since, upto)

    def _fire_cumulate(
        self, window: Cumulate, rows: pl.DataFrame, slices: Runs, totals: Runs, since: int, upto: int
    ) -> pl.DataFrame:
        """Like `_fire`, and store the total of each window that is still open."""
        frames = []
        for start in list(totals.index):
            first = max(slice_end(window, since), start + window.step_ms)
            if first <= upto:
                frames += self._read_runs(totals, [start], label=first)
                totals.drop(start)
        frames += self._read_runs(slices, stored := [at for at in slices.index if at <= upto])
        for at in stored:
            slices.drop(at)
        frames += [rows] if rows.height else []
        if not frames:
            return self._layout.empty({"end": pl.Int64()})
        results = merge_into_steps(self._merge(frames), window, self._layout, upto)
        results = settle(results, self._layout.folds, whole=True)
        for end in results["end"].unique().to_list():
            start = window_start(window, end)
            if end + window.step_ms > upto and end < start + window.size_ms:
                totals.append(start, self._layout.to_page(results.filter(pl.col("end") == end)))
        return results

    def _merge(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row per slice and key, merged from all frames."""
        frame = pl.concat(frames) if len(frames) > 1 else frames[0]
        return settle(self._fold_slots(frame), self._layout.folds, whole=True)

    def _fold_slots(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return one row per slice and key.

        If most slices and keys have a single row, only the others are folded.
        """
        groups = pack_columns(frame, self._by) if frame.height > FEW_ROWS and not self.ordered else None
        if groups is None or not repeat_rarely(groups, _DISTINCT):
            return fold_slots(frame, self._by, self._layout.folds)
        is_first = groups.is_first_distinct()
        if is_first.all():
            return frame
        repeated = groups.is_in(groups.filter(~is_first).implode())
        folded = fold_slots(frame.filter(repeated), self._by, self._layout.folds)
        return pl.concat([frame.filter(~repeated), folded.select_seq(frame.columns)])

    def _emit(self, results: pl.DataFrame) -> pl.DataFrame:
        return self._no_output if results.is_empty() else self._to_output(results)

    @cached_property
    def _no_output(self) -> pl.DataFrame:
        """The output of a batch that completes no window, which most small batches are."""
        return self._to_output(self._layout.empty({"end": pl.Int64()}))

    def _to_output(self, results: pl.DataFrame) -> pl.DataFrame:
        end, window = pl.col("end"), self._window
        if isinstance(window, Cumulate):
            start = end - 1 - (end - 1 - window.offset_ms) % window.size_ms
        else:
            start = end - window.size_ms
        return window_rows(results.with_columns_seq(start.alias("start")), self._layout, self.schema, self._node.zone)
