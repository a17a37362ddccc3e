"""CREATE TABLE … LIKE, CREATE TABLE … AS, and SHOW with a pattern.

Source: Flink's documentation of CREATE TABLE and SHOW. What is refused is what Flink 2.3 refuses.
"""

from __future__ import annotations

import pytest

from everfold.errors import EverfoldError
from everfold.plan.nodes import Sink
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session, Show, Submit

BASE = """
CREATE TABLE base (
  id INT NOT NULL, name STRING COMMENT 'who', ts TIMESTAMP(3), total AS id + 1, off BIGINT METADATA FROM 'offset' VIRTUAL,
  PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) COMMENT 'the base' PARTITIONED BY (name) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');
CREATE TABLE plain (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = '/x');
CREATE VIEW v AS SELECT 1 AS a;
"""
TOPIC = ("connector", "kafka"), ("format", "json"), ("topic", "t")


def table(sql: str) -> CatalogTable:
    session = Session()
    list(session.run(BASE + sql))
    found = session.catalog.get(("d",))
    assert isinstance(found, CatalogTable)
    return found


def columns(of: CatalogTable) -> str:
    return " ".join(column.name for column in of.columns)


def test_like_copies_everything() -> None:
    found = table("CREATE TABLE d LIKE base")
    assert columns(found) == "id name ts total off"
    assert found.table.primary_key == ("id",)
    assert found.table.partition_keys == ("name",)
    assert found.watermark is not None
    assert found.watermark.text == "`ts` - INTERVAL '1' SECOND"
    assert found.table.options == TOPIC
    assert found.comment is None


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("CREATE TABLE d (extra INT, twice AS id * 2) LIKE base", "id name ts total off extra twice"),
        ("CREATE TABLE d LIKE base (EXCLUDING GENERATED)", "id name ts off"),
        ("CREATE TABLE d LIKE base (EXCLUDING METADATA EXCLUDING PARTITIONS)", "id name ts total"),
        ("CREATE TABLE d (total AS id + 2) LIKE base (OVERWRITING GENERATED)", "id name ts total off"),
        ("CREATE TABLE d (total AS id + 2) LIKE base (EXCLUDING GENERATED)", "id name ts off total"),
        (
            "CREATE TABLE d (off BIGINT METADATA FROM 'partition' VIRTUAL) LIKE base (OVERWRITING METADATA)",
            "id name ts total off",
        ),
        ("CREATE TABLE d LIKE base (EXCLUDING ALL)", "id name ts"),
        ("CREATE TABLE d (WATERMARK FOR ts AS ts, ts TIMESTAMP(3)) LIKE plain", "id name ts"),
    ],
)
def test_like_copies_columns(sql: str, names: str) -> None:
    assert columns(table(sql)) == names


def test_clauses_can_be_excluded_or_overwritten() -> None:
    bare = table("CREATE TABLE d LIKE base (EXCLUDING ALL INCLUDING WATERMARKS)")
    assert (bare.table.primary_key, bare.table.partition_keys, bare.table.options) == ((), (), ())
    assert bare.watermark is not None
    assert table("CREATE TABLE d LIKE base (EXCLUDING WATERMARKS)").watermark is None
    assert table("CREATE TABLE d LIKE base (EXCLUDING CONSTRAINTS)").table.primary_key == ()
    later = table("CREATE TABLE d (WATERMARK FOR ts AS ts) LIKE base (OVERWRITING WATERMARKS)")
    assert later.watermark is not None
    assert later.watermark.text == "`ts`"
    other = table("CREATE TABLE d PARTITIONED BY (id) LIKE base (EXCLUDING PARTITIONS)")
    assert other.table.partition_keys == ("id",)


def test_options_are_overwritten() -> None:
    changed = (("connector", "kafka"), ("format", "json"), ("topic", "u"))
    assert table("CREATE TABLE d WITH ('topic' = 'u') LIKE base").table.options == changed
    assert table("CREATE TABLE d WITH ('a' = 'b') LIKE base (EXCLUDING OPTIONS)").table.options == (("a", "b"),)
    more = table("CREATE TABLE d WITH ('a' = 'b') LIKE base (INCLUDING OPTIONS)").table.options
    assert more == (("a", "b"), *TOPIC)


def test_like_finds_a_table_of_an_earlier_script() -> None:
    session = Session()
    list(session.run(BASE))
    list(session.run("CREATE TABLE d LIKE base"))
    (action,) = session.run("SELECT total FROM d")
    assert isinstance(action, Submit)


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("CREATE TABLE d (id BIGINT) LIKE base", "like-conflict", "the column `id` already"),
        ("CREATE TABLE d (name STRING) LIKE plain (EXCLUDING ALL)", "like-conflict", "the column `name` already"),
        ("CREATE TABLE d (total AS id + 2) LIKE base", "like-conflict", "OVERWRITING GENERATED"),
        ("CREATE TABLE d (id AS 1) LIKE base (OVERWRITING GENERATED)", "like-conflict", "the column `id` already"),
        ("CREATE TABLE d (WATERMARK FOR ts AS ts) LIKE base", "like-conflict", "OVERWRITING WATERMARKS"),
        ("CREATE TABLE d (PRIMARY KEY (id) NOT ENFORCED) LIKE base", "like-conflict", "EXCLUDING CONSTRAINTS"),
        ("CREATE TABLE d PARTITIONED BY (id) LIKE base", "like-conflict", "EXCLUDING PARTITIONS"),
        ("CREATE TABLE d WITH ('path' = '/y') LIKE plain (INCLUDING OPTIONS)", "like-conflict", "the option `path`"),
        ("CREATE TABLE d LIKE base (OVERWRITING ALL)", "syntax", "ALL cannot be overwritten"),
        ("CREATE TABLE d LIKE base (OVERWRITING CONSTRAINTS)", "syntax", "CONSTRAINTS cannot be overwritten"),
        ("CREATE TABLE d LIKE base (EXCLUDING ALL INCLUDING ALL)", "syntax", "ALL is named twice"),
        ("CREATE TABLE d LIKE base (EXCLUDING KEYS)", "syntax", "expected"),
        ("CREATE TABLE d LIKE v", "not-a-table", "`v` is a view"),
        ("CREATE TABLE d LIKE nothing", "unknown-table", "`nothing`"),
        ("CREATE TABLE d (a, b)", "syntax", "expected"),
        ("CREATE TABLE d WITH ('a' = 'b')", "syntax", "expected `(`"),
        ("CREATE TEMPORARY TABLE d AS SELECT 1 AS a", "unsupported-clause", "CREATE TEMPORARY TABLE … AS"),
        ("CREATE TABLE plain AS SELECT 1 AS a", "table-exists", "`plain` exists already"),
        ("CREATE TABLE d (b) AS SELECT 1 AS a, 2 AS b", "column-count", "lists 1 columns"),
        ("CREATE TABLE d (b, c) AS SELECT 1 AS a, 2 AS b", "unknown-column", "no column `c`"),
        ("CREATE TABLE d (a AS 1) AS SELECT 1 AS a", "duplicate-column", "`a` is a column of the query"),
        ("CREATE TABLE d (a BOOLEAN) AS SELECT 1 AS a", "type-mismatch", "BOOLEAN"),
        ("SHOW TABLES FROM elsewhere", "unknown-database", "elsewhere"),
        ("SHOW COLUMNS FROM nothing", "unknown-table", "nothing"),
        ("SHOW TABLES LIKE base", "syntax", "the pattern"),
    ],
)
def test_wrong_statements_are_refused(sql: str, code: str, words: str) -> None:
    session = Session()
    with pytest.raises(EverfoldError) as caught:
        list(session.run(BASE + sql))
    found = caught.value.diagnostics[0]
    assert found.code == code
    assert words in f"{found.message} {found.help}"
    assert found.span is not None


# --- AS -------------------------------------------------------------------------------------------


def create(sql: str) -> tuple[CatalogTable, Submit]:
    session = Session()
    *_, action = session.run(BASE + sql)
    found = session.catalog.get(("d",))
    assert isinstance(found, CatalogTable)
    assert isinstance(action, Submit)
    return found, action


def test_create_table_as_creates_a_table_and_its_job() -> None:
    found, job = create(
        "CREATE TABLE d WITH ('connector' = 'print', 'x.password' = 'geheim') AS SELECT id, name FROM plain"
    )
    assert columns(found) == "id name"
    (sink,) = job.roots
    assert isinstance(sink, Sink)
    assert (sink.table.name, job.names) == ("d", ("d",))
    assert job.text == "SELECT id, name FROM plain"
    assert sink.input.schema.names == ("id", "name")


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("CREATE TABLE d (c INT, twice AS id * 2) AS SELECT id, name FROM plain", "c twice id name"),
        ("CREATE TABLE d (id BIGINT) AS SELECT id, name FROM plain", "id name"),
        ("CREATE TABLE d (name, id) AS SELECT id, name FROM plain", "name id"),
        ("CREATE TABLE d (PRIMARY KEY (id) NOT ENFORCED) AS SELECT id, name FROM base", "id name"),
    ],
)
def test_create_table_as_takes_columns_from_the_query(sql: str, names: str) -> None:
    found, job = create(sql)
    assert columns(found) == names
    assert [of.type.sql for of in found.columns if of.name == "id"] == ["BIGINT" if "BIGINT" in sql else "INT"]
    (sink,) = job.roots
    assert set(sink.input.schema.names) <= set(names.split())


def test_a_query_that_fails_leaves_no_table() -> None:
    session = Session()
    list(session.run(BASE))
    with pytest.raises(EverfoldError):
        list(session.run("CREATE TABLE d (a BOOLEAN) AS SELECT 1 AS a"))
    assert session.catalog.find(("d",)) is None


def test_create_table_as_if_not_exists_inserts_into_an_existing_table() -> None:
    session = Session()
    *_, action = session.run(BASE + "CREATE TABLE IF NOT EXISTS plain AS SELECT id, name FROM base")
    assert isinstance(action, Submit)
    assert action.names == ("plain",)


# --- SHOW -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SHOW TABLES", "base plain v"),
        ("SHOW TABLES LIKE 'b%'", "base"),
        ("SHOW TABLES NOT LIKE 'b%'", "plain v"),
        ("SHOW TABLES LIKE 'pla_n'", "plain"),
        ("SHOW TABLES LIKE 'pla\\_n'", ""),
        ("SHOW TABLES LIKE 'B%'", ""),
        ("SHOW TABLES ILIKE 'B%'", "base"),
        ("SHOW TABLES IN default_catalog.default_database LIKE '%a%'", "base plain"),
        ("SHOW VIEWS FROM default_database", "v"),
        ("SHOW VIEWS NOT LIKE 'v%'", ""),
        ("SHOW FUNCTIONS ILIKE 'CHAR_LENGTH'", "char_length"),
        ("SHOW USER FUNCTIONS LIKE '%'", ""),
        ("SHOW COLUMNS FROM base LIKE 't%'", "ts total"),
        ("SHOW COLUMNS IN base NOT LIKE '%t%'", "id name off"),
        ("SHOW COLUMNS FROM v", "a"),
    ],
)
def test_show_filters_names_by_pattern(sql: str, names: str) -> None:
    *_, action = Session().run(BASE + sql)
    assert isinstance(action, Show)
    assert " ".join(row[0] for row in action.rows) == names


def test_show_columns_has_the_columns_of_describe() -> None:
    *_, described, shown = Session().run(BASE + "DESCRIBE base; SHOW COLUMNS FROM base")
    assert shown == described
