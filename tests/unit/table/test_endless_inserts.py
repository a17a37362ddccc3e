"""`execute_sql` refuses a statement that would never start."""

from __future__ import annotations

import pytest

from everfold import TableEnvironment
from everfold.errors import UsageError

TABLES = """
CREATE TABLE endless (a INT) WITH ('connector' = 'datagen');
CREATE TABLE bounded (a INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE o (a INT) WITH ('connector' = 'blackhole');
CREATE TABLE p (a INT) WITH ('connector' = 'blackhole');
"""


@pytest.mark.parametrize("last", ["INSERT INTO p SELECT a FROM bounded", "SELECT a FROM bounded"])
def test_a_statement_after_an_endless_insert(last: str) -> None:
    environment = TableEnvironment()
    environment.execute_sql(TABLES)
    with pytest.raises(UsageError) as caught:
        environment.execute_sql(f"INSERT INTO o SELECT a FROM endless;\n{last}")
    found = caught.value.diagnostics[0]
    assert (found.code, found.span and found.span.line) == ("never-starts", 2)
    assert "the INSERT into `o` before it has no end" in found.message
    assert "BEGIN STATEMENT SET" in (found.help or "")
