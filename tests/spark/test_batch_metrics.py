"""Metrics of batch queries that count skipped rows."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from everfold.spark.batch import BatchLowering
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOWS = 60
TABLE = """
CREATE TABLE a (x TIMESTAMP(3), v INT, WATERMARK FOR x AS x)
WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
"""
QUERY = """
SELECT window_start, SUM(v) FROM TUMBLE(TABLE a, DESCRIPTOR(x), INTERVAL '{minutes}' MINUTE)
WHERE v > {minutes} GROUP BY window_start, window_end
"""


def test_windows_of_a_query_have_their_own_metrics(spark: SparkSession) -> None:
    """They had the addresses of Python objects in their names. Garbage collection frees addresses."""
    script = TABLE + " UNION ALL ".join(QUERY.format(minutes=at + 1) for at in range(WINDOWS))
    (*_, action) = Session(options={"execution.runtime-mode": "batch"}).run(script)
    assert isinstance(action, Submit)
    frame = spark.createDataFrame([], "c0 TIMESTAMP_NTZ, c1 INT")

    def read(_: object) -> DataFrame:
        gc.collect()
        return frame

    (root,) = action.roots
    assert BatchLowering(spark, "UTC", read).lower(root.input).columns == ["c0", "c1"]
