"""Every function and operator has Flink's type and value on DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import duckdb
import pytest
from unit.sql.functions.flink_answers import (
    Answer,
    answers,
    differences,
    expected_outcome,
    is_outcome,
    outcomes_of,
    row,
)

from everfold.sql.functions import entries, names

NONDETERMINISTIC = {"RAND", "RAND_INTEGER", "UUID"}
NOW = {
    "CURRENT_DATE",
    "CURRENT_ROW_TIMESTAMP",
    "CURRENT_TIME",
    "CURRENT_TIMESTAMP",
    "LOCALTIME",
    "LOCALTIMESTAMP",
    "NOW",
    "PROCTIME",
}


@pytest.fixture(scope="module")
def outcome_of() -> Iterator[Any]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("arrow_row", row())
        connection.execute("CREATE TABLE t AS SELECT * REPLACE (CAST(c16 AS TIMESTAMP) AS c16) FROM arrow_row")

        def evaluate(texts: Sequence[str]) -> Sequence[Any]:
            columns = ", ".join(f"{text} AS x{at}" for at, text in enumerate(texts))
            found = connection.execute(f"SELECT {columns} FROM t").fetchone()
            assert found is not None
            return found

        @cache
        def family(name: str) -> dict[str, str]:
            return outcomes_of(name, "duckdb", evaluate)

        yield lambda answer: family(answer.family)[answer.expression]


@pytest.mark.parametrize("answer", answers(), ids=lambda answer: f"{answer.family}: {answer.expression}")
def test_an_expression_has_flinks_answer(outcome_of: Any, answer: Answer) -> None:
    outcome, expected = outcome_of(answer), expected_outcome(answer, "duckdb")
    assert is_outcome(expected, outcome), f"{answer.expression}: {outcome}, not {expected}"


def test_every_difference_has_an_answer() -> None:
    known = {answer.expression for answer in answers()}
    assert {expression for expression, _ in differences()} <= known


def test_every_function_has_an_answer() -> None:
    texts = " ".join(answer.expression for answer in answers())
    written_otherwise = {"FLOOR_TO": "FLOOR(ts TO", "CEIL_TO": "CEIL(ts TO", "IS_JSON": "IS JSON"}
    covered = {
        entry.name for entry in entries() if any(f"{name}(" in texts for name in (entry.name, *entry.aliases))
    } | {name for name, text in written_otherwise.items() if text in texts}
    called = {entry.name for entry in entries() if {entry.name, *entry.aliases} & set(names())}
    assert called - covered - NONDETERMINISTIC - NOW == set()
