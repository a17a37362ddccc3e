"""`--refresh`: afterwards a table with a primary key holds what the new query computes from all
rows, independent of what the old query had written.
"""

from __future__ import annotations

from typing import Any

import pytest
from property.halves import PipelineRun, make_plan, rows

from everfold.plan.changelog import KIND, RowKind

INNER = "SELECT a, SUM(b) AS s, COUNT(*) AS n, MAX(c) AS m FROM MyTable GROUP BY a"
TOP = "(SELECT a, s, ROW_NUMBER() OVER (ORDER BY s DESC) AS r FROM (SELECT a, SUM(b) AS s FROM MyTable GROUP BY a))"
CHANGES = {
    "a stricter HAVING": (f"SELECT a, s FROM ({INNER}) WHERE n + m > 6", f"SELECT a, s FROM ({INNER}) WHERE n > 5 AND m > 4"),
    "a looser HAVING": (f"SELECT a, s FROM ({INNER}) WHERE n + m > 12", f"SELECT a, s FROM ({INNER}) WHERE n + m > 2"),
    "another projection": (f"SELECT a, s + n + m AS x FROM ({INNER})", f"SELECT a, s - n AS x, m FROM ({INNER})"),
    "another projection and another HAVING": (f"SELECT a, s AS x FROM ({INNER}) WHERE n + m > 8", f"SELECT a, n AS x FROM ({INNER}) WHERE s + m > 20"),
    "the HAVING removed": (f"SELECT a, s, n, m FROM ({INNER}) WHERE m = 5", f"SELECT a, s, n, m FROM ({INNER})"),
    "the first rows": (f"SELECT r, a, s FROM {TOP} WHERE r <= 3", f"SELECT r, a, s * 2 AS s FROM {TOP} WHERE r <= 3"),
}  # fmt: skip


class Table:
    """A table keyed by its first column, as in a sink that overwrites by key."""

    def __init__(self) -> None:
        self.rows: dict[Any, tuple[Any, ...]] = {}

    def take(self, found: Any) -> None:
        for row in found.to_pylist():
            kind = row.pop(KIND)
            key, *values = row.values()
            if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                self.rows[key] = tuple(values)
            elif kind == RowKind.DELETE or self.rows.get(key) == tuple(values):
                self.rows.pop(key, None)


class WritingRun(PipelineRun):
    """A query that writes such a table."""

    def __init__(self, root: Any, pipeline: Any = None, table: Table | None = None) -> None:
        super().__init__(root, pipeline)
        self.table = table or Table()

    def _take(self, found: Any) -> None:
        self.table.take(found)


@pytest.mark.parametrize("name", CHANGES)
def test_a_refresh_reemits_the_whole_result(name: str) -> None:
    before, after = map(make_plan, CHANGES[name])
    for seed in range(3):
        given = rows(seed)
        first, second = given[:40], [row | {"a": 1} for row in given[40:]]
        running = WritingRun(before)
        running.feed(first)
        changed = WritingRun(after, running.pipeline.change_query(after, 1, refresh=True), running.table)
        changed.feed(second[:1])
        whole = WritingRun(after)
        whole.feed(first)
        whole.feed(second[:1])
        assert changed.table.rows == whole.table.rows
        for each in (changed, whole):
            each.feed(second[1:])
        assert changed.table.rows == whole.table.rows
