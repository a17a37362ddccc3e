"""Properties of the rows of SESSION over a table whose rows change: plain Python merges the times
of all changes, and each change has the bounds of its session.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from property.changelogs import cut, cuts
from property.test_over import LAW

from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session, Submit

START = datetime(2020, 1, 1)
GAP = 5
Change: TypeAlias = tuple[RowKind, int, str, int]
"""Its kind, the time in seconds, the key and the value of its row."""


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Make changes of any rows, also of unknown ones, that are not late: they are at most 40 s
    behind.
    """
    kinds = st.sampled_from(list(RowKind))
    changes, high = [], 40
    parts = st.tuples(kinds, st.integers(0, 9), st.integers(0, 40), st.sampled_from(["a", "b"]), st.integers(0, 2))
    for kind, step, back, key, value in draw(st.lists(parts, max_size=30)):
        high += step
        changes.append((kind, high - back, key, value))
    return changes


def make_pipeline(partition: str, buckets: int) -> MemoryPipeline:
    session = Session()
    list(
        session.run("CREATE TABLE t (ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '41' SECOND)")
    )
    entry = session.catalog.find(("t",))
    assert isinstance(entry, CatalogTable)
    session.catalog.replace(replace(entry, table=replace(entry.table, changelog=ChangelogMode.ALL)))
    select = f"SELECT * FROM SESSION(TABLE t {partition}, DESCRIPTOR(ts), INTERVAL '{GAP}' SECOND)"
    (submit,) = session.run(select)
    assert isinstance(submit, Submit)
    return MemoryPipeline(submit.roots[0], submit.settings, buckets=buckets)


def to_table(changes: list[Change]) -> pa.Table:
    times = [START + timedelta(seconds=second) for _, second, _, _ in changes]
    columns = {
        "c0": pa.array(times, pa.timestamp("us")),
        "c1": pa.array([key for _, _, key, _ in changes], pa.string()),
        "c2": pa.array([value for *_, value in changes], pa.int32()),
        KIND: pa.array([kind.value for kind, *_ in changes], pa.int8()),
    }
    return pa.table(columns)


def find_sessions(changes: list[Change], by_key: bool) -> dict[tuple[str, int, int], list[Change]]:
    """Return the changes of each session in their order, by key, start and end."""
    sessions: dict[tuple[str, int, int], list[Change]] = {}
    keyed = defaultdict(list)
    for change in changes:
        keyed[change[2] if by_key else ""].append(change)
    for key, own in keyed.items():
        begin: int | None = None
        times = sorted({second for _, second, _, _ in own})
        for index, second in enumerate(times):
            begin = second if begin is None else begin
            if index + 1 == len(times) or times[index + 1] > second + GAP:
                inside = [change for change in own if begin <= change[1] <= second]
                sessions[key, begin, second + GAP], begin = inside, None
    return sessions


def read(table: pa.Table, by_key: bool) -> list[tuple[tuple[str, int, int], Change]]:
    def seconds(time: Any) -> int:
        return int((time.replace(tzinfo=None) - START).total_seconds())

    rows = []
    for row in table.to_pylist():
        time, key, value, begin, end, _ = (each for name, each in row.items() if name != KIND)
        change = (RowKind(row[KIND]), seconds(time), key, value)
        rows.append(((key if by_key else "", seconds(begin), seconds(end)), change))
    return rows


@LAW
@given(changes=histories(), cuts=cuts, buckets=st.sampled_from([1, 3]), by_key=st.booleans())
def test_each_change_is_emitted_in_its_order_with_the_bounds_of_its_session(
    changes: list[Change], cuts: list[int], buckets: int, by_key: bool
) -> None:
    pipeline = make_pipeline("PARTITION BY k" if by_key else "", buckets)
    emitted: dict[tuple[str, int, int], list[Change]] = defaultdict(list)
    for batch in cut(changes, cuts):
        for session, change in read(pipeline.feed({"t": to_table(batch)}), by_key):
            emitted[session].append(change)
        pipeline = pipeline.restart()
    for session, change in read(pipeline.flush(), by_key):
        emitted[session].append(change)
    assert pipeline.late_rows == 0
    assert emitted == find_sessions(changes, by_key)
