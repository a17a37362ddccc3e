"""Conditions and joins between an operator and the result, as HAVING: a change that is accepted may
leave rows in the table, or leave some out, only where the report says so.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from property.halves import ROWS, PipelineRun, batch, make_plan, pick_values, rows

from everfold.compat import REFERENCE, CompatOptions, judge, shape_of
from everfold.compat.columns import Meaning
from everfold.compat.judgement import Judgement
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Root
from everfold.sql.planner import Session

CALLS = ("SUM(b)", "MAX(b)", "MIN(c)", "COUNT(*)", "COUNT(c)", "MAX(d)")
TESTS = (
    "{call} > 2",
    "{call} IS NOT NULL",
    "COALESCE({call}, 0) < 4",
    "{call} BETWEEN 1 AND 9",
    "{call} IS NULL",
    "{call} <> 5",
)
TESTS_OF = {
    "join": ("{call} = x.k", "{call} - 1 = x.k"),
    "left join": ("{call} = x.k", "{call} - 1 = x.k"),
    "semi join": (
        "{call} IN (SELECT k FROM dim)",
        "{call} IN (SELECT w FROM dim)",
        "{call} NOT IN (SELECT v FROM dim WHERE v IS NOT NULL)",
    ),
    "collection": ("ARRAY[{call}]", "ARRAY[{call}, a]"),
}
"""The conditions of kinds that have one."""
FROM = {
    "groups": "SELECT a, {columns} FROM MyTable GROUP BY a HAVING {condition}",
    "subquery": "SELECT a, {names} FROM (SELECT a, {columns} FROM MyTable GROUP BY a) WHERE {condition_on_names}",
    "windows": "SELECT a, window_end, {columns} FROM TUMBLE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '20' SECOND) GROUP BY window_start, window_end, a HAVING {condition}",
    "join": "SELECT a, {names}, x.v FROM (SELECT a, {columns} FROM MyTable GROUP BY a) JOIN dim AS x ON {condition_on_names}",
    "left join": "SELECT a, {names}, x.v FROM (SELECT a, {columns} FROM MyTable GROUP BY a) LEFT JOIN dim AS x ON {condition_on_names}",
    "semi join": "SELECT a, {names} FROM (SELECT a, {columns} FROM MyTable GROUP BY a) WHERE {condition_on_names}",
    "collection": "SELECT a, {names}, v FROM (SELECT a, {columns} FROM MyTable GROUP BY a) CROSS JOIN UNNEST({condition_on_names}) AS x (v)",
    "branches": "SELECT a, {names} FROM (SELECT a, {columns} FROM MyTable GROUP BY a) WHERE {condition_on_names} UNION ALL SELECT c, {names} FROM (SELECT c, {columns} FROM MyTable GROUP BY c) WHERE {other_condition}",
    "top": "SELECT a, {names} FROM (SELECT a, {columns} FROM MyTable GROUP BY a HAVING {condition})",
}  # fmt: skip


def make_query(kind: str, calls: list[str], columns: list[str], conditions: list[tuple[str, str]]) -> str:
    """Return a query. columns: the calls of its result. conditions: each with its call."""
    named = {call: f"k{CALLS.index(call)}" for call in calls}
    shown = columns if kind in ("groups", "windows", "top") else calls
    written = [test.format(call=call) for test, call in conditions]
    on_names = [test.format(call=named[call]) for test, call in conditions]
    return FROM[kind].format(
        columns=", ".join(f"{call} AS {named[call]}" for call in shown),
        names=", ".join(named[call] for call in columns),
        condition=" AND ".join(written) or "TRUE",
        condition_on_names=" AND ".join(on_names if kind != "branches" else on_names[:1]) or "TRUE",
        other_condition=" AND ".join(on_names[1:]) or "TRUE",
    )


def make_change(kind: str, chance: random.Random) -> tuple[str, str]:
    """Return a query, and one with other conditions or another column."""
    columns = chance.sample(CALLS, 2)
    tests, is_one = TESTS_OF.get(kind, TESTS), kind in TESTS_OF
    conditions = [
        (chance.choice(tests), chance.choice(CALLS)) for _ in range(1 if is_one else chance.choice([0, 1, 1, 2]))
    ]

    def write(columns: list[str], conditions: list[tuple[str, str]]) -> str:
        return make_query(kind, list(dict.fromkeys([*columns, *(call for _, call in conditions)])), columns, conditions)

    before = write(columns, conditions)
    edit = chance.choice(
        ["replace", "replace", "column"] if is_one else ["add", "add", "drop", "replace", "column", "order"]
    )
    match edit:
        case "add":
            conditions = [*conditions, (chance.choice(tests), chance.choice(CALLS))]
        case "drop":
            conditions = conditions[1:]
        case "replace":
            conditions = [(chance.choice(tests), chance.choice(CALLS)), *conditions[1:]]
        case "column":
            columns = [*columns, *chance.sample([call for call in CALLS if call not in columns], 1)]
        case "order":
            conditions = conditions[::-1]
    return before, write(columns, conditions)


class Table:
    """The rows that the sink holds of each key."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.rows: dict[tuple[Any, ...], bool] = {}

    def read(self, root: Root, run: PipelineRun, part: list[dict[str, Any]], size: int, *, last: bool) -> None:
        """Feed rows, and take what is emitted."""
        starts = range(0, len(part), size)
        emitted = [run.pipeline.feed(batch(root, part[start : start + size]), now_ms=0) for start in starts]
        for table in [*emitted, *([run.pipeline.flush(now_ms=0)] if last else [])]:
            for row in table.to_pylist():
                comes = row.pop(KIND, 0) in (RowKind.INSERT, RowKind.UPDATE_AFTER)
                key = pick_values(dict(zip(run.names, row.values(), strict=True)), self.keys)
                self.rows[key] = comes

    @property
    def present(self) -> set[tuple[Any, ...]]:
        """The keys that have a row."""
        return {key for key, is_there in self.rows.items() if is_there}


def check(kind: str, seed: int, terms: CompatOptions = REFERENCE) -> Judgement:
    chance = random.Random(f"{kind} {seed}")
    texts = make_change(kind, chance)
    before, after = map(make_plan, texts)
    judgement = judge([shape_of(before)], [shape_of(after)], terms)
    if not judgement.verdict.reuses_state:
        return judgement
    if kind in ("join", "left join"):
        same_join = texts[0].partition(" ON ")[2] == texts[1].partition(" ON ")[2]
        (meaning,) = [column.meaning for column in judgement.columns if column.name == "v"]
        assert meaning is (Meaning.SAME if same_join else Meaning.CHANGED), texts
    inputs = rows(seed)
    first, second = inputs[: ROWS // 2], inputs[ROWS // 2 :]
    keys = ["a", *[name for name in ("window_end", "v") if name in PipelineRun(after).names]]
    size = chance.choice([1, 7])
    settings = Session().settings
    if terms.extended:
        settings = settings.with_option("everfold.compat.rules", "extended")
    is_final = kind == "windows"

    def run(*, refresh: bool) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
        """Return the table of the changed query, and that of a query that never stopped."""
        changed, whole = Table(keys), Table(keys)
        running, never_stopped = PipelineRun(before), PipelineRun(after)
        changed.read(before, running, first, size, last=False)
        whole.read(after, never_stopped, first, size, last=False)
        if is_final:  # results that were emitted before do not change
            changed, whole = Table(keys), Table(keys)
        pipeline = running.pipeline.change_query(after, 1, settings, refresh=refresh)
        changed.read(after, PipelineRun(after, pipeline), second, size, last=True)
        whole.read(after, never_stopped, second, size, last=True)
        return changed.present, whole.present

    changed, right = run(refresh=False)
    assert judgement.rows or changed == right, texts
    if judgement.rows:
        assert shape_of(before).conditions != shape_of(after).conditions, texts
        lasting = ("has no value for", "have no value for", "only a rebuild")
        if not is_final and not any(text in effect.message for effect in judgement.rows for text in lasting):
            refreshed, right = run(refresh=True)
            assert refreshed == right, texts
    return judgement


@pytest.mark.parametrize("kind", FROM)
def test_a_condition_affects_rows_only_as_the_report_says(kind: str) -> None:
    named = 0
    for seed in range(4):
        named += bool(check(kind, seed).rows)
    assert named >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", FROM)
def test_many_conditions_affect_rows_only_as_the_report_says(kind: str) -> None:
    for seed in range(100, 180):
        check(kind, seed, CompatOptions(extended=seed % 3 == 0))
