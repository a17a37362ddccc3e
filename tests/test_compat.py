"""State compatibility: the verdicts and findings for changed queries (`tests/cases/compat`)."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from everfold.compat import REFERENCE, CompatOptions, Judgement, QueryShape, judge, shape_of
from everfold.compat.columns import Status
from everfold.connectors.registry import apply_connector
from everfold.sql.planner import Session, Submit

CASES = Path(__file__).parent / "cases" / "compat"
MOST_S = 0.3


@dataclass(frozen=True)
class Change:
    """An old and a new query with the expected judgement.

    codes: the codes of all findings. columns: the status of each column.
    """

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


def judge_change(old: str, new: str, dialect: str) -> tuple[Judgement, list[str]]:
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
def test_a_change_has_the_expected_verdict_and_findings(change: Change) -> None:
    found, notes = judge_change(change.tables + change.old, change.tables + change.new, change.dialect)
    codes = [each.code for operator in found.operators for each in operator.findings]
    assert (found.verdict.value, sorted(set(codes))) == (change.verdict, sorted(change.codes)), found
    shown = {each.name: each.status.value for each in found.columns if each.name in change.columns}
    assert shown == change.columns
    assert len(notes) == change.notes, notes


@pytest.mark.parametrize("change", ALL, ids=str)
def test_an_unchanged_query_keeps_all_columns(change: Change) -> None:
    for text in (change.old, change.new):
        found, _ = judge_change(change.tables + text, change.tables + text, change.dialect)
        assert found.verdict.value == "fully compatible"
        assert all(each.status is Status.KEPT for each in found.columns)


def test_an_aggregate_is_named_with_its_constants() -> None:
    """Without them, a new call and a dropped one would have the same name."""
    old, new = (
        f"SELECT k, LISTAGG(x, '{sign}'), {collected}, COUNT(*) FROM t GROUP BY k"
        for sign, collected in ((",", "ARRAY_AGG(x)"), (";", "ARRAY_AGG(x IGNORE NULLS)"))
    )
    [operator] = judge_change(old, new, "flink")[0].operators
    found = [(re.split(" (?:is|was) ", each.message)[0], each.code) for each in operator.findings]
    assert found == [
        ("LISTAGG(x, ';')", "AGG006"),
        ("ARRAY_AGG(x IGNORE NULLS)", "AGG006"),
        ("LISTAGG(x, ',')", "AGG007"),
        ("ARRAY_AGG(x)", "AGG007"),
    ]


def test_a_judgement_is_fast() -> None:
    """`benchmarks/check_times.py` measures the command line as well.

    Garbage is collected between the judgements: with all tests loaded that took 0.8 s.
    """
    took = []
    for change in ALL:
        gc.disable()
        try:
            began = time.process_time()
            judge_change(change.tables + change.old, change.tables + change.new, change.dialect)
            took.append(time.process_time() - began)
        finally:
            gc.enable()
    assert max(took[1:]) < MOST_S  # the first one includes imports


def test_case_names_are_unique() -> None:
    assert len({str(each) for each in ALL}) == len(ALL)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (
            "SUM(x) / COUNT(*)",
            (
                "SUM(x) counts from the beginning; COUNT(*) counts since version 2:"
                " right for groups that begin after version 2 started; a rebuild makes it right at once"
            ),
        ),
        (
            "SUM(x) / COUNT(*) + MAX(x)",
            (
                "COUNT(*), SUM(x) cover earlier rows, MAX(x) does not:"
                " right for groups that begin after the restart; a rebuild makes it right at once"
            ),
        ),
        (
            "SUM(x) + MAX(x) + MIN(x)",
            (
                "SUM(x) covers earlier rows, MAX(x), MIN(x) do not:"
                " right for groups that begin after the restart; a backfill makes it right at once"
            ),
        ),
    ],
)
def test_the_report_says_when_a_mixed_column_is_right(column: str, reason: str) -> None:
    """A backfill fills the aggregates that are new, but none that started late before."""

    def shape(columns: str) -> QueryShape:
        sql = f"CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'print'); SELECT k, {columns} FROM t GROUP BY k"
        (submit,) = (action for action in Session(lenient=True).run(sql) if isinstance(action, Submit))
        return shape_of(submit.roots[0])

    old = shape("SUM(x) AS s, COUNT(*) AS n")
    calls = tuple(replace(call, counts_since=2 * (call.function == "COUNT")) for call in old.operators[0].calls)
    old = replace(old, operators=(replace(old.operators[0], calls=calls),))
    judgement = judge([old], [shape(f"SUM(x) AS s, COUNT(*) AS n, {column} AS m")])
    assert [(mixed.status, mixed.reason) for mixed in judgement.columns if mixed.name == "m"] == [
        (Status.MIXED, reason)
    ]
