"""A group of all rows: batches without rows emit nothing, and COUNT(*) reads no column."""

from __future__ import annotations

import pytest
from property.halves import PipelineRun, batch, make_plan, rows

from everfold.memory.pipeline import MemoryPipeline
from everfold.sql.planner import Session


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize(
    ("query", "first", "then"),
    [
        ("SELECT COUNT(*) FROM MyTable", (3,), (7,)),
        ("SELECT COUNT(*), COUNT(ts) FROM MyTable", (3, 3), (7, 7)),
        ("SELECT COUNT(*) FROM (SELECT ts, SUM(b) FROM MyTable GROUP BY ts)", (3,), (7,)),
    ],
)
def test_batches_without_rows_emit_nothing(
    query: str, first: tuple[int, ...], then: tuple[int, ...], buckets: int
) -> None:
    root = make_plan(query)
    seen = PipelineRun(root, MemoryPipeline(root, Session().settings, buckets=buckets))
    nothing = batch(root, [])
    assert seen.pipeline.feed(nothing, now_ms=0).num_rows == 0
    seen.feed(rows(0)[:3])
    assert seen.pipeline.feed(nothing, now_ms=0).num_rows == 0
    assert list(seen.now.elements()) == [tuple(map(str, first))]
    seen.feed(rows(0)[3:7], last=True)
    assert list(seen.now.elements()) == [tuple(map(str, then))]
