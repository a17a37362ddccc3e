"""Properties of OVER in a stream that is ordered by any column.

The reference computes the frames of the surviving rows in plain Python.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.changelogs import Change, ChangingQuery, FoldedRows, Row, changelogs, cut, cuts, inserts
from property.test_rank import ORDERS, find_survivors

from everfold.memory.batch import run_batch
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.plan.nodes import OverAggregate
from everfold.plan.walk import walk_plan
from everfold.sql.planner import Session, Submit

LAW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


CALLS: dict[str, Callable[[Sequence[int | None]], Any]] = {
    "SUM(v)": _sum,
    "COUNT(*)": len,
    "COUNT(DISTINCT v)": lambda values: len({value for value in values if value is not None}),
    "MIN(v)": lambda values: min((value for value in values if value is not None), default=None),
    "LAST_VALUE(v)": lambda values: next((value for value in reversed(values) if value is not None), None),
}
FRAMES = {"": None, "ROWS UNBOUNDED PRECEDING": 1 << 20, "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW": 2}
"""Frames, and the number of rows before the current row in each.

None: all rows before it, and its peers.
"""


def answer(changes: Sequence[Change], order: str, call: str, frame: str, by_key: bool) -> Counter[tuple[Any, ...]]:
    partitions: dict[Any, list[Row]] = {}
    for row in find_survivors(changes):
        partitions.setdefault(row[0] if by_key else 0, []).append(row)
    found: Counter[tuple[Any, ...]] = Counter()
    before = FRAMES[frame]
    for rows in partitions.values():
        rows = sorted(rows, key=ORDERS[order])
        for at, row in enumerate(rows):
            if before is None:
                of_frame = [each for each in rows if ORDERS[order](each) <= ORDERS[order](row)]
            else:
                of_frame = rows[max(0, at - before) : at + 1]
            found[*row, CALLS[call]([each[1] for each in of_frame])] += 1
    return found


orders, calls, frames = (st.sampled_from(sorted(each)) for each in (ORDERS, CALLS, FRAMES))


@pytest.mark.parametrize("mode", [ChangelogMode.ALL, ChangelogMode.INSERT_ONLY], ids=["changes", "inserts"])
@LAW
@given(data=st.data(), cuts=cuts, order=orders, call=calls, frame=frames, by_key=st.booleans())
def test_after_every_batch_and_restart_the_values_are_those_of_the_surviving_rows(
    mode: ChangelogMode, data: st.DataObject, cuts: list[int], order: str, call: str, frame: str, by_key: bool
) -> None:
    changes = data.draw(changelogs() if mode is ChangelogMode.ALL else inserts())
    partition = "PARTITION BY k " if by_key else ""
    select = f"SELECT k, v, {call} OVER ({partition}ORDER BY {order} {frame}) AS x FROM t"
    query = ChangingQuery(select, mode, buckets=data.draw(st.sampled_from([1, 3])))
    assert any(isinstance(node, OverAggregate) for node in walk_plan(query.pipeline._root.input))
    folded, seen = FoldedRows(per_key=False), []
    for batch in cut(changes, cuts):
        seen += batch
        folded.take(query.feed(batch))
        assert folded.rows == answer(seen, order, call, frame, by_key)
        query.pipeline = query.pipeline.restart()


@pytest.mark.parametrize("order", ["w", "w DESC", "v", "k, w"])
def test_over_retracts_from_over_exactly_what_it_emitted(order: str) -> None:
    """Sums of floats depend on the order of addition.

    One OVER retracts exactly what it emitted, to the last bit, independent of the rest of the
    batch.
    """
    chance = random.Random(7)
    inner = "SELECT k, v, AVG(v * 0.1E0) OVER (PARTITION BY k ORDER BY v) AS w FROM t"
    query = ChangingQuery(f"SELECT k, v, COUNT(*) OVER (ORDER BY {order}) AS n FROM ({inner})", ChangelogMode.ALL)
    alive: list[Row] = []
    folded = FoldedRows(per_key=False)
    for _ in range(12):
        batch: list[Change] = []
        for row in chance.sample(alive, len(alive) // 9):
            alive.remove(row)
            batch.append((RowKind.DELETE, row))
        for key in chance.sample("abcdef", chance.randint(1, 6)):
            rows = [(key, chance.randrange(10_000)) for _ in range(chance.randint(1, 25))]
            alive += rows
            batch += [(RowKind.INSERT, row) for row in rows]
        folded.take(query.feed(batch))
        assert folded.rows.total() == len(alive)
        assert {stats.state_rows for stats in query.pipeline.stats} == {len(alive)}
        assert not any(stats.ignored_rows for stats in query.pipeline.stats)


@LAW
@given(changes=inserts(), order=orders, frame=frames)
def test_a_stream_returns_the_rows_of_a_batch(changes: list[Change], order: str, frame: str) -> None:
    columns = "SUM(v) OVER w AS s, COUNT(*) OVER w AS n, RANK() OVER o AS r, DENSE_RANK() OVER o AS d"
    windows = f"w AS (PARTITION BY k ORDER BY {order} {frame}), o AS (PARTITION BY k ORDER BY {order})"
    select = f"SELECT k, v, {columns} FROM t WINDOW {windows}"
    stream, folded = ChangingQuery(select, ChangelogMode.INSERT_ONLY, buckets=2), FoldedRows(per_key=False)
    for at in range(0, len(changes), 7):
        folded.take(stream.feed(changes[at : at + 7]))
    session = Session({"execution.runtime-mode": "batch"})
    list(session.run("CREATE TABLE t (k STRING, v INT)"))
    (submit,) = session.run(select)
    assert isinstance(submit, Submit)
    arrays = [
        pa.array([row[0] for _, row in changes], pa.string()),
        pa.array([row[1] for _, row in changes], pa.int32()),
    ]
    found = run_batch(submit.roots[0], {"t": pa.Table.from_arrays(arrays, ["c0", "c1"])}, submit.settings)
    assert KIND not in found.column_names
    assert folded.rows == Counter(tuple(row.values()) for row in found.to_pylist())


def test_values_over_many_rows() -> None:
    """More rows than fit into a level of pieces or a page, in partitions and batches of all
    sizes.
    """
    changes = [(RowKind.INSERT, (f"k{at % 7 if at % 5 else 0}", at * 7919 % 1009)) for at in range(6000)]
    query = ChangingQuery(
        "SELECT k, v, SUM(v * 0.1E0) OVER (PARTITION BY k ORDER BY v) AS x FROM t", ChangelogMode.INSERT_ONLY
    )
    folded = FoldedRows(per_key=False)
    for batch in cut(changes, [1, 3, 500, 501, 2500, 5990]):
        folded.take(query.feed(batch))
    partitions: dict[str | None, list[int]] = {}
    for _, (key, value) in changes:
        partitions.setdefault(key, []).append(value or 0)
    found: dict[tuple[Any, ...], float] = {row[:2]: row[2] for row in folded.rows}
    assert folded.rows.total() == len(changes)
    for partition, values in partitions.items():
        for value in set(values):
            assert found[partition, value] == pytest.approx(sum(each for each in values if each <= value) / 10)


@LAW
@given(changes=inserts(), cut=st.integers(0, 40))
def test_a_new_group_above_starts_with_all_rows(changes: list[Change], cut: int) -> None:
    """OVER by any column has its whole result in its state, and emits it to a new operator."""
    inner = "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v) AS s FROM t"
    grouped = f"SELECT k, COUNT(*) AS n, MAX(s) AS m FROM ({inner}) GROUP BY k"
    running, whole, changed = (ChangingQuery(each, ChangelogMode.INSERT_ONLY) for each in (inner, grouped, grouped))
    running.feed(changes[:cut])
    extended = Session().settings.with_option("everfold.compat.rules", "extended")
    changed.pipeline = running.pipeline.change_query(changed.pipeline._root, 1, extended)
    found, wanted = FoldedRows(per_key=False), FoldedRows(per_key=False)
    wanted.take(whole.feed(changes))
    found.take(changed.feed(changes[cut:]))
    assert found.rows == wanted.rows


@LAW
@given(changes=changelogs(), cuts=cuts, order=st.sampled_from(["n", "n DESC", "n, k"]), by_n=st.booleans())
def test_over_groups_follows_the_groups(changes: list[Change], cuts: list[int], order: str, by_n: bool) -> None:
    """Changes arrive by the key of the groups, including NULL, with at most one retraction and
    one new row each.
    """
    partition = "PARTITION BY n % 2 " if by_n else ""
    groups = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
    select = f"SELECT k, n, SUM(n) OVER ({partition}ORDER BY {order}) AS s FROM ({groups})"
    query, folded, seen = ChangingQuery(select, ChangelogMode.ALL, buckets=2), FoldedRows(per_key=not by_n), []
    for batch in cut(changes, cuts):
        seen += batch
        folded.take(query.feed(batch))
        counts = Counter(key for key, _ in find_survivors(seen))
        position = {
            key: {"n": (n,), "n DESC": (-n,), "n, k": (n, key is not None, key or "")}[order]
            for key, n in counts.items()
        }
        assert folded.rows == Counter(
            (
                key,
                n,
                sum(
                    m
                    for other, m in counts.items()
                    if position[other] <= position[key] and (not by_n or m % 2 == n % 2)
                ),
            )
            for key, n in counts.items()
        )
