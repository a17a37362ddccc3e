"""A table on the right of a stream's join that is declared wrongly: its own error is reported."""

from __future__ import annotations

import pytest

from everfold.connectors.registry import apply_connector
from everfold.errors import EverfoldError
from everfold.sql.planner import Session

STREAM = """
CREATE TABLE s (id INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
"""
QUERIES = (
    "SELECT s.id FROM s JOIN d ON s.id = d.id",
    "SELECT s.id FROM s LEFT JOIN d FOR SYSTEM_TIME AS OF s.p ON s.id = d.id",
    "SELECT s.id FROM s JOIN d FOR SYSTEM_TIME AS OF s.ts ON s.id = d.id",
    "SELECT s.id FROM s WHERE id IN (SELECT id FROM d)",
    "SELECT s.id FROM s JOIN (SELECT id FROM d WHERE id > 1) AS e ON s.id = e.id",
)
JDBC = "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/b', 'table-name' = 'x'"
KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"


def error_of(options: str, query: str) -> EverfoldError:
    session = Session(connected=apply_connector)
    with pytest.raises(EverfoldError) as caught:
        list(session.run(f"{STREAM} CREATE TABLE d (id INT, n STRING) WITH ({options}); {query}"))
    return caught.value


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(
    ("options", "code", "help_text"),
    [
        (f"{JDBC}, 'lookup.cahce' = 'FULL'", "unknown-option", "did you mean `lookup.cache`?"),
        (JDBC.replace("postgresql", "oracle"), "wrong-option-value", None),
        (JDBC.replace("table-name", "table"), "unknown-option", "did you mean `table-name`?"),
        ("'connector' = 'hbase-2.2'", "unknown-connector", "available connectors"),
        ("'conector' = 'jdbc'", "missing-option", "add WITH ('connector' = '…')"),
        ("'connector' = 'blackhole'", "not-a-source", None),
        ("'connector' = 'filesystem', 'path' = 'x', 'format' = 'josn'", "unknown-format", "did you mean `json`?"),
    ],
)
def test_the_error_of_the_declaration_is_reported(options: str, code: str, help_text: str | None, query: str) -> None:
    helps = {found.code: found.help or "" for found in error_of(options, query).diagnostics}
    assert code in helps
    assert (help_text or "") in helps[code]


@pytest.mark.parametrize("query", QUERIES)
def test_an_unbounded_table_is_still_refused(query: str) -> None:
    error = error_of(KAFKA, query)
    assert error.code == ("temporal-join" if "s.ts" in query else "streaming-join")
    assert "processing time `p`" not in str(error)
