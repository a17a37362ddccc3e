"""Jobs of several INSERTs that are put in another order, removed, added, written to other tables,
and whose tables are renamed or moved.

A column that is said to be kept equals that of a query that was never stopped, for each table. A
change that computes the same as before is fully compatible.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from property.halves import PipelineRun, make_plan, rows, sort_rows

from everfold.compat import CompatOptions, QueryShape, Verdict, judge_pairs, pair_queries, shape_of
from everfold.compat.columns import Status
from everfold.jobs.sink_tables import SinkNote, compare_sinks
from everfold.memory.pipeline import MemoryPipeline
from everfold.operators.change_plan import OperatorChange, plan_operators
from everfold.plan.known_names import KnownTable, apply_known_names
from everfold.plan.naming import name_operators, number_operators
from everfold.plan.nodes import Root
from everfold.plan.walk import operators_of
from everfold.sql.planner import Session
from everfold.state.store import MemoryStore

CALLS = ("SUM(b)", "MAX(b)", "MIN(c)", "COUNT(*)", "COUNT(c)", "AVG(c)", "COUNT(DISTINCT b)")
WINDOW = "TUMBLE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '{n}' SECOND)"
EXTENDED = CompatOptions(extended=True)
SETTINGS = Session({"everfold.compat.rules": "extended"}).settings


@dataclass(frozen=True)
class Insert:
    """An INSERT of a job.

    table: its name. location: of the table. kind: of its query. query: with the calls `{}`.
    """

    table: str
    location: str
    kind: str
    query: str
    calls: tuple[str, ...]

    @property
    def text(self) -> str:
        calls = ", ".join(f"{call} AS v{CALLS.index(call)}" for call in self.calls)
        return self.query.format(calls)

    @property
    def note(self) -> SinkNote:
        return {"table": self.table, "connector": "filesystem", "again": "twice", "location": self.location}


def make_insert(random: Random, number: int) -> Insert:
    key, other = random.sample(("a", "d", "c"), 2)
    where = random.choice(("", "", " WHERE b > 1"))
    n = random.choice((5, 10))
    kind, query = random.choice(
        (
            ("group", f"SELECT {key}, {{}} FROM MyTable{where} GROUP BY {key}"),
            ("group", f"SELECT {key}, {other}, {{}} FROM MyTable{where} GROUP BY {key}, {other}"),
            ("cascade", f"SELECT k, {{}} FROM (SELECT {key} AS k, {other} AS j, MAX(b) AS b, COUNT(*) AS c FROM MyTable{where} GROUP BY {key}, {other}) GROUP BY k"),
            ("window", f"SELECT window_start, {key}, {{}} FROM {WINDOW.format(n=n)} GROUP BY window_start, window_end, {key}"),
        )
    )  # fmt: skip
    table = random.choice((f"t{number}", f"t{number}", "t0"))
    return Insert(table, f"/{table}", kind, query, tuple(random.sample(CALLS, random.randint(1, 3))))


def edit_job(random: Random, inserts: Sequence[Insert]) -> tuple[list[Insert], list[str]]:
    """Return the INSERTs of the new version, and what was done."""
    new, edits = list(inserts), random.sample(("order", "remove", "second", "rename", "move", "redirect", "call"), 2)
    for edit in edits:
        position = random.randrange(len(new))
        chosen = new[position]
        match edit:
            case "order":
                random.shuffle(new)
            case "remove" if len(new) > 1:
                del new[position]
            case "second":
                new.insert(random.randint(0, len(new)), replace(chosen, table="second", location="/second"))
            case "rename":
                new = [replace(insert, table="renamed") if insert.table == chosen.table else insert for insert in new]
            case "move":
                new = [replace(insert, location="/moved") if insert.table == chosen.table else insert for insert in new]
            case "redirect":
                new[position] = replace(chosen, table="other", location="/other")
            case "call":
                call = random.choice([call for call in CALLS if call not in chosen.calls])
                new[position] = replace(chosen, calls=(*chosen.calls, call))
    return new, edits


def plan_inserts(inserts: Sequence[Insert], source: str = "MyTable") -> tuple[list[Root], list[QueryShape]]:
    """Return the plans and shapes of a job. source: the present name of the table MyTable."""
    plans = [make_plan(insert.text.replace("MyTable", source)) for insert in inserts]
    known_names = {source: KnownTable("MyTable")} if source != "MyTable" else {}
    roots = list(number_operators(apply_known_names(plans, known_names)))
    shapes = [replace(shape_of(root), sink=insert.table) for root, insert in zip(roots, inserts, strict=True)]
    return roots, shapes


def resume(root: Root, changes: Sequence[OperatorChange], old: Mapping[str, list[MemoryStore]]) -> MemoryPipeline:
    """Return a pipeline whose operators have a copy of state. old: the state by operator."""
    old_names = [[*old][change.old_position] for change in changes if change.old_position is not None]
    (named,) = name_operators([root], old_names)
    pipeline = MemoryPipeline(named, SETTINGS, buckets=2)
    for name, change in zip(old_names, changes, strict=True):
        pipeline._stages[name].stores = copy.deepcopy(old[name])
        pipeline._stages[name].repeat = change.reemits
    return pipeline


def check(seed: int) -> Verdict:
    """Check a random change of a job of several INSERTs, and return its verdict."""
    random = Random(seed)
    inserts = [make_insert(random, number) for number in range(random.randint(1, 3))]
    new, edits = edit_job(random, inserts)
    inputs = rows(seed)
    first, second = inputs[:30], inputs[30:]
    old_roots, old_shapes = plan_inserts(inserts)
    new_roots, new_shapes = plan_inserts(new, random.choice(("MyTable", "src")))
    sinks = compare_sinks([insert.note for insert in inserts], [insert.note for insert in new])
    pairs = pair_queries(old_shapes, new_shapes, sinks.renamed)
    judgement = judge_pairs(pairs, EXTENDED)
    shown = f"{edits}\n{inserts}\n{new}\n{judgement}"
    if "call" not in edits:
        assert judgement.verdict is Verdict.FULLY, shown
    if not judgement.verdict.reuses_state:  # a new call over rows that were not counted before
        return judgement.verdict
    # --- which tables the user is asked about
    moved = {insert.table for insert in new if insert.location == "/moved"}
    assert sinks.moved.keys() == moved & {insert.table for insert in inserts}, shown
    for insert, pair in zip(new, pairs, strict=False):
        former = {old.table for old in inserts if insert.location == old.location or insert.table == old.table}
        if pair.matching:
            assert pair.is_redirected == (pair.old.sink not in former), shown
    # --- the state of each operator
    running = [PipelineRun(root) for root in old_roots]
    for run in running:
        run.feed(first)
    stored = {
        node.operator_id: run.pipeline._stages[node.operator_id].stores
        for run in running
        for node in operators_of([run.root])
    }
    names = [*stored]
    plan = plan_operators(pairs, names, new_roots, 1, EXTENDED, taken=names)
    assert len({change.operator_id for change in plan.operators}) == len(plan.operators), shown
    changes = iter(plan.operators)
    for insert, root, pair in zip(new, plan.roots, pairs, strict=False):
        own = [next(changes) for _ in operators_of([root])]
        assert [change.old_position is not None for change in own] == [
            position in pair.matching for position in range(len(own))
        ]
        if len(pair.matching) < len(own):
            continue
        changed, whole = PipelineRun(root, resume(root, own, stored)), PipelineRun(new_roots[new.index(insert)])
        changed.feed(second, last=True)
        whole.feed(first)
        before = len(whole.rows)
        whole.feed(second, last=True)
        kept = [column.name for column in judge_pairs([pair], EXTENDED).columns if column.status is Status.KEPT]
        kept = [name for name in kept if name in changed.names]
        assert kept, shown
        assert sort_rows(changed.rows, kept) == sort_rows(whole.rows[before:], kept), shown
        for key, row in changed.by_key.items():
            assert [row[name] for name in kept] == [whole.by_key[key][name] for name in kept], shown
    return judgement.verdict


def check_many(seeds: range) -> None:
    verdicts: Counter[Any] = Counter(check(seed) for seed in seeds)
    assert verdicts[Verdict.FULLY] > verdicts[Verdict.PARTIALLY] > verdicts[Verdict.INCOMPATIBLE], verdicts


def test_each_table_has_the_rows_of_a_job_that_was_never_stopped() -> None:
    check_many(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_more_jobs(part: int) -> None:
    check_many(range(1000 + 150 * part, 1150 + 150 * part))
