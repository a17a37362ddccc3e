"""Compare the answers of Flink and everfold to a question, and shrink a question that shows a
difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from flink.on_purpose import OnPurpose, on_purpose
from flink.process import Flink, FlinkAnswer
from flink.questions import Question

from everfold.testing.casefile import Mode
from everfold.testing.engines import Engine
from everfold.testing.runner import run

SHRINKING_SECONDS = 90.0

Kind = Literal[
    "agreed",
    "refused by both",
    "refused by everfold",
    "answered by everfold only",
    "differs",
    "internal error",
    "Flink is too slow",
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the two answers compare; `purpose` if they differ on purpose."""

    kind: Kind
    message: str = ""
    purpose: OnPurpose | None = None

    @property
    def sound(self) -> bool:
        """Whether this is not a defect."""
        return self.kind in ("agreed", "refused by both") or self.purpose is not None


def compare(question: Question, mode: Mode, answer: FlinkAnswer, engine: Engine) -> Comparison:
    """Ask everfold and compare."""
    if answer.timed_out:
        return Comparison("Flink is too slow", answer.reason)
    outcome = run(question.to_case(mode, answer), engine, mode)
    kind = _kind(outcome.message, answered=not answer.errors)
    if kind in ("agreed", "refused by both"):
        return Comparison(kind)
    return Comparison(kind, outcome.message, on_purpose(question, mode, answer, outcome.message))


def _kind(message: str, *, answered: bool) -> Kind:
    if message.startswith("internal error"):
        return "internal error"
    if not message:
        return "agreed" if answered else "refused by both"
    if not answered:
        return "answered by everfold only"
    return "refused by everfold" if message.startswith("error[") else "differs"


def ask_flink(flink: Flink, question: Question, mode: Mode) -> Future[FlinkAnswer]:
    """Ask Flink and return a future answer."""
    return flink.ask(**question.to_flink(mode))


def shrink(flink: Flink, engine: Engine, question: Question, mode: Mode, kind: Kind) -> Question:
    """Return the smallest question found that shows the same kind of difference."""
    until = time.monotonic() + SHRINKING_SECONDS
    found = question
    while time.monotonic() < until:
        smaller = next(
            (each for each in _ask_smaller(flink, found, mode, until) if _has_difference(each, mode, engine, kind)),
            None,
        )
        if smaller is None:
            break
        found = smaller[0]
    narrow = found.without_unused_columns()
    return narrow if _has_difference((narrow, ask_flink(flink, narrow, mode).result()), mode, engine, kind) else found


def _ask_smaller(flink: Flink, question: Question, mode: Mode, until: float) -> Iterator[tuple[Question, FlinkAnswer]]:
    """Yield the smaller questions with Flink's answers.

    The next question is asked while one is compared.
    """
    waiting: list[tuple[Question, Future[FlinkAnswer]]] = []
    for each in question.smaller():
        waiting.append((each, ask_flink(flink, each, mode)))
        if len(waiting) == 2:
            first, answer = waiting.pop(0)
            yield first, answer.result()
        if time.monotonic() > until:
            return
    for each, answer in waiting:
        yield each, answer.result()


def _has_difference(asked: tuple[Question, FlinkAnswer], mode: Mode, engine: Engine, kind: Kind) -> bool:
    question, answer = asked
    found = compare(question, mode, answer, engine)
    return found.kind == kind and not found.sound
