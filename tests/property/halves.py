"""Changed queries at work, in memory: what halves of an input give, and what a change is held against."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from everfold.compat import REFERENCE, CompatOptions, Verdict, judge, shape_of
from everfold.compat.judgement import Judgement, Status
from everfold.errors import StateError
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Root, WindowAggregate, WindowEmit, tables_of, walk_plan, walk_streamed
from everfold.plan.windows import Session as SessionWindow
from everfold.sql.planner import Session, Submit

ROWS = 60
COLUMNS = ("a", "b", "c", "d")


def planned(text: str, of_c: str = "INT", delay: int = 0) -> Root:
    """The plan of a query over MyTable or src; of_c: the type of c, a number or a text; delay: of the watermark, in seconds."""
    tables = "".join(
        f"CREATE TABLE {name} (a INT, b INT, c {of_c}, d INT, ts TIMESTAMP(3), proctime AS PROCTIME(), "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND) WITH ('connector' = 'print');"
        for name in ("MyTable", "src")
    )
    session = Session(lenient=True)
    (submit,) = [each for each in session.run(tables + text) if isinstance(each, Submit)]
    return submit.roots[0]


def planned_lenses(text: str) -> Root:
    """The plan of an INSERT of Lenses SQL over the topic MyTable, which has a key beside the columns of the table of that name."""
    table = "CREATE TABLE MyTable(_key INT, a INT, b INT, c INT, d INT, ts TIMESTAMP(3)) FORMAT (INT, JSON);"
    session = Session({"everfold.dialect": "lenses", "everfold.lenses.exact-tables": "true"}, lenient=True)
    (submit,) = [each for each in session.run(table + text) if isinstance(each, Submit)]
    return submit.roots[0]


def rows(seed: int, of_c: str = "INT") -> list[dict[str, Any]]:
    """Rows a second apart, few values, some NULL; the keys of records come again."""
    chance = random.Random(seed)
    made = []
    for at in range(ROWS):
        row: dict[str, Any] = {name: chance.choice([None, *range(6)]) for name in COLUMNS}
        if of_c == "STRING" and row["c"] is not None:
            row["c"] = f"text{row['c']}"
        made.append({**row, "_key": (at * 7) % 11, "ts": at * 1_000_000})
    return made


def batch(root: Root, part: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """Rows as the scans of a plan want them."""
    found = {}
    for table in tables_of(walk_streamed(root.input)):
        arrays = [pa.array([row[column.name] for row in part]).cast(column.type.arrow) for column in table.columns]
        names = [f"c{at}" for at in range(len(table.columns))]
        found[table.name] = pa.Table.from_arrays(arrays, names=names)
    return found


class Seen:
    """A pipeline and what has come out of it: rows of a result without changes one by one, else the result as it is now, by key where it has aggregates."""

    def __init__(self, root: Root, pipeline: MemoryPipeline | None = None) -> None:
        self.root, self.shape = root, shape_of(root)
        self.names = [each.name for each in self.shape.columns]
        self.keys = [each.name for each in self.shape.columns if all(call is None for _, call in each.origins)]
        self.pipeline = pipeline or MemoryPipeline(root, Session().settings, buckets=2)
        self.by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []
        self.folded: Counter[tuple[Any, ...]] = Counter()

    def feed(self, part: list[dict[str, Any]], *, last: bool = False) -> None:
        """Takes rows, a few at a time; last: the input ends behind them."""
        for start in range(0, len(part), 7):
            self._take(self.pipeline.feed(batch(self.root, part[start : start + 7]), now_ms=0))
        if last:
            self._take(self.pipeline.flush(now_ms=0))

    def _take(self, found: pa.Table) -> None:
        changes = KIND in found.column_names
        for row in found.to_pylist():
            values = dict(zip(self.names, (row[f"c{at}"] for at in range(len(self.names))), strict=True))
            if not changes:
                self.rows.append(values)
                continue
            comes = row[KIND] in (RowKind.INSERT, RowKind.UPDATE_AFTER)
            self.folded[only(values, self.names)] += 1 if comes else -1
            key = only(values, self.keys)
            if comes:
                self.by_key[key] = values
            elif row[KIND] == RowKind.DELETE:
                self.by_key.pop(key, None)

    @property
    def now(self) -> Counter[tuple[Any, ...]]:
        """A result with changes, row by row."""
        return Counter({row: count for row, count in self.folded.items() if count})


def only(values: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(repr(values[name]) for name in names)


def in_order(seen: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[tuple[Any, ...]]:
    wanted = list(names)
    return sorted(only(row, wanted) for row in seen)


def columns_of(judgement: Judgement, status: Status) -> list[str]:
    return [each.name for each in judgement.columns if each.status is status]


def hold(before: Root, after: Root, given: list[dict[str, Any]], terms: CompatOptions = REFERENCE) -> Judgement:
    """The old query takes half of the rows, the new one goes on with its state and takes the rest. Kept columns are those of a new query that has seen
    all rows, new columns those of one that has seen the second half only. A change that cannot be carried out is refused, and the old query goes on. terms: by which it is judged."""
    judgement = judge([shape_of(before)], [shape_of(after)], terms)
    settings = Session().settings
    if terms.extended:
        settings = settings.with_option("everfold.compat.rules", "extended")
    first, second = given[: len(given) // 2], given[len(given) // 2 :]
    running = Seen(before)
    running.feed(first)
    if not judgement.verdict.reuses_state:
        with pytest.raises(StateError, match="incompatible"):
            running.pipeline.change_query(after, 1, settings)
        never_stopped = Seen(before)
        never_stopped.feed(first)
        for each in (running, never_stopped):
            each.feed(second, last=True)
        assert (running.by_key, running.rows, running.now) == (
            never_stopped.by_key,
            never_stopped.rows,
            never_stopped.now,
        )
        return judgement
    changed = Seen(after, running.pipeline.change_query(after, 1, settings))
    changed.feed(second, last=True)
    whole, half = Seen(after), Seen(after)
    whole.feed(first)
    given_before = len(whole.rows)
    whole.feed(second, last=True)
    half.feed(second, last=True)
    kept, started = columns_of(judgement, Status.KEPT), columns_of(judgement, Status.STARTS)
    if not kept:
        assert terms.extended  # the last operator is new, and its rows are those since the restart
        return judgement
    assert in_order(changed.rows, kept) == in_order(whole.rows[given_before:], kept)
    if not shape_of(after).has_aggregates:
        if running.names == changed.names:
            changed.folded.update(running.folded)
            assert changed.now == whole.now
        return judgement
    for key, values in whole.by_key.items():
        # What is not touched any more was given by the old query, which had no columns that follow from others.
        now = changed.by_key.get(key) or running.by_key[key]
        there = [name for name in kept if name in now]
        assert only(now, there) == only(values, there)
    if terms.extended:
        # What starts may be over rows of an operator below that go on: half of the rows alone do not say what it is then.
        return judgement
    # A row is not given again as long as the new columns are what they are of no rows at all.
    nothing: dict[str, object] = {
        name: 0 if name.startswith("COUNT") else [] if name.startswith("LIST") else None for name in started
    }
    for key, values in half.by_key.items():
        if key not in whole.by_key and in_sessions(after):
            continue  # it was open, and began earlier
        assert only(changed.by_key.get(key, nothing), started) == only(values, started)
    return judgement


def hold_filled(before: Root, after: Root, given: list[dict[str, Any]]) -> None:
    """The new query goes on with the old one's state and is given the past: it cannot be told from one that has seen all rows."""
    judgement = judge([shape_of(before)], [shape_of(after)])
    if judgement.verdict is not Verdict.PARTIALLY:
        return
    first, second = given[: len(given) // 2], given[len(given) // 2 :]
    running, whole = Seen(before), Seen(after)
    running.feed(first)
    whole.feed(first)
    given_before = len(whole.rows)
    try:
        changed = Seen(after, running.pipeline.change_query(after, 1, history=batch(after, first)))
    except StateError as refused:
        if "sessions are emitted while they grow" not in str(refused):
            raise
        return
    for each in (changed, whole):
        each.feed(second, last=True)
    names = [each.name for each in judgement.columns if each.name in changed.names]
    assert in_order(changed.rows, names) == in_order(whole.rows[given_before:], names)
    if not shape_of(after).has_aggregates:
        return
    started = columns_of(judgement, Status.STARTS)
    for key, values in whole.by_key.items():
        # What the past does not change is not given again.
        now = changed.by_key.get(key) or {**dict.fromkeys(started), **running.by_key[key]}
        over = key not in changed.by_key and _is_over(values, after, first[-1]["ts"])
        for name in names if not over else set(names) - set(started):
            assert only(now, [name]) == only(values, [name]), (name, key)


def in_sessions(root: Root) -> bool:
    """Whether results are of sessions, which have other bounds when only some of the rows are seen."""
    windows = (node.window for node in walk_plan(root.input) if isinstance(node, WindowAggregate))
    return any(isinstance(window, SessionWindow) for window in windows)


def _is_over(values: Mapping[str, Any], root: Root, now_us: int) -> bool:
    """Whether a result that is given while its window grows is of one that takes no rows any more: what is new is not filled into it."""
    window = values["_key"].get("window") if isinstance(values.get("_key"), dict) else None
    lateness = [node.window.lateness_ms for node in walk_plan(root.input) if isinstance(node, WindowEmit)]
    if window is None or not lateness:
        return False
    end_us = (window["end"] - datetime(1970, 1, 1)) / timedelta(microseconds=1)
    return bool(end_us + 1000 * lateness[0] <= now_us)
