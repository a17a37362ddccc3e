"""The questions themselves, without Flink."""

from __future__ import annotations

from pathlib import Path

import pytest
from flink.generator import KINDS, question
from flink.on_purpose import NOT_ASKED, ON_PURPOSE
from flink.process import FlinkAnswer
from flink.questions import Question

from everfold.testing.casefile import load
from everfold.testing.engines import MemoryEngine
from everfold.testing.runner import run

DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"
ASKED_ALONE = {case.name for case in load(Path(__file__).parent / "rows.yaml").cases}
REFUSED_BY_FLINK = FlinkAnswer(errors=("refused",))
SOME = [question(1, number) for number in range(300)]


def rows_of() -> set[str]:
    """Return the first cells of the tables in docs/differences.md."""
    text = DIFFERENCES.read_text(encoding="utf-8")
    cells = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    return {cell for cell in cells if cell != "what" and not cell.startswith("---")}


def test_every_difference_on_purpose_is_documented() -> None:
    assert {each.title for each in ON_PURPOSE} | ASKED_ALONE | NOT_ASKED <= rows_of()


def test_every_documented_difference_is_asked_or_listed_as_not_asked() -> None:
    """A new row of the page needs a case in rows.yaml; NOT_ASKED only shrinks."""
    assert rows_of() - {each.title for each in ON_PURPOSE} - ASKED_ALONE == NOT_ASKED


def test_the_same_seed_and_number_make_the_same_question() -> None:
    assert [question(7, number) for number in range(20)] == [question(7, number) for number in range(20)]
    assert question(7, 1) != question(8, 1)


def test_every_kind_is_asked() -> None:
    kinds = {each.name.split()[-1] for each in SOME}
    assert kinds == {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("asked", SOME[:25], ids=lambda asked: asked.name)
def test_everfold_answers_without_internal_errors(asked: Question) -> None:
    for mode in asked.modes:
        message = run(asked.to_case(mode, REFUSED_BY_FLINK), MemoryEngine(), mode).message
        assert message.startswith("expected an error"), message


def test_a_smaller_question_is_smaller() -> None:
    for asked in SOME[:20]:
        for smaller in asked.smaller():
            assert size(smaller) < size(asked), smaller.sql


def size(asked: Question) -> int:
    nodes = sum(bool(node.text) for node in asked.query.walk())
    return nodes + sum(len(table.rows) for table in asked.tables) + len(asked.options)


def test_unused_columns_are_dropped() -> None:
    asked = next(each for each in SOME if "GROUP BY k" in each.sql)
    narrow = asked.without_unused_columns()
    assert narrow.sql == asked.sql
    assert len(narrow.tables[0].columns) < len(asked.tables[0].columns)
    assert len(narrow.tables[0].rows) == len(asked.tables[0].rows)
