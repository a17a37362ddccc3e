"""Every scalar function over unusual values: line breaks, extremes, NaN, empty strings.

Flink and everfold have equal values wherever both have one, and a row that one of them refuses is
not compared.
"""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace

import pytest
from flink.agreement import ask_flink
from flink.process import Flink, FlinkAnswer
from flink.questions import Question
from flink.scalar_calls import ask_all
from flink.settings import SEED

from everfold.testing.casefile import Case
from everfold.testing.compare import net_rows
from everfold.testing.engines import Engine
from everfold.testing.pipetable import PipeRow, PipeTable
from everfold.testing.runner import run

pytestmark = pytest.mark.slow
KNOWN = {
    "`HOUR`, `MINUTE`, `SECOND` of a DATE": r"(HOUR|MINUTE|SECOND)\(da\)|(HOUR|SECOND|MINUTE) FROM da\)",
    "`SQRT` of minus infinity": r"SQRT\((d|f)\)",
    "`CONVERT_TZ`, `TO_TIMESTAMP_LTZ` with a zone that does not exist": r"CONVERT_TZ|TO_TIMESTAMP_LTZ\(.*,.*,",
    "an element that an ARRAY of NOT NULL elements does not have: `ARRAY[1][2]`": r"ARRAY\[[^]]*\]\[",
    "comparing a DECIMAL with a DOUBLE that is `NaN`": r"(\b(d|f) (=|<)|(=|<) (d|f)\b)(?s:.*)'NaN'",
}
"""Rows of docs/differences.md, and the calls that they explain: with the rows that they read."""
REFUSED = ("unsupported-function", "null-map-key", "division-by-zero", "out-of-range")
"""Errors that are allowed where Flink has a value."""


def to_case(question: Question, answer: FlinkAnswer) -> Case:
    """Return the case with its rows themselves: a cell of a case file cannot hold every string."""
    empty = replace(question, tables=tuple(replace(table, rows=()) for table in question.tables))
    case = empty.to_case("batch", replace(answer, changes=()))
    (step,) = case.steps
    rows = {
        table.name: replace(
            step.rows[table.name],
            table=PipeTable(tuple(name for name, _ in table.columns), tuple(PipeRow(row[1:]) for row in table.rows)),
        )
        for table in question.tables
    }
    if not answer.errors:
        expect = PipeTable(answer.names, tuple(PipeRow(row) for row in net_rows(answer.changes).elements()))
        step = replace(step, expect=expect)
    return replace(case, steps=(replace(step, rows=rows),))


def split(question: Question) -> list[Question]:
    """Return the question about each row alone."""
    (table,) = question.tables
    return [replace(question, tables=(replace(table, rows=(row,)),)) for row in table.rows]


def find_difference(question: Question, answer: FlinkAnswer, ours: Engine) -> str:
    """Return what differs; '' for nothing, and for a call that a documented difference explains."""
    message = run(to_case(question, answer), ours, "batch").message
    if message.startswith("internal error"):
        return message
    call = f"{question.sql} {question.tables[0].rows}"
    if not message or answer.errors or any(re.search(pattern, call) for pattern in KNOWN.values()):
        return ""
    if any(message.startswith(f"error[{code}]") for code in REFUSED):
        return ""
    return message


def test_every_function_has_the_values_of_flink(flink: Flink, ours: Engine) -> None:
    asked: list[tuple[Question, Future[FlinkAnswer]]] = [
        (question, ask_flink(flink, question, "batch")) for question in ask_all(SEED)
    ]
    differences: list[str] = []
    answered = Counter[bool]()
    for question, future in asked:
        answer = future.result()
        questions = [(question, answer)]
        if answer.errors:
            # A row may have an error, and others a value.
            parts = [(part, ask_flink(flink, part, "batch")) for part in split(question)]
            questions = [(part, each.result()) for part, each in parts]
        for part, its_answer in questions:
            answered[not its_answer.errors] += len(part.tables[0].rows)
            if difference := find_difference(part, its_answer, ours):
                differences.append(f"{part.sql}\n{[row[1:] for row in part.tables[0].rows]}\n{difference}")
    assert not differences, "\n\n".join(differences)
    assert answered[True] > answered[False], answered
