"""Unbounded GROUP BY: one result row per group, and every change of it.

`prepare` folds the rows of a task to one row per group and, for calls that store values, one per
group and value (`group_layout`). `step` finds the state of the groups, merges, and emits for each
touched group at most one retraction and one new row; a result that is unchanged emits nothing.

State: the table `groups` (slots and, over an updating input, the number `n` of rows), one table per
argument for values, `head` (clock, indexes). Over an updating input, a group whose last row is
retracted is removed; retractions from a group that does not exist are ignored and counted, as in
Flink. Source: the seed on group aggregation; flink 2.3 through `tests/cases/group`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from everfold.aggregates.folding import (
    Fold,
    compact_slots,
    compute_results,
    fold_rows,
    fold_slots,
    reduce_groups,
    settle,
)
from everfold.operators.changelog import diff_rows, empty_changes, sign
from everfold.operators.clock import Clock
from everfold.operators.emptied_groups import PHASE, add_phases, combine_phases, find_emptied, number_chunks
from everfold.operators.group_layout import Count, ValueTable, group_layout
from everfold.operators.late_rows import take_late_rows
from everfold.operators.layout import normalize_keys, null_column, page_columns
from everfold.operators.normalize import SWEPT_PAGES
from everfold.operators.packed_keys import FEW_ROWS, number_by_hash, pack_columns, repeat_rarely
from everfold.operators.protocol import NO_WATERMARK, TABLE, ClockSpec, LateRow, Meta, Stats, Step
from everfold.operators.reemit import mark_reemitted
from everfold.operators.time_zones import closed_until
from everfold.plan.nodes import GroupAggregate, InWindow, TimeKind
from everfold.plan.unfounded_changes import may_retract_unknown_rows
from everfold.state.bucket_head import read_head, write_head
from everfold.state.keyed import KeyedTable
from everfold.state.partition_rows import lowest_position, position_ranges, row_position
from everfold.state.segments import keep_rows
from everfold.state.store import Store
from everfold.types import physical_name

_NUMBER = "number"
"""Column with a number for each group and value."""
_DISTINCT = 0.5
"""A task's rows are folded before the shuffle unless more than this share of them would remain."""


class GroupOperator:
    """The operator of a GroupAggregate."""

    ordered = True

    def __init__(
        self, name: str, node: GroupAggregate, clock: ClockSpec, epoch: int = 0, updating: bool = False
    ) -> None:
        self.name, self._node, self._clock, self._epoch, self.updating = name, node, clock, epoch, updating
        found = group_layout(node, updating)
        self._layout, self._tables = found.layout, found.tables
        self._plain = [found.layout.folds[at] for at in found.plain]
        self._plain_slots = [name for fold in self._plain for name in fold.slots]
        self._merging = [replace(fold, begins_late=False) for fold in found.layout.folds]
        self.schema = node.schema
        self.inputs, self.hash_columns = self._layout.inputs, self._layout.hash_keys
        self._types = {each.name: each.type.polars for each in self._layout.inputs}
        self._has = pl.col("n") > 0 if updating else pl.lit(True)
        self.follows_order = updating or any(fold.is_ordered for fold in found.layout.folds)
        # Of changes that an operator emits, each retracts a row that it has emitted before: then a
        # group that becomes empty has no slots and values that need to be discarded.
        self._has_phases = updating and (epoch > 0 or may_retract_unknown_rows(node))
        self._parts_by = (*self._layout.keys, *[PHASE] * self._has_phases)

    def __reduce__(self) -> tuple[type[GroupOperator], tuple[str, GroupAggregate, ClockSpec, int, bool]]:
        return type(self), (self.name, self._node, self._clock, self._epoch, self.updating)

    # --- input ------------------------------------------------------------------------------------

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return one row per group, and one per group and value. If most groups have a single row,
        the rows are returned unfolded, since folding would not pay off.

        A group has `hash`, keys, `seq` (of its first row), `n` (added less retracted rows) and the
        slots of plain calls. A value has `hash`, keys, `seq`, the value, its hash and its counts,
        over an append-only input whether it occurs. `table` is 0 for groups, and from 1 on for the
        values of each value table.
        """
        return self._prepare(rows, folding=False)

    def _prepare(self, rows: pl.DataFrame, *, folding: bool) -> pl.DataFrame:
        """Return prepared rows. folding: whether groups are folded in any case."""
        keys = self._layout.keys
        floats = [column for table in self._tables for column in table.columns]
        normalized = normalize_keys(self._layout.inputs, [*keys, *dict.fromkeys(floats)])
        signs = [sign().alias("sign")] if self.updating else []
        if normalized or signs:
            rows = rows.with_columns_seq(*normalized, *signs)
        if self._has_phases:
            rows = add_phases(rows, keys)
        number = pl.col("sign").sum() if self.updating else pl.len().cast(pl.Int64)
        facts = [pl.col("hash").first(), pl.col("seq").min(), number.alias("n")]
        slots = None if folding else self._slots_of_rows(rows)
        numbered = self._tables and not self.updating and rows.height >= FEW_ROWS
        groups = self._number(rows, keys, "hash") if numbered else None
        if slots is not None:
            one = pl.lit(1, dtype=pl.Int64).alias("n")
            parts = [rows.select_seq(*keys, "hash", "seq", one, _tag(0), *slots)]
        elif groups is not None:
            shown = [pl.col(key).first() for key in keys]
            found = fold_rows(
                rows.with_columns_seq(groups.alias(_NUMBER)), [_NUMBER], self._plain, [*shown, *facts, _tag(0)]
            )
            parts = [found.drop(_NUMBER)]
        else:
            parts = [fold_rows(rows, self._parts_by, self._plain, [*facts, _tag(0)])]
        for at, table in enumerate(self._tables, 1):
            values = None if groups is None else self._first_values(rows, groups, table)
            parts.append(
                self._values_of(rows, table, _tag(at)) if values is None else values.with_columns_seq(_tag(at))
            )
        return pl.concat(parts, how="diagonal")

    def _slots_of_rows(self, rows: pl.DataFrame) -> list[pl.Expr] | None:
        """Return the slots of each row alone if most groups have a single row, else None."""
        lifted = [fold.lifted for fold in self._plain]
        if self.updating or rows.height < FEW_ROWS or not repeat_rarely(rows["hash"], _DISTINCT):
            return None
        slots = [slot for each in lifted if each is not None for slot in each]
        return None if None in lifted else slots

    def _values_of(self, rows: pl.DataFrame, table: ValueTable, tag: pl.Expr) -> pl.DataFrame:
        counts = [self._count(count).alias(count.name) for count in table.counts]
        facts = [pl.col("hash", *table.hashes).first(), pl.col("seq").min(), tag]
        values = reduce_groups(rows, [*self._parts_by, *table.columns], [*facts, *counts])
        if not self.updating and all(count.condition is None for count in table.counts):
            return values
        return values.filter(self._some(table))

    def _some(self, table: ValueTable) -> pl.Expr:
        counts = [pl.col(count.name) for count in table.counts]
        return pl.any_horizontal([count != 0 for count in counts] if self.updating else counts)

    @staticmethod
    def _number(rows: pl.DataFrame, columns: Sequence[str], hash: str) -> pl.Series | None:
        """Return an integer per row: equal if the columns are equal; None if it is not worth it."""
        if not columns:
            return pl.Series(np.zeros(rows.height, np.int64))
        packed = pack_columns(rows, columns)
        return number_by_hash(rows, hash, columns) if packed is None else packed

    def _first_values(self, rows: pl.DataFrame, groups: pl.Series, table: ValueTable) -> pl.DataFrame | None:
        """Return what `_values_of` does for rows that are only added, from numbers of their groups.

        None if the values have several columns that cannot be numbered.
        """
        values = [self._number(rows, [name], hash) for name, hash in zip(table.columns, table.hashes, strict=True)]
        known = [each for each in values if each is not None]
        pairs = pl.DataFrame([groups.alias("0"), *(each.alias(str(at)) for at, each in enumerate(known, 1))])
        numbers = pack_columns(pairs, pairs.columns)
        conditions = [count.condition for count in table.counts if count.condition is not None]
        if len(known) < len(values) or numbers is None:
            return None
        if (numbers.max() or 0) << len(conditions) >= 1 << 62:  # type: ignore[operator]
            return None
        mark = pl.col(_NUMBER) * (1 << len(conditions))
        for at, condition in enumerate(conditions):
            mark = mark + pl.col(condition).cast(pl.Int64) * (1 << at)
        rows = rows.with_columns_seq(numbers.alias(_NUMBER))
        # A value is looked at once for each combination of conditions.
        rows = rows.filter(rows.select_seq(mark).to_series().is_first_distinct())
        columns = [*self._layout.keys, *table.columns, "hash", *table.hashes]
        counts = [self._count(count).alias(count.name) for count in table.counts]
        if not conditions:
            return rows.select_seq(*columns, "seq", *counts)
        found = rows.group_by(_NUMBER).agg(pl.col(columns).first(), pl.col("seq").min(), *counts).drop(_NUMBER)
        return found.filter(self._some(table))

    def _count(self, count: Count) -> pl.Expr:
        if self.updating:
            signs = pl.col("sign")
            return (signs if count.condition is None else signs.filter(pl.col(count.condition))).sum()
        return pl.lit(True) if count.condition is None else pl.col(count.condition).any()

    def combine(self, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Merge the results of `prepare` for successive chunks of rows."""
        prepared = number_chunks(prepared) if self._has_phases else prepared
        groups = pl.concat(self._parts_of(0, prepared), how="diagonal")
        if self._has_phases:
            groups = groups.sort(PHASE, maintain_order=True)
            combined = combine_phases(groups, self._layout.keys)
            phases = groups.select_seq("hash", *self._parts_by, combined.alias("combined"))
            groups = groups.with_columns_seq(combined)
        parts = [self._fold_groups(groups, self._parts_by, self._plain).with_columns_seq(_tag(0))]
        for at, table in enumerate(self._tables, 1):
            rows = self._concat_values(table, self._parts_of(at, prepared))
            if self._has_phases:
                rows = _join_found(rows, phases, ["hash", *self._parts_by])
                rows = rows.drop(PHASE).rename({"combined": PHASE})
            parts.append(self._combine_values(rows, table).with_columns_seq(_tag(at)))
        return pl.concat(parts, how="diagonal")

    def _combine_values(self, rows: pl.DataFrame, table: ValueTable) -> pl.DataFrame:
        if not self.updating and rows.height >= FEW_ROWS:
            counts = tuple(replace(each, condition=each.condition and each.name) for each in table.counts)
            groups = self._number(rows, self._layout.keys, "hash")
            found = None if groups is None else self._first_values(rows, groups, replace(table, counts=counts))
            if found is not None:
                return found
        merged = [pl.col(each.name).sum() if self.updating else pl.col(each.name).any() for each in table.counts]
        facts = [pl.col("hash", *table.hashes).first(), pl.col("seq").min()]
        return reduce_groups(rows, [*self._parts_by, *table.columns], [*facts, *merged]).filter(self._some(table))

    # --- a batch ----------------------------------------------------------------------------------

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Merge a batch's groups with their state and emit the changes of their results."""
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        watermark = clock.watermark
        closed = closed_until(clock.watermark, self._node.window.zone) if self._node.window is not None else None
        live = clock.advance(metas)
        state = _State(self, store, head, clock.now_ms, closed)
        frames = [kept for frame in prepared if (kept := self._not_late(frame, closed, state, watermark)).height]
        if frames:
            rows = self._apply(frames, state)
        else:
            rows = empty_changes(self.schema)
        head = {"clock": clock.encode(), **state.encode()}
        write_head(store, self._epoch, head)
        stats = Stats(self.name, clock.watermark, state.late, state.rows, state.ignored, late=state.late_rows)
        return Step(rows, clock.forward_meta(self.name, live, metas), stats)

    def _not_late(self, rows: pl.DataFrame, closed: int | None, state: _State, watermark: int) -> pl.DataFrame:
        """Return the rows whose windows still accept rows, and count the others.

        closed: the end of the last window that has ended. watermark: before the batch.
        """
        if closed is None or self._node.window is None or self._node.window.time is TimeKind.PROCTIME:
            return rows
        late = _until(self._node.window) <= closed
        dropped = rows.filter(late & (pl.col(TABLE) == 0))
        state.late += int(dropped["n"].sum()) if dropped.height else 0
        end = pl.col(f"k{self._node.window.end}").dt.epoch("ms")
        state.late_rows += take_late_rows(dropped, end, self._layout.key_names, watermark)
        return rows.filter(~late)

    def _apply(self, frames: Sequence[pl.DataFrame], state: _State) -> pl.DataFrame:
        """Merge prepared rows into the state and return the changes of the results."""
        layout = self._layout
        # Late rows are those of all tables of a group, so each chunk still begins with its groups.
        frames = number_chunks(frames) if self._has_phases else frames
        parts = pl.concat(self._parts_of(0, frames), how="diagonal")
        if self._has_phases:
            parts = parts.sort("seq", PHASE)
        elif not parts["seq"].is_sorted():
            parts = parts.sort("seq", maintain_order=True)
        keys = ["hash", *layout.keys]
        repeated = parts["hash"].n_unique() < parts.height
        folds = [] if self._has_phases else self._plain
        groups = self._fold_groups(parts, layout.keys, folds) if repeated else parts
        old = self._old(groups, state)
        groups = groups.hstack([old["g"], old["had"]])
        parts = _join_found(parts, groups[["g", *keys]], keys) if repeated and self._has_phases else groups
        stored = old if old["had"].all() else old.filter("had")
        touched = _Touched(groups, old, stored, parts, parts.clear())
        if self._has_phases:
            touched = self._discard_emptied(touched, state)
        elif self.updating:
            touched = self._add_counts(touched)
        groups, old, discarded = touched.groups, touched.old, touched.discarded
        slots = [touched.stored[["g", *layout.slots]], touched.parts[["g", *self._plain_slots]]]
        moves: list[pl.DataFrame] = []
        for at, table in enumerate(self._tables):
            of_table = self._parts_of(at + 1, frames)
            values = _join_found(self._concat_values(table, of_table), groups[["g", *keys]], keys)
            values = values.drop_nulls("g") if self.updating else values
            if discarded.height:
                values = values.join(discarded, on=["g", PHASE], how="anti", maintain_order="left")
            moves.append(state.values[at].apply(values, self._has_phases or len(of_table) > 1))
            slots += self._fold_appeared(table, moves[-1])
        merged = self._merge_slots(groups, slots)
        for at, table in enumerate(self._tables):
            for position, count in table.extremes:
                fold = layout.folds[position]
                merged = self._next_extremes(merged, old, fold, state.values[at], moves[at], count)
        return self._store(merged, old, state)

    @staticmethod
    def _add_counts(touched: _Touched) -> _Touched:
        """Add the number of stored rows to that of the batch, for input without retractions of rows
        that are not there.
        """
        count = touched.groups["n"] + touched.old["n"].fill_null(0)
        groups = touched.groups.with_columns_seq(count)
        exists = touched.old["had"] | (count > 0)
        groups = keep_rows(groups, exists)
        return replace(touched, groups=groups, parts=groups, old=keep_rows(touched.old, exists))

    def _discard_emptied(self, touched: _Touched, state: _State) -> _Touched:
        """Discard what groups had before they were empty for the last time, and groups that exist
        neither before nor after the batch.

        A group that stays empty keeps its parts, which are not looked at.
        """
        parts, groups, old = touched.parts, touched.groups, touched.old
        order = np.argsort(parts["g"].to_numpy(), kind="stable")
        group, changes = parts["g"].to_numpy()[order], parts["n"].to_numpy()[order]
        before = old["n"].fill_null(0).to_numpy()
        may_be_empty = parts[PHASE].to_numpy()[order] % 2 == 0
        is_early, ignored, count = find_emptied(group, changes, may_be_empty, before)
        state.ignored += int(ignored.sum())
        begins_again = np.zeros(len(before), dtype=bool)
        begins_again[group[is_early]] = True
        begins_again &= count > 0
        exists = old["had"].to_numpy() | (count > 0)
        is_discarded = np.empty(parts.height, dtype=bool)
        is_discarded[order] = is_early & begins_again[group]
        stored = old.filter(pl.Series(old["had"].to_numpy() & ~begins_again))
        emptied = old.filter(pl.Series(old["had"].to_numpy() & begins_again))
        if emptied.height:
            for values in state.values:
                values.forget(emptied)
        groups = groups.with_columns_seq(pl.Series("n", count))
        kept = keep_rows(parts, pl.Series(~is_discarded & exists[parts["g"].to_numpy()]))
        discarded = keep_rows(parts[["g", PHASE]], pl.Series(is_discarded))
        return _Touched(groups.filter(exists), old.filter(exists), stored, kept, discarded)

    def _parts_of(self, table: int, frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
        """Return the parts of the prepared rows of a table."""
        if not self._tables:
            return list(frames)
        return [part for frame in frames if (part := keep_rows(frame, frame[TABLE] == table)).height]

    def _concat_values(self, table: ValueTable, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Concatenate prepared rows of a value table, and add columns that were dropped or that no
        row has.
        """
        rows = pl.concat(parts, how="diagonal") if parts else pl.DataFrame()
        count = pl.Int64() if self.updating else pl.Boolean()
        names = (*self._layout.keys, *table.columns, *table.hashes)
        types = {"hash": pl.Int64(), "seq": pl.Int64(), **{name: self._types[name] for name in names}}
        types |= dict.fromkeys((each.name for each in table.counts), count)
        types |= {PHASE: pl.Int64()} if self._has_phases else {}
        present = set(rows.columns)
        missing = [null_column(rows.height, of).alias(name) for name, of in types.items() if name not in present]
        return rows.hstack(missing) if missing else rows

    def _merge_slots(self, groups: pl.DataFrame, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the groups with their slots merged from all parts."""
        if not self._layout.slots:
            return groups
        # All these groups have got a row, so none of their slots stays unset.
        merged = fold_slots(pl.concat(parts, how="diagonal"), ["g"], self._merging).sort("g")
        return groups.with_columns_seq(merged[slot] for slot in self._layout.slots)

    def _store(self, merged: pl.DataFrame, old: pl.DataFrame, state: _State) -> pl.DataFrame:
        """Write groups into the state and return the changes of their results.

        merged, old: row by row the same groups.
        """
        folds = self._layout.folds
        merged = compact_slots(settle(merged, folds, whole=True), folds)
        state.write_groups(merged, old)
        return self._diff(merged, old)

    def _fold_groups(self, rows: pl.DataFrame, by: Sequence[str], folds: Sequence[Fold]) -> pl.DataFrame:
        """Return one row per group with the slots of some calls, in the order of first rows."""
        facts = [pl.col("hash").first(), pl.col("seq").min(), pl.col("n").sum()]
        return fold_slots(rows, by, folds, facts).sort("seq")

    def _old(self, groups: pl.DataFrame, state: _State) -> pl.DataFrame:
        """Return the stored rows of the groups, row by row.

        `g`: the number of the row. `had`: whether the group is in the state.
        """
        keys = ["hash", *self._layout.keys]
        joined = state.find_groups(groups)
        joined = _join_found(groups[keys], joined, keys)
        if joined["had"].has_nulls():
            joined = joined.with_columns_seq(pl.col("had").fill_null(False))
        return joined.hstack([pl.Series("g", np.arange(joined.height))])

    # --- backfill ---------------------------------------------------------------------------------

    def final_until(self, head: Mapping[str, Any]) -> int:
        """Return NO_WATERMARK: a group accepts rows of all times."""
        return NO_WATERMARK

    def history(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return one row per group: `hash`, `seq`, keys, slots."""
        return self._layout.to_page(self._prepare(rows, folding=True), ["hash", "seq"])

    def fill(self, store: Store, histories: Sequence[pl.DataFrame], *, repeated: bool = False) -> pl.DataFrame:
        """Merge past rows into the groups that exist, without changing when they were last touched.
        Return the changes of their results, of which the old ones lack the values of new calls.
        """
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        closed = closed_until(clock.watermark, self._node.window.zone) if self._node.window is not None else None
        state = _State(self, store, head, clock.now_ms, closed)
        rows = pl.concat([self._layout.from_page(each, ["hash", "seq"]) for each in histories])
        rows = rows.with_columns_seq(pl.lit(0, dtype=pl.Int64).alias("n")).sort("seq")
        groups = self._fold_groups(rows, self._layout.keys, self._plain)
        old = self._old(groups, state)
        exists = old["had"]
        facts = [old[name] for name in ("g", "had", "n", "touched") if name in old.columns]
        groups, old = groups.with_columns_seq(facts).filter(exists), old.filter(exists)
        if groups.is_empty():
            return empty_changes(self.schema)
        before = pl.col("seq") + NO_WATERMARK + 1
        groups = groups.with_columns_seq(before)
        slots = [old[["g", *self._layout.slots]], groups[["g", *self._plain_slots]]]
        rows = self._store(self._merge_slots(groups, slots), old, state)
        write_head(store, self._epoch, head | state.encode())
        return rows

    # --- re-emitted rows --------------------------------------------------------------------------

    def current(self, store: Store) -> pl.DataFrame:
        """Return the results of all groups."""
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        groups = _State(self, store, head, clock.now_ms, None).all_groups()
        names = [physical_name(len(self._layout.keys) + at) for at in range(len(self._layout.calls))]
        return mark_reemitted(pl.DataFrame([*self._keys_out(groups), *self._results(groups, names)]))

    def recount(self, store: Store, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Fold rows of existing groups into the calls that began last, and into no others."""
        frames = [self._only_newest(frame) for frame in prepared if frame.height]
        if not frames:
            return empty_changes(self.schema)
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        state = _State(self, store, head, clock.now_ms, None)
        before = pl.col("seq") + NO_WATERMARK + 1
        found = self._apply([frame.with_columns_seq(before) for frame in frames], state)
        write_head(store, self._epoch, head | state.encode())
        return found

    @property
    def _newest(self) -> int:
        """The version with which the newest calls began."""
        return max(call.since for call in self._node.calls)

    def _only_newest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return prepared rows reduced to what the newest calls need.

        They add no rows to a group.
        """
        newest, calls = self._newest, zip(self._layout.calls, self._node.calls, strict=True)
        slots = {slot for at, call in calls if call.since < newest for slot in self._layout.folds[at].slots}
        known: dict[str, list[int]] = {}
        for at, table in enumerate(self._tables, 1):
            for count in table.counts:
                known.setdefault(count.name, []).extend([at] * (count.since < newest))
        return rows.with_columns_seq(
            *(pl.lit(None, dtype=rows.schema[slot]).alias(slot) for slot in slots & set(rows.columns)),
            *(
                pl.when(pl.col(TABLE).is_in(tables))
                .then(pl.lit(0).cast(rows.schema[name]))
                .otherwise(pl.col(name))
                .alias(name)
                for name, tables in known.items()
                if name in rows.columns
            ),
            pl.lit(0, dtype=pl.Int64).alias("n"),
        )

    # --- calls that store values ------------------------------------------------------------------

    def _fold_appeared(self, table: ValueTable, moved: pl.DataFrame) -> list[pl.DataFrame]:
        """Return slots of the values that have appeared or disappeared, by `g`: for DISTINCT both,
        for MIN and MAX those that appeared.
        """
        found = []
        for position, count in table.distinct:
            rows = keep_rows(moved, moved[f"is{count}"] != moved[f"was{count}"])
            if self.updating:
                signs = (
                    pl.when(pl.col(f"is{count}")).then(pl.lit(1, dtype=pl.Int64)).otherwise(pl.lit(-1, dtype=pl.Int64))
                )
                rows = rows.with_columns_seq(signs.alias("sign"))
            found.append((position, rows))
        for position, count in table.extremes:
            found.append((position, moved.filter(pl.col(f"is{count}") & ~pl.col(f"was{count}"))))
        return [fold_rows(rows, ["g"], [self._layout.folds[at]], []) for at, rows in found if rows.height]

    def _next_extremes(
        self, merged: pl.DataFrame, old: pl.DataFrame, fold: Fold, values: _Values, moved: pl.DataFrame, count: int
    ) -> pl.DataFrame:
        """Look up MIN or MAX again for the groups whose extreme value has disappeared without a
        better one.
        """
        (slot,), (column,) = fold.slots, fold.columns
        gone = moved.filter(pl.col(f"was{count}") & ~pl.col(f"is{count}")).select_seq("g", column)
        if gone.is_empty():
            return merged
        gone = gone.join(old.select_seq("g", slot), on="g").filter(pl.col(column).eq_missing(pl.col(slot)))
        lost = merged.select_seq(
            pl.col("g").is_in(gone["g"].implode()) & pl.col(slot).eq_missing(old[slot])
        ).to_series()
        if not lost.any():
            return merged
        groups = merged.filter(lost)
        left = values.of_groups(groups).filter(pl.col(f"n{count}") > 0)
        found = fold_rows(left, ["g"], [fold], [])
        found = groups.select_seq("g").join(found, on="g", how="left")
        looked_up = groups.drop(slot).join(found, on="g").select_seq(merged.columns)
        return pl.concat([merged.filter(~lost), looked_up]).sort("g")

    # --- output -----------------------------------------------------------------------------------

    def _diff(self, merged: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
        """Return the changes of the groups' results."""
        layout = self._layout
        new_names = [physical_name(len(layout.keys) + at) for at in range(len(layout.calls))]
        old_names = [f"old_{name}" for name in new_names]
        new = self._results(merged, new_names, merged["n"] > 0 if self.updating else None)
        before = self._results(old, old_names, old["had"])
        facts = [merged[name] for name in ("seq", "had", "n")]
        rows = pl.DataFrame([*facts, *self._keys_out(merged), *new, *before])
        keys = [physical_name(at) for at in range(len(layout.keys))]
        return diff_rows(rows, [*keys, *new_names], [*keys, *old_names], had=pl.col("had"), has=self._has)

    def _keys_out(self, groups: pl.DataFrame) -> list[pl.Series]:
        return [groups[key].alias(physical_name(at)) for at, key in enumerate(self._layout.keys)]

    def _results(self, groups: pl.DataFrame, names: Sequence[str], exists: pl.Series | None = None) -> list[pl.Series]:
        """Return the values of the calls, row by row; NULL for groups that do not exist."""
        folds = [self._layout.folds[fold] for fold in self._layout.calls]
        if exists is None or exists.all():
            return compute_results(groups, folds, names)
        found = groups.filter(exists)
        values = found.select_seq("g").with_columns_seq(compute_results(found, folds, names))
        return groups.select_seq("g").join(values, on="g", how="left", maintain_order="left").get_columns()[1:]


@dataclass(frozen=True, slots=True)
class _Touched:
    """The groups that a batch touches.

    groups, old: row by row the groups and what is stored of them. stored: the rows of `old` that
    count. parts: the prepared rows of the groups that count, by `g`. discarded: `g` and phase of
    those that do not.
    """

    groups: pl.DataFrame
    old: pl.DataFrame
    stored: pl.DataFrame
    parts: pl.DataFrame
    discarded: pl.DataFrame


class _State:
    """The tables of a bucket during a batch."""

    def __init__(
        self, operator: GroupOperator, store: Store, head: Mapping[str, Any], now_ms: int, closed: int | None
    ) -> None:
        self._layout, self._updating, self._has = operator._layout, operator.updating, operator._has
        ttl_ms, window = operator._node.ttl_ms, operator._node.window
        self._expired = now_ms - ttl_ms if ttl_ms else None
        self._touched = [pl.lit(now_ms, dtype=pl.Int64).alias("touched")] if ttl_ms else []
        if window is not None and closed is not None:
            # A group expires with the time up to which its window accepts rows.
            self._expired = closed + 1 if closed != NO_WATERMARK else None
            self._touched = [_until(window).alias("touched")]
        epoch = operator._epoch
        self._names = self._layout.key_names
        self._groups = KeyedTable.decode(store, epoch, "groups", list(self._names.values()), head.get("groups"))
        known = head.get("values", {})
        self.values = [
            _Values(table, self._names, operator, store, known.get(table.name), self._expired, self._touched)
            for table in operator._tables
        ]
        self.ignored: int = head.get("ignored", 0)
        self.late: int = head.get("late", 0)
        self.late_rows: tuple[LateRow, ...] = ()

    def encode(self) -> dict[str, Any]:
        """Return the state for the head page, after sweeping a few cold pages."""
        tables = [self._groups, *(each.table for each in self.values)]
        if self._expired is not None:
            for table in tables:
                table.sweep(self._expired, SWEPT_PAGES)
        values = {each.layout.name: each.table.encode() for each in self.values}
        return {"groups": self._groups.encode(), "values": values, "ignored": self.ignored, "late": self.late}

    @property
    def rows(self) -> int:
        """Rows in all tables."""
        return self._groups.rows + sum(each.table.rows for each in self.values)

    def find_groups(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Return the stored rows of groups: `hash`, keys, slots, `n`, `had` (TRUE), and `touched`
        where it is stored.
        """
        keys = [groups[key].alias(name) for key, name in self._names.items()]
        wanted = pl.DataFrame([groups["hash"].alias("h"), *keys])
        page = self._groups.find(wanted, expired_before=self._expired)
        number = page["n"] if "n" in page.columns else null_column(page.height, pl.Int64()).alias("n")
        touched = [page["touched"]] if self._touched and "touched" in page.columns else []
        had = pl.Series("had", np.ones(page.height, dtype=bool))
        return self._layout.from_page(page, [page["h"].alias("hash"), number, had, *touched])

    def all_groups(self) -> pl.DataFrame:
        """Return the stored rows of all groups: keys and slots."""
        page = self._groups.all(expired_before=self._expired)
        return self._layout.from_page(page) if page.height else self._layout.empty({})

    def write_groups(self, merged: pl.DataFrame, old: pl.DataFrame) -> None:
        """Write the groups that exist and whose state has changed, and remove those that have
        become empty.

        merged, old: row by row the same groups.
        """
        changed = self._has
        if not self._touched:
            stored = [*self._layout.slots, *["n"] * self._updating]
            differs = [pl.col(name).ne_missing(old[name]) for name in stored]
            changed = changed & pl.any_horizontal(~pl.col("had"), *differs)
        alive = merged.filter(changed)
        dead = merged.filter(~self._has & pl.col("had")) if self._updating else merged.clear()
        added = alive.height - int(alive["had"].sum()) - dead.height
        deleted = self._to_page(dead) if dead.height else None
        self._groups.write(self._to_page(alive), deleted, added=added, expired_before=self._expired)
        if dead.height:
            for values in self.values:
                values.forget(dead)

    def _to_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        page = self._layout.to_page(rows, [rows["hash"].alias("h")])
        more = [rows["n"]] if self._updating else []
        more += [
            rows["touched"] if "touched" in rows.columns else rows.with_columns_seq(each).get_column("touched")
            for each in self._touched
        ]
        return page.with_columns_seq(more) if more else page


class _Values:
    """A value table during a batch: `n0`, `n1`, … are how often a value occurs."""

    def __init__(
        self,
        layout: ValueTable,
        keys: Mapping[str, str],
        operator: GroupOperator,
        store: Store,
        known: dict[str, Any] | None,
        expired: int | None,
        touched: Sequence[pl.Expr],
    ) -> None:
        self.layout, self._updating = layout, operator.updating
        self._keys = list(keys)
        values = dict(zip(layout.columns, layout.page_names, strict=True))
        self._names = {**keys, **values, **{count.name: count.page_name for count in layout.counts}}
        self._types = operator._types | dict.fromkeys((count.name for count in layout.counts), pl.Int64())
        found = [*keys.values(), *values.values()]
        self.table = KeyedTable.decode(store, operator._epoch, layout.name, found, known)
        self._expired, self._touched = expired, list(touched)

    def apply(self, rows: pl.DataFrame, several: bool) -> pl.DataFrame:
        """Add a batch's counts to the table.

        rows: `g`, `hash`, keys, `seq`, values, their hashes, counts to add. several: whether they
        were prepared in several parts, so that a value may have several rows. Returns one row per
        value with `was0`, `is0`, …: whether it existed before, and exists now; by first arrival.
        """
        columns, counts = list(self.layout.columns), [count.name for count in self.layout.counts]
        adding = pl.col(counts).sum() if self._updating else pl.col(counts).max()
        facts = [pl.col("hash", *self._keys, *self.layout.hashes).first(), pl.col("seq").min(), adding]
        rows = reduce_groups(rows, ["g", *columns], facts) if several else rows
        rows = rows if rows["seq"].is_sorted() else rows.sort("seq")
        rows = rows.with_columns_seq(self._place().alias("h"), pl.col(counts).cast(pl.Int64))
        page = self.table.find(self._rename(rows), expired_before=self._expired)
        stored = page_columns(page, self._names, self._types)
        old = [
            each.alias(f"old_{name}") if name in counts else each
            for name, each in zip(self._names, stored, strict=True)
        ]
        found = pl.DataFrame([page["h"], *old, pl.Series("there", np.ones(page.height, dtype=bool))])
        on = ["h", *self._keys, *columns]
        rows = _join_found(rows, found, on)
        before = {name: pl.col(f"old_{name}").fill_null(0) for name in counts}
        now = [
            pl.col(name) + old if self._updating else pl.max_horizontal(name, old).alias(name)
            for name, old in before.items()
        ]
        rows = rows.with_columns_seq(*now, *before.values(), pl.col("there").fill_null(False))
        changed = pl.any_horizontal(pl.col(name) != pl.col(f"old_{name}") for name in counts)
        some = pl.any_horizontal(pl.col(name) != 0 for name in counts)
        marks = rows.select_seq(written=some if self._touched else some & changed, dead=~some & pl.col("there"))
        self._write(keep_rows(rows, marks["written"]), keep_rows(rows, marks["dead"]))
        return rows.select_seq(
            "g",
            "seq",
            *columns,
            *((pl.col(f"old_{name}") > 0).alias(f"was{at}") for at, name in enumerate(counts)),
            *((pl.col(name) > 0).alias(f"is{at}") for at, name in enumerate(counts)),
        )

    def of_groups(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Return all values of groups: `g`, `h`, keys, values, counts.

        groups: `g`, `hash`, keys.
        """
        page = self._from_page(self.table.scan(position_ranges(groups), expired_before=self._expired))
        owners = groups.select_seq("g", lowest_position().alias("low"), *self._keys)
        page = page.with_columns_seq(lowest_position("h").alias("low"))
        return page.join(owners, on=["low", *self._keys], nulls_equal=True)

    def forget(self, groups: pl.DataFrame) -> None:
        """Remove the remaining values of removed groups."""
        rows = self.of_groups(groups)
        self._write(rows.clear(), rows)

    def _place(self) -> pl.Expr:
        """Return the key of a value, such that the values of a group are adjacent: the upper half
        is the group's hash, the lower half the value's.
        """
        mixed = pl.col(self.layout.hashes[0])
        for name in self.layout.hashes[1:]:
            mixed = mixed * 31 + pl.col(name)
        return row_position(mixed)

    def _write(self, rows: pl.DataFrame, dead: pl.DataFrame) -> None:
        added = rows.height - int(rows["there"].sum()) if "there" in rows.columns else 0
        deleted = self._rename(dead) if dead.height else None
        self.table.write(self._rename(rows), deleted, added=added - dead.height, expired_before=self._expired)

    def _rename(self, rows: pl.DataFrame) -> pl.DataFrame:
        named = [rows[name].alias(known) for name, known in self._names.items() if name in rows.columns]
        touched = rows.with_columns_seq(self._touched)[["touched"]].get_columns() if self._touched else []
        return pl.DataFrame([rows["h"], *named, *touched])

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame([page["h"], *page_columns(page, self._names, self._types)])


def _until(window: InWindow) -> pl.Expr:
    """Return the time up to which the window of a group accepts rows."""
    return pl.col(f"k{window.end}").dt.epoch("ms") + window.lateness_ms


def _join_found(rows: pl.DataFrame, found: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Return rows in their order with the other columns of the found row of their keys, NULL if
    there is none.

    found: no key twice. on: a hash of the keys, and the keys. NULL keys are equal. Nothing is
    joined if `found` has the keys of `rows` one by one, as often for a single row. Only the hash of
    many rows is joined if no two different keys share one, which takes half the time.
    """
    if found.height == rows.height and all(found[key].equals(rows[key]) for key in on):
        return rows.hstack(found[[name for name in found.columns if name not in on]])
    hash, *keys = on
    if keys and rows.height >= FEW_ROWS:
        there = pl.Series("found", np.ones(found.height, dtype=bool))
        marked = found.rename({key: f"{key} found" for key in keys}).hstack([there])
        joined = rows.join(marked, on=hash, how="left", maintain_order="left")
        equal = pl.all_horizontal(pl.col(key).eq_missing(pl.col(f"{key} found")) for key in keys)
        if joined.height == rows.height and joined.select_seq((equal | pl.col("found").is_null()).all()).item():
            return joined.drop("found", *(f"{key} found" for key in keys))
    return rows.join(found, on=on, how="left", nulls_equal=True, maintain_order="left")


def _tag(table: int) -> pl.Expr:
    return pl.lit(table, dtype=pl.Int8).alias(TABLE)
