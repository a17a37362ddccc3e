"""Columns that are computed from kept and from new aggregates: the commonest change of a query.

The job resumes, a retraction repeats the row that was emitted, with NULL in new columns, and each
column is as the report says.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from property.halves import ROWS, PipelineRun, batch, make_plan, rows

from everfold.compat import CompatOptions, judge, shape_of
from everfold.compat.columns import Status
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Root
from everfold.sql.planner import Session

CALLS = (
    "SUM(b)", "MAX(b)", "MIN(c)", "COUNT(*)", "COUNT(c)", "AVG(c)", "COUNT(DISTINCT b)", "SUM(d) FILTER (WHERE c > 2)",
    "FIRST_VALUE(d)", "LAST_VALUE(c)",
)  # fmt: skip
MIXES = (
    "{kept} / NULLIF({new}, 0)", "{kept} + {new}", "COALESCE({new}, 0) - {kept}", "CASE WHEN {new} > 2 THEN {kept} ELSE -1 END",
    "{kept} * 10 + COALESCE({new}, 0)", "{new} IS NULL OR {kept} > {new}", "NULLIF({kept}, {new})",
)  # fmt: skip
ALONE = ("COALESCE({new}, 0)", "{new} + 1", "CASE WHEN {new} > 2 THEN 'many' ELSE 'few' END")
FROM = {
    "groups": "SELECT a, {columns} FROM MyTable GROUP BY a",
    "one group": "SELECT {columns} FROM MyTable",
    "windows": "SELECT a, window_start, {columns} FROM TUMBLE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '20' SECOND) GROUP BY window_start, window_end, a",
    "hops": "SELECT a, window_start, {columns} FROM HOP(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND) GROUP BY window_start, window_end, a",
    "sessions": "SELECT a, window_start, {columns} FROM SESSION(TABLE MyTable PARTITION BY a, DESCRIPTOR(ts), INTERVAL '9' SECOND) GROUP BY window_start, window_end, a",
}  # fmt: skip
UPDATING = ("groups", "one group")


class Changed:
    """An old query that reads half of the rows, and a new one that resumes and reads the rest, both
    row by row.
    """

    def __init__(self, kind: str, chance: random.Random) -> None:
        kept = chance.sample(CALLS, chance.choice([1, 2]))
        new = chance.sample([call for call in CALLS if call not in kept], chance.choice([1, 2]))
        self.names = {f"k{at}": call for at, call in enumerate(kept)}
        columns = [f"{call} AS {name}" for name, call in self.names.items()]
        self.expected: dict[str, Status] = dict.fromkeys(self.names, Status.KEPT)
        more = []
        for at, call in enumerate(new):
            more.append(f"{call} AS n{at}, {chance.choice(ALONE).format(new=call)} AS o{at}")
            self.expected |= dict.fromkeys((f"n{at}", f"o{at}"), Status.STARTS)
            mix = "{kept} / {new}" if call == "COUNT(*)" else chance.choice(MIXES)
            more.append(f"{mix.format(kept=chance.choice(kept), new=call)} AS m{at}")
            self.expected[f"m{at}"] = Status.MIXED
        self.before = FROM[kind].format(columns=", ".join(columns))
        self.after = FROM[kind].format(columns=", ".join([*columns, *more]))


def run(root: Root, pipeline: MemoryPipeline, part: list[dict[str, Any]], size: int, *, last: bool) -> list[pa.Table]:
    tables = [pipeline.feed(batch(root, part[at : at + size]), now_ms=0) for at in range(0, len(part), size)]
    return [*tables, pipeline.flush(now_ms=0)] if last else tables


def read_changes(tables: list[pa.Table], names: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """Return the kind and the values of each emitted row."""
    return [
        (row.pop(KIND, 0), dict(zip(names, row.values(), strict=True))) for table in tables for row in table.to_pylist()
    ]


def freeze(values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(value)) for name, value in values.items())


def check(seed: int, kind: str, *, is_backfilled: bool, refresh: bool = False) -> None:
    chance = random.Random(f"{kind} {seed}")
    change = Changed(kind, chance)
    before, after = make_plan(change.before), make_plan(change.after)
    given = rows(seed)
    first, second = given[: ROWS // 2], given[ROWS // 2 :]
    options = CompatOptions(extended="DISTINCT" in change.after or "FILTER" in change.after)
    settings = Session().settings
    if options.extended:
        settings = settings.with_option("everfold.compat.rules", "extended")
    judgement = judge([shape_of(before)], [shape_of(after)], options)
    statuses = {column.name: column.status for column in judgement.columns if column.name in change.expected}
    derived = any(finding.code == "AGG008" for each in judgement.operators for finding in each.findings)
    assert derived or statuses == change.expected, judgement
    running = PipelineRun(before)
    size = chance.choice([1, 7])
    emitted = run(before, running.pipeline, first, size, last=False)
    history = batch(after, first) if is_backfilled else None
    if is_backfilled and kind in UPDATING and "DISTINCT" in change.after:
        return  # the values of DISTINCT are not backfilled
    pipeline = running.pipeline.change_query(after, 1, settings, history, refresh=refresh)
    old_names = [column.name for column in shape_of(before).columns]
    names = [column.name for column in shape_of(after).columns]
    # The rows that the sink holds: those of the old query lack the new columns. A column that is
    # computed from kept aggregates alone has its value in retractions, too.
    derived_names = {name for name, status in statuses.items() if status is Status.KEPT} - {*old_names}
    held = [name for name in names if name not in derived_names]
    table = Counter[tuple[tuple[str, str], ...]]()
    for row_kind, values in read_changes(emitted, old_names):
        padded = freeze({name: values.get(name) for name in held})
        table[padded] += 1 if row_kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    changes = read_changes(run(after, pipeline, second, size, last=True), names)
    whole = PipelineRun(after)
    always = read_changes(run(after, whole.pipeline, [*first, *second], size, last=True), names)
    keys = [name for name in names if name not in change.expected]
    if kind in UPDATING:
        for row_kind, values in changes:
            row = freeze({name: values[name] for name in held})
            if refresh and row_kind == RowKind.UPDATE_AFTER and row in +table:
                continue
            table[row] += 1 if row_kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
            assert table[row] in (0, 1), (change.after, values)
    is_late = {tuple(repr(row[key]) for key in keys) for row in started_groups(change.before, keys, first)}
    now, right = last_rows(changes, keys), last_rows(always, keys)
    for key, values in now.items():
        for name, status in statuses.items():
            if status is Status.KEPT or is_backfilled or key not in is_late:
                assert repr(values[name]) == repr(right[key][name]), (change.after, key, name)


def started_groups(query: str, keys: list[str], part: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups and windows that have rows in a part of the input."""
    root = make_plan(query)
    run_ = PipelineRun(root)
    names = [column.name for column in shape_of(root).columns]
    return [values for _, values in read_changes(run(root, run_.pipeline, part, 60, last=True), names)]


def last_rows(changes: list[tuple[int, dict[str, Any]]], keys: list[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the last row that was emitted of each key."""
    added = (RowKind.INSERT, RowKind.UPDATE_AFTER)
    return {tuple(repr(values[key]) for key in keys): values for kind, values in changes if kind in added}


@pytest.mark.parametrize("kind", FROM)
def test_mixed_columns_are_as_the_report_says(kind: str) -> None:
    for seed in range(3):
        check(seed, kind, is_backfilled=False)
        check(seed, kind, is_backfilled=True)
    if kind in UPDATING:
        for seed in range(8, 10):
            check(seed, kind, is_backfilled=False, refresh=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FROM)
def test_many_mixed_columns_are_as_the_report_says(kind: str) -> None:
    for seed in range(100, 250):
        check(seed, kind, is_backfilled=bool(seed % 2), refresh=kind in UPDATING and seed % 5 == 0)


INNER_CALLS = ("SUM(b)", "COUNT(*)", "MAX(d)", "COUNT(d)", "MIN(b)")
OUTER_FUNCTIONS = ("AVG", "SUM", "MAX", "MIN", "COUNT")
ARGUMENTS = ("p + q", "p - q", "COALESCE(q, 0) + p", "CASE WHEN q > 1 THEN p END")


def check_inside_a_call(seed: int, *, is_backfilled: bool) -> bool:
    """Check an aggregate over a kept and a new aggregate below, by the extended rules: it is mixed,
    and a backfill makes it right. Return whether the change is accepted.
    """
    chance = random.Random(f"inside {seed}")
    kept, new = chance.sample(INNER_CALLS, 2)
    function, argument, size = chance.choice(OUTER_FUNCTIONS), chance.choice(ARGUMENTS), chance.choice([1, 7])
    template = "SELECT c, COUNT(*) AS n, {call} AS m FROM (SELECT a, c, {below} FROM MyTable GROUP BY a, c) GROUP BY c"
    before = make_plan(template.format(call=f"{function}(p)", below=f"{kept} AS p"))
    after = make_plan(template.format(call=f"{function}({argument})", below=f"{kept} AS p, {new} AS q"))
    judgement = judge([shape_of(before)], [shape_of(after)], CompatOptions(extended=True))
    if not judgement.verdict.reuses_state:
        return False
    statuses = {column.name: column.status for column in judgement.columns}
    assert statuses == {"c": Status.KEPT, "n": Status.KEPT, "m": Status.MIXED}
    inputs = rows(seed)
    first, second = inputs[: ROWS // 2], inputs[ROWS // 2 :]
    settings = Session().settings.with_option("everfold.compat.rules", "extended")
    running = PipelineRun(before)
    run(before, running.pipeline, first, size, last=False)
    history = batch(after, first) if is_backfilled else None
    pipeline = running.pipeline.change_query(after, 1, settings, history)
    names = [column.name for column in shape_of(after).columns]
    current = last_rows(read_changes(run(after, pipeline, second, size, last=True), names), ["c"])
    always = read_changes(run(after, PipelineRun(after).pipeline, inputs, size, last=True), names)
    right = last_rows(always, ["c"])
    for key, values in current.items():
        for name in names if is_backfilled else ("c", "n"):
            assert repr(values[name]) == repr(right[key][name]), (function, argument, kept, new)
    return True


def test_an_aggregate_over_kept_and_new_ones_is_mixed() -> None:
    accepted = [check_inside_a_call(seed, is_backfilled=bool(seed % 2)) for seed in range(12)]
    assert sum(accepted) > 6
