"""Which tables keep columns that no query asks for: those whose records have fields without names, or columns in the key."""

from __future__ import annotations

import pytest

from everfold.connectors.contract import Role
from everfold.connectors.registry import apply_connector, connector_of
from everfold.sql.planner import Session, Submit

FILES = "'connector' = 'filesystem', 'path' = 'x', "
KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:9092', 'scan.startup.mode' = 'earliest-offset', "
UPSERT = "'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:9092', "


def scanned(columns: str, options: str, select: str = "b") -> list[str]:
    """The columns of the scan of `SELECT b FROM t`, which the connector finds right."""
    session = Session(connected=apply_connector)
    *_, action = session.run(f"CREATE TABLE t ({columns}) WITH ({options}); SELECT {select} FROM t")
    assert isinstance(action, Submit)
    (table,) = action.sources
    connector_of(table).check(table, Role.SOURCE)
    return [column.name for column in table.columns]


@pytest.mark.parametrize(
    ("columns", "options", "read"),
    [
        ("a INT, b INT, c INT", FILES + "'format' = 'csv'", "a b c"),
        ("a INT, b INT, c INT", FILES + "'format' = 'json'", "b"),
        ("a INT, b INT, c INT", FILES + "'format' = 'parquet'", "b"),
        ("a INT, b STRING METADATA FROM 'file.path', c STRING METADATA FROM 'file.name'", FILES + "'format' = 'raw'", "a b"),
        ("a INT, b INT, c INT", KAFKA + "'format' = 'csv'", "a b c"),
        ("a INT, b INT, c INT", KAFKA + "'value.format' = 'csv'", "a b c"),
        ("a INT, b INT, c INT", KAFKA + "'format' = 'json'", "b"),
        ("a INT, b INT, c INT", KAFKA + "'value.format' = 'json', 'key.format' = 'json', 'key.fields' = 'a'", "a b c"),
        ("a INT, b INT, c INT, PRIMARY KEY (a) NOT ENFORCED", UPSERT + "'key.format' = 'raw', 'value.format' = 'json'", "a b c"),
        ("a INT, b INT, c INT, PRIMARY KEY (a) NOT ENFORCED", UPSERT + "'key.format' = 'json', 'value.format' = 'csv'", "a b c"),
        ("a INT, b INT, c INT, PRIMARY KEY (a) NOT ENFORCED", UPSERT + "'key.format' = 'json', 'value.format' = 'json'", "a b"),
    ],
)  # fmt: skip
def test_columns_that_are_read(columns: str, options: str, read: str) -> None:
    assert " ".join(scanned(columns, options)) == read


def test_metadata_alone() -> None:
    assert scanned("a BIGINT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'", KAFKA + "'format' = 'raw'", "at") == [
        "a",
        "at",
    ]
