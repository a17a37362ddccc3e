"""Laws of formatting, over the SQL of all case files: same meaning, and stable."""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.errors import EverfoldError
from everfold.sql.formatting import format_script
from everfold.sql.formatting.script import is_same
from everfold.sql.script import parse_script
from everfold.testing.casefile import find_case_files, load

CASES = Path(__file__).parents[1] / "cases"


def list_scripts() -> list[tuple[str, str]]:
    """Return the SQL of all cases that can be parsed, with its dialect."""
    found: dict[tuple[str, str], None] = {}
    for path in find_case_files([CASES]):
        for case in load(path).cases:
            for step in case.steps:
                dialect = step.options.get("everfold.dialect", "flink")
                found |= dict.fromkeys(
                    (text, dialect) for text in [step.sql.text, *(each.text for each in step.tables)]
                )
    return list(found)


def check_laws(scripts: list[tuple[str, str]]) -> int:
    checked = 0
    for text, dialect in scripts:
        try:
            before = parse_script(text, dialect=dialect)
        except EverfoldError:
            continue
        formatted = format_script(text, dialect=dialect)
        assert is_same(before, parse_script(formatted, dialect=dialect)), text
        assert format_script(formatted, dialect=dialect) == formatted, text
        checked += 1
    return checked


def test_formatting_some_cases_keeps_their_meaning_and_is_stable() -> None:
    assert check_laws(list_scripts()[::10]) > 200


@pytest.mark.slow
def test_formatting_all_cases_keeps_their_meaning_and_is_stable() -> None:
    assert check_laws(list_scripts()) > 2000
