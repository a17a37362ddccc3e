"""Streams whose operators cannot follow the changes of their input are refused when planned."""

from __future__ import annotations

import pytest

from everfold.errors import UnsupportedFeature
from everfold.sql.planner import Session

CHANGES = """
CREATE TABLE changes (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'broker:9092',
      'key.format' = 'json', 'value.format' = 'json');
"""
REFUSED = [
    ("SELECT APPROX_COUNT_DISTINCT(v) FROM changes", "no-retraction", "`APPROX_COUNT_DISTINCT` does not support"),
    (
        "SELECT n, APPROX_COUNT_DISTINCT(k) FROM (SELECT k, COUNT(*) AS n FROM changes GROUP BY k) GROUP BY n",
        "no-retraction",
        "`APPROX_COUNT_DISTINCT` does not support",
    ),
    (
        (
            "SELECT window_end, APPROX_COUNT_DISTINCT(v)"
            " FROM TUMBLE(TABLE changes, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
        ),
        "no-retraction",
        "`APPROX_COUNT_DISTINCT` does not support",
    ),
    (
        (
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS place"
            " FROM TUMBLE(TABLE changes, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE place <= 2"
        ),
        "unsupported-in-stream",
        "window Top-N",
    ),
]


def plan(query: str, *, batch: bool = False) -> None:
    from everfold.connectors.registry import apply_connector

    session = Session({"execution.runtime-mode": "batch"} if batch else {}, connected=apply_connector)
    list(session.run(CHANGES + query))


@pytest.mark.parametrize(("query", "code", "message"), REFUSED)
def test_changes_are_refused_when_they_are_planned(query: str, code: str, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=message) as caught:
        plan(query)
    assert caught.value.code == code


@pytest.mark.parametrize("query", [query for query, *_ in REFUSED])
def test_a_batch_has_whole_rows(query: str) -> None:
    plan(query, batch=True)
