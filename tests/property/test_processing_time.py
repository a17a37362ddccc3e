"""Properties of processing time under any clock, including one that steps back or jumps ahead:
no row is lost or counted twice, no window is emitted twice.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property.queries import Query, tuples

TABLE = "CREATE TABLE t (k STRING, p AS PROCTIME());"
MINUTE_MS, HOUR_MS, YEAR_9999_MS = 60_000, 3_600_000, 253_370_764_800_000
WINDOWS = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' MINUTE)",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(p), INTERVAL '2' MINUTE, INTERVAL '2' MINUTE)",
    "SESSION": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(p), INTERVAL '1' MINUTE)",
    "SESSION of all keys": "SESSION(TABLE t, DESCRIPTOR(p), INTERVAL '1' MINUTE)",
}
clocks = st.lists(
    st.one_of(st.integers(0, 5 * MINUTE_MS), st.sampled_from([0, HOUR_MS, 2 * HOUR_MS, YEAR_9999_MS])),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clock=clocks, buckets=st.sampled_from([1, 3]), restarts=st.booleans())
@example(clock=[HOUR_MS, 0, 30_000, HOUR_MS], buckets=1, restarts=False)
def test_each_row_counts_once(window: str, clock: list[int], buckets: int, restarts: bool) -> None:
    query = Query(
        f"{TABLE} SELECT window_start, window_end, k, COUNT(*) FROM {WINDOWS[window]} GROUP BY window_start, window_end, k"
    )
    pipeline = query.pipeline(buckets=buckets)
    rows, sent = [], Counter[str]()
    for at, now_ms in enumerate(clock):
        batch = [{"k": "a"}, {"k": "b"}][: 1 + at % 2]
        sent.update(row["k"] for row in batch)
        rows += tuples(pipeline.feed(query.input(t=batch), now_ms=now_ms))
        if restarts:
            pipeline = pipeline.restart()
    rows += tuples(pipeline.flush(now_ms=max(clock)))
    counted = Counter[str]()
    for _, _, key, count in rows:
        counted[key] += count
    assert (counted, pipeline.late_rows) == (sent, 0)
    assert max(Counter((start, end, key) for start, end, key, _ in rows).values()) == 1
    assert all(start < end for start, end, _, _ in rows)
    assert pipeline.state_rows == 0


@pytest.mark.parametrize("kind", ["TUMBLE", "HOP", "SESSION"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 20)), min_size=1, max_size=12),
    buckets=st.sampled_from([1, 3]),
    restarts=st.booleans(),
)
def test_results_count_at_the_processing_time_at_which_they_are_emitted(
    kind: str, steps: list[tuple[int, int]], buckets: int, restarts: bool
) -> None:
    """Windows by event time, and windows by `TUMBLE_PROCTIME(…)` of their results."""
    window = "ts, INTERVAL '4' SECOND, INTERVAL '4' SECOND" if kind == "HOP" else "ts, INTERVAL '4' SECOND"
    tables = "CREATE TABLE t (ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts);"
    fours = f"SELECT {kind}_PROCTIME({window}) AS p, COUNT(*) AS n FROM t GROUP BY {kind}({window}), k"
    inner = Query(tables + fours)
    outer = Query(
        f"{tables} SELECT TUMBLE_END(p, INTERVAL '1' MINUTE), SUM(n), COUNT(*), TUMBLE_PROCTIME(p, INTERVAL '1' MINUTE)"
        f" FROM ({fours}) GROUP BY TUMBLE(p, INTERVAL '1' MINUTE)"
    )
    pipelines, now_ms, event_s = [inner.pipeline(buckets=buckets), outer.pipeline(buckets=buckets)], 0, 0
    expected, found = dict[datetime, tuple[int, int]](), list[tuple[datetime, int, int]]()
    for at, (passed_ms, passed_s) in enumerate([*steps, (90_000, 0)]):
        now_ms, event_s = now_ms + passed_ms, event_s + passed_s
        rows = [{"ts": datetime(2020, 1, 1) + timedelta(seconds=event_s), "k": "ab"[at % 2]}]
        emitted, outputs = (
            tuples(pipeline.feed(query.input(t=rows), now_ms=now_ms))
            for pipeline, query in zip(pipelines, (inner, outer), strict=True)
        )
        now = datetime(1970, 1, 1) + timedelta(milliseconds=now_ms)
        assert all(time.replace(tzinfo=None) == now for time, _ in emitted)
        end = datetime(1970, 1, 1) + timedelta(minutes=now_ms // MINUTE_MS + 1)
        for _, count in emitted:
            rows_before, windows_before = expected.get(end, (0, 0))
            expected[end] = (rows_before + count, windows_before + 1)
        assert all(end <= now == time.replace(tzinfo=None) for end, _, _, time in outputs)
        found += [(end, count, windows) for end, count, windows, _ in outputs]
        pipelines = [pipeline.restart() for pipeline in pipelines] if restarts else pipelines
    assert sorted(found) == sorted((end, *totals) for end, totals in expected.items() if end <= now)
