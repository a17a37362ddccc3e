"""Properties of processing time under any clock, including one that steps back or jumps ahead:
no row is lost or counted twice, no window is emitted twice.
"""

from __future__ import annotations

from collections import Counter

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
