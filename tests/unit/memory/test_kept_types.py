"""A job whose state has the earlier type of `MOD` of whole DECIMALs resumes with it.

Its results equal those of a job that never stopped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from property.queries import Query, tuples

from everfold.compat import Verdict, judge, shape_of
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RowKind
from everfold.sql.functions import registry
from everfold.sql.functions.coercion import convert_to, decimal_of, remainder_type
from everfold.sql.functions.entry import Args, Typed

TABLE = """
CREATE TABLE t (
  k STRING NOT NULL, d DECIMAL(10, 0), x INT NOT NULL, ts TIMESTAMP(3), r AS MOD(d, 7), WATERMARK FOR ts AS ts
);
"""
QUERIES = {
    "sums": "SELECT k, SUM(MOD(d, 7)), MIN(d % 7), MAX(MOD(d, 7)), COUNT(MOD(d, 7)) FROM t GROUP BY k",
    "distinct": "SELECT k, COUNT(DISTINCT MOD(d, 7)), SUM(DISTINCT MOD(d, 7)) FROM t GROUP BY k",
    "average": "SELECT k, AVG(MOD(d, 7)) * 0 FROM t GROUP BY k",
    "key": "SELECT MOD(d, 7), COUNT(*), SUM(x) FROM t GROUP BY MOD(d, 7)",
    "key of a column": "SELECT r, k, COUNT(*) FROM t GROUP BY k, r",
    "two levels": "SELECT r, COUNT(*), MAX(n) FROM (SELECT k, MAX(MOD(d, 7)) AS r, COUNT(*) AS n FROM t GROUP BY k) GROUP BY r",
    "window": """SELECT window_end, MOD(d, 7), SUM(MOD(d, 7)), COUNT(DISTINCT MOD(d, 7))
        FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, MOD(d, 7)""",
    "session": """SELECT window_end, r, COUNT(*) FROM SESSION(TABLE t PARTITION BY r, DESCRIPTOR(ts), INTERVAL '1' HOUR)
        GROUP BY window_start, window_end, r""",
    "session rows": "SELECT * FROM SESSION(TABLE t PARTITION BY r, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    "top": "SELECT k, r, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY r DESC) AS n FROM t) WHERE n <= 2",
    "top of each": "SELECT r, x, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY r ORDER BY x DESC) AS n FROM t) WHERE n <= 2",
    "top of an expression": """SELECT k, x FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY MOD(d, 3) ORDER BY MOD(d, 5) + r DESC) AS n FROM t) WHERE n <= 2""",
    "over": "SELECT k, SUM(MOD(d, 7)) OVER (PARTITION BY r ORDER BY ts), MAX(r) OVER (PARTITION BY r ORDER BY ts) FROM t",
    "over any order": "SELECT k, r, SUM(r) OVER (PARTITION BY k ORDER BY r), COUNT(*) OVER (PARTITION BY k ORDER BY r) FROM t",
    "collections": "SELECT k, COLLECT(x), ARRAY_AGG(x), COLLECT(MOD(d, 7)) FROM t GROUP BY k",
}
ROWS = [("abc"[at % 3], (at * at * 5) % 31, at) for at in range(12)]


def type_remainder_as_before(args: Args) -> Typed | None:
    """Type `%` over whole numbers as earlier versions did."""
    types = [decimal_of(arg.type) for arg in args]
    left, right = types
    assert left is not None
    assert right is not None
    return (convert_to(args[0], left), convert_to(args[1], right)), remainder_type(left, right)


def feed(pipeline: MemoryPipeline, query: Query, rows: list[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
    """Feed rows and return the changes."""
    start = datetime(2020, 1, 1)
    given = [{"k": k, "d": Decimal(d), "x": x, "ts": start + timedelta(minutes=x)} for k, d, x in rows]
    return to_changes(pipeline.feed(query.input(t=given)))


def to_changes(found: pa.Table) -> list[tuple[Any, ...]]:
    if KIND not in found.column_names:
        found = found.append_column(KIND, pa.array([RowKind.INSERT.value] * found.num_rows, pa.int8()))
    return tuples(found)


def net(to_changes: list[tuple[Any, ...]]) -> Counter[str]:
    count: Counter[str] = Counter()
    for *row, kind in to_changes:
        count[str(row)] += 1 if kind in (RowKind.INSERT.value, RowKind.UPDATE_AFTER.value) else -1
    assert all(each >= 0 for each in count.values()), "rows are retracted that were never emitted"
    return +count


def as_numbers(to_changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Convert the rows of an earlier version to today's types."""

    def number(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(number, value))
        return int(value) if isinstance(value, Decimal) else value

    return [number(row) for row in to_changes]


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES.keys())
def test_state_with_the_earlier_type_resumes(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(TABLE + sql)
    with monkeypatch.context() as patch:
        patch.setitem(registry._REGISTRY, "%", replace(registry._REGISTRY["%"], rule=type_remainder_as_before))
        patch.setitem(registry._REGISTRY, "MOD", replace(registry._REGISTRY["MOD"], rule=type_remainder_as_before))
        old = Query(TABLE + sql)
    assert judge([shape_of(old.root)], [shape_of(query.root)]).verdict is Verdict.FULLY
    before = old.pipeline(buckets=3)
    found = as_numbers(feed(before, old, ROWS[:5]))
    after = before.change_query(query.root, 1)
    found += feed(after, query, ROWS[5:9])
    again = after.change_query(query.root, 2)
    found += [*feed(again, query, ROWS[9:]), *to_changes(again.flush())]
    assert shape_of(again._root) == shape_of(query.root)
    assert again._root.input.schema == query.root.input.schema

    whole = query.pipeline(buckets=3)
    expected = [*feed(whole, query, ROWS), *to_changes(whole.flush())]
    assert net(found) == net(expected)
