"""Top-N and deduplication without windows: emit the first rows of each partition, and every change
of them.

`step` merges a batch's rows with the stored rows of their partitions, and compares the row numbers
before and after. State, the table `rows`, depends on the input. For an append-only input it has the
first `last` rows of each partition, since no other row can become one of them; if the rows are
ranked by arrival, only their number, since none of them is emitted again. For an updating input it
has all rows, since any may become one of the first.

Changes are keyed by row number where the result contains it or a partition has at most one row;
otherwise by the unique key of the input; without one a removed row is -D and an added one +I.
Source: flink 2.3 through `tests/cases/rank`. Retractions that match no row are ignored and counted,
as in Flink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from everfold.operators.changelog import INPUT_KIND, diff_pairs, empty_changes, sign, sort_deletes_first
from everfold.operators.clock import Clock
from everfold.operators.frame_pieces import Positions
from everfold.operators.frames import PART, count_within, number_within
from everfold.operators.kept_rows import KeptRows, TouchedRows
from everfold.operators.late_rows import take_late_rows
from everfold.operators.protocol import ClockSpec, LateRow, Meta, Stats, Step
from everfold.operators.ranking import RankedRows
from everfold.operators.reemit import mark_reemitted
from everfold.plan.changelog import KIND, ORDER
from everfold.plan.emitted_changes import is_updating
from everfold.plan.expressions import InputRef
from everfold.plan.keys import unique_key
from everfold.plan.nodes import Rank, time_attribute
from everfold.state.bucket_head import read_head, write_head
from everfold.state.partition_rows import NUMBER, number_rows
from everfold.state.segments import take_rows
from everfold.state.store import Store
from everfold.types import physical_name


class RankOperator:
    """The operator of a Rank without a window."""

    ordered = follows_order = True

    def __init__(self, name: str, node: Rank, clock: ClockSpec, epoch: int = 0, updating: bool = False) -> None:
        self.name, self._node, self._clock, self._epoch = name, node, clock, epoch
        self.updating = updating
        self._rows = RankedRows(node, newest_first=node.keeps_newest and not updating)
        self.schema = node.schema
        self.inputs, self.hash_columns = self._rows.inputs, self._rows.keys
        self._keeps_numbers = node.is_by_arrival and not updating
        self._time = None if updating else self._time_of_the_first()
        key = None if node.numbered or node.first == node.last else unique_key(node.input)
        self._identity = None if key is None else [self._rows.columns[at] for at in key]

    def __reduce__(self) -> tuple[type[RankOperator], tuple[str, Rank, ClockSpec, int, bool]]:
        return type(self), (self.name, self._node, self._clock, self._epoch, self.updating)

    def _time_of_the_first(self) -> str | None:
        """Return the event time column by which the first row of each partition is kept; None for
        other ranks.
        """
        node = self._node
        if len(node.order) != 1 or node.last != 1 or node.order[0].descending:
            return None
        key = node.order[0].expression
        if not isinstance(key, InputRef) or time_attribute(key, node.input.schema) != "rowtime":
            return None
        return self._rows.columns[key.position]

    def _not_late(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return the rows that are not before the watermark: a late row does not replace a first
        row that is final.
        """
        return rows if self._time is None else rows.filter(pl.col(self._time).dt.epoch("ms") >= since)

    def _take_late_rows(self, rows: pl.DataFrame, since: int) -> tuple[LateRow, ...]:
        assert self._time is not None
        at, names = pl.col(self._time).dt.epoch("ms"), self._rows.page_names
        return take_late_rows(rows.filter(at < since), at, names, since, is_window_end=False)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that may be among the first, with `sign` where they may be retracted."""
        rows = self._rows.normalize(rows)
        if self.updating:
            return rows.with_columns_seq(sign().alias("sign")).drop(INPUT_KIND)
        if self._time is not None:
            # Late rows are determined in `step`.
            return rows
        at, part = self._rows.order_rows(rows.with_columns_seq(pl.col("seq").alias(NUMBER)))
        return take_rows(rows, np.sort(at[number_within(part) <= self._node.last]))

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Process a batch's rows, advance the clock, and emit the changes of the first rows."""
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        since = clock.watermark
        live = clock.advance(metas)
        kept = self._load(store, head, clock.now_ms)
        arrived, ignored, late = head.get("arrived", 0), head.get("ignored", 0), head.get("late", 0)
        timely = [self._not_late(frame, since) for frame in prepared]
        dropped = sum(frame.height for frame in prepared) - sum(frame.height for frame in timely)
        late += dropped
        examples = self._take_late_rows(pl.concat(prepared), since) if dropped else ()
        frames = [frame for frame in timely if frame.height]
        found = self._changes_only(empty_changes(self.schema))
        if frames:
            rows = number_rows(frames, arrived)
            arrived += rows.height
            moved, before, now, missed = self._rank(rows, kept)
            ignored += missed
            found = self._diff(moved, before, now)
        head = {"clock": clock.encode(), "rows": kept.encode(), "arrived": arrived, "ignored": ignored, "late": late}
        write_head(store, self._epoch, head)
        stats = Stats(self.name, clock.watermark, late, kept.rows, ignored, late=examples)
        return Step(found, clock.forward_meta(self.name, live, metas), stats)

    def current(self, store: Store) -> pl.DataFrame:
        """Return the rows that are among the first of their partitions."""
        head = read_head(store, self._epoch)
        now_ms = Clock.decode(self._clock, head.get("clock")).now_ms
        rows = self._load(store, head, now_ms).all()
        at, part = self._rows.order_rows(rows)
        number = number_within(part)
        shown = np.flatnonzero((number >= self._node.first) & (number <= self._node.last))
        return mark_reemitted(self._result_rows(rows, at[shown], number[shown]))

    def _load(self, store: Store, head: dict[str, Any], now_ms: int) -> KeptRows:
        columns = list(self._rows.keys) if self._keeps_numbers else list(self._rows.page_names)
        return KeptRows(self._rows, columns, self._node.ttl_ms, self._epoch, store, head.get("rows"), now_ms)

    def _rank(self, rows: pl.DataFrame, kept: KeptRows) -> tuple[TouchedRows, Positions, Positions, int]:
        """Return the rows of the touched partitions that enter or leave the result or change their
        number in it, their row numbers before and after the batch, 0 for rows that are not in the
        result, and the number of retractions that matched no row.
        """
        node = self._node
        touched, ignored = kept.merge(rows, updating=self.updating)
        before, now = count_within(touched.part, touched.old), count_within(touched.part, touched.alive)
        kept.keep(touched, touched.alive if is_updating(node.input) else touched.alive & (now <= node.last))
        for numbers in (before, now):
            numbers[(numbers < node.first) | (numbers > node.last)] = 0
        moved = np.flatnonzero(before != now if node.numbered else (before > 0) != (now > 0))
        return touched.pick(moved), before[moved], now[moved], ignored

    # --- output -----------------------------------------------------------------------------------

    def _diff(self, moved: TouchedRows, before: Positions, now: Positions) -> pl.DataFrame:
        """Return the changes from the previous first rows to the current ones."""
        if not len(moved.at):
            return self._changes_only(empty_changes(self.schema))
        old, new = self._pair(moved, before, now)
        turn, number = moved.turn[np.maximum(old, new)], np.where(new >= 0, now[new], before[old])
        order = np.argsort(turn, kind="stable")
        old, new, turn, number = old[order], new[order], turn[order], number[order]
        old_at, new_at = (np.where(each >= 0, moved.at[each], -1) for each in (old, new))
        at, pair, kinds = diff_pairs(moved.rows, self._rows.columns, old_at, new_at)
        order = np.argsort(turn[pair], kind="stable")
        at, pair, kinds = at[order], pair[order], kinds[order]
        found = self._result_rows(moved.rows, at, number[pair])
        found = found.hstack([pl.Series(KIND, kinds), pl.Series(ORDER, turn[pair])])
        return self._changes_only(found if self._identity is None else sort_deletes_first(found))

    def _pair(self, moved: TouchedRows, before: Positions, now: Positions) -> tuple[Positions, Positions]:
        """Return for each key of the result the index of its row before the batch and now, -1 where
        there is none. The keys of a partition are sorted by row number.
        """
        had, has = np.flatnonzero(before), np.flatnonzero(now)
        if self._node.numbered or self._node.first == self._node.last:
            span = max(int(before.max()), int(now.max())) + 1
            key_before, key_now = moved.part[had] * span + before[had], moved.part[has] * span + now[has]
            # Both are sorted, and a stable sort merges them; `np.union1d` takes ten times as long.
            keys = np.sort(np.concatenate((key_before, key_now)), kind="stable")
            keys = keys[np.diff(keys, prepend=-1) > 0]
            old, new = np.full(len(keys), -1), np.full(len(keys), -1)
            old[keys.searchsorted(key_before)], new[keys.searchsorted(key_now)] = had, has
            return old, new
        of_new, of_old = self._identify(moved, has, "new"), self._identify(moved, had, "old")
        same = [name for name in of_new.columns if name != "new"]
        pairs = of_new.join(of_old, on=same, how="full", coalesce=True, nulls_equal=True)
        old, new = pairs["old"].fill_null(-1).to_numpy(), pairs["new"].fill_null(-1).to_numpy()
        order = np.argsort(np.where(new >= 0, now[new], before[old]), kind="stable")
        return old[order], new[order]

    def _identify(self, moved: TouchedRows, rows: Positions, name: str) -> pl.DataFrame:
        """Return the columns that identify some rows in the result, and their indexes."""
        columns = list(self._rows.columns) if self._identity is None else self._identity
        values = [moved.rows[column].gather(moved.at[rows]) for column in columns]
        found = pl.DataFrame([*values, pl.Series(PART, moved.part[rows])])
        # Equal rows without a key are distinguished by their number among themselves.
        nth = pl.int_range(pl.len()).over(PART, *columns) if self._identity is None else pl.lit(0)
        return found.with_columns_seq(nth.alias("nth"), pl.Series(name, rows))

    def _changes_only(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return changes, without their kinds if all of them are inserts."""
        return found if is_updating(self._node) else found.drop(KIND)

    def _result_rows(self, rows: pl.DataFrame, at: Positions, number: Positions) -> pl.DataFrame:
        """Return the rows with these indexes as result rows. number: their row numbers."""
        found = take_rows(rows[list(self._rows.columns)], at)
        numbers = [pl.Series(number)] if self._node.numbered else []
        return pl.DataFrame(
            each.alias(physical_name(place)) for place, each in enumerate([*found.get_columns(), *numbers])
        )
