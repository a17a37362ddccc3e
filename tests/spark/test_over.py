"""OVER on streams and Spark's window functions: the same rows, the same frames, the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.test_over import STREAMING, Row, by_id, query_of, run_stream, streams

from everfold.spark.session import create_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CALLS = {
    "COUNT(*)": "count(*)",
    "SUM(v)": "sum(v)",
    "MIN(v)": "min(v)",
    "MAX(f)": "max(f)",
    "COUNT(*) FILTER (WHERE v > 0)": "count_if(v > 0)",
    "FIRST_VALUE(v)": "first_value(v, true)",
    "LAST_VALUE(v)": "last_value(v, true)",
    "STDDEV_POP(f)": "stddev_pop(f)",
}
"""Calls, and their equivalents in Spark SQL."""


def spark_sql(frame: tuple[bool, int | None, int | None], partition: str) -> str:
    """Return the same windows in Spark SQL:

    `at` in milliseconds; rows of one time in the order of their arrival.
    """
    rows, first, _ = frame
    order = "at, id" if rows else "at"
    start = "UNBOUNDED PRECEDING" if first is None else "CURRENT ROW" if first == 0 else f"{-first} PRECEDING"
    window = f"({partition}ORDER BY {order} {'ROWS' if rows else 'RANGE'} BETWEEN {start} AND CURRENT ROW)"
    return f"SELECT id, {', '.join(f'{call} OVER w' for call in CALLS.values())} FROM e WINDOW w AS {window}"


@pytest.mark.parametrize(
    "partition", ["PARTITION BY k ", pytest.param("", marks=pytest.mark.slow)], ids=["by key", "all"]
)
@pytest.mark.parametrize("frame", list(STREAMING))
def test_a_stream_agrees_with_spark_window_functions(frame: str, partition: str, spark: SparkSession) -> None:
    session = create_session(spark, 1)
    session.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    query = query_of(frame, partition, list(CALLS))

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(streams(), st.integers(1, 30), st.sampled_from([1, 3]))
    def law(rows: list[Row], size: int, buckets: int) -> None:
        values = [(row.id, row.at, row.k, row.v, row.f) for row in rows]
        session.createDataFrame(values, "id INT, at BIGINT, k STRING, v INT, f DOUBLE").createOrReplaceTempView("e")
        expected = by_id([tuple(row) for row in session.sql(spark_sql(STREAMING[frame], partition)).collect()])
        found = by_id(run_stream(query, rows, size, buckets))
        assert found.keys() == expected.keys()
        for of, row in found.items():
            assert row == pytest.approx(expected[of], nan_ok=True), of

    law()
