"""Declared tables and real ones: what does not fit is said before anything starts, all of it and by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from postgres import PASSWORD, Database
from unit.connectors.jdbc.bench import sink_of
from unit.connectors.tables import TableMaker, table

from everfold.connectors.registry import connector_of
from everfold.errors import ConnectorError
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    TINYINT,
    DataType,
    DecimalType,
    TimestampType,
    TimeType,
)


def refused(of: TableMaker, database: Database, *key: str, **options: str) -> list[str]:
    with pytest.raises(ConnectorError) as caught:
        sink_of(of, database, *key, **options).prepare()
    assert PASSWORD not in str(caught.value)
    return [
        f"{each.code}: {each.message}" + (f" [{each.help}]" if each.help else "") for each in caught.value.diagnostics
    ]


def test_all_that_does_not_fit(database: Database) -> None:
    database.run(
        "CREATE TABLE t (k text, n int, price numeric(10, 1), at timestamptz, made int GENERATED ALWAYS AS (n + 1) STORED,"
        " must int NOT NULL, may int NOT NULL DEFAULT 7)"
    )
    of = table("t", k=STRING, n=BIGINT, price=DecimalType(precision=10, scale=2), at=TIMESTAMP3, nam=STRING, made=INT)
    assert refused(of, database) == [
        "wrong-shape: table `t`: column `n` of `t` is integer: it does not take a BIGINT",
        "wrong-shape: table `t`: column `price` of `t` is numeric(10,1): it would round a DECIMAL(10, 2), or be too small for it",
        "wrong-shape: table `t`: column `at` of `t` is timestamp with time zone: it does not take a TIMESTAMP(3)",
        "wrong-shape: table `t`: `t` has no column `nam`",
        "wrong-shape: table `t`: column `made` of `t` is made by PostgreSQL and cannot be written",
        "wrong-shape: table `t`: column `must` of `t` is NOT NULL and gets no value [declare it, or give it a default]",
    ]


def test_a_primary_key_without_a_unique_constraint(database: Database) -> None:
    of = table("t", a=INT, b=INT)
    database.run("CREATE TABLE t (a int PRIMARY KEY, b int)")
    [said] = refused(of, database, "b")
    assert said == (
        'wrong-shape: table `t`: `t` has no unique constraint on the PRIMARY KEY (`b`) [ALTER TABLE "public"."t" ADD PRIMARY KEY ("b")]'
    )
    assert len(refused(of, database, "a", "b")) == 1
    database.run("CREATE UNIQUE INDEX ON t (b) WHERE a > 0")
    database.run("CREATE UNIQUE INDEX ON t ((b + 1))")
    database.run("ALTER TABLE t ADD UNIQUE (b) DEFERRABLE")
    assert len(refused(of, database, "b")) == 1
    database.run("CREATE UNIQUE INDEX ON t (b) INCLUDE (a)")
    sink_of(of, database, "b").prepare()
    database.run("CREATE VIEW v AS SELECT * FROM t")
    [said] = refused(of, database, "b", name="v")
    assert "`v` is no plain table" in said


def test_names(database: Database) -> None:
    database.run('CREATE SCHEMA "S x"; CREATE TABLE "S x"."T" (userid int, "A" int, a int); CREATE TABLE plain (x int)')
    of = table("t", userId=INT, A=INT)
    for name in ('"S x"."T"', "S x.T"):
        sink_of(of, database, name=name).prepare()
    sink_of(table("t", X=INT), database, name="PLAIN").prepare()  # as PostgreSQL itself takes a name without quotes
    assert refused(of, database, name='"PLAIN"') == [
        'no-such-table: table `t`: PostgreSQL has no table `"PLAIN"` [did you mean `plain`?]'
    ]
    assert "no table `T`" in refused(of, database, name="T")[0]
    hostile = "plain; DROP TABLE plain; --"
    assert "no-such-table" in refused(of, database, name=hostile)[0]
    assert database.run("SELECT count(*) FROM plain") == [(0,)]
    over_there = {"url": database.url + "?currentSchema=%22S%20x%22"}
    made = replace(of.with_options({**database.options("T"), **over_there}))
    assert [each.num_rows for each in connector_of(made).source(made).local(Path())] == [0]


def test_who_may_not(database: Database) -> None:
    database.run("CREATE TABLE t (a int PRIMARY KEY)")
    role = f"reader_{database.name}"
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD 'pw'")
    try:
        who = {"username": role, "password": "pw"}
        of = table("t", a=INT)
        assert refused(of, database, "a", **who) == ["jdbc-permission: table `t`: everfold may not INSERT on `t`"]
        database.run(f"GRANT ALL ON t TO {role}")
        [said] = refused(of, database, "a", **who)
        assert "everfold may not CREATE in schema `public`" in said
        database.run(f"CREATE SCHEMA mine AUTHORIZATION {role}")
        sink_of(of, database, "a", **who, sink__bookkeeping_schema="mine").prepare()
        assert "no schema `nowhere`" in refused(of, database, sink__bookkeeping_schema="nowhere")[0]
        assert refused(of, database, password="wrong", username=role) == [
            f'jdbc-refused: table `t`: PostgreSQL at 127.0.0.1:{database.server.port} says: password authentication failed for user "{role}"'
        ]
        gone = {"url": "jdbc:postgresql://127.0.0.1:1/x"}
        assert (
            "jdbc-unreachable: table `t`: PostgreSQL does not answer at 127.0.0.1:1" in refused(of, database, **gone)[0]
        )
    finally:
        database.run(f"DROP SCHEMA IF EXISTS mine; DROP OWNED BY {role}; DROP ROLE {role}")


SINKS: tuple[tuple[DataType, str, bool], ...] = (
    (BOOLEAN, "bool", True), (BOOLEAN, "int", False), (TINYINT, "int2", True), (SMALLINT, "int8", True), (INT, "int2", False), (INT, "numeric", True),
    (BIGINT, "numeric(18,0)", False), (BIGINT, "numeric(19,0)", True), (FLOAT, "float4", True), (DOUBLE, "float4", False), (FLOAT, "float8", True),
    (DOUBLE, "numeric", False), (DecimalType(precision=10, scale=2), "numeric", True), (DecimalType(precision=10, scale=2), "numeric(11,3)", True),
    (DecimalType(precision=10, scale=2), "numeric(10,3)", False), (DecimalType(precision=10, scale=2), "float8", False), (STRING, "text", True),
    (STRING, "varchar(2)", True), (STRING, "jsonb", True), (STRING, "uuid", True), (STRING, "bytea", False), (BYTES, "bytea", True), (BYTES, "text", False),
    (DATE, "date", True), (DATE, "timestamp", False), (TimeType(precision=3), "time", True), (TimeType(precision=3), "time(0)", False),
    (TIMESTAMP3, "timestamp(3)", True), (TIMESTAMP3, "timestamp(0)", False), (TimestampType(precision=9), "timestamp", True), (TIMESTAMP3, "timestamptz", False),
    (TIMESTAMP_LTZ3, "timestamptz", True), (TIMESTAMP_LTZ3, "timestamp", False),
)  # fmt: skip


def test_types_that_keep_every_value(database: Database) -> None:
    for at, (of, real, fits) in enumerate(SINKS):
        database.run(f"CREATE TABLE t{at} (x {real})")
        sink = sink_of(table("t", x=of), database, name=f"t{at}")
        if fits:
            sink.prepare()
        else:
            with pytest.raises(ConnectorError, match=f"column `x` of `t{at}` is"):
                sink.prepare()


def test_a_domain_and_an_enum(database: Database) -> None:
    database.run("CREATE TYPE mood AS ENUM ('ok', 'bad'); CREATE DOMAIN money2 AS numeric(10, 2) CHECK (VALUE > 0)")
    database.run("CREATE TABLE t (m mood, p money2)")
    sink_of(table("t", m=STRING, p=DecimalType(precision=10, scale=2)), database).prepare()
    assert "is money2" in refused(table("t", m=STRING, p=DecimalType(precision=10, scale=3)), database)[0]
