"""CREATE TABLE, CREATE VIEW, INSERT: what they declare, and which errors they report."""

from __future__ import annotations

import pytest

from everfold.errors import EverfoldError
from everfold.plan.expressions import Literal
from everfold.plan.nodes import Project, Scan, Sink, Values, WatermarkAssigner
from everfold.plan.walk import walk_plan
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session, Show, Submit


def table(ddl: str) -> CatalogTable:
    session = Session()
    list(session.run(ddl))
    (entry,) = session.catalog.entries()
    assert isinstance(entry, CatalogTable)
    return entry


def test_all_kinds_of_columns_are_declared() -> None:
    entry = table(
        """CREATE TABLE t (
             next AS id + 1, id INT, price DECIMAL(10, 2) NOT NULL COMMENT 'net', sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
             headers MAP<STRING, BYTES> METADATA, late AS sent - INTERVAL '1' SECOND,
             WATERMARK FOR late AS late - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED
           ) PARTITIONED BY (id) WITH ('connector' = 'kafka', 'topic' = 'x')"""
    )
    made = entry.table
    assert [(column.name, column.metadata_key, column.virtual) for column in made.columns] == [
        ("id", None, False),
        ("price", None, False),
        ("sent", "timestamp", True),
        ("headers", "headers", False),
    ]
    assert (made.primary_key, made.partition_keys, made.connector) == (("id",), ("id",), "kafka")
    assert str(made.columns[0].type) == "INT NOT NULL"
    assert [(field.name, field.time) for field in entry.schema] == [
        ("next", None),
        ("id", None),
        ("price", None),
        ("sent", None),
        ("headers", None),
        ("late", "rowtime"),
    ]
    assert [type(node) for node in walk_plan(entry.plan(streaming=True))] == [WatermarkAssigner, Project, Scan]
    assert [type(node) for node in walk_plan(entry.plan(streaming=False))] == [Project, Scan]


def test_a_plain_table_is_a_scan() -> None:
    assert isinstance(table("CREATE TABLE t (a INT)").plan(streaming=True), Scan)
    assert table("CREATE TABLE t (a INT)").table.connector is None


@pytest.mark.parametrize(
    ("ddl", "code", "line", "column", "words"),
    [
        ("CREATE TABLE t (a INT,\n a STRING)", "duplicate-column", 2, 2, "`a` is declared twice"),
        ("CREATE TABLE t (a INT, b AS c + 1)", "unknown-column", 1, 29, "`c`"),
        ("CREATE TABLE t (a INT, b AS a + 1, c AS b + 1)", "unknown-column", 1, 41, "but not other computed ones"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (z) NOT ENFORCED)", "unknown-column", 1, 24, "PRIMARY KEY names `z`"),
        ("CREATE TABLE t (a INT, b AS a, PRIMARY KEY (b) NOT ENFORCED)", "wrong-primary-key", 1, 32, "physical columns"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (z)", "unknown-column", 1, 14, "PARTITIONED BY names `z`"),
        ("CREATE TABLE t (a INT) WITH ('k' = '1', 'k' = '2')", "duplicate-option", 1, 41, "given twice"),
        ("CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR b AS a)", "unknown-column", 1, 47, "the watermark is for `b`"),
        ("CREATE TABLE t (a TIMESTAMP(6), WATERMARK FOR a AS a)", "wrong-watermark", 1, 47, "CAST(a AS TIMESTAMP(3))"),
        ("CREATE TABLE t (a STRING, WATERMARK FOR a AS a)", "wrong-watermark", 1, 41, "TO_TIMESTAMP(a)"),
        ("CREATE TABLE t (a TIMESTAMP(3), s STRING, WATERMARK FOR a AS s)", "wrong-watermark", 1, 62, "this is STRING"),
        (
            "CREATE TABLE t (a TIMESTAMP(3), s TIMESTAMP_LTZ(3), WATERMARK FOR a AS s)", "wrong-watermark", 1, 72,
            "must be of the same kind",
        ),
        ("CREATE TABLE t (r ROW<a TIMESTAMP(3)>, WATERMARK FOR r.a AS r.a)", "nested-rowtime", 1, 54, "computed column: ts AS r.a"),
        ("CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS b)", "unknown-column", 1, 52, "`b`"),
        ("CREATE TABLE other.t (a INT)", "unknown-database", 1, 14, "default_catalog.default_database"),
        ("CREATE TABLE t (a INT);\nCREATE TABLE t (a INT)", "table-exists", 2, 14, "exists already"),
        ("CREATE TABLE t (a INT);\nCREATE VIEW t AS SELECT 1 AS x", "table-exists", 2, 13, "a table named `t`"),
        ("CREATE TABLE t (a INT);\nCREATE VIEW v AS SELECT a, a FROM t", "duplicate-column", 2, 18, "`a`"),
        ("CREATE TABLE t (a INT);\nCREATE VIEW v (p) AS SELECT a, a FROM t", "column-count", 2, 13, "names 1 columns"),
        ("CREATE VIEW v AS SELECT a FROM nowhere", "unknown-table", 1, 32, "`nowhere`"),
        ("CREATE VIEW v AS SELECT NULL AS x", "untyped-null", 1, 25, "type"),
        ("CREATE TABLE t (a INT) WITH ('k' = '${nobody}')", "unknown-variable", 1, 36, "nobody"),
    ],
)  # fmt: skip
def test_wrong_declarations_are_refused(ddl: str, code: str, line: int, column: int, words: str) -> None:
    with pytest.raises(EverfoldError) as caught:
        list(Session().run(ddl))
    found = caught.value.diagnostics[0]
    assert found.span is not None
    assert (found.code, found.span.line, found.span.column) == (code, line, column), str(caught.value)
    assert words in f"{found.message} / {found.help}"


def test_all_errors_of_a_table_are_reported_together() -> None:
    with pytest.raises(EverfoldError) as caught:
        list(Session().run("CREATE TABLE t (a INT, a INT, PRIMARY KEY (z) NOT ENFORCED) PARTITIONED BY (y)"))
    assert [found.code for found in caught.value.diagnostics] == [
        "unknown-column",
        "duplicate-column",
        "unknown-column",
    ]


# --- INSERT ---------------------------------------------------------------------------------------

TABLES = """
CREATE TABLE t (a INT, b BIGINT, c STRING);
CREATE TABLE s (b BIGINT, z DOUBLE, at TIMESTAMP(3) METADATA VIRTUAL, k AS b + 1, a STRING, key BYTES METADATA);
CREATE TABLE strict (a INT NOT NULL, b INT);
CREATE VIEW v AS SELECT a FROM t;
"""


def sink(sql: str) -> Sink:
    session = Session()
    list(session.run(TABLES))
    *_, action = session.run(sql)
    assert isinstance(action, Submit)
    (root,) = action.roots
    assert isinstance(root, Sink)
    return root


def test_an_insert_has_the_columns_of_the_table() -> None:
    made = sink("INSERT INTO s SELECT a, 1.5, c, CAST(c AS BYTES) FROM t")
    assert [(field.name, field.type.sql) for field in made.input.schema] == [
        ("b", "BIGINT"),
        ("z", "DOUBLE"),
        ("a", "STRING"),
        ("key", "BYTES"),
    ]


def test_columns_that_are_not_listed_are_null() -> None:
    made = sink("INSERT INTO s (a, b) VALUES ('x', 1), ('yy', 2)")
    assert isinstance(made.input, Project)
    assert isinstance(made.input.input, Values)
    z = made.input.expressions[1]
    assert isinstance(z, Literal)
    assert (z.value, z.type.sql) == (None, "DOUBLE")
    assert made.input.schema.names == ("b", "z", "a", "key")


def test_matching_types_are_not_cast() -> None:
    assert isinstance(sink("INSERT INTO t SELECT * FROM t").input, Scan)


@pytest.mark.parametrize(
    ("sql", "code", "column", "words"),
    [
        (
            "INSERT INTO t SELECT c, b, c FROM t",
            "type-mismatch",
            22,
            "`a`, of `t` is INT, and the query returns STRING",
        ),
        ("INSERT INTO t SELECT b, b, c FROM t", "type-mismatch", 22, "CAST(… AS INT)"),
        ("INSERT INTO t SELECT a, b, a FROM t", "type-mismatch", 28, "the query returns INT"),
        ("INSERT INTO t SELECT a, b FROM t", "column-count", 15, "takes 3"),
        ("INSERT INTO t (a, nope) SELECT a, b FROM t", "unknown-column", 13, "has no column `nope`"),
        ("INSERT INTO t (a, a) SELECT a, a FROM t", "duplicate-column", 13, "listed twice"),
        ("INSERT INTO s (k) SELECT b FROM t", "unknown-column", 13, "cannot be written"),
        ("INSERT INTO s (at) SELECT b FROM t", "unknown-column", 13, "cannot be written"),
        ("INSERT INTO strict (b) SELECT a FROM t", "missing-column", 13, "NOT NULL"),
        ("INSERT INTO nowhere SELECT a FROM t", "unknown-table", 13, "`nowhere`"),
        ("INSERT INTO v SELECT a FROM t", "not-a-table", 13, "a view cannot be written"),
        ("INSERT OVERWRITE t SELECT a, b, c FROM t", "insert-overwrite", 18, "not supported in streaming"),
        ("INSERT INTO t SELECT nope, b, c FROM t", "unknown-column", 22, "`nope`"),
    ],
)
def test_wrong_inserts_are_refused(sql: str, code: str, column: int, words: str) -> None:
    with pytest.raises(EverfoldError) as caught:
        sink(sql)
    found = caught.value.diagnostics[0]
    assert found.span is not None
    assert (found.code, found.span.column) == (code, column), str(caught.value)
    assert words in f"{found.message} / {found.help}"


def test_variables_in_an_options_hint_are_replaced() -> None:
    session = Session(variables={"here": "/data"}, environment={"FORMAT": "json"})
    *_, read, through_view = session.run(
        """CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '/nowhere');
           CREATE VIEW v AS SELECT * FROM t /*+ OPTIONS('path' = '${here}/v') */;
           SELECT * FROM t /*+ OPTIONS('path' = '${here}', 'format' = '${env:FORMAT}') */;
           SELECT * FROM v"""
    )
    assert isinstance(read, Submit)
    assert isinstance(through_view, Submit)
    assert dict(read.sources[0].options) == {"connector": "filesystem", "format": "json", "path": "/data"}
    assert dict(through_view.sources[0].options)["path"] == "/data/v"


def test_show_create_view_keeps_variables_of_an_options_hint() -> None:
    session = Session(variables={"here": "/data"})
    *_, shown = session.run(
        """CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '/nowhere');
           CREATE VIEW v AS SELECT * FROM t /*+ OPTIONS('path' = '${here}') */;
           SHOW CREATE VIEW v"""
    )
    assert isinstance(shown, Show)
    assert "${here}" in shown.rows[0][0]


def test_current_time_functions_are_never_null() -> None:
    # DESCRIBE in Flink 2.3: FALSE for each of them
    entry = table(
        """CREATE TABLE t (a AS PROCTIME(), b AS NOW(), c AS CURRENT_TIMESTAMP, d AS LOCALTIMESTAMP, e AS CURRENT_DATE, f AS CURRENT_TIME, x INT)"""
    )
    assert [field.type.nullable for field in entry.schema] == [False] * 6 + [True]
