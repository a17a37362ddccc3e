"""Streaming equals batch: the operators and DuckDB compute the same windows of the same query
over random rows, keys and batches.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.queries import Query, tuples

TABLE = """CREATE TABLE e (ts TIMESTAMP(3), k STRING, f DOUBLE, v INT, d DECIMAL(10, 2),
  WATERMARK FOR ts AS ts - INTERVAL '0.010' SECOND);"""
CALLS = """COUNT(*) AS n, COUNT(v) FILTER (WHERE v > 0) AS p, SUM(v) AS s, AVG(v) AS a, MIN(k) AS lo, MAX(f) AS hi, SUM(d) AS ds, AVG(d) AS da,
  COUNT(*) FILTER (WHERE v > 0) AS pn"""
WINDOWS = {
    "tumble": "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '0.007' SECOND)",
    "hop": "HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '0.003' SECOND, INTERVAL '0.009' SECOND)",
    "cumulate": "CUMULATE(TABLE e, DESCRIPTOR(ts), INTERVAL '0.004' SECOND, INTERVAL '0.012' SECOND)",
    "session": "SESSION(TABLE e PARTITION BY {keys}, DESCRIPTOR(ts), INTERVAL '0.003' SECOND)",
}
ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 8),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0.0, -0.0, 1.5, None]),
        st.one_of(st.none(), st.integers(-9, 9)),
        st.one_of(st.none(), st.integers(-999, 999).map(lambda unscaled: Decimal(unscaled).scaleb(-2))),
    ),
    max_size=25,
)


@pytest.mark.parametrize("keys", ["k", "k, f"])
@pytest.mark.parametrize("kind", list(WINDOWS))
def test_a_stream_returns_the_rows_of_a_batch(kind: str, keys: str) -> None:
    window = WINDOWS[kind].format(keys=keys)
    query = Query(
        f"{TABLE} SELECT {keys}, window_start, window_end, {CALLS} FROM {window} GROUP BY {keys}, window_start, window_end"
    )

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ROWS, st.integers(1, 25), st.sampled_from([1, 3]))
    def law(drawn: list[tuple[Any, ...]], size: int, buckets: int) -> None:
        high, rows = datetime(2020, 1, 1), []
        for step, back, k, f, v, d in drawn:
            high += timedelta(milliseconds=step)
            rows.append({"ts": high - timedelta(milliseconds=back), "k": k, "f": f, "v": v, "d": d})
        pipeline, out = query.pipeline(buckets=buckets), []
        for start in range(0, len(rows), size):
            out += tuples(pipeline.feed(query.input(e=rows[start : start + size])))
            pipeline = pipeline.restart()
        out += tuples(pipeline.flush())
        assert pipeline.late_rows == 0
        assert sorted(map(_format_row, out)) == sorted(map(_format_row, query.batch(e=rows)))

    law()


def _format_row(row: tuple[Any, ...]) -> str:
    """Return a row as a string; -0.0 becomes 0.0."""
    return repr(tuple(value + 0.0 if isinstance(value, float) else value for value in row))
