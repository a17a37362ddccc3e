"""Properties of Top-N.

The reference sorts the surviving rows of each partition, in the order of their arrival, in plain
Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.changelogs import Change, ChangingQuery, FoldedRows, Row, UpsertedRows, changelogs, cut, cuts, inserts
from property.queries import Query

from everfold.plan.changelog import KIND, RETRACTIONS, ChangelogMode, RowKind

LAW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ORDERS: dict[str, Callable[[Row], Any]] = {
    "v": lambda row: (row[1] is not None, row[1] or 0),
    "v DESC": lambda row: (row[1] is None, -(row[1] or 0)),
    "v NULLS LAST": lambda row: (row[1] is None, row[1] or 0),
    "ABS(v) DESC, v": lambda row: (row[1] is None, -abs(row[1] or 0), row[1] or 0),
}
BOUNDS = {"rn <= 1": (1, 1), "rn <= 3": (1, 3), "rn = 2": (2, 2), "rn BETWEEN 2 AND 4": (2, 4)}


def find_survivors(changes: Sequence[Change]) -> list[Row]:
    """Return the remaining rows in the order of arrival.

    A retraction removes the first of equal rows.
    """
    found: list[Row] = []
    for kind, row in changes:
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            found.append(row)
        else:
            found.remove(row)
    return found


def answer(changes: Sequence[Change], order: str, bounds: tuple[int, int], by_key: bool) -> Counter[tuple[Any, ...]]:
    partitions: dict[Any, list[Row]] = {}
    for row in find_survivors(changes):
        partitions.setdefault(row[0] if by_key else 0, []).append(row)
    first, last = bounds
    return Counter(
        (*row, number)
        for rows in partitions.values()
        for number, row in enumerate(sorted(rows, key=ORDERS[order]), 1)
        if first <= number <= last
    )


def check(
    changes: list[Change],
    positions: list[int],
    mode: ChangelogMode,
    order: str,
    bound: str,
    *,
    by_key: bool,
    numbered: bool,
    buckets: int,
) -> None:
    partition = "PARTITION BY k " if by_key else ""
    inner = f"SELECT k, v, ROW_NUMBER() OVER ({partition}ORDER BY {order}) AS rn FROM t"
    query = ChangingQuery(f"SELECT k, v{', rn' * numbered} FROM ({inner}) WHERE {bound}", mode, buckets=buckets)
    folded, seen = FoldedRows(per_key=False), []
    for batch in cut(changes, positions):
        seen += batch
        folded.take(query.feed(batch))
        wanted = answer(seen, order, BOUNDS[bound], by_key)
        if not numbered:
            wanted = sum((Counter({row[:2]: count}) for row, count in wanted.items()), Counter())
        assert folded.rows == wanted
        query.pipeline = query.pipeline.restart()


orders, bounds = st.sampled_from(sorted(ORDERS)), st.sampled_from(sorted(BOUNDS))
buckets = st.sampled_from([1, 3])


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "rows"])
@LAW
@given(changes=changelogs(), cuts=cuts, order=orders, bound=bounds, by_key=st.booleans(), buckets=buckets)
def test_after_every_batch_the_result_holds_the_first_surviving_rows(
    numbered: bool, changes: list[Change], cuts: list[int], order: str, bound: str, by_key: bool, buckets: int
) -> None:
    check(changes, cuts, ChangelogMode.ALL, order, bound, by_key=by_key, numbered=numbered, buckets=buckets)


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "rows"])
@LAW
@given(changes=inserts(), cuts=cuts, order=orders, bound=bounds, by_key=st.booleans(), buckets=buckets)
def test_after_every_batch_of_inserts_the_result_holds_the_first_rows(
    numbered: bool, changes: list[Change], cuts: list[int], order: str, bound: str, by_key: bool, buckets: int
) -> None:
    check(changes, cuts, ChangelogMode.INSERT_ONLY, order, bound, by_key=by_key, numbered=numbered, buckets=buckets)


@LAW
@given(changes=changelogs(), cuts=cuts, bound=bounds)
def test_the_first_groups_are_computed_from_the_surviving_rows(
    changes: list[Change], cuts: list[int], bound: str
) -> None:
    inner = "SELECT k, COUNT(*) AS n, COUNT(v) AS m FROM t GROUP BY k"
    ranked = f"SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC, m, k) AS rn FROM ({inner})"
    query = ChangingQuery(f"SELECT k, n, m FROM ({ranked}) WHERE {bound}", ChangelogMode.ALL, buckets=2)
    folded, seen = FoldedRows(), []
    for batch in cut(changes, cuts):
        seen += batch
        folded.take(query.feed(batch))
        groups: dict[str | None, list[int | None]] = {}
        for key, value in find_survivors(seen):
            groups.setdefault(key, []).append(value)
        rows = [(key, len(found), sum(value is not None for value in found)) for key, found in groups.items()]
        rows.sort(key=lambda row: (-row[1], row[2], row[0] is not None, row[0] or ""))
        first, last = BOUNDS[bound]
        assert folded.rows == Counter(rows[first - 1 : last])


@LAW
@given(changes=changelogs(), cuts=cuts, descending=st.booleans(), buckets=buckets)
def test_upserts_that_move_rows_to_another_partition(
    changes: list[Change], cuts: list[int], descending: bool, buckets: int
) -> None:
    """The changes of a key come in order; the last one determines the current row."""
    groups = "SELECT k, COUNT(*) AS n, COUNT(v) AS m FROM t GROUP BY k"
    order = "m DESC, k" if descending else "m, k"
    ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY n % 3 ORDER BY {order}) AS rn FROM ({groups})"
    query = ChangingQuery(f"SELECT k, n, m FROM ({ranked}) WHERE rn <= 2", ChangelogMode.ALL, buckets=buckets)
    table, seen = UpsertedRows(), []
    for batch in cut(changes, cuts):
        seen += batch
        table.take(query.feed(batch))
        partitions: dict[int, list[tuple[str | None, int, int]]] = {}
        rows = find_survivors(seen)
        for key in {row[0] for row in rows}:
            values = [value for other, value in rows if other == key]
            found = (key, len(values), sum(value is not None for value in values))
            partitions.setdefault(found[1] % 3, []).append(found)
        sign = -1 if descending else 1
        first = [
            row
            for found in partitions.values()
            for row in sorted(found, key=lambda row: (sign * row[2], row[0] is not None, row[0] or ""))[:2]
        ]
        assert sorted(table.rows.values(), key=repr) == sorted(first, key=repr)


SECONDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=30)
"""Keys, and times in seconds of which many are equal."""
LAST_BY_KEY = "SELECT id, k, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY ts {order}) AS n FROM {rows}) WHERE n {bound}"


@pytest.mark.parametrize("bound", ["= 1", "<= 2"])
@pytest.mark.parametrize("order", ["ASC", "DESC"])
@pytest.mark.parametrize("is_windowed", [False, True], ids=["all rows", "windows"])
@settings(LAW, max_examples=12)
@given(rows=SECONDS, cuts=cuts, buckets=buckets)
def test_of_equal_times_only_the_newest_row_is_the_last_to_arrive(
    bound: str, order: str, is_windowed: bool, rows: list[tuple[str, int]], cuts: list[int], buckets: int
) -> None:
    """As in Flink, whose Top-N keeps the first of equal rows, and whose deduplication the last."""
    window = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    keys = "window_start, window_end, k" if is_windowed else "k"
    select = LAST_BY_KEY.format(keys=keys, order=order, rows=window if is_windowed else "t", bound=bound)
    query = Query(
        f"CREATE TABLE t (id INT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '9' SECOND); {select}"
    )
    start = datetime(2026, 1, 1)
    arrived = [
        {"id": number, "k": key, "ts": start + timedelta(seconds=time)} for number, (key, time) in enumerate(rows)
    ]
    pipeline, folded = query.pipeline(buckets=buckets), Counter[tuple[Any, ...]]()
    positions = sorted({0, len(arrived), *(cut % (len(arrived) + 1) for cut in cuts)})
    emitted = []
    for begin, end in pairwise(positions):
        emitted.append(pipeline.feed(query.input(t=arrived[begin:end]), now_ms=0))
        pipeline = pipeline.restart()
    emitted.append(pipeline.flush(now_ms=0))
    for table in emitted:
        for row in table.to_pylist():
            folded[row["c0"], row["c1"]] += -1 if row.get(KIND) in RETRACTIONS else 1
    expected = Counter[tuple[Any, ...]]()
    for key in "ab":
        of_key = [(time, number) for number, (other, time) in enumerate(rows) if other == key]
        if (order, bound) == ("DESC", "= 1"):
            of_key.reverse()
        of_key.sort(key=lambda row: row[0], reverse=order == "DESC")
        expected.update((number, key) for _, number in of_key[: int(bound[-1])])
    assert +folded == expected
