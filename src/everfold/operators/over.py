"""OVER in a stream: compute the aggregates of each row's frame once the watermark passes the row.

`step` computes the slots of every row alone, buffers rows until the watermark passes them, and then
computes their frames (`frames`) over the earlier rows of their partition. State, by kind of frame:

- `waiting`: whole rows that the watermark has not passed yet, by their time.
- `rows` (bounded frames): the slots of emitted rows that a later frame may include, by partition. A
  frame of n rows keeps the last n of each partition; a frame bounded by time keeps the rows of one
  and a half times its length, because that is how long Flink recognizes late rows.
- `totals` (unbounded frames): the slots of all emitted rows, one row per partition.

With an unbounded frame, a row is late if the watermark has passed it; with a bounded one, if it is
not later than the latest emitted row of its partition. Late rows are dropped and counted. Rows of
the same time are sorted by further keys (without calls only), then in arrival order; in a frame
bounded by time they are peers. By processing time all rows are emitted at once, in arrival order,
and have no peers. Source: the seed on OVER; flink 2.3 through `tests/cases/over`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.aggregates.folding import compact_slots, compute_results, fold_slots, settle
from everfold.aggregates.registry import Signature, lookup
from everfold.operators.clock import Clock
from everfold.operators.frame_pieces import Positions
from everfold.operators.frames import (
    PART,
    add_slots,
    aggregate_frames,
    frame_bounds,
    frame_retention_ms,
    is_exact_fold,
    partition_order,
)
from everfold.operators.late_rows import take_late_rows
from everfold.operators.layout import (
    Folds,
    Layout,
    folds_of,
    normalize_keys,
    page_columns,
)
from everfold.operators.normalize import SWEPT_PAGES
from everfold.operators.protocol import END_OF_TIME, NO_WATERMARK, ClockSpec, InputColumn, Meta, Stats, Step
from everfold.operators.state_names import StateNames
from everfold.plan.changelog import ORDER
from everfold.plan.expressions import InputRef, column_references
from everfold.plan.nodes import Frame, OverAggregate, SortKey, TimeKind
from everfold.state.bucket_head import read_head, write_head
from everfold.state.keyed import KeyedTable
from everfold.state.partition_rows import NUMBER, number_positions, number_rows, position_ranges
from everfold.state.runs import Runs
from everfold.state.segments import take_rows
from everfold.state.store import Store
from everfold.types import BIGINT, FloatingType, MapType, physical_name

_WAITING_PLACES, _PLACE_ROWS = 32, 1024
"""The greatest number of time ranges into which the waiting rows of a batch are divided, and the
least number of rows in each on average.
"""
_TIME = "time"


class OverOperator:
    """The operator of an OverAggregate in a stream."""

    updating = False
    ordered = follows_order = True

    def __init__(self, name: str, node: OverAggregate, clock: ClockSpec, epoch: int = 0) -> None:
        self.name, self._node, self._clock, self._epoch = name, node, clock, epoch
        self.schema = node.schema
        self._by_arrival = node.time is TimeKind.PROCTIME
        below = node.input.schema
        time = node.order[0].expression
        inputs = [InputColumn(name=_TIME, expression=time, type=BIGINT, as_ms=True)]
        # In canonical order, so that the hash of a partition does not depend on how they are
        # written.
        state_names = StateNames(node)
        named = sorted(zip(state_names.name_keys(node.partition), range(len(node.partition)), strict=True))
        partition = [node.partition[position] for _, position in named]
        self._keys = tuple(f"k{at}" for at in range(len(partition)))
        inputs += map(InputColumn.of, self._keys, partition)
        self._columns = tuple(f"r{at}" for at in range(len(below)))
        inputs += map(InputColumn.of, self._columns, column_references(below))
        folds = folds_of(node, node.calls, inputs)
        if self._by_arrival:
            folds = _rank_by_arrival(folds)
        names = dict(zip(self._keys, (name for name, _ in named), strict=True))
        self._column_names = dict(zip(self._columns, state_names.name_columns(), strict=True))
        self._layout = Layout(
            tuple(inputs), self._keys, folds.folds, folds.calls, names | folds.page_names, folds.slot_types
        )
        self._types = {each.name: each.type.polars for each in inputs}
        self._order = _TimeOrder(node.order[1:], self._columns)
        self._repeated = {
            each.name: self._columns[each.expression.position]
            for each in inputs
            if isinstance(each.expression, InputRef) and self._is_repeated(each)
        }
        self.inputs = tuple(each for each in inputs if each.name not in self._repeated)
        self.hash_columns = tuple(self._repeated.get(key, key) for key in self._keys)
        self._none = self._empty()

    def __reduce__(self) -> tuple[type[OverOperator], tuple[str, OverAggregate, ClockSpec, int]]:
        return type(self), (self.name, self._node, self._clock, self._epoch)

    # --- input ------------------------------------------------------------------------------------

    def _is_repeated(self, column: InputColumn) -> bool:
        """Return whether a column of the input plan is passed to the operator once more under this
        name. A key that is normalized has other values.
        """
        normalized = column.name in self._keys and isinstance(column.type, FloatingType | MapType)
        return not (column.name in self._columns or column.as_ms or column.as_hash or normalized)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return each row with normalized keys: `hash`, `seq` and the columns of `inputs`."""
        normalized = normalize_keys(self.inputs, self._keys)
        rows = rows.with_columns_seq(normalized) if normalized else rows
        return rows[["hash", "seq", *(each.name for each in self.inputs)]]

    def _add_slots(self, rows: pl.DataFrame, order: str) -> pl.DataFrame:
        """Return prepared rows with the slots of each alone: `hash`, `time`, keys, columns, slots,
        and the column `order`.
        """
        repeated = [rows[name].alias(again) for again, name in self._repeated.items()]
        rows = add_slots(rows.hstack(repeated), self._layout.folds)
        return rows[["hash", _TIME, *self._keys, *self._columns, *self._layout.slots, order]]

    # --- a batch ----------------------------------------------------------------------------------

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Process a batch's rows, advance the clock, and emit the rows that the watermark has
        passed.
        """
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        since = max(clock.watermark, clock.closed)
        before = clock.watermark
        live = clock.advance(metas)
        upto = END_OF_TIME if clock.flush else clock.watermark

        waiting = Runs.decode(store, self._epoch, "waiting", head.get("waiting"))
        past = _Past(self, store, head, clock.now_ms)
        rows = self._number(prepared, head)
        late = rows.clear()
        if self._by_arrival:
            due = rows.with_columns_seq(pl.lit(clock.now_ms, dtype=pl.Int64).alias(_TIME))
            due = self._order.sort(due) if self._order.has_further_keys else due
        else:
            rows, late = past.not_late(rows, since)
            due = self._due(rows, waiting, since, upto)
        out = self._compute(due, past, since if clock.flush else upto)
        if clock.flush and due.height:
            clock.close(int(due[_TIME].max()))  # type: ignore[arg-type]

        head = {
            "clock": clock.encode(),
            "waiting": waiting.encode(),
            "arrived": head.get("arrived", 0) + sum(frame.height for frame in prepared),
            "late": head.get("late", 0) + late.height,
            **past.encode(since if clock.flush else upto),
        }
        write_head(store, self._epoch, head)
        names = self._layout.key_names | self._column_names
        examples = take_late_rows(late, pl.col(_TIME), names, before, is_window_end=False)
        stats = Stats(self.name, clock.watermark, head["late"], waiting.rows + past.rows, late=examples)
        return Step(out, clock.forward_meta(self.name, live, metas), stats)

    # --- backfill ---------------------------------------------------------------------------------

    def final_until(self, head: Mapping[str, Any]) -> int:
        """Return the time up to which rows have been emitted."""
        clock = Clock.decode(self._clock, head.get("clock"))
        return max(clock.watermark, clock.closed)

    def history(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return the slots of the rows that a bucket may still hold: `hash`, `seq`, `time`, keys,
        slots.

        With an unbounded frame the rows up to `since` are one row per partition, whose time is
        before all times.
        """
        rows = self._add_slots(self.prepare(rows), "seq").drop(self._columns)
        waiting, out = rows.filter(pl.col(_TIME) > since), rows.filter(pl.col(_TIME) <= since)
        frame = self._node.frame
        if frame.first is None:
            facts = [pl.col("hash").first(), pl.col("seq").min(), pl.lit(NO_WATERMARK, dtype=pl.Int64).alias(_TIME)]
            out = fold_slots(out.sort("seq"), self._keys, self._layout.folds, facts)
            out = settle(out, self._layout.folds, whole=False)
        elif frame.rows:
            kept = pl.col(_TIME).sort().tail(_kept_rows(frame)).first()
            out = out.filter(pl.col(_TIME) >= (kept.over(self._keys) if self._keys else kept))
        else:
            out = out.filter(pl.col(_TIME) >= since - frame_retention_ms(frame))
        return self._layout.to_page(pl.concat([out.select_seq(rows.columns), waiting]), ["hash", "seq", _TIME])

    def fill(self, store: Store, histories: Sequence[pl.DataFrame], *, repeated: bool = False) -> pl.DataFrame:
        """Add past slots to the waiting rows, and to what is stored of emitted rows.

        A row is found by its partition, its time, and its arrival order among the rows of that
        time. Emits no rows: they are emitted when the watermark passes them.
        """
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        waiting = Runs.decode(store, self._epoch, "waiting", head.get("waiting"))
        past = _Past(self, store, head, clock.now_ms)
        fixed = ["hash", "seq", _TIME]
        rows = pl.concat([self._layout.from_page(each, fixed) for each in histories]).sort("seq")
        past.fill(rows, self.final_until(head))
        pages = [
            self._from_page(page).with_columns_seq(pl.lit(at, dtype=pl.Int64).alias("at"))
            for at in waiting.index
            for page in waiting.read(at)
        ]
        if pages:
            filled = self._fill_slots(pl.concat(pages), rows)
            for (at,), part in filled.partition_by("at", as_dict=True, include_key=False).items():
                waiting.drop(at)
                waiting.append(at, self._to_page(part))
        write_head(
            store, self._epoch, head | {"waiting": waiting.encode(), **past.encode(head.get("time", NO_WATERMARK))}
        )
        return self._result_rows(self._none, [])

    def _fill_slots(self, rows: pl.DataFrame, history: pl.DataFrame, last: bool = False) -> pl.DataFrame:
        """Merge the slots of past rows (by `seq`) into those of rows with `number`, ordered by that
        number.

        last: rows of the same time are counted from the last one, as the first ones may no longer
        be stored.
        """
        nth = pl.int_range(pl.len(), 0, -1) if last else pl.int_range(pl.len())
        by = ["hash", *self._keys, _TIME]
        rows, history = (
            each.with_columns_seq(nth.over(by).alias("nth")) for each in (rows.sort(NUMBER), history.sort("seq"))
        )
        slots = self._layout.slots
        wanted = rows.select_seq(*by, "nth").with_row_index("row")
        found = wanted.join(history.select_seq(*by, "nth", *slots), on=[*by, "nth"], nulls_equal=True)
        both = pl.concat([rows.select_seq(slots).with_row_index("row"), found.select_seq("row", *slots)])
        merged = fold_slots(both, ["row"], self._layout.folds).sort("row")
        merged = settle(merged, self._layout.folds, whole=False)
        return rows.drop("nth", *slots).hstack(merged.select_seq(slots)).select_seq(rows.drop("nth").columns)

    # --- the rows of a batch ----------------------------------------------------------------------

    def _number(self, prepared: Sequence[pl.DataFrame], head: dict[str, Any]) -> pl.DataFrame:
        """Return a batch's rows in arrival order, numbered after the earlier ones."""
        frames = [frame for frame in prepared if frame.height]
        if not frames:
            return self._none
        return self._add_slots(number_rows(frames, head.get("arrived", 0)), NUMBER)

    def _due(self, rows: pl.DataFrame, waiting: Runs, since: int, upto: int) -> pl.DataFrame:
        """Return the rows that the watermark has passed, by time and arrival, and buffer the
        others.

        A late row that still counts waits until the watermark advances.
        """
        left = rows
        if upto > since:
            pages: dict[tuple[str, ...], list[pl.DataFrame]] = {}
            for at in [at for at in waiting.index if at <= upto]:
                for page in waiting.read(at):
                    pages.setdefault(tuple(page.columns), []).append(page)
                waiting.drop(at)
            rows = pl.concat([*(self._from_page(pl.concat(each)) for each in pages.values()), rows])
            rows = self._order.sort(rows.rechunk())
            count = int(rows[_TIME].to_numpy().searchsorted(upto, "right"))
            rows, left = rows.head(count), rows.slice(count)
        else:
            rows = self._none
        for at, part in _split_by_time(left).items():
            waiting.append(at, self._to_page(part))
            waiting.compact(at, self._compact)
        return rows

    def _compute(self, due: pl.DataFrame, past: _Past, upto: int) -> pl.DataFrame:
        """Return the due rows with the values of their frames, by time and arrival.

        upto: the time up to which the watermark has now passed all rows.
        """
        if due.is_empty():
            return self._result_rows(self._none, [])
        order, part = partition_order(due, self._keys)
        rows = due[["hash", _TIME, NUMBER, *self._keys, *self._layout.slots]]
        before = past.of(take_rows(due[["hash", *self._keys]], order[np.flatnonzero(np.diff(part, prepend=-1))]))
        if before.height:
            # The earlier rows of a partition come first: a stable sort keeps the order of both.
            order = np.concatenate((np.arange(before.height), order + before.height))
            part = np.concatenate((before[PART].to_numpy(), part))
            by_part = np.argsort(part, kind="stable")
            order, part = order[by_part], part[by_part]
            rows = before[rows.columns].vstack(rows).rechunk()
        ordered = take_rows(rows[[_TIME, *self._layout.slots]], order).hstack([pl.Series(PART, part)])
        first, last = frame_bounds(part, ordered[_TIME].to_numpy(), self._node.frame, peers=not self._by_arrival)
        is_due = order >= before.height
        if before.height:
            first, last = first[is_due], last[is_due]
        merged = aggregate_frames(ordered, self._layout.folds, first, last)
        past.keep(rows, order, ordered, is_due, merged, upto)
        merged = settle(merged, self._layout.folds, whole=True)
        names = [physical_name(len(self._columns) + at) for at in range(len(self._layout.calls))]
        values = compute_results(merged, [self._layout.folds[at] for at in self._layout.calls], names)
        back = np.empty(due.height, dtype=np.int64)
        back[order[is_due] - before.height] = np.arange(due.height)
        return self._result_rows(due, take_rows(pl.DataFrame(values), back).get_columns())

    def _result_rows(self, due: pl.DataFrame, values: Sequence[pl.Series]) -> pl.DataFrame:
        columns = [due[name].alias(physical_name(at)) for at, name in enumerate(self._columns)]
        if not values:
            types = [call.type.polars for call in self._node.calls]
            values = [pl.Series(physical_name(len(columns) + at), [], of) for at, of in enumerate(types)]
        return pl.DataFrame([*columns, *values, due[_TIME].alias(ORDER)])

    # --- pages of waiting rows --------------------------------------------------------------------

    def _compact(self, pages: list[pl.DataFrame]) -> pl.DataFrame:
        return self._to_page(pl.concat(map(self._from_page, pages)))

    def _to_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        named = [rows[name].alias(known) for name, known in self._column_names.items()]
        return self._layout.to_page(rows, [*named, "hash", _TIME, NUMBER])

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        columns = page_columns(page, self._column_names, self._types)
        return self._layout.from_page(page, [*columns, "hash", _TIME, NUMBER])[self._none.columns]

    def _empty(self) -> pl.DataFrame:
        fixed = {"hash": pl.Int64(), _TIME: pl.Int64()}
        keys = {key: self._types[key] for key in self._keys}
        columns = {name: self._types[name] for name in self._columns}
        return pl.DataFrame(schema={**fixed, **keys, **columns, **self._layout.slot_types, NUMBER: pl.Int64()})


class _TimeOrder:
    """The order of rows by time, then by further keys, which are columns, then by arrival."""

    def __init__(self, further: Sequence[SortKey], columns: Sequence[str]) -> None:
        self.has_further_keys = bool(further)
        self._by = [_TIME]
        for key in further:
            assert isinstance(key.expression, InputRef), key
            self._by.append(columns[key.expression.position])
        self._descending = [False, *(key.descending for key in further)]
        self._nulls_last = [True, *(not key.nulls_first for key in further)]

    def sort(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows, which have `time` and `number`, in this order."""
        if self.has_further_keys:
            descending, nulls_last = [*self._descending, False], [*self._nulls_last, True]
            return rows.sort([*self._by, NUMBER], descending=descending, nulls_last=nulls_last)
        return _sort_by_time(rows)


class _Past:
    """What is stored of emitted rows, during a batch."""

    def __init__(self, operator: OverOperator, store: Store, head: dict[str, Any], now_ms: int) -> None:
        node, self._layout, self._keys = operator._node, operator._layout, operator._keys
        self._frame, self._by_arrival = node.frame, operator._by_arrival
        self._unbounded = node.frame.first is None
        self._names = self._layout.key_names
        name = "totals" if self._unbounded else "rows"
        keys = [*self._names.values(), *([] if self._unbounded else [NUMBER])]
        self._table = KeyedTable.decode(store, operator._epoch, name, keys, head.get(name))
        self._name = name
        # Rows of a frame bounded by time expire by their own time, all others by processing time,
        # if there is a TTL.
        self._timed = not self._unbounded and not node.frame.rows
        self._ttl_ms = frame_retention_ms(node.frame) if self._timed else node.ttl_ms
        self._fill_slots = operator._fill_slots
        self._now_ms = now_ms
        self._since = head.get("time", NO_WATERMARK)

    @property
    def rows(self) -> int:
        """Rows in the table."""
        return self._table.rows

    @property
    def _expired(self) -> int | None:
        if self._timed:
            now = self._now_ms if self._by_arrival else self._since
            return now - self._ttl_ms if now != NO_WATERMARK else None
        return self._now_ms - self._ttl_ms if self._ttl_ms else None

    def encode(self, upto: int) -> dict[str, Any]:
        """Return the state for the head page, after sweeping a few cold pages.

        upto: the time up to which the watermark has now passed all rows.
        """
        self._since = max(self._since, upto)
        if self._expired is not None:
            self._table.sweep(self._expired, SWEPT_PAGES)
        return {self._name: self._table.encode(), "time": self._since}

    def not_late(self, rows: pl.DataFrame, since: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows that are not late, and the late ones."""
        if since == NO_WATERMARK or rows.is_empty() or rows[_TIME].min() > since:  # type: ignore[operator]
            return rows, rows.clear()
        if self._unbounded:
            kept = pl.col(_TIME) > since
            return rows.filter(kept), rows.filter(~kept)
        maybe = rows.filter(pl.col(_TIME) <= since)
        partition = ["hash", *self._keys]
        youngest = (
            self.of(maybe.select_seq(partition).unique()).group_by(partition).agg(pl.col(_TIME).max().alias("last"))
        )
        late = maybe.join(youngest, on=partition, nulls_equal=True).filter(pl.col(_TIME) <= pl.col("last"))
        return rows.filter(~pl.col(NUMBER).is_in(late[NUMBER].implode())), late

    def of(self, partitions: pl.DataFrame) -> pl.DataFrame:
        """Return the earlier rows of partitions, in order: `hash`, keys, `time`, `number`, slots,
        and the position of their partition as `part`.

        partitions: `hash` and keys, none twice.
        """
        on = ["hash", *self._keys]
        numbered = partitions[on].hstack([pl.Series(PART, np.arange(partitions.height))])
        if self._unbounded:
            keys = [pl.col(key).alias(name) for key, name in self._names.items()]
            wanted = partitions.select_seq(pl.col("hash").alias("h"), *keys)
            page = self._table.find(wanted, expired_before=self._expired)
            found = self._layout.from_page(page, [page["h"].alias("hash")])
            first = pl.lit(NO_WATERMARK, dtype=pl.Int64)
            found = found.with_columns_seq(first.alias(_TIME), pl.lit(-1, dtype=pl.Int64).alias(NUMBER))
            return found.join(numbered, on=on, nulls_equal=True)
        page = self._table.scan(position_ranges(partitions), expired_before=self._expired)
        if page.is_empty():
            fixed = {"hash": pl.Int64(), _TIME: pl.Int64(), NUMBER: pl.Int64(), PART: pl.Int64()}
            return self._layout.empty(fixed)
        found = self._layout.from_page(page, ["hash", _TIME, NUMBER])
        return _sort_by_time(_add_part(found, numbered, on))

    def fill(self, history: pl.DataFrame, upto: int) -> None:
        """Add past slots to the stored rows, without adding a partition or a row.

        upto: the time up to which the bucket's rows have been emitted.
        """
        stored = self.of(history.select_seq("hash", *self._keys).unique()).drop(PART)
        if stored.is_empty():
            return
        if not self._unbounded:
            filled = self._fill_slots(stored, history, last=not self._timed)
            page = self._to_page(filled)
        else:
            out = history.filter(pl.col(_TIME) <= upto)
            slots = ["hash", *self._keys, *self._layout.slots]
            out = out.join(stored, on=["hash", *self._keys], how="semi", nulls_equal=True).select_seq(slots)
            facts = [pl.col("hash").first().alias("h")]
            merged = fold_slots(
                pl.concat([stored.select_seq(slots), out]), ["hash", *self._keys], self._layout.folds, facts
            )
            folds = self._layout.folds
            page = self._layout.to_page(compact_slots(settle(merged, folds, whole=True), folds), ["h"])
            if self._ttl_ms:
                page = page.with_columns_seq(pl.lit(self._now_ms, dtype=pl.Int64).alias("touched"))
        self._table.write(page, added=0, expired_before=self._expired)

    def keep(
        self,
        rows: pl.DataFrame,
        order: Positions,
        ordered: pl.DataFrame,
        is_due: npt.NDArray[np.bool_],
        merged: pl.DataFrame,
        upto: int,
    ) -> None:
        """Store the slots that later frames need, and discard those that none needs any more.

        order: the positions of the rows by partition. ordered: `part`, time and slots in this
        order. is_due: which of these are not stored yet. merged: the slots of their frames. upto:
        see `encode`.
        """
        self._since = max(self._since, upto)
        part = ordered[PART].to_numpy()
        ends = np.flatnonzero(np.diff(part, append=part[-1] + 1))
        if self._unbounded:
            self._keep_totals(take_rows(rows, order[ends]), ordered, is_due, merged, ends)
            return
        dead, added = rows.clear(), 0
        if self._timed:
            written_at = is_due
            if not self._by_arrival and self._expired is not None:
                written_at = is_due & (ordered[_TIME].to_numpy() >= self._expired)
            written = take_rows(rows, order[written_at])
            added = written.height
        else:
            # The last of each partition.
            kept = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(part)) < _kept_rows(self._frame)
            dead = take_rows(rows, order[~is_due & ~kept])
            # A partition expires as a whole, so with a TTL all its rows are touched.
            written = take_rows(rows, order[kept if self._ttl_ms else is_due & kept])
            added = int((is_due & kept).sum()) - dead.height
        deleted = self._to_page(dead) if dead.height else None
        self._table.write(self._to_page(written), deleted, added=added, expired_before=self._expired)

    def _keep_totals(
        self,
        partitions: pl.DataFrame,
        ordered: pl.DataFrame,
        is_due: npt.NDArray[np.bool_],
        merged: pl.DataFrame,
        ends: Positions,
    ) -> None:
        """Store the slots of each partition.

        partitions: `hash` and keys. ends: the position of the last row of each.
        """
        folds = self._layout.folds
        # The frame of a partition's last row is the partition.
        exact = [slot for fold in folds if is_exact_fold(ordered, fold) for slot in fold.slots]
        totals = partitions.select_seq(pl.col("hash").alias("h"), *self._keys)
        if exact:
            totals = totals.hstack(take_rows(merged.select_seq(exact), (np.cumsum(is_due) - 1)[ends]))
        others = [fold for fold in folds if not is_exact_fold(ordered, fold)]
        if others:
            folded = fold_slots(ordered.with_columns_seq(pl.col(PART).set_sorted()), [PART], others).sort(PART)
            totals = totals.hstack(folded.drop(PART))
        page = self._layout.to_page(compact_slots(settle(totals, folds, whole=True), folds), ["h"])
        if self._ttl_ms:
            page = page.with_columns_seq(pl.lit(self._now_ms, dtype=pl.Int64).alias("touched"))
        stored = int((~is_due).sum())  # one row per partition
        self._table.write(page, added=page.height - stored, expired_before=self._expired)

    def _to_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        page = self._layout.to_page(rows, [number_positions(rows), "hash", _TIME, NUMBER])
        if self._timed:
            page = page.hstack([page[_TIME].alias("touched")])
        elif self._ttl_ms:
            page = page.with_columns_seq(pl.lit(self._now_ms, dtype=pl.Int64).alias("touched"))
        return page


def _add_part(found: pl.DataFrame, partitions: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Return the stored rows of these partitions with the columns of their partition.

    found: at least one row. partitions: has `hash` and the other keys `on`, none twice.
    """
    hashes = partitions["hash"].to_numpy()
    order = np.argsort(hashes)
    nth = np.searchsorted(hashes[order], found["hash"].to_numpy())
    owners = take_rows(partitions, order[np.minimum(nth, len(order) - 1)])
    if all(owners[key].equals(found[key]) for key in on):  # no two partitions have the same hash
        return found.hstack(owners[[name for name in owners.columns if name not in on]])
    return found.join(partitions, on=on, nulls_equal=True)


def _split_by_time(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Divide rows into ranges of time of the same length, by where these begin; few rows are one
    range or two.
    """
    if rows.is_empty():
        return {}
    times = rows[_TIME].to_numpy()
    places = min(-(-rows.height // _PLACE_ROWS), _WAITING_PLACES)
    width = 1 << (int(times.max() - times.min()) // places).bit_length()
    begins = times // width * width
    if (begins == begins[0]).all():
        return {int(begins[0]): rows}
    ranges = rows.hstack([pl.Series("at", begins)]).partition_by("at", as_dict=True, include_key=False)
    return {at: part for (at,), part in ranges.items()}


def _sort_by_time(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by time and arrival; most often they are sorted already."""
    time, number = rows[_TIME].to_numpy(), rows[NUMBER].to_numpy()
    later = time[1:] > time[:-1]
    if (later | ((time[1:] == time[:-1]) & (number[1:] > number[:-1]))).all():
        return rows
    return rows.sort(_TIME, NUMBER)


def _rank_by_arrival(folds: Folds) -> Folds:
    """Return the folds with ranks replaced by the row number: in arrival order no two rows are
    peers, although the rows of a batch share their processing time.
    """
    number = lookup("ROW_NUMBER")
    assert number is not None
    ranked = tuple(
        replace(fold, entry=number, of=Signature(()), columns=(), slots=fold.slots[:1])
        if fold.entry.takes_order_key
        else fold
        for fold in folds.folds
    )
    slots = [slot for fold in ranked for slot in fold.slots]
    names = {slot: folds.page_names[slot] for slot in slots}
    return replace(folds, folds=ranked, page_names=names, slot_types={slot: folds.slot_types[slot] for slot in slots})


def _kept_rows(frame: Frame) -> int:
    """Return how many rows of a partition are kept for a frame that counts rows.

    At least one, which determines what is late.
    """
    return max(-(frame.first or 0), 1)
