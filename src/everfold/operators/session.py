"""SESSION windows: a window per key that ends when no row has arrived for the gap. Sessions that
touch are merged.

Rows, and sessions that tasks have already built from them, are intervals `start`, `end`
(exclusive). A bucket merges a batch's intervals with the open sessions of the same keys, with one
sort and one pass over whole columns. Lateness is decided after merging: a session, open ones
included, that is complete at the watermark before the batch is dropped and counted. So the order of
rows within a batch does not matter.

State: open sessions in `parts` tables by hash of the key (their number doubles as they fill). A
batch reads and writes the parts that it touches and those in which a session has become due: the
head page has the earliest end in each part.

Times are milliseconds of the wall clock in the node's zone. Source: flink 2.3 through
`tests/cases/window`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from everfold.aggregates.folding import SIGN, fold_rows, fold_slots, settle
from everfold.operators.backfill import sort_histories
from everfold.operators.changelog import INPUT_KIND, diff_rows, sign
from everfold.operators.clock import Clock
from everfold.operators.late_rows import take_late_rows
from everfold.operators.layout import has_local_zone, layout_of, normalize_keys, time_input
from everfold.operators.packed_keys import FEW_ROWS, repeat_rarely
from everfold.operators.protocol import END_OF_TIME, NO_WATERMARK, ClockSpec, InputColumn, LateRow, Stats, Step
from everfold.operators.state_names import StateNames
from everfold.operators.time_zones import closed_until
from everfold.operators.window_output import window_rows, window_values
from everfold.plan.changelog import KIND, ORDER
from everfold.plan.expressions import column_references
from everfold.plan.nodes import TimeKind, WindowAggregate, WindowTableFunction
from everfold.plan.windows import Session
from everfold.state.bucket_head import read_head, write_head
from everfold.state.runs import Runs
from everfold.state.store import Store
from everfold.types import physical_name

PART_ROWS = 8192
"""The number of parts doubles when they would hold more rows than this on average."""
_DISTINCT = 0.5
"""A task's rows are folded before the shuffle unless more than this share have their own key."""
_PARTS = 1 << 32
"""The upper half of the hash determines the part; the lower half has determined the bucket."""


class _Sessions(ABC):
    """The logic that both session operators share: merge intervals, decide which are late or
    complete, store the open ones.

    Items are rows with `hash`, keys, `start`, `end`, `n` (the number of new rows that they
    represent; 0 in state) and the columns of the subclass.
    """

    def __init__(
        self,
        name: str,
        node: WindowAggregate | WindowTableFunction,
        clock: ClockSpec,
        epoch: int,
        keys: tuple[str, ...],
    ) -> None:
        assert isinstance(node.window, Session), node.window
        self.name, self._node, self._clock, self._epoch = name, node, clock, epoch
        self._gap_ms = node.window.gap_ms
        self._lateness_ms = node.lateness_ms if isinstance(node, WindowAggregate) else None
        self._keys = self.hash_columns = keys
        self.schema = node.schema

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self._node, self._clock, self._epoch)

    def _new(self, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return a batch's items."""
        empty = self._empty()
        return pl.concat([empty, *(frame.select_seq(empty.columns) for frame in prepared if frame.height)])

    @property
    @abstractmethod
    def _shown_names(self) -> Mapping[str, str]:
        """The columns of items that examples of late rows have, with their names in pages."""

    @abstractmethod
    def _merge(self, items: pl.DataFrame) -> pl.DataFrame:
        """Return items with the `start` and `end` of their whole session, older ones first; `at` is
        the time of a row.
        """

    @abstractmethod
    def _to_page(self, items: pl.DataFrame) -> pl.DataFrame:
        """Rename the columns of items to their names in pages."""

    @abstractmethod
    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        """Return a page's items, with `n` = 0."""

    @abstractmethod
    def _emit(self, items: pl.DataFrame) -> pl.DataFrame:
        """Return the final rows of complete sessions."""

    @abstractmethod
    def _empty(self) -> pl.DataFrame:
        """Return items without rows."""

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Any]) -> Step:
        """Merge a batch's items with the bucket's open sessions, advance the clock, and emit the
        sessions that are complete.
        """
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        table = Runs.decode(store, self._epoch, "sessions", head.get("sessions"))
        earliest = {int(part): end for part, end in head.get("earliest", {}).items()}
        parts: int = head.get("parts", 1)
        late: int = head.get("late", 0)

        since = self._complete(clock)
        before_ms, examples = clock.watermark, tuple[LateRow, ...]()
        live = clock.advance(metas)
        upto = END_OF_TIME if clock.flush and self._lateness_ms is None else self._complete(clock)

        items = self._new(prepared)
        if self._node.time is TimeKind.PROCTIME and since != NO_WATERMARK:
            # The clock has stepped back: no row is late, and rows count at the time that the clock
            # had reached.
            items = items.with_columns_seq(pl.col("start").clip(since), pl.col("end").clip(since + self._gap_ms))
        touched = {part for part, end in earliest.items() if end <= upto}
        touched.update(items.select_seq(_part(parts).unique()).to_series().to_list())
        old = [self._from_page(page) for part in touched for page in table.read(part)]
        before, done = pl.concat([self._empty(), *old]), self._empty()
        if old or items.height:
            items = self._merge(pl.concat([*old, items]) if old else items)
            lost = pl.col("end") <= since
            dropped = items.filter(lost)
            late += int(dropped["n"].sum())
            examples = take_late_rows(dropped, pl.col("end"), self._shown_names, before_ms)
            items = items.filter(~lost)
            done = items.filter(pl.col("end") <= upto)
            kept = items.filter(pl.col("end") > max(since, upto))
            columns = [*self._empty().columns, "at"]
            frames = [kept.select_seq(columns)]
            rows = kept.height + sum(
                run.rows for part in table.index if part not in touched for run in table.index[part]
            )
            if rows > 2 * parts * PART_ROWS:
                while rows > parts * PART_ROWS:
                    parts *= 2
                others = [part for part in table.index if part not in touched]
                pages = [self._from_page(page) for part in others for page in table.read(part)]
                frames += [page.with_columns_seq(pl.col("start").alias("at")).select_seq(columns) for page in pages]
                touched.update(others)
            for part in touched:
                table.drop(part)
                earliest.pop(part, None)
            placed = pl.concat(frames).with_columns_seq(_part(parts).alias("part"))
            for (part,), page in placed.partition_by("part", as_dict=True).items():
                table.append(part, self._to_page(page))
                earliest[part] = int(page["end"].min())  # type: ignore[arg-type]
        if clock.flush and done.height:
            clock.close(int(done["end"].max()))  # type: ignore[arg-type]

        head = {
            "clock": clock.encode(),
            "sessions": table.encode(),
            "earliest": {str(part): end for part, end in sorted(earliest.items())},
            "parts": parts if table.index else 1,
            "late": late,
        }
        write_head(store, self._epoch, head)
        stats = Stats(self.name, clock.watermark, late, table.rows, late=examples)
        return Step(self._output(before, items, done), clock.forward_meta(self.name, live, metas), stats)

    def _complete(self, clock: Clock) -> int:
        """Return the end of the last window that no longer accepts rows, in local milliseconds."""
        closed = max(closed_until(clock.watermark, self._node.zone), clock.closed)
        return closed if closed == NO_WATERMARK else closed - (self._lateness_ms or 0)

    def _output(self, before: pl.DataFrame, items: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
        """Return the output rows of a batch.

        before: the touched sessions as they were. items: the touched sessions as they are now.
        done: the complete sessions.
        """
        return self._emit(done)


class SessionOperator(_Sessions):
    """GROUP BY window_start, window_end and the keys of a SESSION: one final row per session."""

    def __init__(
        self, name: str, node: WindowAggregate, clock: ClockSpec, epoch: int = 0, updating: bool = False
    ) -> None:
        self._layout, self.updating = layout_of(node, updating), updating
        super().__init__(name, node, clock, epoch, self._layout.keys)
        self.inputs, self.hash_columns = self._layout.inputs, self._layout.hash_keys
        self._slots = self._layout.slots
        self.ordered = self.follows_order = self._layout.ordered

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self._node, self._clock, self._epoch, self.updating)

    @property
    def _shown_names(self) -> Mapping[str, str]:
        return self._layout.key_names

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return one row per session of the task's own rows: `hash`, keys, `start`, `end`, `n`,
        slots, and `seq` of its first row if row order matters.

        If most keys have a single row, the rows are returned unfolded, since folding would not pay
        off.
        """
        rows = rows.with_columns_seq(*normalize_keys(self._layout.inputs, self._keys)).rename({"ts": "start"})
        rows = rows.with_columns_seq((pl.col("start") + self._gap_ms).alias("end"))
        if self.updating:
            rows = rows.with_columns_seq(sign().alias(SIGN))
        lifted = [fold.lifted for fold in self._layout.folds]
        if not self.ordered and rows.height > FEW_ROWS and repeat_rarely(rows["hash"], _DISTINCT):
            slots = [slot for each in lifted if each is not None for slot in each]
            if None not in lifted:
                one = pl.lit(1, dtype=pl.Int64).alias("n")
                return rows.select_seq("hash", *self._keys, "start", "end", one, *slots)
        rows = _number_sessions(rows, self._keys)
        facts = [*self._facts(), pl.len().cast(pl.Int64).alias("n")]
        if self.ordered:
            rows, facts = rows.sort("seq", maintain_order=True), [*facts, pl.col("seq").min()]
        folded = settle(fold_rows(rows, ["session"], self._layout.folds, facts), self._layout.folds, whole=False)
        return folded.select_seq("hash", *self._keys, "start", "end", "n", *self._slots, *["seq"] * self.ordered)

    def final_until(self, head: Mapping[str, Any]) -> int:
        """Return the end of the last session that is complete, in local milliseconds."""
        return self._complete(Clock.decode(self._clock, head.get("clock")))

    def history(self, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """Return one row per key and time: `hash`, `start`, `seq` if row order matters, keys,
        slots.

        None can be omitted: rows of other tasks may connect it to an open session.
        """
        rows = rows.with_columns_seq(*normalize_keys(self._layout.inputs, self._keys)).rename({"ts": "start"})
        facts = [pl.col("hash").first(), *(pl.col("seq").min() for _ in range(self.ordered))]
        folded = fold_rows(rows, ["start", *self._keys], self._layout.folds, facts)
        folded = settle(folded, self._layout.folds, whole=False)
        return self._layout.to_page(folded, ["hash", "start", *["seq"] * self.ordered])

    def fill(self, store: Store, histories: Sequence[pl.DataFrame], *, repeated: bool = False) -> pl.DataFrame:
        """Merge past rows into the open sessions.

        Emits no rows: they are emitted when their sessions are complete.
        """
        head = read_head(store, self._epoch)
        table = Runs.decode(store, self._epoch, "sessions", head.get("sessions"))
        rows = pl.concat([self._layout.from_page(each, ["hash", "start"]) for each in sort_histories(histories)])
        rows = rows.with_columns_seq(pl.col("start").alias("end"), pl.lit(1, dtype=pl.Int64).alias("n"))
        parts: int = head.get("parts", 1)
        for (part,), added in (
            rows.with_columns_seq(_part(parts).alias("part")).partition_by("part", as_dict=True).items()
        ):
            stored = [self._from_page(page) for page in table.read(part)]
            if stored:
                table.append(part, self._to_page(self._within(pl.concat(stored), added.select_seq(stored[0].columns))))
        write_head(store, self._epoch, head | {"sessions": table.encode()})
        return self._emit(self._empty())

    def _within(self, sessions: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Return past rows that are within stored sessions (which have `n` = 0), one row per
        session, with its bounds.
        """
        items = pl.concat([sessions, rows]).with_row_index("arrival")
        items = _number_sessions(items, self._keys).sort("arrival")
        bounds = items.filter(pl.col("n") == 0).group_by("session").agg(pl.col("start").min(), pl.col("end").max())
        found = items.filter(pl.col("n") > 0).join(bounds, on="session", suffix="_of", maintain_order="left")
        inside = (pl.col("start") >= pl.col("start_of")) & (pl.col("start") + self._gap_ms <= pl.col("end_of"))
        found = found.filter(inside).with_columns_seq(pl.col("start_of").alias("start"), pl.col("end_of").alias("end"))
        return fold_slots(found, ["session"], self._layout.folds, [*self._facts(), pl.col("n").sum()])

    def _new(self, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        frames = [frame for frame in prepared if frame.height]
        if self.ordered and frames:
            return super()._new([pl.concat(frames).sort("seq", maintain_order=True)])
        return super()._new(frames)

    def _merge(self, items: pl.DataFrame) -> pl.DataFrame:
        if self.ordered:
            items = _number_sessions(items.with_row_index("arrival"), self._keys).sort("arrival")
        else:
            items = _number_sessions(items, self._keys)
        folded = fold_slots(items, ["session"], self._layout.folds, [*self._facts(), pl.col("n").sum()])
        return settle(folded, self._layout.folds, whole=True).with_columns_seq(pl.col("start").alias("at"))

    def _facts(self) -> list[pl.Expr]:
        return [pl.col("hash", *self._keys).first(), pl.col("start").min(), pl.col("end").max()]

    def _to_page(self, items: pl.DataFrame) -> pl.DataFrame:
        return self._layout.to_page(items, ["hash", "start", "end"])

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        items = self._layout.from_page(page, ["hash", "start", "end"]).with_columns_seq(
            pl.lit(0, dtype=pl.Int64).alias("n")
        )
        return items.select_seq(self._empty().columns)

    def _empty(self) -> pl.DataFrame:
        fixed = dict.fromkeys(("hash", "start", "end", "n"), pl.Int64())
        return self._layout.empty(fixed).select_seq("hash", *self._keys, "start", "end", "n", *self._slots)

    def _emit(self, items: pl.DataFrame) -> pl.DataFrame:
        if items.is_empty():
            return self._no_output
        return window_rows(items, self._layout, self.schema, self._node.zone)

    @cached_property
    def _no_output(self) -> pl.DataFrame:
        """The output of a batch that completes no session, which most small batches are."""
        return window_rows(self._empty(), self._layout, self.schema, self._node.zone)


class GrowingSessionOperator(SessionOperator):
    """A SessionOperator that emits a session from its first row on, and its changes.

    A session that grows is replaced by another one.
    """

    def _output(self, before: pl.DataFrame, items: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
        old, new = self._emit(before), self._emit(items)
        names = old.columns
        by = [*names[: len(self._keys)], *names[-3:]]
        values = [name for name in names if name not in by]
        old = old.rename({name: f"old_{name}" for name in values}).with_columns_seq(pl.lit(True).alias("had"))
        new = new.with_columns_seq(pl.lit(True).alias("has"))
        both = new.join(old, on=by, how="full", coalesce=True, nulls_equal=True)
        both = both.with_columns_seq(
            pl.col("had", "has").fill_null(False),
            pl.lit(0, dtype=pl.Int64).alias("seq"),
            *(pl.col(name).alias(f"old_{name}") for name in by),
        )
        found = diff_rows(both, names, [f"old_{name}" for name in names], had=pl.col("had"), has=pl.col("has"))
        return found.drop(ORDER)


class SessionRowsOperator(_Sessions):
    """SELECT * FROM SESSION(…): the rows of each session with its bounds, once it is complete.

    If the input has changes (`updating`), so has a session: all of them are emitted in their order,
    and each counts for the bounds, as in Flink.
    """

    def __init__(
        self, name: str, node: WindowTableFunction, clock: ClockSpec, epoch: int = 0, updating: bool = False
    ) -> None:
        self.updating = self.ordered = self.follows_order = updating
        below = node.input.schema
        keys = tuple(f"k{at}" for at in range(len(node.partition_keys)))
        super().__init__(name, node, clock, epoch, keys)
        columns = column_references(below)
        self._columns = tuple(f"r{at}" for at in range(len(below)))
        self.inputs = (
            time_input(node),
            *map(InputColumn.of, keys, (columns[position] for position in node.partition_keys)),
            *map(InputColumn.of, self._columns, columns),
        )
        self._page_names = dict(zip(self._columns, StateNames(node).name_columns(), strict=True))
        self._kind = [INPUT_KIND] * updating

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self._node, self._clock, self._epoch, self.updating)

    @property
    def _shown_names(self) -> Mapping[str, str]:
        return self._page_names

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows unchanged: `hash`, keys, `start`, `end`, `n`, columns; of changes `kind`
        and `seq`, too.
        """
        rows = rows.with_columns_seq(*normalize_keys(self.inputs, self._keys)).rename({"ts": "start"})
        rows = rows.with_columns_seq(
            (pl.col("start") + self._gap_ms).alias("end"), pl.lit(1, dtype=pl.Int64).alias("n")
        )
        return rows.select_seq(*self._empty().columns, *["seq"] * self.updating)

    def _new(self, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        frames = [frame for frame in prepared if frame.height]
        if self.updating and frames:
            return super()._new([pl.concat(frames).sort("seq", maintain_order=True)])
        return super()._new(frames)

    def _merge(self, items: pl.DataFrame) -> pl.DataFrame:
        # Pages keep the order of arrival.
        items = _number_sessions(items.with_row_index("arrival") if self.updating else items, self._keys)
        bounds = items.group_by("session", maintain_order=True).agg(pl.col("start").min(), pl.col("end").max())
        own = items.with_columns_seq(pl.col("start").alias("at"))
        number = items["session"]
        own = own.with_columns_seq(bounds["start"].gather(number), bounds["end"].gather(number)).drop("session")
        return own.sort("arrival").drop("arrival") if self.updating else own

    def _to_page(self, items: pl.DataFrame) -> pl.DataFrame:
        named = [pl.col(name).alias(known) for name, known in self._page_names.items()]
        return items.select_seq("hash", *self._keys, "at", *self._kind, *named)

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        named = [pl.col(known).alias(name) for name, known in self._page_names.items()]
        return page.select_seq(
            "hash",
            *self._keys,
            pl.col("at").alias("start"),
            (pl.col("at") + self._gap_ms).alias("end"),
            pl.lit(0, dtype=pl.Int64).alias("n"),
            *self._kind,
            *named,
        )

    def _empty(self) -> pl.DataFrame:
        types = {each.name: each.type.polars for each in self.inputs}
        fixed = dict.fromkeys(("start", "end", "n"), pl.Int64()) | dict.fromkeys(self._kind, pl.Int8())
        keys = {key: types[key] for key in self._keys}
        return pl.DataFrame(
            schema={"hash": pl.Int64(), **keys, **fixed, **{name: types[name] for name in self._columns}}
        )

    def _emit(self, items: pl.DataFrame) -> pl.DataFrame:
        if "at" in items.columns:
            items = items.sort("end", "start", *self._keys, *["at"] * (not self.updating), maintain_order=True)
        columns = [pl.col(name).alias(physical_name(at)) for at, name in enumerate(self._columns)]
        changes = [pl.col(INPUT_KIND).alias(KIND), pl.col("end").alias(ORDER)] if self.updating else []
        return items.select_seq(
            *columns, *window_values(items["end"], self.schema, self._node.zone, has_local_zone(self.schema)), *changes
        )


def _part(parts: int) -> pl.Expr:
    return (pl.col("hash") // _PARTS) % parts


def _number_sessions(items: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Sort items by key and start, and add the number of their `session`.

    A new session begins where the key changes, and where an item starts after the end of all
    earlier items of the key.
    """
    if not items["start"].is_sorted():
        items = items.sort("start", maintain_order=True)
    if keys:
        items = items.sort("hash", maintain_order=True)
    changed = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys) if keys else pl.lit(False)
    hashed = pl.col("hash") != pl.col("hash").shift()
    first = pl.int_range(pl.len()) == 0
    if keys and items.select_seq((changed & ~hashed & ~first).any()).item():
        # Two keys have the same hash: only sorting by the keys separates them.
        items = items.sort("hash", *keys, "start", maintain_order=True)
    items = items.with_columns_seq(
        (~first & (changed | hashed) if keys else pl.lit(False)).cum_sum().cast(pl.Int64).alias("group")
    )
    lowest, highest = items.select_seq(pl.col("start").min().alias("low"), pl.col("end").max().alias("high")).row(0)
    groups = 0 if items.is_empty() else int(items["group"][-1]) + 1
    if groups * (highest - lowest + 1 if groups else 0) < 1 << 62:
        # Shift each key to a separate range of time, so that one running maximum works for all
        # keys.
        moved = pl.col("group") * (highest - lowest + 1 if groups else 0) - (lowest or 0)
        reached = (pl.col("end") + moved).cum_max().shift()
        begins = (pl.col("start") + moved > reached).fill_null(False)
    else:
        reached = pl.col("end").cum_max().over("group").shift()
        begins = ((pl.col("start") > reached) | (pl.col("group") != pl.col("group").shift())).fill_null(False)
    numbered = items.with_columns_seq(begins.cum_sum().cast(pl.Int64).alias("session")).drop("group")
    return numbered.with_columns_seq(pl.col("session").set_sorted())
