"""Checks over all case files.

Each case is its own test: the pytest plugin collects them (`everfold.testing.pytest_plugin`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.testing.casefile import CaseFile, find_case_files, load

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
