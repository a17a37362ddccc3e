"""A run that accepts a change names the columns that are partial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from everfold.cli.run import WhenChanged, _make_decide
from everfold.compat import Judgement, QueryShape, judge, shape_of
from everfold.jobs.change import Answer
from everfold.sql.planner import Session, Submit


@dataclass(frozen=True)
class Change:
    judgement: Judgement

    def list_answers(self) -> Sequence[Answer]:
        return ()


def judge_change(old: str, new: str) -> Judgement:
    shapes: list[list[QueryShape]] = []
    for query in (old, new):
        (submit,) = Session(lenient=True).run(query)
        assert isinstance(submit, Submit)
        shapes.append([shape_of(root) for root in submit.roots])
    return judge(shapes[0], shapes[1])


OLD = "SELECT k, SUM(x) AS s FROM t GROUP BY k"
NEW = "SELECT k, SUM(x) AS s, COUNT(*) AS n FROM t GROUP BY k"


@pytest.mark.parametrize(
    ("how", "old", "new", "notes"),
    [
        ("accept", OLD, NEW, "note: column `n` is partial: COUNT(*) is new, and counts from now on\n"),
        ("backfill", OLD, NEW, ""),
        ("accept", NEW, OLD, ""),
        ("accept", OLD, "SELECT x, COUNT(*) AS n FROM t GROUP BY x", ""),
    ],
)
def test_partial_columns_are_named(
    how: WhenChanged, old: str, new: str, notes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _make_decide(how)(Change(judge_change(old, new))).value == how
    assert capsys.readouterr().err == notes
