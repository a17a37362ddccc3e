"""A table of Lenses SQL is the last record of each key, in a stream and in batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everfold.memory.batch import run_batch
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RETRACTIONS, RowKind
from everfold.plan.nodes import Root
from everfold.plan.walk import tables_of, walk_plan
from everfold.sql.planner import Session, Submit

Record = tuple[int, str | None, int | None]
"""A key, a team and points; a record without both deletes its key."""

QUERIES = (
    "SELECT TABLE SUM(points) AS total, COUNT(*) AS n FROM players GROUP BY team",
    "SELECT TABLE COLLECT(points, 3) AS some, LAST(points) AS latest FROM players GROUP BY team",
    "SELECT TABLE points AS stats.points, team FROM players WHERE points > 1",
    "WITH many AS (SELECT TABLE COUNT(*) AS n FROM players GROUP BY team); SELECT TABLE COUNT(*) AS teams FROM many GROUP BY n",
    "WITH some AS (SELECT STREAM team, points FROM players WHERE points < 4); SELECT TABLE SUM(points) AS total FROM some GROUP BY team",
    "WITH some AS (SELECT TABLE team FROM players WHERE points < 4); SELECT TABLE COUNT(*) AS n FROM some GROUP BY team HAVING n > 1",
)


def make_root(query: str, mode: str) -> tuple[Root, Session]:
    table = "CREATE TABLE players(_key INT, team STRING, points INT) FORMAT (INT, JSON);"
    options = {"everfold.dialect": "lenses", "everfold.lenses.exact-tables": "true", "execution.runtime-mode": mode}
    session = Session(options)
    (submit,) = [each for each in session.run(f"{table} {query};") if isinstance(each, Submit)]
    return submit.roots[0], session


def to_arrow(root: Root, records: list[Record]) -> dict[str, pa.Table]:
    [table] = {each.name: each for each in tables_of(walk_plan(root.input))}.values()
    columns: dict[str, list[Any]] = {
        "_key": [key for key, _, _ in records],
        "team": [team for _, team, _ in records],
        "points": [points for _, _, points in records],
    }
    absent = [None] * len(records)
    arrays = [pa.array(columns.get(column.name, absent), column.type.arrow) for column in table.columns]
    deletes = [team is None and points is None for _, team, points in records]
    kinds = pa.array([RowKind.DELETE if deleted else RowKind.INSERT for deleted in deletes], pa.int8())
    return {"players": pa.table([*arrays, kinds], names=[*(f"c{at}" for at in range(len(arrays))), KIND])}


def count_rows(tables: list[pa.Table]) -> dict[str, int]:
    """Return how often each row is in a result, after all changes."""
    found: Counter[str] = Counter()
    for table in tables:
        for row in table.to_pylist():
            values = repr([row[name] for name in table.column_names if name.startswith("c")])
            found[values] += -1 if row.get(KIND) in RETRACTIONS else 1
    return {values: count for values, count in found.items() if count}


records = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["red", "blue", None]), st.sampled_from([None, 1, 2, 3, 5])),
    max_size=25,
)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(QUERIES), records, st.integers(1, 9))
def test_a_table_is_the_same_in_a_stream_and_in_batch(query: str, given_records: list[Record], size: int) -> None:
    root, session = make_root(query, "streaming")
    pipeline = MemoryPipeline(root, session.settings, buckets=2)
    parts = [given_records[start : start + size] for start in range(0, len(given_records), size)]
    tables = [*(pipeline.feed(to_arrow(root, part), now_ms=0) for part in parts), pipeline.flush(now_ms=0)]
    batch_root, session = make_root(query, "batch")
    batched = run_batch(batch_root, to_arrow(batch_root, given_records), session.settings)
    assert count_rows(tables) == count_rows([batched])
