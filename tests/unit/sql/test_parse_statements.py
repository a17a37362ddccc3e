"""Statements: the data that parsing returns."""

from __future__ import annotations

import pytest

from everfold.errors import Span
from everfold.sql.dialects.flink import parse_expression, parse_query
from everfold.sql.dialects.render import render
from everfold.sql.script import parse_script
from everfold.sql.statements import (
    ComputedColumn,
    CreateFunction,
    CreateTable,
    CreateView,
    Describe,
    DescribeJob,
    DropFunction,
    DropTable,
    DropView,
    Explain,
    Insert,
    KeyDef,
    MetadataColumn,
    NamePattern,
    OptionDef,
    PhysicalColumn,
    Query,
    ResetOption,
    SetOption,
    ShowCatalogs,
    ShowCreate,
    ShowCurrent,
    ShowDatabases,
    ShowFunctions,
    ShowJobs,
    ShowTables,
    ShowViews,
    Statement,
    StatementSet,
    StopJob,
    Use,
    WatermarkDef,
)
from everfold.types import BIGINT, INT, STRING, TIMESTAMP3, TIMESTAMP_LTZ3

AT = Span(0, 0)
SELECT = Query(query=parse_query("SELECT a FROM t"), text="SELECT a FROM t", span=AT)


def physical(name: str, type: object, comment: str | None = None) -> PhysicalColumn:
    return PhysicalColumn(name=name, type=type, comment=comment, type_span=AT, span=AT)  # type: ignore[arg-type]


def insert(target: str, **more: object) -> Insert:
    return Insert(target=(target,), query=SELECT.query, text=SELECT.text, target_span=AT, span=AT, **more)  # type: ignore[arg-type]


STATEMENTS: list[tuple[str, Statement]] = [
    ("SELECT a FROM t", SELECT),
    ("SET", SetOption(span=AT)),
    ("SET 'k' = 'v;${x}'", SetOption(key="k", value="v;${x}", span=AT)),
    ("reset", ResetOption(span=AT)),
    ("RESET 'k'", ResetOption(key="k", span=AT)),
    ("DROP TABLE a.b.c", DropTable(name=("a", "b", "c"), name_span=AT, span=AT)),
    ("DROP TEMPORARY TABLE IF EXISTS `a.b`", DropTable(name=("a.b",), temporary=True, if_exists=True, name_span=AT, span=AT)),
    ("DROP VIEW IF EXISTS v", DropView(name=("v",), if_exists=True, name_span=AT, span=AT)),
    ("DESCRIBE t", Describe(name=("t",), name_span=AT, span=AT)),
    ("desc EXTENDED db.t", Describe(name=("db", "t"), name_span=AT, span=AT)),
    ("SHOW TABLES", ShowTables(span=AT)),
    ("SHOW VIEWS", ShowViews(span=AT)),
    ("SHOW CREATE TABLE t", ShowCreate(kind="TABLE", name=("t",), name_span=AT, span=AT)),
    ("SHOW CREATE VIEW v", ShowCreate(kind="VIEW", name=("v",), name_span=AT, span=AT)),
    ("SHOW CATALOGS", ShowCatalogs(span=AT)),
    ("SHOW CATALOGS NOT LIKE 'a%'", ShowCatalogs(pattern=NamePattern(text="a%", negated=True), span=AT)),
    ("SHOW DATABASES IN c ILIKE 'd_'", ShowDatabases(catalog=("c",), pattern=NamePattern(text="d_", ignore_case=True), span=AT)),
    ("SHOW CURRENT CATALOG", ShowCurrent(kind="CATALOG", span=AT)),
    ("show current database", ShowCurrent(kind="DATABASE", span=AT)),
    ("USE CATALOG c", Use(kind="CATALOG", name=("c",), name_span=AT, span=AT)),
    ("USE c.d", Use(kind="DATABASE", name=("c", "d"), name_span=AT, span=AT)),
    ("USE catalog", Use(kind="DATABASE", name=("catalog",), name_span=AT, span=AT)),
    ("SHOW JOBS", ShowJobs(span=AT)),
    ("DESCRIBE JOB 'orders'", DescribeJob(job="orders", job_span=AT, span=AT)),
    ("DESC job", Describe(name=("job",), name_span=AT, span=AT)),
    ("STOP JOB 'orders'", StopJob(job="orders", job_span=AT, span=AT)),
    ("STOP JOB 'a' WITH SAVEPOINT WITH DRAIN", StopJob(job="a", savepoint=True, drain=True, job_span=AT, span=AT)),
    ("EXPLAIN SELECT a FROM t", Explain(statement=SELECT, span=AT)),
    ("EXPLAIN PLAN FOR SELECT a FROM t", Explain(statement=SELECT, span=AT)),
    (
        "EXPLAIN CHANGELOG_MODE, ESTIMATED_COST INSERT INTO s SELECT a FROM t",
        Explain(statement=insert("s"), details=("CHANGELOG_MODE", "ESTIMATED_COST"), span=AT),
    ),
    ("INSERT INTO s SELECT a FROM t", insert("s")),
    ("INSERT OVERWRITE s (a, `b`) (SELECT a FROM t)", insert("s", columns=("a", "b"), overwrite=True)),
    ("INSERT INTO s (SELECT a FROM t)", insert("s")),
    ("EXECUTE INSERT INTO s SELECT a FROM t", insert("s")),
    (
        "CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS f AS 'x.Y' LANGUAGE PYTHON",
        CreateFunction(
            name=("f",),
            identifier="x.Y",
            language="PYTHON",
            temporary=True,
            system=True,
            if_not_exists=True,
            name_span=AT,
            identifier_span=AT,
            span=AT,
        ),
    ),
    ("CREATE FUNCTION db.f AS 'x.Y'", CreateFunction(name=("db", "f"), identifier="x.Y", name_span=AT, identifier_span=AT, span=AT)),
    ("DROP TEMPORARY SYSTEM FUNCTION IF EXISTS f", DropFunction(name=("f",), temporary=True, system=True, if_exists=True, name_span=AT, span=AT)),
    ("DROP FUNCTION f", DropFunction(name=("f",), name_span=AT, span=AT)),
    ("SHOW USER FUNCTIONS", ShowFunctions(user=True, span=AT)),
    ("SHOW FUNCTIONS", ShowFunctions(span=AT)),
    (
        "CREATE VIEW v AS SELECT a FROM t",
        CreateView(name=("v",), query=SELECT.query, text=SELECT.text, name_span=AT, span=AT),
    ),
    (
        "CREATE TEMPORARY VIEW IF NOT EXISTS db.v (x COMMENT 'an x', y) COMMENT 'it''s' AS SELECT a FROM t",
        CreateView(
            name=("db", "v"),
            columns=("x", "y"),
            query=SELECT.query,
            text=SELECT.text,
            temporary=True,
            if_not_exists=True,
            comment="it's",
            name_span=AT,
            span=AT,
        ),
    ),
    ("CREATE TABLE t (a INT)", CreateTable(name=("t",), columns=(physical("a", INT),), name_span=AT, span=AT)),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), STATEMENTS)
def test_a_statement_is_parsed(sql: str, expected: Statement) -> None:
    (found,) = parse_script(f"\n -- a comment; with a semicolon\n  {sql} ;; /* ; */")
    if isinstance(found, Insert) and isinstance(expected, Insert):
        assert (found.target, found.columns, found.overwrite, found.query) == (
            expected.target,
            expected.columns,
            expected.overwrite,
            expected.query,
        )
    else:
        assert found == expected
    assert found.sql == sql


@pytest.mark.parametrize(
    "sql",
    [
        "EXECUTE STATEMENT SET BEGIN\n INSERT INTO s SELECT a FROM t;\n INSERT INTO u SELECT a FROM t;\nEND",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO s SELECT a FROM t; INSERT INTO u SELECT a FROM t END",
        "BEGIN STATEMENT SET; INSERT INTO s SELECT a FROM t; ; INSERT INTO u SELECT a FROM t; END",
    ],
)
def test_a_statement_set_is_parsed(sql: str) -> None:
    (found,) = parse_script(sql + ";")
    assert found == StatementSet(inserts=(insert("s"), insert("u")), span=AT)
    assert found.sql == sql
    assert isinstance(found, StatementSet)
    assert found.inserts[1].sql == "INSERT INTO u SELECT a FROM t"
    (explained,) = parse_script("EXPLAIN " + sql)
    assert explained == Explain(statement=found, span=AT)


TABLE = """CREATE TEMPORARY TABLE IF NOT EXISTS cat.db.orders (
  id         BIGINT NOT NULL COMMENT 'the key',  -- physical
  user       STRING,
  `the item` ROW<name STRING, price INT> NOT NULL,
  cost       AS `the item`.price * 2 COMMENT 'computed',
  proc       AS PROCTIME(),
  at         TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL COMMENT 'from Kafka',
  offset     BIGINT METADATA,
  ts         TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  CONSTRAINT pk PRIMARY KEY (id, `user`) NOT ENFORCED
) COMMENT 'all orders'
PARTITIONED BY (user, `the item`)
WITH ('connector' = 'kafka', 'properties.x' = '${env:X}''s')"""


def test_create_table_is_parsed() -> None:
    (found,) = parse_script(TABLE + ";", "orders.sql")
    assert isinstance(found, CreateTable)
    assert (found.name, found.temporary, found.if_not_exists) == (("cat", "db", "orders"), True, True)
    assert (found.comment, found.partitioned_by) == ("all orders", ("user", "the item"))
    assert found.primary_key == ("id", "user")
    assert found.key == KeyDef(columns=("id", "user"), name="pk", span=AT)
    key, user, item, cost, proc, at, offset, ts = found.columns
    assert key == physical("id", BIGINT.as_nullable(False), "the key")
    assert user == physical("user", STRING)
    assert isinstance(item, PhysicalColumn)
    assert str(item.type) == "ROW<`name` STRING, `price` INT> NOT NULL"
    assert cost == ComputedColumn(
        name="cost",
        expression=parse_expression("`the item`.price * 2"),
        text="`the item`.price * 2",
        comment="computed",
        span=AT,
    )
    assert isinstance(proc, ComputedColumn)
    assert proc.text == "PROCTIME()"
    assert at == MetadataColumn(
        name="at", type=TIMESTAMP_LTZ3, key="timestamp", virtual=True, comment="from Kafka", type_span=AT, span=AT
    )
    assert offset == MetadataColumn(name="offset", type=BIGINT, type_span=AT, span=AT)
    assert ts == physical("ts", TIMESTAMP3)
    watermark = found.watermark
    assert watermark == WatermarkDef(
        column=("ts",),
        expression=parse_expression("ts - INTERVAL '5' SECOND"),
        text="ts - INTERVAL '5' SECOND",
        column_span=AT,
        span=AT,
    )
    assert found.options == (
        OptionDef(key="connector", value="kafka", key_span=AT, value_span=AT, span=AT),
        OptionDef(key="properties.x", value="${env:X}'s", key_span=AT, value_span=AT, span=AT),
    )
    assert found.options[1].sql == "'properties.x' = '${env:X}''s'"
    span = found.options[1].value_span
    assert (span.text[span.start : span.end], span.line, span.source) == ("'${env:X}''s'", 14, "orders.sql")
    assert found.columns[3].sql == "cost       AS `the item`.price * 2 COMMENT 'computed'"
    assert watermark.sql == "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    assert found.sql == TABLE


def test_a_watermark_is_rendered_as_in_describe() -> None:
    (found,) = parse_script(
        "CREATE TABLE Bid (bidtime TIMESTAMP(3), WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND)"
    )
    assert isinstance(found, CreateTable)
    assert found.watermark is not None
    assert render(found.watermark.expression) == "`bidtime` - INTERVAL '1' SECOND"


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, b INT)",
        "CREATE TABLE t (id INT CONSTRAINT c PRIMARY KEY NOT ENFORCED, b INT)",
        "CREATE TABLE t (id INT, b INT, PRIMARY KEY (id) NOT ENFORCED)",
    ],
)
def test_a_primary_key_may_be_a_column_or_table_constraint(sql: str) -> None:
    (found,) = parse_script(sql)
    assert isinstance(found, CreateTable)
    assert found.primary_key == ("id",)
    assert [column.name for column in found.columns] == ["id", "b"]


def test_keywords_of_constraints_may_name_columns() -> None:
    (found,) = parse_script(
        "CREATE TABLE t (watermark INT, primary STRING, constraint INT, `UNIQUE` INT, metadata INT METADATA) WITH ()"
    )
    assert isinstance(found, CreateTable)
    assert [column.name for column in found.columns] == ["watermark", "primary", "constraint", "UNIQUE", "metadata"]


def test_equality_ignores_positions() -> None:
    first, second = parse_script("CREATE VIEW v AS SELECT a, `b`  FROM t;\n\nCREATE VIEW v AS SELECT a, `b`  FROM t")
    assert first == second
    assert (first.span.line, second.span.line) == (1, 3)


def test_option_values_stay_out_of_repr() -> None:
    (found,) = parse_script("CREATE TABLE t (a INT) WITH ('password' = 'secret')")
    assert "secret" not in repr(found)
    assert "secret" not in repr(parse_script("SET 'password' = 'secret'"))
