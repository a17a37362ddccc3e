"""Properties of group aggregation.

The reference keeps the surviving rows of each group and computes the result from them in plain
Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property.changelogs import (
    Change,
    ChangingQuery,
    FoldedRows,
    changelogs,
    cut,
    cuts,
    freeze,
    inserts,
    unfounded_changes,
    values,
)

from everfold.memory.pipeline import MemoryPipeline
from everfold.operators import group
from everfold.operators.group import GroupOperator
from everfold.operators.protocol import Meta, Step
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.spark.exchange import split_tables
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session, Submit
from everfold.state.store import Store

LAW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Values = list[int | None]


def drop_nulls(values: Values) -> list[int]:
    return [value for value in values if value is not None]


def divide(total: int, count: int) -> int | None:
    """Divide integers as Flink does: round towards zero."""
    return None if not count else abs(total) // count * (1 if total >= 0 else -1)


def distinct(values: Values) -> list[int]:
    return list(dict.fromkeys(drop_nulls(values)))


CALLS: dict[str, Callable[[Values], Any]] = {
    "COUNT(*)": len,
    "COUNT(v)": lambda values: len(drop_nulls(values)),
    "SUM(v)": lambda values: sum(drop_nulls(values)) if drop_nulls(values) else None,
    "AVG(v)": lambda values: divide(sum(drop_nulls(values)), len(drop_nulls(values))),
    "MIN(v)": lambda values: min(drop_nulls(values), default=None),
    "MAX(v)": lambda values: max(drop_nulls(values), default=None),
    "COUNT(DISTINCT v)": lambda values: len(distinct(values)),
    "SUM(DISTINCT v)": lambda values: sum(distinct(values)) if distinct(values) else None,
    "MAX(v) FILTER (WHERE v < 3)": lambda values: max([v for v in drop_nulls(values) if v < 3], default=None),
    "COUNT(DISTINCT v) FILTER (WHERE v > 0)": lambda values: len([v for v in distinct(values) if v > 0]),
    "FIRST_VALUE(v)": lambda values: next(iter(drop_nulls(values)), None),
    "LAST_VALUE(v)": lambda values: drop_nulls(values)[-1] if drop_nulls(values) else None,
    "LISTAGG(CAST(v AS STRING))": lambda values: ",".join(map(str, drop_nulls(values))) or None,
    "ARRAY_AGG(v)": lambda values: list(values) or None,
}
"""Calls, and their values over the values of a group in the order of arrival.

A retraction removes the first of equal values.
"""

ORDERED = [call for call in CALLS if call.startswith(("FIRST", "LAST", "LISTAGG", "ARRAY"))]


def find_survivors(changes: Sequence[Change]) -> dict[str | None, Values]:
    """Return the values of each group in the order of arrival."""
    groups: dict[str | None, Values] = {}
    for kind, (key, value) in changes:
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            groups.setdefault(key, []).append(value)
        else:
            groups[key].remove(value)
    return {key: found for key, found in groups.items() if found}


def answer(changes: Sequence[Change], calls: Sequence[str]) -> Counter[tuple[Any, ...]]:
    groups = find_survivors(changes)
    return Counter((key, *(freeze(CALLS[call](found)) for call in calls)) for key, found in groups.items())


def check(
    changes: list[Change], cuts: list[int], calls: Sequence[str], mode: ChangelogMode, buckets: int, restarts: bool
) -> None:
    grouping = ChangingQuery(f"SELECT k, {', '.join(calls)} FROM t GROUP BY k", mode, buckets=buckets)
    folded, seen = FoldedRows(), []
    for batch in cut(changes, cuts):
        seen += batch
        folded.take(grouping.feed(batch))
        assert folded.rows == answer(seen, calls)
        if restarts:
            grouping.pipeline = grouping.pipeline.restart()


some_calls = st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=4, unique=True)


@LAW
@given(changelogs(), cuts, some_calls, st.sampled_from([1, 3]), st.booleans())
@example([(RowKind.INSERT, ("a", 1)), (RowKind.INSERT, ("a", 2))], [1], ["SUM(v)"], 1, False)  # an update
def test_after_every_batch_the_result_is_that_of_the_surviving_rows(
    changes: list[Change], cuts: list[int], calls: list[str], buckets: int, restarts: bool
) -> None:
    check(changes, cuts, calls, ChangelogMode.ALL, buckets, restarts)


@LAW
@given(inserts(), cuts, some_calls, st.sampled_from([1, 3]), st.booleans())
def test_after_every_batch_of_inserts_the_result_is_that_of_all_rows(
    changes: list[Change], cuts: list[int], calls: list[str], buckets: int, restarts: bool
) -> None:
    check(changes, cuts, calls, ChangelogMode.INSERT_ONLY, buckets, restarts)


@pytest.mark.parametrize("call", CALLS)
@settings(LAW, max_examples=15)
@given(changes=changelogs(), cuts=cuts)
@example(changes=[(RowKind.INSERT, ("a", -1)), (RowKind.INSERT, ("a", -2))], cuts=[])  # AVG is -1.5
def test_every_function_supports_changes(call: str, changes: list[Change], cuts: list[int]) -> None:
    check(changes, cuts, [call], ChangelogMode.ALL, 1, False)


@pytest.fixture(params=[False, True], ids=["", "few rows"])
def combined_thirds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepare a third of a batch at a time, combine what was prepared, and separate its tables as
    Spark does.
    """
    prepare, step = GroupOperator.prepare, GroupOperator.step

    def prepare_thirds(operator: GroupOperator, rows: pl.DataFrame) -> pl.DataFrame:
        parts = [part for part in rows.iter_slices(-(-rows.height // 3)) if part.height]
        return operator.combine([prepare(operator, part) for part in parts])

    def step_tables(
        operator: GroupOperator, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]
    ) -> Step:
        return step(
            operator, store, [table for frame in prepared if frame.height for table in split_tables(frame)], metas
        )

    monkeypatch.setattr(GroupOperator, "prepare", prepare_thirds)
    monkeypatch.setattr(GroupOperator, "step", step_tables)
    if request.param:
        monkeypatch.setattr(group, "FEW_ROWS", -1)


@pytest.mark.usefixtures("combined_thirds")
@settings(LAW, suppress_health_check=list(HealthCheck))
@given(changelogs(), cuts, some_calls)
def test_combined_changes_are_those_of_the_surviving_rows(
    changes: list[Change], cuts: list[int], calls: list[str]
) -> None:
    check(changes, cuts, calls, ChangelogMode.ALL, 2, False)


@pytest.mark.usefixtures("combined_thirds")
@settings(LAW, suppress_health_check=list(HealthCheck))
@given(inserts(), cuts, some_calls)
def test_combined_inserts_are_those_of_all_rows(changes: list[Change], cuts: list[int], calls: list[str]) -> None:
    check(changes, cuts, calls, ChangelogMode.INSERT_ONLY, 2, False)


@pytest.mark.usefixtures("combined_thirds")
@settings(LAW, suppress_health_check=list(HealthCheck))
@given(inserts(), cuts)
@example([(RowKind.INSERT, ("a", at % 3)) for at in range(9)], [])
def test_combined_values_are_counted_once(changes: list[Change], cuts: list[int]) -> None:
    check(changes, cuts, [call for call in CALLS if "DISTINCT" in call], ChangelogMode.INSERT_ONLY, 1, False)


SIGNED_CALLS: dict[str, Callable[[Counter[int | None]], Any]] = {
    "COUNT(*)": lambda counts: sum(counts.values()),
    "COUNT(v)": lambda counts: sum(_not_null(counts).values()),
    "MAX(v)": lambda counts: max((value for value, count in _not_null(counts).items() if count > 0), default=None),
    "COUNT(DISTINCT v)": lambda counts: sum(count > 0 for count in _not_null(counts).values()),
    "COUNT(DISTINCT v) FILTER (WHERE v > 1)": lambda counts: int(counts[2] > 0),
}
"""Calls, and their values where a value can be retracted more often than it was added."""


def _not_null(counts: Counter[int | None]) -> dict[int, int]:
    return {value: count for value, count in counts.items() if value is not None}


def signed_answer(changes: Sequence[Change], calls: Sequence[str]) -> tuple[Counter[tuple[Any, ...]], int]:
    """Return the rows of the groups after changes one by one, as Flink counts them, and the number
    of retractions from groups without rows.
    """
    groups: dict[str | None, Counter[int | None]] = {}
    ignored = 0
    for kind, (key, value) in changes:
        sign = 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
        if sign < 0 and key not in groups:
            ignored += 1
            continue
        counts = groups.setdefault(key, Counter())
        counts[value] += sign
        if not sum(counts.values()):
            del groups[key]
    rows = Counter((key, *(SIGNED_CALLS[call](counts) for call in calls)) for key, counts in groups.items())
    return rows, ignored


@pytest.mark.usefixtures("combined_thirds")
@settings(LAW, max_examples=25, suppress_health_check=list(HealthCheck))
@given(unfounded_changes(), cuts, st.lists(st.sampled_from(sorted(SIGNED_CALLS)), min_size=1, unique=True))
@example([(RowKind.UPDATE_BEFORE, ("a", 1)), (RowKind.UPDATE_AFTER, ("a", 2))], [], ["COUNT(*)", "MAX(v)"])
@example([(RowKind.INSERT, ("a", 1)), (RowKind.DELETE, ("a", 2)), (RowKind.INSERT, ("a", 2))], [1], ["MAX(v)"])
def test_a_group_is_discarded_with_its_last_row_wherever_the_batch_ends(
    changes: list[Change], cuts: list[int], calls: list[str]
) -> None:
    grouping = ChangingQuery(f"SELECT k, {', '.join(calls)} FROM t GROUP BY k", ChangelogMode.ALL, buckets=2)
    folded, seen = FoldedRows(), []
    for batch in cut(changes, cuts):
        seen += batch
        folded.take(grouping.feed(batch))
        rows, ignored = signed_answer(seen, calls)
        assert folded.rows == rows
        assert sum(stats.ignored_rows for stats in grouping.pipeline.stats) == ignored


@pytest.mark.parametrize(
    "query",
    [
        *(f"SELECT k, {call} FROM t GROUP BY k" for call in CALLS),
        "SELECT SUM(v), COUNT(*) FROM t",
        "SELECT DISTINCT k FROM t",
        "SELECT n, COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n",
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE n <= 2",
        "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v) FROM t",
    ],
)
@settings(LAW, max_examples=8)
@given(changes=unfounded_changes(), cuts=cuts)
@example(changes=[(RowKind.UPDATE_BEFORE, ("a", 1)), (RowKind.UPDATE_AFTER, ("a", 1))], cuts=[])
def test_the_result_of_unfounded_changes_does_not_depend_on_batches(
    query: str, changes: list[Change], cuts: list[int]
) -> None:
    results = []
    for batches in (cut(changes, cuts), [[change] for change in changes]):
        changing, folded = ChangingQuery(query, ChangelogMode.ALL), FoldedRows(per_key=False)
        for batch in batches:
            folded.take(changing.feed(batch))
        results.append(folded.rows)
    assert results[0] == results[1]


@pytest.mark.parametrize("filters", [61, 62, 63, 64, 100])
@pytest.mark.parametrize("few_rows", [-1, 1 << 30], ids=["numbered", "grouped"])
def test_distinct_with_any_number_of_filters(monkeypatch: pytest.MonkeyPatch, filters: int, few_rows: int) -> None:
    """The conditions that a value has fulfilled are bits of a number of 64 bits, if they fit."""
    monkeypatch.setattr(group, "FEW_ROWS", few_rows)
    calls = ", ".join(f"COUNT(DISTINCT v) FILTER (WHERE v > {bound})" for bound in range(filters))
    query = ChangingQuery(f"SELECT k, {calls} FROM t GROUP BY k", ChangelogMode.INSERT_ONLY)
    folded = FoldedRows()
    for batch in ([1, 5, 5, filters], [0, 0], [filters, filters + 1]):
        folded.take(query.feed([(RowKind.INSERT, ("a", value)) for value in batch]))
    values = {0, 1, 5, filters, filters + 1}
    assert folded.rows == Counter([("a", *(sum(value > bound for value in values) for bound in range(filters)))])


@LAW
@given(changelogs(), cuts)
def test_an_aggregate_of_an_aggregate_is_that_of_the_surviving_rows(changes: list[Change], cuts: list[int]) -> None:
    inner = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k"
    grouping = ChangingQuery(
        f"SELECT n, COUNT(*), SUM(s), MAX(s) FROM ({inner}) GROUP BY n", ChangelogMode.ALL, buckets=2
    )
    folded, seen = FoldedRows(), []
    for batch in cut(changes, cuts):
        seen += batch
        folded.take(grouping.feed(batch))
        groups: dict[int, Values] = {}
        for found in find_survivors(seen).values():
            groups.setdefault(len(found), []).append(CALLS["SUM(v)"](found))
        wanted = {(n, len(sums), CALLS["SUM(v)"](sums), CALLS["MAX(v)"](sums)) for n, sums in groups.items()}
        assert set(folded.rows) == wanted


@LAW
@given(st.lists(st.tuples(st.sampled_from(["+U", "-D"]), st.sampled_from("abc"), values), max_size=30), cuts)
def test_upserts_are_completed_with_the_old_rows(upserts: list[tuple[str, str, int | None]], cuts: list[int]) -> None:
    session = Session()
    list(session.run("CREATE TABLE t (k STRING NOT NULL, v INT, PRIMARY KEY (k) NOT ENFORCED)"))
    entry = session.catalog.find(("t",))
    assert isinstance(entry, CatalogTable)
    session.catalog.replace(replace(entry, table=replace(entry.table, changelog=ChangelogMode.UPSERT)))
    (submit,) = session.run("SELECT k, v FROM t")
    assert isinstance(submit, Submit)
    pipeline = MemoryPipeline(submit.roots[0], submit.settings, buckets=2)
    folded = FoldedRows()
    last: dict[str, int | None] = {}
    kinds = {"+U": RowKind.UPDATE_AFTER, "-D": RowKind.DELETE}
    positions = sorted({0, len(upserts), *(each % (len(upserts) + 1) for each in cuts)})
    for start, end in pairwise(positions):
        batch = upserts[start:end]
        table = pa.table(
            {
                "c0": pa.array([key for _, key, _ in batch], pa.string()),
                "c1": pa.array([value if op == "+U" else None for op, _, value in batch], pa.int32()),
                KIND: pa.array([kinds[op].value for op, _, _ in batch], pa.int8()),
            }
        )
        found = pipeline.feed({"t": table}, now_ms=0)
        folded.take([(RowKind(row[KIND]), (row["c0"], row["c1"])) for row in found.to_pylist()])
        for op, key, value in batch:
            if op == "+U":
                last[key] = value
            else:
                last.pop(key, None)
        assert folded.rows == Counter(last.items())
