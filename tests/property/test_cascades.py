"""Changes of cascades: windows over the results of windows, and groups over groups.

The columns of an inner and of an outer window have the same names, so a key may change from one to
the other. A change that is accepted has the result of a query that never stopped.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from property.halves import ROWS, PipelineRun, batch, check_change, make_plan, pick_values, rows

from everfold.compat import CompatOptions, Verdict, judge, shape_of
from everfold.compat.columns import Status
from everfold.memory.batch import run_batch
from everfold.plan.nodes import Root
from everfold.plan.walk import scans_of
from everfold.sql.planner import Session, Submit

INNER_KEYS = ("a", "b", "d % 2")
INNER_CALLS = ("SUM(c)", "MAX(b)", "COUNT(*)", "MIN(d)", "AVG(c)")
OUTER_KEYS = ("ws", "we", "wt_", "k", "window_start", "window_end", "HOUR(ws)", "HOUR(window_start)")
"""Columns of the inner window (`ws`, `we`), its key, and columns of the outer window."""
OUTER_CALLS = (
    "SUM(v)", "MAX(v)", "COUNT(*)", "MIN(u)", "SUM(u)", "COUNT(DISTINCT v)", "MAX(ws)", "MAX(window_start)", "MIN(we)",
    "MIN(window_end)",
)  # fmt: skip
ALL_CALLS = (*OUTER_CALLS, "COUNT(1)")
INNER_WINDOWS = ("TUMBLE({}, INTERVAL '5' SECOND)", "TUMBLE({}, INTERVAL '10' SECOND)", "HOP({}, INTERVAL '5' SECOND, INTERVAL '10' SECOND)")  # fmt: skip
OUTER_WINDOWS = ("TUMBLE({}, INTERVAL '20' SECOND)", "TUMBLE({}, INTERVAL '30' SECOND)", "HOP({}, INTERVAL '20' SECOND, INTERVAL '20' SECOND)")  # fmt: skip
CONDITIONS = ("", "", "c > 1", "d < 5")
OUTER_CONDITIONS = ("", "", "v > 2", "u IS NOT NULL", "ws < window_end")


@dataclass(frozen=True)
class Cascade:
    """An aggregation by windows over another one, by other groups of the rows of such windows, or
    without an outer window by groups.
    """

    inner_window: str
    inner_key: str
    v: str
    u: str
    inner_condition: str
    outer_window: str
    outer_keys: tuple[str, ...]
    outer_calls: tuple[str, ...]
    outer_condition: str
    has_windows_as_keys: bool

    @property
    def inner(self) -> str:
        inner_window = self.inner_window.format("TABLE MyTable, DESCRIPTOR(ts)")
        return (
            f"SELECT {self.inner_key} AS k, window_start AS ws, window_end AS we, window_time AS wt, {self.v} AS v,"
            f" {self.u} AS u FROM {inner_window} {where(self.inner_condition)}"
            f" GROUP BY window_start, window_end, window_time, {self.inner_key}"
        )

    @property
    def sql(self) -> str:
        return f"WITH r AS ({self.inner}) {self.outer}"

    @property
    def outer(self) -> str:
        """The query over the results of the inner one, `r`."""
        source, keys = "r", list(self.outer_keys)
        if self.outer_window:
            source = self.outer_window.format("TABLE r, DESCRIPTOR(wt)")
            keys = list(dict.fromkeys([*["window_start", "window_end"] * self.has_windows_as_keys, *keys]))
        columns = [f"{key} AS k{OUTER_KEYS.index(key)}" for key in keys if key in OUTER_KEYS]
        columns += [f"{call} AS c{ALL_CALLS.index(call)}" for call in self.outer_calls]
        return f"SELECT {', '.join(columns)} FROM {source} {where(self.outer_condition)} GROUP BY {', '.join(keys)}"


def where(condition: str) -> str:
    return f"WHERE {condition}" if condition else ""


def make_cascade(chance: random.Random) -> Cascade:
    has_window = chance.random() < 0.7
    inner = [key for key in OUTER_KEYS if "window" not in key and key != "wt_"]
    keys = [key for key in OUTER_KEYS if key != "wt_"] if has_window else inner
    calls = [call for call in OUTER_CALLS if has_window or "window" not in call]
    conditions = [condition for condition in OUTER_CONDITIONS if has_window or "window" not in condition]
    return Cascade(
        inner_window=chance.choice(INNER_WINDOWS),
        inner_key=chance.choice(INNER_KEYS),
        v=chance.choice(INNER_CALLS),
        u=chance.choice(INNER_CALLS),
        inner_condition=chance.choice(CONDITIONS),
        outer_window=chance.choice(OUTER_WINDOWS) if has_window else "",
        outer_keys=tuple(chance.sample(keys, chance.choice([1, 1, 2]))),
        outer_calls=tuple(chance.sample(calls, chance.choice([1, 2, 3]))),
        outer_condition=chance.choice(conditions),
        has_windows_as_keys=chance.random() < 0.6,
    )


def edit(query: Cascade, chance: random.Random, part: str | None = None) -> Cascade:
    """Change one part, mostly to one that is easily confused with it. part: which one, or any."""
    confused = {"ws": "window_start", "we": "window_end", "window_start": "ws", "window_end": "we"}
    confused |= {"HOUR(ws)": "HOUR(window_start)", "HOUR(window_start)": "HOUR(ws)"}
    confused |= {"MAX(ws)": "MAX(window_start)", "MAX(window_start)": "MAX(ws)"}
    confused |= {"MIN(we)": "MIN(window_end)", "MIN(window_end)": "MIN(we)"}
    other = make_cascade(chance)
    parts = ["confuse", "confuse", "calls", "calls", "u", "conditions", "inner_window", "inner_key", "equal"]
    match part or chance.choice(parts):
        case "confuse" if query.outer_window:
            position = chance.randrange(len(query.outer_keys) + len(query.outer_calls))
            items = [*query.outer_keys, *query.outer_calls]
            items[position] = confused.get(items[position], items[position])
            size = len(query.outer_keys)
            return replace(query, outer_keys=tuple(dict.fromkeys(items[:size])), outer_calls=tuple(items[size:]))
        case "calls":
            calls = [call for call in other.outer_calls if query.outer_window or "window" not in call]
            return replace(query, outer_calls=tuple(dict.fromkeys([*query.outer_calls[-1:], *calls])))
        case "conditions":
            condition = other.outer_condition if query.outer_window or "window" not in other.outer_condition else ""
            return replace(query, inner_condition=other.inner_condition, outer_condition=condition)
        case "equal":
            return respell(query)
        case "u" | "inner_window" | "inner_key" as name:
            return replace(query, **{name: getattr(other, name)})
        case _:
            return query


def respell(query: Cascade) -> Cascade:
    """Write the same query in another way.

    Groups of the windows of a HOP have its start among their keys, those of a TUMBLE have not.
    """
    spellings = {"c > 1": "1 < c", "d < 5": "NOT d >= 5", "v > 2": "2 < v", "ws < window_end": "window_end > ws"}
    hops = {
        "TUMBLE({}, INTERVAL '5' SECOND)": "HOP({}, INTERVAL '5' SECOND, INTERVAL '5' SECOND)",
        "HOP({}, INTERVAL '20' SECOND, INTERVAL '20' SECOND)": "TUMBLE({}, INTERVAL '20' SECOND)",
    }
    reads_window = "window" in " ".join([*query.outer_keys, *query.outer_calls, query.outer_condition])
    return replace(
        query,
        inner_window=hops.get(query.inner_window, query.inner_window) if query.outer_window else query.inner_window,
        outer_window=query.outer_window if reads_window else hops.get(query.outer_window, query.outer_window),
        inner_condition=spellings.get(query.inner_condition, query.inner_condition),
        outer_condition=spellings.get(query.outer_condition, query.outer_condition),
        outer_calls=tuple("COUNT(1)" if call == "COUNT(*)" else call for call in query.outer_calls),
    )


def check(seed: int, count: int, part: str | None = None, extended: float = 0.2) -> Counter[str]:
    """Check so many changes, and return how often each verdict was given.

    part: what is changed. extended: the share of changes that the extended rules judge.
    """
    verdicts: Counter[str] = Counter()
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        query = make_cascade(chance)
        edited = edit(query, chance, part)
        before, after = make_plan(query.sql), make_plan(edited.sql)
        options = CompatOptions(extended=chance.random() < extended)
        judgement = check_change(before, after, rows(number), options, starts_with_input=False)
        # Columns that the outer query does not read are not computed: they may be new below, too.
        below = [finding.code for operator in judgement.operators[1:] for finding in operator.findings]
        if judgement.verdict is Verdict.PARTIALLY and "AGG006" not in below:
            check_started(before, after, edited, rows(number), options)
        verdicts[judgement.verdict.value] += 1
    return verdicts


def check_started(
    before: Root, after: Root, edited: Cascade, given: list[dict[str, Any]], options: CompatOptions
) -> None:
    """Check that new aggregates count the results of the inner query since the change."""
    first, second = given[: ROWS // 2], given[ROWS // 2 :]
    running = PipelineRun(before)
    running.feed(first)
    settings = Session().settings
    if options.extended:
        settings = settings.with_option("everfold.compat.rules", "extended")
    changed = PipelineRun(after, running.pipeline.change_query(after, 1, settings))
    changed.feed(second, last=True)
    judgement = judge([shape_of(before)], [shape_of(after)], options)
    started = [column.name for column in judgement.columns if column.status is Status.STARTS]
    by_key = changed.by_key or {pick_values(row, changed.keys): row for row in changed.rows}
    expected = results_since(edited, given, first[-1]["ts"])
    names = [column.name for column in shape_of(after).columns]
    for row in expected.to_pylist():
        values = dict(zip(names, row.values(), strict=True))
        key = pick_values(values, changed.keys)
        assert pick_values(by_key[key], started) == pick_values(values, started), (edited.sql, values)


def results_since(query: Cascade, given: list[dict[str, Any]], watermark_us: int) -> pa.Table:
    """Return the result of a query over those results of the inner one that a watermark has not
    completed, as DuckDB computes it.
    """
    inner = make_plan(query.inner)
    settings = Session({"execution.runtime-mode": "batch"}).settings
    results = run_batch(inner, batch(inner, given), settings)
    ends = pc.cast(results.column(2), pa.int64())
    later = results.filter(pc.greater(ends, watermark_us + 1000))
    columns = ", ".join(f"{field.name} {field.type.sql}" for field in inner.input.schema)
    session = Session({"execution.runtime-mode": "batch"}, lenient=True)
    *_, submit = session.run(f"CREATE TABLE r ({columns}, WATERMARK FOR wt AS wt); {query.outer}")
    assert isinstance(submit, Submit)
    (root,) = submit.roots
    positions = [
        inner.input.schema.names.index(column.name) for scan in scans_of([root]) for column in scan.table.columns
    ]
    read = later.select(positions).rename_columns([f"c{number}" for number in range(len(positions))])
    return run_batch(root, {"r": read}, settings)


def test_a_window_is_not_taken_for_another_one() -> None:
    verdicts = check(1, 50)
    assert min(verdicts[verdict.value] for verdict in (Verdict.FULLY, Verdict.PARTIALLY, Verdict.INCOMPATIBLE)) >= 5, (
        verdicts
    )


def test_results_of_a_window_are_not_taken_for_those_of_another_one() -> None:
    verdicts = check(1, 24, "inner_window", extended=1)
    assert min(verdicts[verdict.value] for verdict in (Verdict.FULLY, Verdict.INCOMPATIBLE)) >= 5, verdicts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_cascades_are_judged_right(seed: int) -> None:
    check(seed, 80)
    check(seed, 40, "inner_window", extended=1)


def test_another_spelling_of_a_cascade_keeps_the_state() -> None:
    for number in range(60):
        query = make_cascade(random.Random(number))
        before, after = ([shape_of(make_plan(cascade.sql))] for cascade in (query, respell(query)))
        assert judge(before, after).verdict is Verdict.FULLY, (query.sql, respell(query).sql)
