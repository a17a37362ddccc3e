"""Rows of docs/differences.md, asked of Flink: `rows.yaml` has one case for each.

Flink still answers as recorded there, and everfold answers otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from flink.process import Flink

from everfold.testing.casefile import Case, load
from everfold.testing.compare import net_rows
from everfold.testing.engines import MemoryEngine
from everfold.testing.runner import run

CASES = load(Path(__file__).parent / "rows.yaml").cases
_CREATED = re.compile(r"CREATE TABLE (\w+)")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_everfold_differs_from_flink(case: Case) -> None:
    assert run(case, MemoryEngine(), case.modes[0]).message, "the answers agree: remove the row from the page"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_flink_answers_as_recorded(case: Case, flink: Flink) -> None:
    (step,) = case.steps
    tables = []
    for block in step.tables:
        for ddl in filter(str.strip, block.text.split(";")):
            name = _CREATED.findall(ddl)[0]
            fed = step.rows[name].table
            rows = [("+I", *row.cells) for row in fed.rows]
            tables.append(
                {"name": name, "ddl": ddl, "changing": False, "upsert": False, "columns": fed.columns, "rows": rows}
            )
    query = step.sql.text.strip()
    answer = flink.ask(mode=case.modes[0], query=query, tables=tables, options=step.options, watermark="end").result()
    assert not answer.timed_out
    if step.expect is None:
        assert step.error is not None
        assert any(word in error for word in step.error.words for error in answer.errors), answer
    else:
        assert Counter(step.expect.cells()) == net_rows(answer.changes), answer.errors
