"""Prepared rows of a task wait for those of its next chunks if their groups are likely to occur
there.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import polars as pl
import pytest
from property.harness import Runner, aggregate_of

from everfold.operators import combining, group
from everfold.operators.combining import PreparedRows, is_combining
from everfold.operators.factory import operator_of
from everfold.operators.protocol import ClockSpec, Operator
from everfold.plan.walk import operators_of
from everfold.plan.windows import Tumble
from everfold.sql.planner import Session, Submit

TABLE = "CREATE TABLE t (k BIGINT, v BIGINT, s STRING)"


def make_operator(calls: str = "COUNT(*), SUM(v), COUNT(DISTINCT v) FILTER (WHERE v > 0)") -> Operator:
    session = Session(folder=Path())
    list(session.run(TABLE))
    (submit,) = session.run(f"SELECT k, {calls} FROM t GROUP BY k")
    assert isinstance(submit, Submit)
    (node,) = operators_of(submit.roots)
    return operator_of(node, "g1", ClockSpec(splits=("t",)))


def prepare(operator: Operator, first: int, rows: int, groups: int) -> pl.DataFrame:
    """Prepare rows whose groups and values are the numbers from 0 on, one after another."""
    numbers = pl.DataFrame({"at": pl.int_range(first, first + rows, eager=True)})
    number, columns = pl.col("at") % groups, {}
    for each in operator.inputs:
        match str(each.type.polars):
            case "Boolean":
                columns[each.name] = number > 0
            case "String":
                columns[each.name] = number.cast(pl.String)
            case _:
                columns[each.name] = number
    return operator.prepare(numbers.select(number.alias("hash"), pl.col("at").alias("seq"), **columns))


def test_rows_wait_until_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "_HELD_ROWS", 100)
    operator = make_operator()
    held = PreparedRows(operator)
    assert not any(held.add(prepare(operator, at, 1000, 10), 1000, at) for at in range(0, 50_000, 1000))
    ((seq, combined),) = held.release()
    assert seq == 0
    assert combined.filter(pl.col("table") == 0)["n"].to_list() == [5000] * 10
    assert combined.filter(pl.col("table") == 1).height == 9
    assert combined["table"].is_sorted()
    assert held.release() == []


@pytest.mark.parametrize("few", [1 << 60, -1])
def test_a_value_counts_if_one_of_its_rows_does(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "FEW_ROWS", few)
    operator = make_operator("COUNT(DISTINCT v) FILTER (WHERE s = 'x'), COUNT(DISTINCT v) FILTER (WHERE s = 'y')")
    assert is_combining(operator)
    random = Random(4)
    rows = [(random.randrange(3), random.randrange(9), *random.choices([True, False], [1, 4], k=2)) for _ in range(60)]
    frames = []
    for first in range(0, len(rows), 20):
        part = rows[first : first + 20]
        values = pl.DataFrame(part, schema=["k0", "a0", "a1", "a2"], orient="row")
        seq = pl.int_range(first, first + 20)
        frames.append(operator.prepare(values.with_columns(h_a0="a0", hash="k0", seq=seq)))
    found = operator.combine(frames).filter(pl.col("table") == 1)
    for at, count in enumerate(("n0", "n1"), 2):
        counted = found.filter(pl.col(count)).select("k0", "a0").rows()
        assert sorted(counted) == sorted({(row[0], row[1]) for row in rows if row[at]})


def test_rows_that_stay_many_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "_HELD_ROWS", 100)
    operator = make_operator("COUNT(*)")
    held = PreparedRows(operator)
    assert held.add(prepare(operator, 0, 1000, 70), 1000, 0) == []
    ((seq, combined),) = held.add(prepare(operator, 1000, 1000, 70), 1000, 1000)
    assert (seq, combined.height, combined["n"].sum()) == (0, 70, 2000)
    assert held.release() == []


def test_rows_keep_their_order() -> None:
    operator = make_operator()
    held = PreparedRows(operator)
    assert held.add(prepare(operator, 0, 1000, 10), 1000, 0) == []
    found = held.add(prepare(operator, 1000, 1000, 1000), 1000, 1000)
    assert [(seq, frame.height) for seq, frame in found] == [(0, 19), (1000, 1999)]
    assert held.add(prepare(operator, 2000, 1000, 10), 1000, 2000) == []
    assert [seq for seq, _ in held.release()] == [2000]


def test_lists_do_not_wait() -> None:
    operator = make_operator("ARRAY_AGG(s)")
    held = PreparedRows(operator)
    ((seq, frame),) = held.add(prepare(operator, 0, 1000, 10), 1000, 0)
    assert (seq, frame.height) == (0, 10)


def test_windows_do_not_wait() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10)))
    rows = runner.operator.prepare(runner.frame([(at % 10, "a", 1) for at in range(100)]))
    ((_, frame),) = PreparedRows(runner.operator).add(rows, 100, 0)
    assert frame.height == 1
