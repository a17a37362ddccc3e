"""Change queries in memory after half of an input, and compare them with queries that never
changed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from everfold.compat import REFERENCE, CompatOptions, QueryShape, Verdict, judge, shape_of
from everfold.compat.columns import Status
from everfold.compat.judgement import Judgement
from everfold.connectors.registry import apply_connector
from everfold.errors import StateError
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Root, WindowAggregate, WindowEmit
from everfold.plan.walk import batch_inputs, tables_of, walk_plan, walk_streamed
from everfold.plan.windows import Session as SessionWindow
from everfold.sql.planner import Session, Submit

ROWS = 60
LOOKUPS = {
    "dim": pa.table(
        [pa.array(values, pa.int32()) for values in ([0, 1, 2, 3, 4], [7, 1, 5, 3, 9], [2, 8, 0, 6, 4])],
        ["c0", "c1", "c2"],
    )
}
"""The rows of bounded tables."""
COLUMNS = ("a", "b", "c", "d")


def make_plan(text: str, of_c: str = "INT", delay: int = 0) -> Root:
    """Return the plan of a query over MyTable or src, and over the bounded tables of `LOOKUPS`.
    of_c: the type of c, INT or STRING. delay: the watermark delay, in seconds.
    """
    tables = "".join(
        f"CREATE TABLE {name} (a INT, b INT, c {of_c}, d INT, ts TIMESTAMP(3), proctime AS PROCTIME(), "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND) WITH ('connector' = 'print');"
        for name in ("MyTable", "src")
    )
    tables += (
        "CREATE TABLE dim (k INT, v INT, w INT) WITH ('connector' = 'filesystem', 'path' = 'dim', 'format' = 'csv');"
    )
    session = Session(lenient=True, connected=apply_connector)
    (submit,) = [each for each in session.run(tables + text) if isinstance(each, Submit)]
    return submit.roots[0]


def make_lenses_plan(text: str) -> Root:
    """Return the plan of a Lenses SQL INSERT over the topic MyTable, which has a key in
    addition to the columns of the table of that name.
    """
    table = "CREATE TABLE MyTable(_key INT, a INT, b INT, c INT, d INT, ts TIMESTAMP(3)) FORMAT (INT, JSON);"
    session = Session({"everfold.dialect": "lenses", "everfold.lenses.exact-tables": "true"}, lenient=True)
    (submit,) = [each for each in session.run(table + text) if isinstance(each, Submit)]
    return submit.roots[0]


def rows(seed: int, of_c: str = "INT") -> list[dict[str, Any]]:
    """Return rows a second apart, with few values and some NULLs; keys of records repeat."""
    chance = random.Random(seed)
    made = []
    for at in range(ROWS):
        row: dict[str, Any] = {name: chance.choice([None, *range(6)]) for name in COLUMNS}
        if of_c == "STRING" and row["c"] is not None:
            row["c"] = f"text{row['c']}"
        made.append({**row, "_key": (at * 7) % 11, "ts": at * 1_000_000})
    return made


def batch(root: Root, part: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """Return rows in the format of the scans of a plan."""
    found = {}
    for table in tables_of(walk_streamed(root.input)):
        arrays = [pa.array([row[column.name] for row in part]).cast(column.type.arrow) for column in table.columns]
        names = [f"c{at}" for at in range(len(table.columns))]
        found[table.name] = pa.Table.from_arrays(arrays, names=names)
    return found


class PipelineRun:
    """A pipeline and its output.

    Rows of a result without changes are kept one by one. A result with changes is kept as it is
    now, by key where it has aggregates.
    """

    def __init__(self, root: Root, pipeline: MemoryPipeline | None = None) -> None:
        self.root, self.shape = root, shape_of(root)
        self.names = [each.name for each in self.shape.columns]
        self.keys = [each.name for each in self.shape.columns if all(call is None for _, call in each.origins)]
        lookups = {
            table.name: LOOKUPS[table.name].select([["k", "v", "w"].index(column.name) for column in table.columns])
            for each in batch_inputs(root.input)
            for table in tables_of(walk_plan(each))
        }
        lookups = {
            name: table.rename_columns([f"c{at}" for at in range(table.num_columns)]) for name, table in lookups.items()
        }
        self.pipeline = pipeline or MemoryPipeline(root, Session().settings, buckets=2, lookup_tables=lookups)
        self.by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []
        self.folded: Counter[tuple[Any, ...]] = Counter()

    def feed(self, part: list[dict[str, Any]], *, last: bool = False) -> None:
        """Feed rows, a few at a time. last: the input ends after them."""
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
            self.folded[pick_values(values, self.names)] += 1 if comes else -1
            key = pick_values(values, self.keys)
            if comes:
                self.by_key[key] = values
            elif row[KIND] == RowKind.DELETE:
                self.by_key.pop(key, None)

    @property
    def now(self) -> Counter[tuple[Any, ...]]:
        """Return the current rows of a result with changes."""
        return Counter({row: count for row, count in self.folded.items() if count})


def pick_values(values: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(repr(values[name]) for name in names)


def sort_rows(seen: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[tuple[Any, ...]]:
    wanted = list(names)
    return sorted(pick_values(row, wanted) for row in seen)


def columns_of(judgement: Judgement, status: Status) -> list[str]:
    return [each.name for each in judgement.columns if each.status is status]


def check_change(
    before: Root,
    after: Root,
    given: list[dict[str, Any]],
    terms: CompatOptions = REFERENCE,
    *,
    starts_with_input: bool = True,
) -> Judgement:
    """Check a change in the middle of an input.

    The old query reads half of the rows; the new one resumes with its state and reads the rest.
    Kept columns equal those of a new query that has read all rows, new columns those of one that
    has read only the second half. A change that cannot be carried out is refused, and the old query
    resumes. terms: the rules that judge the change. starts_with_input: whether new columns see the
    input since the change; else they see what a kept operator emits since then, and are not checked.
    """
    judgement = judge([shape_of(before)], [shape_of(after)], terms)
    settings = Session().settings
    if terms.extended:
        settings = settings.with_option("everfold.compat.rules", "extended")
    first, second = given[: len(given) // 2], given[len(given) // 2 :]
    running = PipelineRun(before)
    running.feed(first)
    if not judgement.verdict.reuses_state:
        with pytest.raises(StateError, match="incompatible"):
            running.pipeline.change_query(after, 1, settings)
        never_stopped = PipelineRun(before)
        never_stopped.feed(first)
        for each in (running, never_stopped):
            each.feed(second, last=True)
        assert (running.by_key, running.rows, running.now) == (
            never_stopped.by_key,
            never_stopped.rows,
            never_stopped.now,
        )
        return judgement
    changed = PipelineRun(after, running.pipeline.change_query(after, 1, settings))
    changed.feed(second, last=True)
    whole, half = PipelineRun(after), PipelineRun(after)
    whole.feed(first)
    given_before = len(whole.rows)
    whole.feed(second, last=True)
    half.feed(second, last=True)
    kept, started = columns_of(judgement, Status.KEPT), columns_of(judgement, Status.STARTS)
    if not kept:
        assert terms.extended  # the last operator is new, and its rows are those since the restart
        return judgement
    assert sort_rows(changed.rows, kept) == sort_rows(whole.rows[given_before:], kept)
    if not has_aggregates(shape_of(after)):
        if running.names == changed.names:
            changed.folded.update(running.folded)
            assert changed.now == whole.now
        return judgement
    for key, values in whole.by_key.items():
        # A row that was not touched again was emitted by the old query, without derived columns.
        now = changed.by_key.get(key) or running.by_key[key]
        there = [name for name in kept if name in now]
        assert pick_values(now, there) == pick_values(values, there)
    if terms.extended or not starts_with_input:
        # A new column may be computed over rows of an operator below that resumes. The second half
        # of the rows alone does not determine it then.
        return judgement
    # A row is not re-emitted while its new columns are NULL.
    nothing: dict[str, object] = dict.fromkeys(started)
    for key, values in half.by_key.items():
        if key not in whole.by_key and has_sessions(after):
            continue  # it was open and began earlier
        assert pick_values(changed.by_key.get(key, nothing), started) == pick_values(values, started)
    return judgement


def check_backfill(before: Root, after: Root, given: list[dict[str, Any]]) -> None:
    """Check a backfill: the new query resumes with the old state and reads the past.

    Its result is that of a query that has read all rows.
    """
    judgement = judge([shape_of(before)], [shape_of(after)])
    if judgement.verdict is not Verdict.PARTIALLY:
        return
    first, second = given[: len(given) // 2], given[len(given) // 2 :]
    running, whole = PipelineRun(before), PipelineRun(after)
    running.feed(first)
    whole.feed(first)
    given_before = len(whole.rows)
    try:
        changed = PipelineRun(after, running.pipeline.change_query(after, 1, history=batch(after, first)))
    except StateError as refused:
        if "sessions are emitted while they grow" not in str(refused):
            raise
        return
    for each in (changed, whole):
        each.feed(second, last=True)
    names = [each.name for each in judgement.columns if each.name in changed.names]
    assert sort_rows(changed.rows, names) == sort_rows(whole.rows[given_before:], names)
    if not has_aggregates(shape_of(after)):
        return
    started = columns_of(judgement, Status.STARTS)
    for key, values in whole.by_key.items():
        # Rows that the past does not change are not re-emitted.
        now = changed.by_key.get(key) or {**dict.fromkeys(started), **running.by_key[key]}
        over = key not in changed.by_key and _is_closed(values, after, first[-1]["ts"])
        for name in names if not over else set(names) - set(started):
            assert pick_values(now, [name]) == pick_values(values, [name]), (name, key)


def has_aggregates(shape: QueryShape) -> bool:
    """Return whether the result contains an aggregate of an operator."""
    return any(call is not None for each in shape.columns for _, call in each.origins)


def has_sessions(root: Root) -> bool:
    """Return whether results belong to sessions, whose bounds differ when only some of the rows
    are read.
    """
    windows = (node.window for node in walk_plan(root.input) if isinstance(node, WindowAggregate))
    return any(isinstance(window, SessionWindow) for window in windows)


def _is_closed(values: Mapping[str, Any], root: Root, now_us: int) -> bool:
    """Return whether a result that is emitted while its window grows belongs to a closed window.

    New columns are not backfilled into it.
    """
    window = values["_key"].get("window") if isinstance(values.get("_key"), dict) else None
    lateness = [node.window.lateness_ms for node in walk_plan(root.input) if isinstance(node, WindowEmit)]
    if window is None or not lateness:
        return False
    end_us = (window["end"] - datetime(1970, 1, 1)) / timedelta(microseconds=1)
    return bool(end_us + 1000 * lateness[0] <= now_us)
