"""Random queries, answered by Flink and by everfold.

A question that shows a difference is shrunk and printed as a case file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from flink.agreement import ask_flink, compare, shrink
from flink.generator import question
from flink.process import Flink, FlinkAnswer
from flink.settings import COUNT, SEED

from everfold.testing.casefile import Mode
from everfold.testing.engines import Engine

pytestmark = pytest.mark.slow

QUESTIONS = {number: question(SEED, number) for number in range(COUNT)}
ASKED = [(mode, number) for number, each in QUESTIONS.items() for mode in each.modes]
ANSWERED_BY_BOTH = 0.85
ENOUGH = 100
"""With fewer questions the shares mean little."""

tally: Counter[str] = Counter()


@pytest.fixture(scope="module")
def answers(flink: Flink, request: pytest.FixtureRequest) -> dict[tuple[Mode, int], Future[FlinkAnswer]]:
    """Flink's answers to the selected questions. Flink works ahead of everfold."""
    selected = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = [(each["mode"], each["number"]) for each in selected if "number" in each]
    return {(mode, number): ask_flink(flink, QUESTIONS[number], mode) for mode, number in asked}


@pytest.mark.parametrize(("mode", "number"), ASKED, ids=[f"{mode}-{number}" for mode, number in ASKED])
def test_flink_and_everfold_agree(
    mode: Mode,
    number: int,
    flink: Flink,
    ours: Engine,
    answers: dict[tuple[Mode, int], Future[FlinkAnswer]],
    record_property: Callable[[str, object], None],
) -> None:
    asked, answer = QUESTIONS[number], answers[mode, number].result()
    found = compare(asked, mode, answer, ours)
    tally[found.kind] += 1
    record_property("flink", f"on purpose: {found.purpose.title}" if found.purpose else found.kind)
    if found.sound:
        return
    if found.kind == "Flink is too slow":
        pytest.fail(found.message, pytrace=False)
    small = shrink(flink, ours, asked, mode, found.kind)
    answer = ask_flink(flink, small, mode).result()
    message = compare(small, mode, answer, ours).message
    pytest.fail(f"{found.kind}\n{message}\n\n{small.to_text(mode, answer)}", pytrace=False)


def test_most_questions_are_answered_by_both(flink: Flink) -> None:
    asked = sum(tally.values())
    if asked >= ENOUGH:
        assert tally["agreed"] + tally["differs"] >= ANSWERED_BY_BOTH * asked, tally
