"""Checks over all case files.

Each case is its own test: the pytest plugin collects them (`everfold.testing.pytest_plugin`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.compat import QueryShape, Verdict, judge, shape_of
from everfold.compat.columns import Status
from everfold.errors import EverfoldError
from everfold.sql.planner import Session, Submit
from everfold.testing.casefile import CaseFile, Step, find_case_files, load

CASES = Path(__file__).parent / "cases"
FILES = [load(path) for path in find_case_files([CASES])]


def in_folder(name: str) -> list[CaseFile]:
    return [file for file in FILES if (CASES / name) in file.path.parents]


def test_there_are_enough_window_cases() -> None:
    assert sum(len(file.cases) for file in in_folder("window")) >= 120


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.path.relative_to(CASES)))
def test_a_file_names_the_oracle_of_its_results(file: CaseFile) -> None:
    answers = [case for case in file.cases if any(step.expect is not None for step in case.steps)]
    assert not answers or "# oracle:" in file.text


def test_case_names_are_unique() -> None:
    names = [(file.path.stem, case.name) for file in FILES for case in file.cases]
    assert len(names) == len(set(names))


def plan(step: Step, mode: str, folder: Path, *, lenient: bool = False) -> list[QueryShape]:
    """Return the shapes of the queries of a step. lenient: read as an old script of a check."""
    options = {"execution.runtime-mode": "batch" if mode == "batch" else "streaming"} | step.options
    session = Session(options, lenient=lenient, folder=folder, notes=lambda _: None)
    script = "\n".join(block.text for block in (*step.tables, step.sql))
    submits = (action for action in session.run(script) if isinstance(action, Submit))
    return [shape_of(root) for submit in submits for root in submit.roots]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.path.relative_to(CASES)))
def test_a_query_is_fully_compatible_with_itself(file: CaseFile) -> None:
    """Also if the old script is read as one that may not declare its tables."""
    for case in file.cases:
        for step in case.steps:
            try:
                shapes = plan(step, case.modes[0], file.path.parent)
            except EverfoldError:  # the case is about this error
                continue
            judgement = judge(plan(step, case.modes[0], file.path.parent, lenient=True), shapes)
            statuses = {column.status for column in judgement.columns}
            assert (judgement.verdict, statuses - {Status.KEPT}) == (Verdict.FULLY, set()), case.id
