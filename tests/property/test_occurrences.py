"""Changes of queries that read a table, a collection or a window more than once: parts move
between the branches of UNION ALL, between joins, and from an inner window to an outer one.

A change that keeps the meaning keeps the state, and one that is accepted has the result of a query
that never stopped.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from property.halves import check_change, make_plan, rows

from everfold.compat import CompatOptions, Verdict, judge, shape_of
from everfold.plan.canonical import column_texts

EXPRESSIONS = ("b", "c", "d", "b + c", "c * 2", "x.v", "y.v", "x.w", "y.w + b", "p.e", "q.e")
CONDITIONS = ("d > 2", "b < 4", "c = 1 OR c = 3", "b + d > 3", "x.v > 4", "y.w > x.v", "p.e <= q.e")
JOINS = {
    "x": (
        "JOIN dim AS x ON {on} = x.k",
        "LEFT JOIN dim AS x ON {on} = x.k",
        "JOIN (SELECT i.k, i.v, o.w FROM dim AS i JOIN dim AS o ON i.w = o.v + 1) AS x ON {on} = x.k",
        "JOIN (SELECT i.k, o.v, i.w FROM dim AS i JOIN dim AS o ON i.w = o.v + 1) AS x ON {on} = x.k",
    ),
    "y": ("JOIN dim AS y ON {on} = y.k",),
}
UNNESTS = {alias: f"CROSS JOIN UNNEST(ARRAY[b, c]) AS {alias} (e)" for alias in "pq"}
CALLS = (
    "SUM(v) AS s", "MAX(w) AS m", "MIN(v) AS l", "COUNT(*) AS n", "COUNT(v) AS cv", "SUM(v - w) AS t",
    "COUNT(DISTINCT w) AS cd", "SUM(v) FILTER (WHERE w > 3) AS f", "SUM(w) FILTER (WHERE v > 3) AS h", "AVG(w) AS a",
)  # fmt: skip
OUTER = {
    "groups": "SELECT g, {calls} FROM ({rows}) GROUP BY g",
    "groups of two": "SELECT g, w, {calls} FROM ({rows}) GROUP BY g, w",
    "windows": "WITH r AS ({rows}) SELECT g, window_end, {calls} FROM TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, g",
    "groups of groups": "SELECT g % 2 AS g, {calls} FROM (SELECT g, w, SUM(v) AS v FROM ({rows}) GROUP BY g, w) GROUP BY g % 2",
}  # fmt: skip


@dataclass(frozen=True)
class Branch:
    """A branch of UNION ALL. joins: the column by which each joined table is joined."""

    key: str
    v: str
    w: str
    conditions: tuple[str, ...] = ()
    joins: tuple[tuple[str, str, str], ...] = ()
    unnests: tuple[str, ...] = ()
    table: str = "MyTable"

    @property
    def sql(self) -> str:
        parts = [template.format(on=on) for _, template, on in self.joins]
        parts += [UNNESTS[alias] for alias in self.unnests]
        where = f"WHERE {' AND '.join(f'({each})' for each in self.conditions)}" if self.conditions else ""
        return f"SELECT {self.key} AS g, {self.v} AS v, {self.w} AS w, ts FROM {self.table} {' '.join(parts)} {where}"

    def is_valid(self) -> bool:
        """Return whether every alias that is used is joined."""
        aliases = {*(alias for alias, _, _ in self.joins), *self.unnests}
        used = " ".join([self.key, self.v, self.w, *self.conditions, *(on for _, _, on in self.joins)])
        before: set[str] = set()
        for alias, _, on in self.joins:
            if any(f"{other}." in on and other not in before for other in "xy"):
                return False
            before.add(alias)
        return all(f"{alias}." not in used or alias in aliases for alias in "xypq")


@dataclass(frozen=True)
class Query:
    """An aggregation over UNION ALL."""

    outer: str
    branches: tuple[Branch, ...]
    calls: tuple[str, ...] = field(default=("SUM(v) AS s",))

    @property
    def sql(self) -> str:
        rows = " UNION ALL ".join(branch.sql for branch in self.branches)
        return OUTER[self.outer].format(rows=rows, calls=", ".join(self.calls))


def make_branch(chance: random.Random) -> Branch:
    while True:
        branch = Branch(
            key=chance.choice(["a", "a", "d", "x.w"]),
            v=chance.choice(EXPRESSIONS),
            w=chance.choice(EXPRESSIONS),
            conditions=tuple(chance.sample(CONDITIONS, chance.choice([0, 0, 1, 2]))),
            joins=tuple(
                (alias, chance.choice(JOINS[alias]), chance.choice(["b", "c", "d", "x.v"]))
                for alias in chance.choice([(), (), "x", "xy", "xy"])
            ),
            unnests=tuple(chance.choice([(), (), ("p",), ("p", "q")])),
            table=chance.choice(["MyTable", "MyTable", "MyTable", "src"]),
        )
        if branch.is_valid():
            return branch


def make_query(chance: random.Random) -> Query:
    first = make_branch(chance)
    branches = [first]
    for _ in range(chance.choice([0, 1, 1, 2])):
        # Branches that differ in one part are the easiest to confuse.
        alike = Query("groups", (first,))
        branches.append(chance.choice([make_branch(chance), edit_once(alike, chance).branches[0]]))
    return Query(chance.choice([*OUTER]), tuple(branches), tuple(chance.sample(CALLS, chance.choice([1, 2, 3]))))


def make_twins(chance: random.Random) -> tuple[Query, Query]:
    """Return a query over two branches that differ in two parts, and the query in which they have
    exchanged one of these.
    """
    while True:
        one, other = make_branch(chance), make_branch(chance)
        first, second = chance.sample(["key", "v", "w", "conditions", "joins", "unnests"], 2)
        twin = replace(one, **{part: getattr(other, part) for part in (first, second)})
        calls = tuple(chance.sample(CALLS, chance.choice([1, 2])))
        query = Query(chance.choice([*OUTER]), (one, twin), calls)
        part = chance.choice([first, second])
        parts = replace(one, **{part: getattr(twin, part)}), replace(twin, **{part: getattr(one, part)})
        differs = getattr(one, first) != getattr(twin, first) and getattr(one, second) != getattr(twin, second)
        if differs and all(branch.is_valid() for branch in (twin, *parts)):
            return query, replace(query, branches=parts)


# --- edits ----------------------------------------------------------------------------------------


def shuffle_branches(query: Query, chance: random.Random) -> Query:
    return replace(query, branches=tuple(chance.sample(query.branches, len(query.branches))))


def move_a_part(query: Query, chance: random.Random) -> Query:
    """Exchange a part of two branches."""
    if len(query.branches) < 2:
        return query
    one, other = chance.sample(range(len(query.branches)), 2)
    part = chance.choice(["key", "v", "w", "conditions", "joins", "unnests", "table"])
    branches = list(query.branches)
    a, b = branches[one], branches[other]
    branches[one], branches[other] = replace(a, **{part: getattr(b, part)}), replace(b, **{part: getattr(a, part)})
    return replace(query, branches=tuple(branches))


def change_a_part(query: Query, chance: random.Random) -> Query:
    made = make_branch(chance)
    at = chance.randrange(len(query.branches))
    part = chance.choice(["key", "v", "w", "conditions"])
    branches = list(query.branches)
    branches[at] = replace(branches[at], **{part: getattr(made, part)})
    return replace(query, branches=tuple(branches))


def exchange_aliases(query: Query, chance: random.Random) -> Query:
    """Exchange the aliases of two joins or UNNESTs everywhere but where they are declared."""
    at = chance.randrange(len(query.branches))
    one, other = chance.choice([("x", "y"), ("p", "q")])
    branches = list(query.branches)

    def exchange(text: str) -> str:
        return text.replace(f"{one}.", "?.").replace(f"{other}.", f"{one}.").replace("?.", f"{other}.")

    old = branches[at]
    branches[at] = replace(old, v=exchange(old.v), w=exchange(old.w), conditions=tuple(map(exchange, old.conditions)))
    return replace(query, branches=tuple(branches))


def exchange_values(query: Query, chance: random.Random) -> Query:
    at = chance.randrange(len(query.branches))
    branches = list(query.branches)
    branches[at] = replace(branches[at], v=branches[at].w, w=branches[at].v)
    return replace(query, branches=tuple(branches))


def reorder_joins(query: Query, chance: random.Random) -> Query:
    """Write joins in another order. Only their order tells joins apart that are written alike."""

    def reorder(branch: Branch) -> Branch:
        alike = {
            (template.replace(f" {alias}", "").replace(f"{alias}.", ""), on) for alias, template, on in branch.joins
        }
        return replace(branch, joins=branch.joins[::-1]) if len(alike) == len(branch.joins) else branch

    return replace(query, branches=tuple(map(reorder, query.branches)))


def edit_calls(query: Query, chance: random.Random) -> Query:
    kept = [call for call in query.calls if chance.random() < 0.8]
    return replace(query, calls=tuple(dict.fromkeys([*kept, *chance.sample(CALLS, 1)])))


def respell(query: Query, chance: random.Random) -> Query:
    """Write conditions in another way that means the same."""
    spellings = {
        "d > 2": "2 < d", "b < 4": "NOT (b >= 4)", "c = 1 OR c = 3": "c IN (3, 1)", "b + d > 3": "3 < d + b",
        "x.v > 4": "4 < x.v", "y.w > x.v": "x.v < y.w", "p.e <= q.e": "q.e >= p.e",
    }  # fmt: skip
    values = {"b + c": "c + b", "c * 2": "2 * c", "y.w + b": "b + y.w"}
    return replace(
        query,
        branches=tuple(
            replace(
                branch,
                conditions=tuple(spellings.get(each, each) for each in reversed(branch.conditions)),
                v=values.get(branch.v, branch.v),
                w=values.get(branch.w, branch.w),
            )
            for branch in query.branches
        ),
        calls=tuple(call.replace("COUNT(*)", "COUNT(1)").replace("w > 3", "3 < w") for call in query.calls),
    )


EDITS: tuple[Callable[[Query, random.Random], Query], ...] = (
    shuffle_branches, move_a_part, move_a_part, change_a_part, exchange_aliases, exchange_values, reorder_joins, edit_calls, respell,
)  # fmt: skip
KEEPING: tuple[Callable[[Query, random.Random], Query], ...] = (shuffle_branches, reorder_joins, respell)
"""The edits that keep the meaning."""


def edit_once(query: Query, chance: random.Random) -> Query:
    while True:
        edited = chance.choice(EDITS)(query, chance)
        if all(branch.is_valid() for branch in edited.branches):
            return edited


def check(seed: int, count: int) -> Counter[str]:
    """Check so many changes, and return how often each verdict was given."""
    verdicts: Counter[str] = Counter()
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        query = make_query(chance)
        edited = query
        for _ in range(chance.choice([1, 1, 2])):
            edited = edit_once(edited, chance)
        before, after = make_plan(query.sql), make_plan(edited.sql)
        options = CompatOptions(extended=chance.random() < 0.2)
        # Inner groups that are kept emit no row again for a group that they know.
        is_nested = query.outer == "groups of groups"
        judgement = check_change(before, after, rows(number), options, starts_with_input=not is_nested)
        verdicts[judgement.verdict.value] += 1
    return verdicts


def check_twins(seed: int, count: int) -> None:
    """Check so many exchanges of a part of two branches."""
    for number in range(count):
        chance = random.Random(f"twins {seed} {number}")
        before, after = (make_plan(twin.sql) for twin in make_twins(chance))
        check_change(before, after, rows(number), CompatOptions(extended=chance.random() < 0.2))


def check_respelled(seed: int, count: int) -> None:
    """Check that a query that means the same keeps its whole state."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        query = edited = make_query(chance)
        for edit in chance.sample(KEEPING, chance.choice([1, 2, 3])):
            changed = edit(edited, chance)
            edited = changed if all(branch.is_valid() for branch in changed.branches) else edited
        before, after = ([shape_of(make_plan(spelling.sql))] for spelling in (query, edited))
        assert judge(before, after).verdict is Verdict.FULLY, (query.sql, edited.sql)


def check_spread(verdicts: Counter[str]) -> None:
    """Check that each verdict was given often enough to mean something."""
    for verdict in (Verdict.FULLY, Verdict.PARTIALLY, Verdict.INCOMPATIBLE):
        assert verdicts[verdict.value] >= 3, verdicts


def test_moved_parts_are_not_accepted() -> None:
    check_spread(check(1, 48))


@pytest.mark.parametrize("x", JOINS["x"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_each_column_of_joined_tables_has_a_text_of_its_own(x: str, is_reversed: bool) -> None:
    joins = [x.format(on="c"), JOINS["y"][0].format(on="d"), UNNESTS["p"], UNNESTS["q"]]
    columns = ("x.k", "x.v", "x.w", "y.k", "y.v", "y.w", "p.e", "q.e")
    named = ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
    root = make_plan(f"SELECT {named} FROM MyTable {' '.join(joins[::-1] if is_reversed else joins)}")
    texts = column_texts(root.input)
    assert len({*texts}) == len(columns), texts


def test_branches_cannot_exchange_a_part() -> None:
    check_twins(1, 30)


def test_another_spelling_keeps_the_state() -> None:
    check_respelled(1, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_many_moved_parts_are_not_accepted(seed: int) -> None:
    check_spread(check(seed, 250))
    check_twins(seed, 100)
    check_respelled(seed, 100)
