"""Which rows one task of a stream emits: expected from the keys by which operators partition."""

from __future__ import annotations

import pytest

from everfold.connectors.registry import apply_connector
from everfold.plan.colocation import are_colocated
from everfold.sql.planner import Session, Submit

TABLES = """
CREATE TABLE s (k BIGINT, v INT, t TIMESTAMP(3), WATERMARK FOR t AS t) WITH ('connector' = 'datagen');
"""
MINUTES = "TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE)"
TOP = "(SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM s)"


@pytest.mark.parametrize(
    ("query", "columns", "expected"),
    [
        ("SELECT v FROM s WHERE k > 1", (0,), True),
        ("SELECT k, COUNT(*) FROM s GROUP BY k", (0,), True),
        ("SELECT COUNT(*), k FROM s GROUP BY k", (0,), False),
        ("SELECT k, v, COUNT(*) FROM s GROUP BY k, v", (0,), False),
        ("SELECT k, v, COUNT(*) FROM s GROUP BY k, v", (1, 0, 2), True),
        ("SELECT CAST(k AS STRING), COUNT(*) FROM s GROUP BY k", (0,), True),
        ("SELECT k + 1, COUNT(*) FROM s GROUP BY k", (0,), False),
        ("SELECT ROW(k, v), COUNT(*) FROM s GROUP BY k, v", (0,), True),
        ("SELECT COUNT(*) FROM s", (0,), True),
        (f"SELECT window_end, k, COUNT(*) FROM {MINUTES} GROUP BY window_start, window_end, k", (1,), True),
        (f"SELECT window_end, k, COUNT(*) FROM {MINUTES} GROUP BY window_start, window_end, k", (0,), False),
        (f"SELECT k, v FROM {TOP} WHERE n = 1", (0,), True),
        (f"SELECT k, v FROM {TOP} WHERE n = 1", (1,), False),
    ],
)
def test_rows_of_a_key_are_in_one_task(query: str, columns: tuple[int, ...], expected: bool) -> None:
    *_, action = Session(connected=apply_connector).run(TABLES + query)
    assert isinstance(action, Submit)
    assert are_colocated(action.roots[0].input, frozenset(columns)) == expected
