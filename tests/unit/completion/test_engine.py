"""Completion: which names come next, by the words before the cursor."""

from __future__ import annotations

import pytest

from everfold.completion.engine import Candidate, Completer
from everfold.connectors.registry import apply_connector
from everfold.sql.planner import Session

SCRIPT = """
CREATE TABLE orders (customer STRING, price INT, `group` INT) WITH ('connector' = 'datagen');
CREATE TABLE payments (account STRING, amount INT) WITH ('connector' = 'datagen');
"""


def complete(before: str, after: str = "") -> list[Candidate]:
    session = Session(connected=apply_connector)
    list(session.run(SCRIPT))
    return Completer(session.catalog).complete(before, after)


def names(before: str, after: str = "") -> list[str]:
    return [each.text for each in complete(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        ("SE", "", ["SELECT", "SET"]),
        ("CREATE TEMP", "", ["TEMPORARY TABLE", "TEMPORARY VIEW"]),
        ("SELECT cu", " FROM orders", ["customer"]),
        ("SELECT ", " FROM orders", ["customer", "price", "`group`"]),
        ("SELECT o.", " FROM orders AS o", ["customer", "price", "`group`"]),
        ("SELECT 1 FROM ", "", ["orders", "payments", "TUMBLE("]),
        ("WITH big AS (SELECT 1) SELECT 1 FROM b", "", ["big"]),
        ("SELECT 1 FROM orders JOIN pay", "", ["payments"]),
        ("INSERT INTO pay", "", ["payments"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'upsert", "", ["upsert-kafka"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'scan.startup.mo", "", ["scan.startup.mode"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'format' = 'js", "", ["json"]),
        ("SET 'everfold.dia", "", ["everfold.dialect"]),
        ("SET 'everfold.dialect' = '", "", ["flink", "lenses"]),
        ("-- SELECT 1 FROM o\nSELECT 1 FROM ", "", ["orders"]),
        ("SELECT 'a", "", []),
    ],
)
def test_the_words_before_decide(before: str, after: str, first: list[str]) -> None:
    found = names(before, after)
    assert found[: len(first)] == first
    assert first or not found


def test_a_candidate_replaces_what_is_typed() -> None:
    (found,) = complete("SELECT cust", " FROM orders")
    assert found == Candidate("customer", 4, "column", "orders STRING")


def test_functions_without_parentheses_are_completed_without() -> None:
    assert "CURRENT_DATE" in names("SELECT CURRENT_D")
    assert "SUM(" in names("SELECT su")
