"""Which tables read columns that no query uses: those whose records have unnamed fields, or columns
in the key.
"""

from __future__ import annotations

import pytest

from everfold.connectors.contract import Role
from everfold.connectors.registry import apply_connector, connector_of
from everfold.sql.planner import Session, Submit

FILES = "'connector' = 'filesystem', 'path' = 'x', "
KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:9092', 'scan.startup.mode' = 'earliest-offset', "
UPSERT = "'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:9092', "


def scan_columns(columns: str, options: str, select: str = "b") -> list[str]:
    """Return the columns that `SELECT b FROM t` scans, after a check by the connector."""
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
def test_unused_columns_are_read_where_the_format_needs_them(columns: str, options: str, read: str) -> None:
    assert " ".join(scan_columns(columns, options)) == read


def test_a_query_of_metadata_only_reads_the_value_of_raw() -> None:
    assert scan_columns(
        "a BIGINT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'", KAFKA + "'format' = 'raw'", "at"
    ) == [
        "a",
        "at",
    ]
