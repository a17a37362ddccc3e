"""Parsing Lenses SQL: statements, names with special characters, durations, positions of errors."""

from __future__ import annotations

from typing import Any

import pytest

from everfold.errors import SqlError, UnsupportedFeature
from everfold.secrets import redact_script
from everfold.sql import syntax
from everfold.sql.dialects.flink import parse_expression
from everfold.sql.dialects.lenses import parse_statements
from everfold.sql.formatting.script import is_same
from everfold.sql.script import parse_script
from everfold.sql.statements import CreateTable, CreateView, Explain, Insert, Query, SetOption
from everfold.sql.syntax import TopicQuery
from everfold.types import BIGINT, INT, STRING, RowField, RowType


def parse_one(text: str) -> Any:
    (statement,) = parse_statements(text)
    return statement


def parse_topic_query(text: str) -> TopicQuery:
    statement = parse_one(text)
    assert isinstance(statement, Insert | Query)
    assert isinstance(statement.query, TopicQuery)
    return statement.query


def expect_error(text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse_statements(text)
    return caught.value


def test_the_insert_of_the_seed_is_parsed() -> None:
    text = """
INSERT INTO target-topic
    COUNT(*) AS records,
FROM input-topic
GROUP BY field1 AS keep_me;
"""
    statement = parse_one(text)
    assert isinstance(statement, Insert)
    assert statement.target == ("target-topic",)
    assert statement.query == parse_topic_query(
        "INSERT INTO target-topic SELECT COUNT(*) AS records FROM `input-topic` GROUP BY field1 AS keep_me"
    )
    assert isinstance(statement.query, TopicQuery)
    assert statement.query.kind is None
    assert statement.text.startswith("COUNT(*)")


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("COUNT(*) AS n FROM s GROUP BY a", "SELECT COUNT(*) AS n FROM s GROUP BY a"),
        ("a, COUNT(*) AS n, FROM s GROUP BY a", "SELECT a, COUNT(*) AS n FROM s GROUP BY a"),
        ("'x' AS x, COUNT(*) AS n FROM s GROUP BY 'x'", "SELECT 'x' AS x, COUNT(*) AS n FROM s GROUP BY 'x'"),
        ("TABLE SUM(p) AS n FROM a-b GROUP BY a", "SELECT TABLE SUM(p) AS n FROM `a-b` GROUP BY a"),
        ("INSERT INTO t STREAM SUM(p) AS n FROM s GROUP BY a", "INSERT INTO t SELECT STREAM SUM(p) AS n FROM s GROUP BY a"),
        ("INSERT INTO t stream, a FROM s", "INSERT INTO t SELECT `stream`, a FROM s"),
        ("WITH n AS (COUNT(*) AS n FROM s GROUP BY a)", "WITH n AS (SELECT COUNT(*) AS n FROM s GROUP BY a)"),
        ("EXPLAIN TABLE COUNT(*) AS n FROM s GROUP BY a", "EXPLAIN SELECT TABLE COUNT(*) AS n FROM s GROUP BY a"),
    ],
)  # fmt: skip
def test_select_may_be_left_out(text: str, full: str) -> None:
    assert is_same(parse_statements(text), parse_statements(full))


def test_a_query_with_every_clause_is_parsed() -> None:
    found = parse_topic_query(
        "SELECT STREAM SUM(a) AS x, b FROM t AS u EVENTTIME BY c.d WHERE e WINDOW BY HOP 1h 5m GRACE BY 250ms GROUP BY b, f AS g HAVING x > 1"
    )
    assert found.kind == "STREAM"
    assert found.source_name == "u"
    assert [each.target and each.target.names for each in found.items] == [("x",), None]
    assert found.eventtime is not None
    assert found.eventtime.names == ("c", "d")
    assert found.window is not None
    assert found.window.kind == "HOP"
    assert [each.ms for each in found.window.sizes] == [3_600_000, 300_000]
    assert found.window.grace is not None
    assert found.window.grace.ms == 250
    assert [each.alias and each.alias.name for each in found.group] == [None, "g"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1ms", 1), ("2s", 2000), ("3m", 180_000), ("4h", 14_400_000), ("5d", 432_000_000), ("6H", 21_600_000)],
)
def test_durations_are_parsed(text: str, ms: int) -> None:
    window = parse_topic_query(f"SELECT STREAM COUNT(*) AS n FROM t WINDOW BY TUMBLE {text} GROUP BY a").window
    assert window is not None
    assert [each.ms for each in window.sizes] == [ms]


@pytest.mark.parametrize("text", ["1w", "10", "1h30m", "1.5h"])
def test_wrong_durations_are_refused(text: str) -> None:
    error = expect_error(f"SELECT STREAM COUNT(*) AS n FROM t WINDOW BY TUMBLE {text} GROUP BY a")
    assert error.code in ("wrong-duration", "syntax")
    assert error.diagnostics[0].span is not None


@pytest.mark.parametrize(
    "name", ["orders", "gaming-sessions", "orders.v1", "a-b.c_d-2", "2024-orders", "orders-2a", "t.1.2", "from-here"]
)
def test_topic_names_may_have_special_characters(name: str) -> None:
    for written in (name, f"`{name}`"):
        found = parse_topic_query(
            f"INSERT INTO {written} SELECT COUNT({written}._key.a) AS n FROM {written} GROUP BY b"
        )
        assert found.source.name == name
        (path,) = syntax.find_all(found.items[0].value, syntax.ColumnPath)
        assert path.names == (name, "_key", "a")


def test_a_hyphen_outside_of_a_topic_name_is_a_minus() -> None:
    found = parse_topic_query("SELECT STREAM SUM(a-b) AS n, SUM(x-y.z) AS m FROM x-y GROUP BY c")
    first, second = (next(syntax.children(each.value)) for each in found.items)
    assert first == syntax.BinaryOperation("-", parse_expression("a"), parse_expression("b"))
    assert second == parse_expression("`x-y`.z")


def test_a_topic_is_declared() -> None:
    statement = parse_one("CREATE TABLE a-b(_key.x STRING, _key.y INT, n LONG, r ROW<c INT>) FORMAT (AVRO, json)")
    assert isinstance(statement, CreateTable)
    assert statement.name == ("a-b",)
    of = {column.name: column.type for column in statement.columns}  # type: ignore[union-attr]
    assert of["_key"] == RowType(fields=(RowField(name="x", type=STRING), RowField(name="y", type=INT)))
    assert of["n"] == BIGINT
    assert list(of)[-3:] == ["_meta.timestamp", "_meta.offset", "_meta.partition"]
    assert {option.key: option.value for option in statement.options} == {"key.format": "avro", "value.format": "json"}


def test_primitive_formats_set_the_types_of_key_and_value() -> None:
    statement = parse_one("CREATE TABLE t(_value INT) FORMAT (LONG, INT)")
    of = {column.name: column.type for column in statement.columns}
    assert of["_key"] == BIGINT
    assert of["_value"] == INT


@pytest.mark.parametrize(
    ("columns", "formats", "code"),
    [
        ("_key INT, a INT", "STRING, JSON", "wrong-format"),
        ("_key STRING, _key.a INT, b INT", "JSON, JSON", "wrong-format"),
        ("a INT", "JSON, JSON", "wrong-format"),
        ("_key STRING", "STRING, JSON", "wrong-format"),
        ("_key STRING, a INT", "STRING, INT", "wrong-format"),
        ("_key STRING, a.b INT", "STRING, JSON", "wrong-field"),
        ("_key.a.b INT, a INT", "JSON, JSON", "wrong-field"),
        ("_key STRING, _key STRING, a INT", "STRING, JSON", "wrong-format"),
        ("_key STRING, a INT, _value INT", "STRING, JSON", "wrong-format"),
        ("_key STRING, _meta.x INT", "STRING, JSON", "wrong-field"),
        ("_key STRING, a INT", "STRING, XML", "unknown-format"),
        ("_key STRING, a INTT", "STRING, JSON", "unknown-type"),
    ],
)
def test_wrong_declarations_are_refused(columns: str, formats: str, code: str) -> None:
    error = expect_error(f"CREATE TABLE t({columns}) FORMAT ({formats})")
    assert error.code == code
    assert error.diagnostics[0].help


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("SET defaults.topic.autocreate = true", "defaults.topic.autocreate", "true"),
        ("SET defaults.topic.autocreate=true;", "defaults.topic.autocreate", "true"),
        ("SET topic.a-b.partitions = 3", "topic.a-b.partitions", "3"),
        ("SET topic.`a b`.cleanup.policy = 'compact,delete'", "topic.a b.cleanup.policy", "compact,delete"),
        ("SET 'everfold.dialect' = 'flink'", "everfold.dialect", "flink"),
    ],
)
def test_set_is_parsed(text: str, key: str, value: str) -> None:
    statement = parse_one(text)
    assert isinstance(statement, SetOption)
    assert (statement.key, statement.value) == (key, value)


def test_with_and_explain_are_parsed() -> None:
    named, explained = parse_statements(
        "WITH a-b AS (SELECT STREAM * FROM t); EXPLAIN INSERT INTO u COUNT(*) AS n FROM a-b GROUP BY c"
    )
    assert isinstance(named, CreateView)
    assert named.name == ("a-b",)
    assert named.temporary
    assert isinstance(explained, Explain)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("INSERT INTO t SELECT STREAM COUNT(*) AS n GROUP BY a", "expected `FROM`"),
        ("INSERT t SELECT STREAM COUNT(*) AS n FROM s GROUP BY a", "expected `INTO`"),
        ("INSERT INTO t- SELECT STREAM COUNT(*) AS n FROM s GROUP BY a", "ends with `-` or `.`"),
        ("SELECT STREAM COUNT(*) AS n FROM s GROUP BY a LIMIT 3", "LIMIT is not supported"),
        ("SELECT STREAM COUNT(*) AS n FROM s WINDOW BY CUMULATE 3m GROUP BY a", "`TUMBLE` or `HOP` or `SESSION`"),
        ("SELECT STREAM COUNT(*) AS n FROM s WINDOW BY HOP 3m GROUP BY a", "the hop of HOP, which is a duration"),
        ("SELECT STREAM COUNT(*) AS n FROM s EVENTTIME BY a + 1 GROUP BY a", "the rest of the statement"),
        ("SELECT STREAM a IN (SELECT 1) AS n FROM s GROUP BY a", "expected an expression"),
        ("SELECT STREAM EXISTS (SELECT 1) AS n FROM s GROUP BY a", "a query within a query"),
        ("WITH a AS SELECT STREAM * FROM t", "expected `(`"),
        ("SET a.b", "expected `=`"),
        ("SET a.b =", "the option's value"),
        ("SELEKT STREAM a FROM t", "did you mean `SELECT`?"),
        ("SELEKT STREAM COUNT(*) AS n FROM t GROUP BY a", "did you mean `SELECT`?"),
        ("INSRT INTO t SELECT STREAM COUNT(*) AS n FROM s GROUP BY a", "did you mean `INSERT`?"),
        ("DELETE FROM t WHERE a > 1", "expected a statement"),
        ("CREATE TABLE t(a INT)", "expected `FORMAT`"),
    ],
)
def test_invalid_lenses_sql_is_refused(text: str, words: str) -> None:
    assert words in str(expect_error(text))


def test_a_script_can_change_its_dialect() -> None:
    text = """SET 'everfold.dialect' = 'lenses';
SELECT STREAM COUNT(*) AS n FROM a-b WINDOW BY TUMBLE 1h GROUP BY c;
-- SET 'everfold.dialect' = 'nothing';
SET everfold.dialect = flink;
SELECT 'SET ''everfold.dialect'' = ''lenses''' FROM t;
"""
    _, lenses, _, flink = parse_script(text)
    assert isinstance(lenses, Query)
    assert isinstance(lenses.query, TopicQuery)
    assert isinstance(flink, Query)
    assert not isinstance(flink.query, TopicQuery)
    assert flink.span.line == 5
    assert flink.sql.startswith("SELECT 'SET")


def test_positions_refer_to_the_whole_script() -> None:
    text = "SET 'everfold.dialect' = 'lenses';\nSELECT STREAM COUNT(*) AS n\nFROM t GROUP a;"
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert (span.line, span.column) == (3, 8)


def test_names_in_flink_sql_do_not_start_with_a_digit() -> None:
    with pytest.raises(SqlError, match="a name does not start with a digit"):
        parse_script("SELECT 1a FROM t")


def test_secrets_without_quotes_are_redacted() -> None:
    text = "SET defaults.topic.properties.sasl.password = hush hush;\nSET a.token='x';\nSET a.b = c"
    assert redact_script(text) == (
        "SET defaults.topic.properties.sasl.password = *********;\nSET a.token='*';\nSET a.b = c"
    )


@pytest.mark.parametrize("join", ["INNER JOIN", "LEFT OUTER JOIN", "JOIN", ","])
def test_joins_are_refused(join: str) -> None:
    with pytest.raises(UnsupportedFeature) as error:
        parse_statements(f"INSERT INTO a SELECT STREAM x FROM b {join} c ON b._key = c._key")
    (found,) = error.value.diagnostics
    assert found.message == "joins are not supported in Lenses SQL"
    assert found.span is not None
    assert found.span.text[found.span.start : found.span.end] == join
