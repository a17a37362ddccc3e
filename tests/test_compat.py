"""State compatibility: what is said of changed queries (`tests/cases/compat`), and how."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from everfold.compat import REFERENCE, CompatOptions, Judgement, judge, shape_of
from everfold.compat.judgement import Status
from everfold.connectors.registry import apply_connector
from everfold.sql.planner import Session, Submit

CASES = Path(__file__).parent / "cases" / "compat"
MOST_S = 0.3


@dataclass(frozen=True)
class Change:
    """An old and a new query with what is to be said of them. codes: all that is found. columns: what becomes of each."""

    file: str
    name: str
    old: str
    new: str
    verdict: str
    codes: list[str]
    columns: dict[str, str] = field(default_factory=dict)
    notes: int = 0
    tables: str = ""
    dialect: str = "flink"

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def changes() -> Iterator[Change]:
    for path in sorted(CASES.glob("*.compat.yaml")):
        read: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for query in read["queries"]:
            for change in query["changes"]:
                of_file = {name: read[name] for name in ("tables", "dialect") if name in read}
                yield Change(file=path.name.partition(".")[0], old=query["old"], **of_file, **change)


ALL = list(changes())


def judged(old: str, new: str, dialect: str) -> tuple[Judgement, list[str]]:
    notes: list[str] = []
    shapes = []
    terms = REFERENCE
    for text in (old, new):
        session = Session({"everfold.dialect": dialect}, lenient=True, notes=notes.append, connected=apply_connector)
        submits = [each for each in session.run(text) if isinstance(each, Submit)]
        shapes.append([shape_of(root) for each in submits for root in each.roots])
        notes += [each.diagnostics[0].message for each in session.catalog.tolerated_errors or ()]
        terms = CompatOptions.of(session.settings)
    before, after = shapes
    return judge(before, after, terms), notes


@pytest.mark.parametrize("change", ALL, ids=str)
def test_what_is_said_of_a_change(change: Change) -> None:
    found, notes = judged(change.tables + change.old, change.tables + change.new, change.dialect)
    codes = [each.code for operator in found.operators for each in operator.findings]
    assert (found.verdict.value, sorted(set(codes))) == (change.verdict, sorted(change.codes)), found
    shown = {each.name: each.status.value for each in found.columns if each.name in change.columns}
    assert shown == change.columns
    assert len(notes) == change.notes, notes


@pytest.mark.parametrize("change", ALL, ids=str)
def test_a_query_that_has_not_changed_keeps_all(change: Change) -> None:
    for text in (change.old, change.new):
        found, _ = judged(change.tables + text, change.tables + text, change.dialect)
        assert found.verdict.value == "fully compatible"
        assert all(each.status is Status.KEPT for each in found.columns)


def test_an_aggregate_is_named_with_its_constants() -> None:
    """Else what is new and what is gone would have one name."""
    old, new = (
        f"SELECT k, LISTAGG(x, '{sign}'), {collected}, COUNT(*) FROM t GROUP BY k"
        for sign, collected in ((",", "ARRAY_AGG(x)"), (";", "ARRAY_AGG(x IGNORE NULLS)"))
    )
    [operator] = judged(old, new, "flink")[0].operators
    found = [(re.split(" (?:is|was) ", each.message)[0], each.code) for each in operator.findings]
    assert found == [
        ("LISTAGG(x, ';')", "AGG006"),
        ("ARRAY_AGG(x IGNORE NULLS)", "AGG006"),
        ("LISTAGG(x, ',')", "AGG007"),
        ("ARRAY_AGG(x)", "AGG007"),
    ]


def test_a_judgement_takes_no_time_to_speak_of() -> None:
    """How long it takes, as a command too: `benchmarks/check_times.py`."""
    took = []
    for change in ALL:
        began = time.process_time()
        judged(change.tables + change.old, change.tables + change.new, change.dialect)
        took.append(time.process_time() - began)
    assert max(took[1:]) < MOST_S  # the first one imports


def test_names_of_cases_are_unique() -> None:
    assert len({str(each) for each in ALL}) == len(ALL)
