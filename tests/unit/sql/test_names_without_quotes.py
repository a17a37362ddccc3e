"""Every word that Flink accepts as a name without backticks is accepted wherever names stand.

`flink_keywords.txt` holds the keywords that Flink 2.3's parser does not reserve. It was asked each
of these statements with each of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.sql.dialects.flink import parse_statements
from everfold.sql.statements import CreateTable, DropTable

KEYWORDS = (Path(__file__).parent / "flink_keywords.txt").read_text().lower().split()
STATEMENTS = (
    "SELECT a AS §, a § FROM t",
    "SELECT §, t.§, § + 1, MAX(§) FROM t WHERE § IS NULL GROUP BY § HAVING § > 1 ORDER BY §",
    "SELECT a FROM §",
    "SELECT a FROM t AS §",
    "SELECT a FROM t § WHERE a > 1",
    "SELECT a FROM t JOIN § ON t.a = §.a",
    "SELECT a FROM t AS u (§)",
    "SELECT SUM(a) OVER § FROM t WINDOW § AS (PARTITION BY b)",
    "SELECT a FROM TUMBLE(TABLE §, DESCRIPTOR(§), INTERVAL '1' MINUTE)",
    "WITH § AS (SELECT 1) SELECT 1",
    "SELECT CAST(NULL AS ROW<§ INT>)",
    "INSERT INTO § (§) SELECT 1",
    "CREATE TABLE § (§ INT, b AS § + 1, PRIMARY KEY (§) NOT ENFORCED)",
    "CREATE TABLE t (a INT, § TIMESTAMP(3), WATERMARK FOR § AS §)",
    "CREATE VIEW § AS SELECT 1",
    "DROP TABLE §",
)
"""Flink accepts all of them with all of the keywords."""


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_keyword_that_is_not_reserved_is_a_name(statement: str) -> None:
    for keyword in KEYWORDS:
        parse_statements(statement.replace("§", keyword))


def test_if_not_exists_is_not_a_name() -> None:
    (created,) = parse_statements("CREATE TABLE IF NOT EXISTS if (a INT)")
    assert isinstance(created, CreateTable)
    assert created.if_not_exists
    (dropped,) = parse_statements("DROP TABLE IF EXISTS if")
    assert isinstance(dropped, DropTable)
    assert dropped.if_exists
