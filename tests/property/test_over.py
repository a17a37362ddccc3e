"""Properties of OVER.

The reference computes each row's frame in plain Python from all rows of its partition, sorted by
time and arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.queries import Query, tuples

LAW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TABLE = """CREATE TABLE e (id INT, ts TIMESTAMP(3), k STRING, v INT, f DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '0.008' SECOND);"""
START = datetime(2020, 1, 1)


@dataclass(frozen=True)
class Row:
    """A row of `e`; `id` counts arrivals, `at` is its time in ms."""

    id: int
    at: int
    k: str | None
    v: int | None
    f: float | None

    @property
    def values(self) -> dict[str, Any]:
        return {"id": self.id, "ts": START + timedelta(milliseconds=self.at), "k": self.k, "v": self.v, "f": self.f}


def drop_nulls(rows: Sequence[Row]) -> list[int]:
    return [row.v for row in rows if row.v is not None]


def mean(values: Sequence[int]) -> int | None:
    return None if not values else abs(sum(values)) // len(values) * (1 if sum(values) >= 0 else -1)


CALLS: dict[str, Callable[[Sequence[Row]], Any]] = {
    "COUNT(*)": len,
    "SUM(v)": lambda rows: sum(drop_nulls(rows)) if drop_nulls(rows) else None,
    "AVG(v)": lambda rows: mean(drop_nulls(rows)),
    "MIN(v)": lambda rows: min(drop_nulls(rows), default=None),
    "MAX(f)": lambda rows: max((row.f for row in rows if row.f is not None), default=None),
    "COUNT(DISTINCT v)": lambda rows: len(set(drop_nulls(rows))),
    "COUNT(*) FILTER (WHERE v > 0)": lambda rows: sum(v > 0 for v in drop_nulls(rows)),
    "FIRST_VALUE(v)": lambda rows: next(iter(drop_nulls(rows)), None),
    "LAST_VALUE(v)": lambda rows: next(reversed(drop_nulls(rows)), None),
    "LISTAGG(CAST(v AS STRING))": lambda rows: ",".join(map(str, drop_nulls(rows))) or None,
}  # fmt: skip
STREAMING = {
    "RANGE BETWEEN INTERVAL '0.005' SECOND PRECEDING AND CURRENT ROW": (False, -5, 0),
    "RANGE BETWEEN INTERVAL '0' SECOND PRECEDING AND CURRENT ROW": (False, 0, 0),
    "RANGE UNBOUNDED PRECEDING": (False, None, 0),
    "ROWS 2 PRECEDING": (True, -2, 0),
    "ROWS 0 PRECEDING": (True, 0, 0),
    "ROWS UNBOUNDED PRECEDING": (True, None, 0),
}
ONLY_BATCH = {
    "RANGE BETWEEN INTERVAL '0.004' SECOND PRECEDING AND INTERVAL '0.002' SECOND FOLLOWING": (False, -4, 2),
    "RANGE BETWEEN INTERVAL '0.001' SECOND FOLLOWING AND INTERVAL '0.009' SECOND FOLLOWING": (False, 1, 9),
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING": (False, None, None),
    "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING": (True, -3, -1),
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING": (True, 0, None),
    "ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING": (True, 1, 2),
}
Frame = tuple[bool, int | None, int | None]


def reference(
    rows: Sequence[Row], key: Callable[[Row], Any], frame: Frame, calls: Sequence[str]
) -> dict[int, list[Any]]:
    """Return the values of each row by its id."""
    counted, first, last = frame
    partitions: dict[Any, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.at, row.id)):
        partitions.setdefault(key(row), []).append(row)
    found = {}
    for partition in partitions.values():
        for position, row in enumerate(partition):

            def inside(nth: int, other: Row, position: int = position, row: Row = row) -> bool:
                distance = nth - position if counted else other.at - row.at
                return (first is None or distance >= first) and (last is None or distance <= last)

            own = [other for nth, other in enumerate(partition) if inside(nth, other)]
            found[row.id] = [CALLS[call](own) for call in calls]
    return found


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    """Make rows whose disorder stays within the watermark delay, with many ties."""
    rows, high = [], 0
    drawn = st.tuples(
        st.integers(0, 4),
        st.integers(0, 7),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(-4, 4)),
        st.sampled_from([0.5, -1.0, None]),
    )
    for number, (step, back, k, v, f) in enumerate(draw(st.lists(drawn, max_size=30))):
        high += step
        rows.append(Row(number, max(high - back, 0), k, v, f))
    return rows


PARTITIONS: dict[str, Callable[[Row], Any]] = {"PARTITION BY k ": lambda row: row.k, "": lambda row: 0}


def query_of(frame: str, partition: str, calls: Sequence[str], mode: str = "streaming") -> Query:
    shown = ", ".join(f"{call} OVER w AS c{at}" for at, call in enumerate(calls))
    return Query(
        f"SET 'execution.runtime-mode' = '{mode}'; {TABLE} SELECT id, {shown} FROM e WINDOW w AS ({partition}ORDER BY ts {frame})"
    )


def by_id(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[Any]]:
    found = {row[0]: list(row[1:]) for row in rows}
    assert len(found) == len(rows), "a row came out twice"
    return found


def run_stream(query: Query, rows: Sequence[Row], size: int, buckets: int) -> list[tuple[Any, ...]]:
    """Return the rows that a stream emits for batches of a given size, with a restart after
    each; no row is late.
    """
    pipeline, out = query.pipeline(buckets=buckets), []
    for start in range(0, len(rows), size):
        out += tuples(pipeline.feed(query.input(e=[row.values for row in rows[start : start + size]])))
        pipeline = pipeline.restart()
    out += tuples(pipeline.flush())
    assert pipeline.late_rows == 0
    return out


@pytest.mark.parametrize("partition", list(PARTITIONS), ids=["by key", "all"])
@pytest.mark.parametrize("frame", list(STREAMING))
def test_a_stream_computes_every_frame_in_any_batches(frame: str, partition: str) -> None:
    query = query_of(frame, partition, list(CALLS))

    @LAW
    @given(streams(), st.integers(1, 30), st.sampled_from([1, 3]))
    def law(rows: list[Row], size: int, buckets: int) -> None:
        assert by_id(run_stream(query, rows, size, buckets)) == reference(
            rows, PARTITIONS[partition], STREAMING[frame], list(CALLS)
        )

    law()


@pytest.mark.parametrize("frame", [*STREAMING, *ONLY_BATCH])
def test_a_batch_computes_every_frame(frame: str) -> None:
    query = query_of(frame, "PARTITION BY k ", list(CALLS), "batch")

    @settings(LAW, max_examples=10)
    @given(streams())
    def law(rows: list[Row]) -> None:
        found = by_id(query.batch(e=[row.values for row in rows]))
        assert found == reference(rows, lambda row: row.k, (STREAMING | ONLY_BATCH)[frame], list(CALLS))

    law()
