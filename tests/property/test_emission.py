"""Properties of emit control: results that are emitted early and updated later fold to the
final results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.changelogs import FoldedRows
from property.queries import Query, tuples

from everfold.plan.changelog import KIND, RowKind

LAW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
START = datetime(2020, 1, 1)
TABLE = """CREATE TABLE e (ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '0.004' SECOND);"""
WINDOWS = {
    "TUMBLE": "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '0.010' SECOND)",
    "HOP": "HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '0.005' SECOND, INTERVAL '0.010' SECOND)",
    "CUMULATE": "CUMULATE(TABLE e, DESCRIPTOR(ts), INTERVAL '0.004' SECOND, INTERVAL '0.012' SECOND)",
    "SESSION": "SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '0.006' SECOND)",
}
CALLS = "COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m, COUNT(DISTINCT v) AS d"


def query_of(window: str, *options: str, mode: str = "streaming") -> Query:
    sets = "".join(f"SET {option};" for option in options)
    return Query(
        f"SET 'execution.runtime-mode' = '{mode}'; {sets} {TABLE} SELECT k, window_start, window_end, {CALLS} FROM {WINDOWS[window]} "
        "GROUP BY window_start, window_end, k"
    )


@st.composite
def streams(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Make batches of rows that are out of order, some of them late."""
    row = st.tuples(st.integers(0, 5), st.integers(0, 12), st.sampled_from(["a", "b", None]), st.integers(-3, 3))
    batches, high = [], 0
    for drawn in draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=6)):
        batch = []
        for step, back, k, v in drawn:
            high += step
            batch.append({"ts": START + timedelta(milliseconds=max(high - back, 0)), "k": k, "v": v})
        batches.append(batch)
    return batches


def changes(table: pa.Table) -> list[tuple[RowKind, tuple[Any, ...]]]:
    kinds = [RowKind(kind) for kind in table[KIND].to_pylist()]
    return list(zip(kinds, tuples(table.drop_columns([KIND])), strict=True))


def run_and_fold(
    query: Query, batches: Sequence[list[dict[str, Any]]], buckets: int
) -> tuple[Counter[tuple[Any, ...]], int]:
    """Run a stream with a batch every 3 ms and a restart after each.

    Return the remaining rows and the number of late rows.
    """
    pipeline, rows = query.pipeline(buckets=buckets), FoldedRows(per_key=False)
    for at, batch in enumerate(batches):
        rows.take(changes(pipeline.feed(query.input(e=batch), now_ms=3 * at)))
        pipeline = pipeline.restart()
    rows.take(changes(pipeline.flush(now_ms=3 * len(batches))))
    return rows.rows, pipeline.late_rows


def run_without_emit_control(query: Query, batches: Sequence[list[dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    """Return the rows that a stream without emit control emits."""
    pipeline, rows = query.pipeline(), []
    for at, batch in enumerate(batches):
        rows += tuples(pipeline.feed(query.input(e=batch), now_ms=3 * at))
    return Counter([*rows, *tuples(pipeline.flush(now_ms=3 * len(batches)))])


@pytest.mark.parametrize("delay", ["0 ms", "5 ms"])
@pytest.mark.parametrize("window", list(WINDOWS))
@LAW
@given(batches=streams(), buckets=st.sampled_from([1, 3]))
def test_early_results_fold_to_the_final_ones(
    window: str, delay: str, batches: list[list[dict[str, Any]]], buckets: int
) -> None:
    early = query_of(
        window, "'table.exec.emit.early-fire.enabled' = 'true'", f"'table.exec.emit.early-fire.delay' = '{delay}'"
    )
    assert run_and_fold(early, batches, buckets)[0] == run_without_emit_control(query_of(window), batches)


@pytest.mark.parametrize("early", [False, True], ids=["late", "early and late"])
@pytest.mark.parametrize("delay", ["0 ms", "5 ms"])
@pytest.mark.parametrize("window", list(WINDOWS))
@LAW
@given(batches=streams(), buckets=st.sampled_from([1, 3]))
def test_with_enough_lateness_no_row_is_lost(
    window: str, delay: str, early: bool, batches: list[list[dict[str, Any]]], buckets: int
) -> None:
    options = [
        "'table.exec.emit.late-fire.enabled' = 'true'",
        f"'table.exec.emit.late-fire.delay' = '{delay}'",
        "'table.exec.emit.allow-lateness' = '1 h'",
    ]
    if early:
        options += ["'table.exec.emit.early-fire.enabled' = 'true'", "'table.exec.emit.early-fire.delay' = '0 ms'"]
    found, late = run_and_fold(query_of(window, *options), batches, buckets)
    whole = query_of(window, mode="batch").batch(e=[row for batch in batches for row in batch])
    assert (found, late) == (Counter(whole), 0)
