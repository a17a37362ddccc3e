"""New operators next to kept ones and above them, in memory: kept operators emit the same rows
as before, new ones start with the rows after the change.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from property.halves import ROWS, batch, make_plan, rows

from everfold.compat import CompatOptions, Verdict, judge, shape_of
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Root
from everfold.plan.walk import tables_of, walk_streamed
from everfold.sql.planner import Session, Submit

EXTENDED = Session().settings.with_option("everfold.compat.rules", "extended")
STEP = 15
COLUMNS = ("ts", "a", "s", "n")
KEPT = {
    "windows": (
        "SELECT window_time AS ts, a, SUM(b) AS s, COUNT(*) AS n "
        "FROM TUMBLE(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, window_time, a"
    ),
    "the first of their kind": (
        "SELECT ts, a, CAST(b AS BIGINT) AS s, CAST(c AS BIGINT) AS n "
        "FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY b, c ORDER BY proctime) AS r FROM MyTable) WHERE r = 1"
    ),
    "sums in a frame": (
        "SELECT ts, a, SUM(CAST(b AS BIGINT)) OVER (PARTITION BY a ORDER BY ts) AS s, CAST(c AS BIGINT) AS n FROM MyTable"
    ),
}  # fmt: skip
ABOVE = {
    "groups": "SELECT a, COUNT(n) AS c, SUM(s) AS s, MAX(s) AS m, COUNT(DISTINCT n) AS d, MAX(ts) AS l FROM {v} GROUP BY a",
    "groups of groups": "SELECT m, COUNT(*) AS c FROM (SELECT a, MAX(s) AS m, SUM(n) AS n, MAX(ts) AS l FROM {v} GROUP BY a) WHERE n > 0 AND l IS NOT NULL GROUP BY m",
    "Top-N": "SELECT a, s, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY s DESC, a, ts) AS r FROM {v}) WHERE r <= 2",
    "OVER": "SELECT a, s, n, SUM(s) OVER (PARTITION BY a ORDER BY ts ROWS 2 PRECEDING) AS three FROM {v}",
    "first rows": "SELECT a, s, n, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a, s ORDER BY ts) AS r FROM {v}) WHERE r = 1",
    "windows": "SELECT window_end, MAX(s) AS m, SUM(n) AS n, COUNT(a) AS c FROM TUMBLE(TABLE {v}, DESCRIPTOR(ts), INTERVAL '30' SECOND) GROUP BY window_start, window_end",
    "Top-N of windows": (
        "SELECT a, s, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY s DESC, a, n) AS r "
        "FROM TUMBLE(TABLE {v}, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE r <= 2"
    ),
}  # fmt: skip
OF_TABLE = (
    "CREATE TABLE v (ts TIMESTAMP(3), a INT, s BIGINT, n BIGINT, WATERMARK FOR ts AS ts) WITH ('connector' = 'print');"
)


def make_plan_over_v(text: str) -> Root:
    *_, last = Session(lenient=True).run(OF_TABLE + text.format(v="v"))
    assert isinstance(last, Submit)
    return last.roots[0]


class Result:
    """A pipeline and its output without retracted rows."""

    def __init__(self, root: Root, pipeline: MemoryPipeline | None = None) -> None:
        self.root = root
        self.pipeline = pipeline or MemoryPipeline(root, EXTENDED, buckets=2)
        self.now: Counter[tuple[Any, ...]] = Counter()
        self.given: list[pa.Table] = []

    def feed(self, part: list[dict[str, Any]], *, last: bool = False) -> None:
        for start in range(0, len(part), STEP):
            self.take(self.pipeline.feed(batch(self.root, part[start : start + STEP]), now_ms=start))
        if last:
            self.take(self.pipeline.flush(now_ms=ROWS))

    def take(self, found: pa.Table) -> None:
        self.given.append(found)
        for row in found.to_pylist():
            comes = row.pop(KIND, 0) in (RowKind.INSERT, RowKind.UPDATE_AFTER)
            self.now[tuple(row.values())] += 1 if comes else -1
        self.now = Counter({row: count for row, count in self.now.items() if count})


def change_query(before: Root, after: Root, first: list[dict[str, Any]]) -> Result:
    """Return the new query after the old one has read rows."""
    running = Result(before)
    running.feed(first)
    return Result(after, running.pipeline.change_query(after, 1, EXTENDED))


@pytest.mark.parametrize("what", ABOVE)
@pytest.mark.parametrize("below", KEPT)
def test_a_new_operator_above_a_kept_one(below: str, what: str) -> None:
    given = rows(3)
    first, second = given[: ROWS // 2], given[ROWS // 2 :]
    of_v = f"WITH v AS ({KEPT[below]}) "
    before, after = make_plan(KEPT[below]), make_plan(of_v + ABOVE[what].format(v="v"))
    assert judge([shape_of(before)], [shape_of(after)]).verdict is Verdict.INCOMPATIBLE
    judgement = judge([shape_of(before)], [shape_of(after)], CompatOptions(extended=True))
    assert judgement.verdict is Verdict.PARTIALLY, judgement
    found = change_query(before, after, first)
    found.feed(second, last=True)
    # The operator above reads what the one below emits after the change, which is what it emits
    # without a change.
    never_changed = Result(before)
    never_changed.feed(first)
    so_far = len(never_changed.given)
    never_changed.feed(second, last=True)
    alone = Result(make_plan_over_v(ABOVE[what]))
    (scan,) = tables_of(walk_streamed(alone.root.input))
    for table in never_changed.given[so_far:]:
        columns = [table[f"c{COLUMNS.index(each.name)}"] for each in scan.columns]
        named = pa.Table.from_arrays(columns, names=[f"c{at}" for at in range(len(columns))])
        alone.take(alone.pipeline.feed({"v": named}, now_ms=0))
    alone.take(alone.pipeline.flush(now_ms=0))
    assert found.now == alone.now
    assert found.now


TUMBLE = (
    "FROM TUMBLE(TABLE {of}, DESCRIPTOR(ts), INTERVAL '{n}' SECOND) GROUP BY window_start, window_end, window_time, a"
)
CASCADE = (
    f"SELECT a, MAX(s) AS v FROM (SELECT window_start, window_end, window_time, a, SUM(b) AS s {TUMBLE.format(of='MyTable', n=5)}) "
    "GROUP BY window_start, window_end, a"
)
SIDE_BY_SIDE = {
    "groups": "SELECT a, SUM(b) AS v FROM MyTable GROUP BY a",
    "windows": f"SELECT a, SUM(b) AS v {TUMBLE.format(of='MyTable', n=10)}",
    "groups over windows": CASCADE,
    "sums in a frame": "SELECT a, SUM(b) OVER (PARTITION BY a ORDER BY ts) AS v FROM MyTable",
    "groups of another table": "SELECT a, MIN(b) AS v FROM src GROUP BY a",
    "Top-N of groups": (
        "SELECT a, v FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY v DESC, a) AS r FROM (SELECT a, MAX(c) AS v FROM MyTable GROUP BY a)) WHERE r <= 2"
    ),
}  # fmt: skip


PAIRS = [(kept, new) for at, kept in enumerate(SIDE_BY_SIDE) for new in [*SIDE_BY_SIDE, *SIDE_BY_SIDE][at + 1 : at + 3]]


@pytest.mark.parametrize(("kept", "new"), PAIRS)
def test_a_new_operator_next_to_a_kept_one(kept: str, new: str) -> None:
    given = rows(5)
    first, second = given[: ROWS // 2], given[ROWS // 2 :]
    tagged = {name: f"SELECT '{name}' AS what, q.* FROM ({text}) AS q" for name, text in SIDE_BY_SIDE.items()}
    parts = [tagged[new], tagged[kept]] if PAIRS.index((kept, new)) % 2 else [tagged[kept], tagged[new]]
    before, after = make_plan(tagged[kept]), make_plan(" UNION ALL ".join(parts))
    found = change_query(before, after, first)
    running = Result(before)
    running.feed(first)
    so_far = running.now.copy()
    found.feed(second, last=True)
    running.feed(second, last=True)
    started = Result(make_plan(tagged[new]))
    started.feed(second, last=True)
    running.now.subtract(so_far)
    running.now.update(started.now)
    assert found.now == Counter({row: count for row, count in running.now.items() if count}), new


WITH_FULL_RESULT = {
    "groups": "SELECT a, d, SUM(b) AS s, MIN(c) AS m, COUNT(*) AS n FROM MyTable GROUP BY a, d",
    "groups of some": "SELECT a, d, SUM(b) AS s, MIN(c) AS m, COUNT(*) AS n FROM MyTable GROUP BY a, d HAVING COUNT(*) < 3",
    "all": "SELECT 1 AS a, 2 AS d, SUM(b) AS s, MIN(c) AS m, COUNT(*) AS n FROM MyTable",
    "groups of groups": (
        "SELECT a, MIN(d) AS d, SUM(s) AS s, MIN(m) AS m, COUNT(*) AS n FROM "
        "(SELECT a, d, SUM(b) AS s, MIN(c) AS m FROM MyTable GROUP BY a, d) GROUP BY a"
    ),
    "Top-N": (
        "SELECT a, d, b AS s, c AS m, r AS n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC, c, d, ts) AS r FROM MyTable) WHERE r <= 3"
    ),
    "Top-N of groups": (
        "SELECT a, d, s, m, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY d ORDER BY s DESC, a) AS r FROM "
        "(SELECT a, d, SUM(b) AS s, MIN(c) AS m, COUNT(*) AS n FROM MyTable GROUP BY a, d)) WHERE r <= 2"
    ),
}  # fmt: skip
ABOVE_FULL_RESULT = {
    "groups": "SELECT a, SUM(s) AS s, MAX(s) AS x, MIN(m) AS m, COUNT(DISTINCT n) AS n, MAX(d) AS d FROM v GROUP BY a",
    "one group": "SELECT SUM(s) AS s, COUNT(m) AS m, SUM(n) AS n, COUNT(DISTINCT a) AS a, MIN(d) AS d FROM v",
    "Top-N": "SELECT a, d, s, m, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY s, a, d, m) AS r FROM v) WHERE r <= 2",
    "groups of groups": (
        "SELECT x, COUNT(*) AS c FROM (SELECT s, SUM(m) AS x, COUNT(a) AS a, COUNT(d) AS d, COUNT(n) AS n FROM v GROUP BY s) WHERE a + d + n > 0 GROUP BY x"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ABOVE_FULL_RESULT)
@pytest.mark.parametrize("below", WITH_FULL_RESULT)
def test_a_new_operator_above_one_that_holds_its_result(below: str, what: str) -> None:
    before, after = (
        make_plan(WITH_FULL_RESULT[below]),
        make_plan(f"WITH v AS ({WITH_FULL_RESULT[below]}) {ABOVE_FULL_RESULT[what]}"),
    )
    judgement = judge([shape_of(before)], [shape_of(after)], CompatOptions(extended=True))
    assert judgement.verdict is Verdict.FULLY, judgement
    given = rows(len(below) + len(what))
    first, second = given[: ROWS // 2], given[ROWS // 2 :]
    found = change_query(before, after, first)
    always = Result(after)
    always.feed(first)
    for part in (second[:1], second[1:]):
        for each in (found, always):
            each.feed(part)
        assert found.now == always.now
