"""Which rows OVER keeps of a stream, and for how long.

tests/property/test_over.py and the case files check its values.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from property.queries import Query, tuples

from everfold.memory.pipeline import MemoryPipeline
from everfold.operators.frames import PART, frame_bounds, sort_by_partition
from everfold.plan.nodes import Frame

TABLE = "CREATE TABLE e (ts TIMESTAMP(3), k STRING, v INT, proc AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);"
START = datetime(2020, 1, 1)


def over(window: str, *, options: str = "") -> Query:
    return Query(f"{options} {TABLE} SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY {window}) AS s FROM e")


def feed(pipeline: MemoryPipeline, query: Query, rows: list[tuple[int, str, int]], now_ms: int = 0) -> list[Any]:
    """Feed rows of seconds, key and value."""
    made = [{"ts": START + timedelta(seconds=at), "k": k, "v": v} for at, k, v in rows]
    return tuples(pipeline.feed(query.input(e=made), now_ms))


def test_a_range_keeps_only_rows_that_a_later_frame_reaches() -> None:
    query = over("ts RANGE INTERVAL '10' SECOND PRECEDING")
    pipeline, sizes = query.pipeline(buckets=2), []
    for start in range(0, 3000, 20):
        feed(pipeline, query, [(start + at, f"key {at % 4}", 1) for at in range(20)])
        sizes.append(pipeline.state_rows)
    assert max(sizes[-50:]) <= max(sizes[10:60])
    assert max(sizes) < 150
    pipeline.flush()
    assert pipeline.state_rows < 150


def test_rows_keeps_the_last_rows_of_each_partition() -> None:
    query = over("ts ROWS 2 PRECEDING")
    pipeline = query.pipeline()
    for start in range(0, 200, 10):
        feed(pipeline, query, [(start + at, f"key {at % 5}", 1) for at in range(10)])
    pipeline.flush()
    assert pipeline.state_rows == 5 * 2


def test_an_unbounded_frame_keeps_one_row_per_partition() -> None:
    query = over("ts")
    pipeline = query.pipeline(buckets=3)
    for start in range(0, 200, 10):
        feed(pipeline, query, [(start + at, f"key {at % 5}", 1) for at in range(10)])
    pipeline.flush()
    assert pipeline.state_rows == 5


@pytest.mark.parametrize("window", ["proc", "proc ROWS 5 PRECEDING", "ts", "ts ROWS 5 PRECEDING"])
def test_state_of_idle_partitions_expires(window: str) -> None:
    query = over(window, options="SET 'table.exec.state.ttl' = '10 s';")
    pipeline = query.pipeline()
    feed(pipeline, query, [(0, "a", 1), (0, "b", 1), (5, "c", 1)], now_ms=1_000)
    feed(pipeline, query, [(10, "a", 2), (15, "c", 1)], now_ms=9_000)
    out = feed(pipeline, query, [(20, "a", 4), (20, "b", 8), (30, "c", 1)], now_ms=15_000)
    assert [row for row in out if row[0] in "ab"] == [("a", 4, 7), ("b", 8, 8)]


def test_all_rows_are_kept_when_ordered_by_a_column() -> None:
    query = over("v, ts")
    pipeline = query.pipeline(buckets=3)
    for start in range(0, 200, 10):
        feed(pipeline, query, [(start + at, f"key {at % 5}", at) for at in range(10)])
    assert pipeline.state_rows == 200


def test_state_of_idle_partitions_expires_in_any_order() -> None:
    query = over("v DESC", options="SET 'table.exec.state.ttl' = '10 s';")
    pipeline = query.pipeline()
    feed(pipeline, query, [(0, "a", 1), (0, "b", 1), (5, "c", 1)], now_ms=1_000)
    feed(pipeline, query, [(10, "a", 2)], now_ms=9_000)
    out = feed(pipeline, query, [(20, "a", 4), (20, "b", 8)], now_ms=15_000)
    assert sorted(row[:3] for row in out) == [
        ("a", 1, 3), ("a", 1, 7), ("a", 2, 2), ("a", 2, 6), ("a", 4, 4), ("b", 8, 8),
    ]  # fmt: skip
    for second in range(30, 40):
        feed(pipeline, query, [(second, "c", 1)], now_ms=second * 1000)
    assert pipeline.state_rows == 10


def test_late_rows_are_counted() -> None:
    unbounded, bounded = over("ts"), over("ts ROWS 1 PRECEDING")
    for query, late in ((unbounded, 2), (bounded, 1)):
        pipeline = query.pipeline()
        feed(pipeline, query, [(0, "a", 1), (10, "a", 2)])
        feed(pipeline, query, [(20, "a", 4)])
        feed(pipeline, query, [(10, "a", 8), (3, "b", 16)])
        pipeline.flush()
        assert pipeline.late_rows == late, "b has not come as far as its watermark: only without a bound it is late"


def test_a_late_row_waits_until_the_watermark_advances() -> None:
    query = over("ts ROWS 1 PRECEDING")
    pipeline = query.pipeline()
    feed(pipeline, query, [(0, "a", 1), (10, "a", 2)])
    assert feed(pipeline, query, [(5, "b", 4)]) == []
    assert feed(pipeline, query, [(4, "b", 8)]) == []
    assert feed(pipeline, query, [(12, "a", 0)]) == [("b", 8, 8), ("b", 4, 12), ("a", 2, 3)]


def test_rows_of_a_flush_are_emitted_once() -> None:
    query = over("ts")
    pipeline = query.pipeline()
    assert len(feed(pipeline, query, [(0, "a", 1), (10, "a", 2)])) == 1
    assert tuples(pipeline.flush()) == [("a", 2, 3)]
    pipeline = pipeline.restart()
    feed(pipeline, query, [(10, "a", 4), (11, "a", 8)])
    assert tuples(pipeline.flush()) == [("a", 8, 11)]
    assert pipeline.late_rows == 1


@pytest.mark.parametrize("keys", [["k"], ["k", "l"]])
def test_two_partitions_with_the_same_hash_stay_separate(keys: list[str]) -> None:
    rows = pl.DataFrame({"hash": [5] * 6, "k": ["a", "b"] * 3, "l": [None] * 6, "at": range(6)})
    found = sort_by_partition(rows, keys)
    assert found.group_by(PART, maintain_order=True).agg("k", "at").rows() == [
        (0, ["a"] * 3, [0, 2, 4]), (1, ["b"] * 3, [1, 3, 5]),
    ]  # fmt: skip


@pytest.mark.parametrize("apart", [10, 1 << 60])
def test_frames_of_distant_times_are_correct(apart: int) -> None:
    """The times are so far apart that one integer for partition and time would overflow."""
    part = pl.Series([0, 0, 0, 1, 1]).to_numpy()
    at = pl.Series([-apart, 0, 3, 0, apart]).to_numpy()
    first, last = frame_bounds(part, at, Frame(rows=False, first=-5, last=0), peers=True)
    assert (first.tolist(), last.tolist()) == ([0, 1, 1, 3, 4], [0, 1, 2, 3, 4])
