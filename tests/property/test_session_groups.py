"""Properties of sessions whose rows are grouped by other keys than their PARTITION BY columns, or by
several sets of keys: each group is emitted once, in the batch in which its session ends, and leaves
no state. The reference forms sessions and groups in plain Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property.queries import Query, tuples

from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND

LAW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
START = datetime(2020, 1, 1)
FAR = {"ts": START + timedelta(days=1), "a": "far", "b": 0, "v": 0}
CALLS = "COUNT(*) AS n, SUM(v) AS s, MIN(v) AS low, COUNT(DISTINCT v) AS d, COUNT(*) FILTER (WHERE ts > window_start) AS later"

Values = dict[str, Any]
Output = tuple[Any, ...]


@dataclass(frozen=True)
class Grouping:
    """What is written after `window_start, window_end` in GROUP BY, and its sets of keys."""

    sql: str
    sets: tuple[tuple[str, ...], ...]

    @property
    def keys(self) -> list[str]:
        return sorted({key for keys in self.sets for key in keys})


GROUPINGS = (
    Grouping("", ((),)),
    Grouping(", a", (("a",),)),
    Grouping(", b", (("b",),)),
    Grouping(", b, a", (("a", "b"),)),
    Grouping(", ROLLUP (a, b)", (("a", "b"), ("a",), ())),
    Grouping(", CUBE (a, b)", (("a", "b"), ("a",), ("b",), ())),
    Grouping(", GROUPING SETS ((a), (b))", (("a",), ("b",))),
    Grouping(", b, ROLLUP (a)", (("a", "b"), ("b",))),
)
PARTITIONS = {"": (), " PARTITION BY a": ("a",), " PARTITION BY b": ("b",), " PARTITION BY (a, b)": ("a", "b")}


@dataclass(frozen=True)
class Groups:
    """A query over sessions, and its meaning."""

    partition: str
    grouping: Grouping
    gap_ms: int
    delay_ms: int

    def query(self, *, streaming: bool = True) -> Query:
        columns = ", ".join(["window_start", "window_end", *self.grouping.keys, CALLS])
        return self._bind(f"SELECT {columns} FROM § GROUP BY window_start, window_end{self.grouping.sql}", streaming)

    def rows_of_sessions(self) -> Query:
        return self._bind("SELECT ts, a, b, v, window_start, window_end FROM §", streaming=True)

    def _bind(self, sql: str, streaming: bool) -> Query:
        mode = "streaming" if streaming else "batch"
        delay, gap = (f"INTERVAL '{ms / 1000:.3f}' SECOND" for ms in (self.delay_ms, self.gap_ms))
        return Query(
            f"SET 'execution.runtime-mode' = '{mode}';"
            f"CREATE TABLE t (ts TIMESTAMP(3), a STRING, b INT, v INT, WATERMARK FOR ts AS ts - {delay});"
            + sql.replace("§", f"SESSION(TABLE t{self.partition}, DESCRIPTOR(ts), {gap})")
        )

    def aggregate(self, rows: Sequence[tuple[Values, datetime, datetime]]) -> Counter[Output]:
        """Return the groups of rows with the bounds of their sessions."""
        groups: dict[Output, list[tuple[Values, datetime]]] = defaultdict(list)
        for row, start, end in rows:
            for number, keys in enumerate(self.grouping.sets):
                shown = (row[key] if key in keys else None for key in self.grouping.keys)
                groups[start, end, *shown, number].append((row, start))
        return Counter((*group[:-1], *_results(members)) for group, members in groups.items())

    def form_sessions(self, rows: Sequence[Values]) -> list[tuple[Values, datetime, datetime]]:
        """Return all rows with the bounds of their sessions."""
        gap = timedelta(milliseconds=self.gap_ms)
        partitions: dict[Output, list[Values]] = defaultdict(list)
        for row in rows:
            partitions[tuple(row[key] for key in PARTITIONS[self.partition])].append(row)
        found = []
        for members in partitions.values():
            members.sort(key=lambda row: row["ts"])
            cuts = [at for at, (one, other) in enumerate(pairwise(members), 1) if other["ts"] - one["ts"] > gap]
            for first, last in pairwise([0, *cuts, len(members)]):
                session = members[first:last]
                found += [(row, session[0]["ts"], session[-1]["ts"] + gap) for row in session]
        return found


def _results(rows: Sequence[tuple[Values, datetime]]) -> Output:
    values = [row["v"] for row, _ in rows if row["v"] is not None]
    later = sum(row["ts"] > start for row, start in rows)
    return len(rows), sum(values) if values else None, min(values, default=None), len(set(values)), later


groups = st.builds(
    Groups,
    st.sampled_from(list(PARTITIONS)),
    st.sampled_from(GROUPINGS),
    gap_ms=st.integers(1, 8),
    delay_ms=st.integers(2, 12),
)


def row_at(ms: int, a: str | None, b: int | None, v: int | None) -> Values:
    return {"ts": START + timedelta(milliseconds=ms), "a": a, "b": b, "v": v}


values = st.tuples(
    st.sampled_from(["x", "y", None]), st.sampled_from([1, 2, None]), st.one_of(st.none(), st.integers(-3, 3))
)


@st.composite
def rows_in_time(draw: st.DrawFn, delay_ms: int) -> list[Values]:
    """Make rows whose disorder stays within the delay of the watermark."""
    rows, high = [], 20
    for step, back, shown in draw(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, delay_ms - 2), values), max_size=25)
    ):
        high += step
        rows.append(row_at(high - back, *shown))
    return rows


@st.composite
def questions(draw: st.DrawFn) -> tuple[Groups, list[list[Values]]]:
    """Make a query and batches without late rows."""
    query = draw(groups)
    rows = draw(rows_in_time(query.delay_ms))
    cuts = draw(st.lists(st.integers(0, len(rows)), max_size=5))
    return query, [rows[start:end] for start, end in pairwise(sorted({0, len(rows), *cuts}))]


def feed(pipeline: MemoryPipeline, query: Query, rows: Sequence[Values]) -> Counter[Output]:
    """Run a batch and return its rows, which are all final."""
    table = pipeline.feed(query.input(t=rows), now_ms=0)
    assert KIND not in table.column_names
    return Counter(tuples(table))


@LAW
@given(questions(), st.sampled_from([1, 3]), st.booleans())
def test_every_group_is_emitted_once_and_leaves_no_state(
    question: tuple[Groups, list[list[Values]]], buckets: int, restarts: bool
) -> None:
    query, batches = question[0].query(), question[1]
    pipeline, found = query.pipeline(buckets=buckets), Counter[Output]()
    for rows in [*batches, [FAR]]:
        found += feed(pipeline, query, rows)
        pipeline = pipeline.restart() if restarts else pipeline
    all_rows = [row for rows in batches for row in rows]
    expected = question[0].aggregate(question[0].form_sessions(all_rows))
    assert found == expected
    assert (pipeline.late_rows, pipeline.state_rows) == (0, 1)  # the row of FAR
    assert Counter(question[0].query(streaming=False).batch(t=all_rows)) == expected
    pipeline.flush(now_ms=0)
    assert pipeline.state_rows == 0


# The second row is late. The rows of `x` and `y` end at the same time, in two buckets.
@LAW
@example(Groups("", GROUPINGS[1], gap_ms=1, delay_ms=1), [[row_at(5, "x", 1, 1)], [row_at(0, "y", 1, 1)]], 1)
@example(
    Groups(" PARTITION BY a", GROUPINGS[0], gap_ms=5, delay_ms=1),
    [[row_at(0, "x", 1, 1), row_at(0, "y", 1, 2)], [row_at(9, "x", 1, 1)]],
    3,
)
@given(
    groups,
    st.lists(st.lists(st.builds(row_at, st.integers(0, 60), st.sampled_from(["x", "y", None]), st.sampled_from([1, None]), st.integers(0, 2)), max_size=4), max_size=8),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_a_group_is_emitted_in_the_batch_in_which_its_rows_are(
    groups: Groups, batches: list[list[Values]], buckets: int
) -> None:
    """Late rows are dropped by the sessions, and by nothing above them."""
    query, below = groups.query(), groups.rows_of_sessions()
    pipeline, sessions = query.pipeline(buckets=buckets), below.pipeline(buckets=buckets)
    for rows in [*batches, [FAR]]:
        found = feed(pipeline, query, rows)
        emitted = tuples(sessions.feed(below.input(t=rows), now_ms=0))
        ended = [({"ts": ts, "a": a, "b": b, "v": v}, start, end) for ts, a, b, v, start, end in emitted]
        assert found == groups.aggregate(ended)
        pipeline, sessions = pipeline.restart(), sessions.restart()
    assert pipeline.late_rows == sessions.late_rows
    assert pipeline.state_rows == sessions.state_rows == 1
