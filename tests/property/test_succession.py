"""Changed queries at work: the old one takes half of the rows, the new one goes on with its state and takes the rest.

Kept columns are those of a new query that has seen all rows, new columns those of one that has seen the second half only. A change that cannot be carried
out is refused, and the old query goes on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from everfold.compat import judge, shape_of
from everfold.compat.judgement import Judgement, Status
from everfold.errors import StateError
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit

CASES = Path(__file__).parents[1] / "cases" / "compat"
ROWS = 60
COLUMNS = ("a", "b", "c", "d")


def _seeds() -> Iterable[tuple[str, str, str]]:
    """Every example of the two seeds that has no Python function: its name, the old and the new query."""
    for path in sorted(CASES.glob("seed_*.compat.yaml")):
        for query in yaml.safe_load(path.read_text(encoding="utf-8"))["queries"]:
            for change in query["changes"]:
                if "weighted_avg" not in query["old"] + change["new"]:
                    yield f"{path.name.partition('.')[0]}: {change['name']}", query["old"], change["new"]


SEEDS = list(_seeds())


def planned(text: str, of_c: str) -> Root:
    """The plan of a query over MyTable or src; of_c: the type of c, a number or a text."""
    tables = "".join(
        f"CREATE TABLE {name} (a INT, b INT, c {of_c}, d INT, ts TIMESTAMP(3), proctime AS PROCTIME(), "
        "WATERMARK FOR ts AS ts) WITH ('connector' = 'print');"
        for name in ("MyTable", "src")
    )
    session = Session(lenient=True)
    (submit,) = [each for each in session.run(tables + text) if isinstance(each, Submit)]
    return submit.roots[0]


def rows(seed: int, of_c: str) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    made = []
    for at in range(ROWS):
        row: dict[str, Any] = {name: chance.choice([None, *range(6)]) for name in COLUMNS}
        if of_c == "STRING" and row["c"] is not None:
            row["c"] = f"text{row['c']}"
        made.append({**row, "ts": at * 1000})
    return made


def batch(root: Root, part: list[dict[str, Any]]) -> dict[str, pa.Table]:
    from everfold.plan.nodes import streamed, tables_of

    found = {}
    for table in tables_of(streamed(root.input)):
        arrays = [pa.array([row[column.name] for row in part]).cast(column.type.arrow) for column in table.columns]
        names = [f"c{at}" for at in range(len(table.columns))]
        found[table.name] = pa.Table.from_arrays(arrays, names=names)
    return found


class Seen:
    """A pipeline and what its result is by key, the rows of a result without changes one by one."""

    def __init__(self, root: Root, pipeline: MemoryPipeline | None = None) -> None:
        self.root, self.shape = root, shape_of(root)
        session = Session()
        self.pipeline = pipeline or MemoryPipeline(root, session.settings, buckets=2)
        self.by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []

    def feed(self, part: list[dict[str, Any]], *, last: bool = False) -> None:
        for start in range(0, len(part), 7):
            self._take(self.pipeline.feed(batch(self.root, part[start : start + 7]), now_ms=0))
        if last:
            self._take(self.pipeline.flush(now_ms=0))

    def _take(self, found: pa.Table) -> None:
        names = [each.name for each in self.shape.columns]
        keys = [each.name for each in self.shape.columns if all(call is None for _, call in each.origins)]
        changes = KIND in found.column_names
        for row in found.to_pylist():
            values = dict(zip(names, (row[f"c{at}"] for at in range(len(names))), strict=True))
            if not changes:
                self.rows.append(values)
            elif row[KIND] in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                self.by_key[tuple(values[key] for key in keys)] = values
            elif row[KIND] == RowKind.DELETE:
                self.by_key.pop(tuple(values[key] for key in keys), None)


def only(values: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(repr(values[name]) for name in names)


def in_order(seen: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[tuple[Any, ...]]:
    wanted = list(names)
    return sorted(only(row, wanted) for row in seen)


def columns_of(judgement: Judgement, status: Status) -> list[str]:
    return [each.name for each in judgement.columns if each.status is status]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "old", "new"), SEEDS, ids=[name for name, _, _ in SEEDS])
def test_examples_of_the_seeds_at_work(name: str, old: str, new: str, seed: int) -> None:
    of_c = "STRING" if "substring" in (old + new).lower() else "INT"
    before, after = planned(old, of_c), planned(new, of_c)
    judgement = judge([shape_of(before)], [shape_of(after)])
    first, second = (lambda all_: (all_[: ROWS // 2], all_[ROWS // 2 :]))(rows(seed, of_c))
    running = Seen(before)
    running.feed(first)
    if not judgement.verdict.reuses:
        with pytest.raises(StateError, match="incompatible"):
            running.pipeline.changed(after, 1)
        never_stopped = Seen(before)
        never_stopped.feed(first)
        for each in (running, never_stopped):
            each.feed(second, last=True)
        assert (running.by_key, running.rows) == (never_stopped.by_key, never_stopped.rows)
        return
    changed = Seen(after, running.pipeline.changed(after, 1))
    changed.feed(second, last=True)
    whole, half = Seen(after), Seen(after)
    whole.feed(first)
    given_before = len(whole.rows)
    whole.feed(second, last=True)
    half.feed(second, last=True)
    kept, started = columns_of(judgement, Status.KEPT), columns_of(judgement, Status.STARTS)
    assert in_order(changed.rows, kept) == in_order(whole.rows[given_before:], kept)
    for key, values in whole.by_key.items():
        now = changed.by_key.get(key) or running.by_key[key]
        assert only(now, kept) == only(values, kept)
    # A row is not given again as long as the new columns are what they are of no rows at all.
    nothing = {name: 0 if name.startswith("COUNT") else None for name in started}
    for key, values in half.by_key.items():
        assert only(changed.by_key.get(key, nothing), started) == only(values, started)
