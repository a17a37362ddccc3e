"""Errors in a table point to a position in the script: the option, the column, or else the table's
name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.connectors.contract import Role, SinkContext
from everfold.connectors.validate import check_table
from everfold.errors import EverfoldError
from everfold.plan.nodes import Table
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session

FILES = "'connector' = 'filesystem', 'path' = 'x', 'format'"
KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"


def open_table(table: Table, role: Role) -> object:
    """Open the table as a source or sink."""
    checked = check_table(table, role)
    if role is Role.SOURCE:
        return checked.source()
    return checked.sink(SinkContext(name="s", base_folder=Path(), table=table))


@pytest.mark.parametrize(
    ("ddl", "role", "code", "position"),
    [
        ("CREATE TABLE t (a INT)", Role.SOURCE, "missing-option", "t"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafak')", Role.SOURCE, "unknown-connector", "'connector' = 'kafak'"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'print')", Role.SOURCE, "not-a-source", "t"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'datagen')", Role.SINK, "not-a-sink", "t"),
        ("CREATE TABLE t (a INT, b ARRAY<INT>) WITH ('connector' = 'datagen')", Role.SOURCE, "datagen-type", "b ARRAY<INT>"),
        ("CREATE TABLE t (a DATE) WITH ('connector' = 'datagen', 'fields.a.kind' = 'sequence')", Role.SOURCE, "datagen-type", "a DATE"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'fields.a.kind' = 'sequence')", Role.SOURCE, "missing-option",
         "'fields.a.kind' = 'sequence'"),
        ("CREATE TABLE t (a INT, b INT METADATA FROM 'c') WITH ('connector' = 'datagen')", Role.SOURCE, "unknown-metadata", "b INT METADATA FROM 'c'"),
        (f"CREATE TABLE t (a INT, b MAP<INT, INT>) WITH ({FILES} = 'csv')", Role.SOURCE, "csv-type", "b MAP<INT, INT>"),
        (f"CREATE TABLE t (a INT, b MAP<INT, INT>) WITH ({FILES} = 'json')", Role.SOURCE, "json-map-key", "b MAP<INT, INT>"),
        (f"CREATE TABLE t (a INT, b INT) WITH ({FILES} = 'raw')", Role.SOURCE, "raw-columns", "t"),
        (f"CREATE TABLE t (a DATE) WITH ({FILES} = 'raw')", Role.SOURCE, "raw-type", "a DATE"),
        (f"CREATE TABLE t (a INT, b ARRAY<INT>) PARTITIONED BY (b) WITH ({FILES} = 'json')", Role.SINK, "partition-type", "b ARRAY<INT>"),
        (f"CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ({FILES} = 'json')", Role.SINK, "no-column-left", "t"),
        (f"CREATE TABLE t (a INT, p STRING METADATA FROM 'file.path') WITH ({FILES} = 'json')", Role.SINK, "read-only-metadata",
         "p STRING METADATA FROM 'file.path'"),
        (f"CREATE TABLE t (a INT, p BIGINT METADATA FROM 'offset') WITH ({KAFKA})", Role.SINK, "read-only-metadata", "p BIGINT METADATA FROM 'offset'"),
    ],
)  # fmt: skip
def test_an_error_has_the_position_of_its_cause(ddl: str, role: Role, code: str, position: str) -> None:
    session = Session()
    list(session.run(ddl, "q.sql"))
    (entry,) = session.catalog.entries()
    assert isinstance(entry, CatalogTable)
    with pytest.raises(EverfoldError) as caught:
        open_table(entry.table, role)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert found.span is not None
    assert found.span.source == "q.sql"
    assert ddl[found.span.start : found.span.end] == position
