"""Declarations of tables with the connector `jdbc`: URLs, names and options, without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.jdbc.address import name_parts, parse_url
from everfold.connectors.registry import connector_of
from everfold.errors import SqlError
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.types import INT, STRING, TIMESTAMP3, ArrayType

URL = "jdbc:postgresql://localhost/db"
BASE = {"connector": "jdbc", "url": URL, "table-name": "t"}


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("jdbc:postgresql:", {"host": "localhost", "port": "5432"}),
        ("jdbc:postgresql:db", {"host": "localhost", "port": "5432", "dbname": "db"}),
        ("jdbc:postgresql://h/", {"host": "h", "port": "5432"}),
        ("jdbc:postgresql://h:7/a%20b", {"host": "h", "port": "7", "dbname": "a b"}),
        ("jdbc:postgresql://a,b:7/db", {"host": "a,b", "port": "5432,7", "dbname": "db"}),
        ("jdbc:postgresql://[::1]:7/db", {"host": "::1", "port": "7", "dbname": "db"}),
        ("jdbc:postgresql://h/d?user=u&ssl=true", {"host": "h", "port": "5432", "dbname": "d", "user": "u", "sslmode": "verify-full"}),
        ("jdbc:postgresql://h/d?sslmode=require&ssl=true&ApplicationName=x", {"host": "h", "port": "5432", "dbname": "d", "sslmode": "require", "application_name": "x"}),
        ("jdbc:postgresql://h/d?targetServerType=primary", {"host": "h", "port": "5432", "dbname": "d", "target_session_attrs": "primary"}),
    ],
)  # fmt: skip
def test_urls_are_parsed(url: str, settings: dict[str, str]) -> None:
    assert parse_url(url).settings == settings


def test_a_url_may_have_a_search_path_and_unused_settings() -> None:
    found = parse_url("jdbc:postgresql://h/d?currentSchema=a,b&reWriteBatchedInserts=true")
    assert (found.search_path, found.unused, found.servers) == ("a,b", ("reWriteBatchedInserts",), "h:5432")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"url": None}, "missing-option", "needs option `url`"),
        ({"table-name": None}, "missing-option", "needs option `table-name`"),
        ({"url": "jdbc:mysql://h/db"}, "wrong-option-value", "other databases are not supported yet"),
        ({"url": "jdbc:postgresql://h:x/db"}, "wrong-option-value", "its port is not a number"),
        ({"url": "jdbc:postgresql://canary:canary@h/db"}, "wrong-option-value", "options `username` and `password`"),
        ({"url": URL + "?password=canary"}, "wrong-option-value", "use the option `password`"),
        ({"password": "canary"}, "missing-option", "needs option `username`"),
        ({"table-name": "a.b.c"}, "wrong-option-value", "`name` or `schema.name`"),
        ({"table-name": ""}, "wrong-option-value", "`name` or `schema.name`"),
        ({"table-name": '"a'}, "wrong-option-value", "`name` or `schema.name`"),
        ({"table-name": "a\0"}, "wrong-option-value", "`name` or `schema.name`"),
        ({"scan.partition.column": "a"}, "missing-option", "needs option `scan.partition.num`, as `scan.partition.column` is set"),
        ({"scan.partition.column": "s", "scan.partition.num": "2", "scan.partition.lower-bound": "0", "scan.partition.upper-bound": "9"}, "wrong-option-value", "not an integer column"),
        ({"scan.partition.column": "a", "scan.partition.num": "2", "scan.partition.lower-bound": "10", "scan.partition.upper-bound": "9"}, "wrong-option-value", "is above"),
        ({"scan.partition.column": "a", "scan.partition.num": "0", "scan.partition.lower-bound": "1", "scan.partition.upper-bound": "9"}, "wrong-option-value", "must be at least 1"),
        ({"sink.max-retries": "-1"}, "wrong-option-value", "must be at least 0"),
        ({"lookup.cache": "SOME"}, "wrong-option-value", "`NONE`, `PARTIAL` or `FULL`"),
        ({"tabel-name": "x"}, "unknown-option", "did you mean `table-name`?"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused(options: dict[str, str | None], code: str, words: str) -> None:
    options_of_table = {key: value for key, value in {**BASE, **options}.items() if value is not None}
    of = table("t", a=INT, s=STRING).with_options(options_of_table)
    with pytest.raises(SqlError) as caught:
        connector_of(of).check(of, Role.SOURCE)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert "canary" not in "".join(each.message + str(each.help) for each in caught.value.diagnostics)


def test_options_of_flink_without_meaning_are_accepted_with_a_note() -> None:
    options_of_table = {
        **BASE,
        "url": URL + "?prepareThreshold=0",
        "driver": "org.postgresql.Driver",
        "sink.buffer-flush.max-rows": "500",
        "scan.fetch-size": "10",
    }
    of = table("t", a=INT).with_options(options_of_table)
    notes = connector_of(of).check(of, Role.SINK).notes
    assert [note.split(": ", 1)[1] for note in notes] == [
        "option `driver` has no meaning here: PostgreSQL's own client library is used",
        "option `scan.fetch-size` has no meaning here: rows are emitted as they are read",
        "option `sink.buffer-flush.max-rows` has no meaning here: a batch is written as a whole",
        "`prepareThreshold` of the `url` has no meaning here",
    ]


def test_a_type_without_a_postgres_equivalent_is_refused() -> None:
    of = table("t", a=ArrayType(element=INT)).with_options(BASE)
    with pytest.raises(SqlError, match="no type for column `a`, which is ARRAY<INT>"):
        connector_of(of).check(of, Role.SINK)


def test_names_are_parsed_as_names_and_never_as_sql() -> None:
    of = table("t", at=TIMESTAMP3).with_options(BASE)
    assert name_parts(of, "s.t") == (("s", False), ("t", False))
    assert name_parts(of, '"S"."a.""b"') == (("S", True), ('a."b', True))
    assert name_parts(of, "a.b; DROP TABLE x --") == (("a", False), ("b; DROP TABLE x --", False))


def test_a_table_with_a_primary_key_accepts_upserts() -> None:
    of: Table = table("t", a=INT).with_options(BASE)
    assert connector_of(of).accepted_changelog(of) is ChangelogMode.INSERT_ONLY
    of = replace(of, primary_key=("a",))
    assert connector_of(of).accepted_changelog(of) is ChangelogMode.UPSERT
    assert connector_of(of).changelog(of) is ChangelogMode.INSERT_ONLY
