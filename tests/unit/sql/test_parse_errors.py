"""Errors in wrong or unsupported SQL: their messages and positions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everfold.errors import Diagnostic, SqlError, UnsupportedFeature
from everfold.sql.script import parse_script

WRONG = [
    # sql, line:column, message, help
    ("SELECT a FROM", "1:14", "expected a table's name, found the end of the script", None),
    ("SELECT a FROM;", "1:14", "expected a table's name, found `;`, the end of the statement", None),
    ("SELECT a,\n  FROM t", "2:3", "expected an expression, found `FROM`", "is there an extra comma before it?"),
    ("SELECT FROM t", "1:8", "expected an expression, found `FROM`", None),
    ("SELECT a FROM t WHERE", "1:22", "expected an expression, found the end of the script", None),
    ("SELECT a b c FROM t", "1:12", "expected `;` or the rest of the statement, found `c`", None),
    ("SELECT 1 SELECT 2", "1:10", "expected `;` or the rest of the statement, found `SELECT`", None),
    ("SELECT a FROM t ORDER a", "1:23", "expected `BY`, found `a`", None),
    ("SELECT (a + 1 FROM t", "1:15", "expected `)`, found `FROM`", None),
    ("SELECT a FROM t GROUP BY a,", "1:28", "expected an expression, found the end of the script", "is there an extra comma before it?"),
    ("SELECT COUNT(a FROM t", "1:16", "expected `)`, found `FROM`", None),
    ("SELECT a FROM t LIMIT x", "1:23", "expected a whole number, found `x`", None),
    ("SELECT a FROM t LIMIT 1, 2", "1:24", "expected `;` or the rest of the statement, found `,`", None),
    ("SELECT a AS order FROM t", "1:13", "expected a column's name, found `order`", "to use `order` as a name, put it in backticks"),
    ("SELECT a::INT FROM t", "1:9", "expected `;` or the rest of the statement, found `:`", "write CAST(x AS INT)"),
    ("SELECT a FROM t WHERE (a ILIKE 'x')", "1:26", "expected `)`, found `ILIKE`", "write LOWER(x) LIKE 'a%'"),
    ("SELECT a FROM t MINUS SELECT a FROM u", "1:17", "expected `;` or the rest of the statement, found `MINUS`", "write EXCEPT"),
    ("CREATE TABLE t (a ARRAY)", "1:24", "expected `<`, found `)`", "specify the element type: ARRAY<INT>"),
    ("CREATE TABLE t (a ARRAY<>)", "1:24", "expected `<`, found `<>`", "specify the element type: ARRAY<INT>"),
    ("CREATE TABLE t (a MAP<STRING>)", "1:29", "expected `,`, found `>`", "specify the types of keys and values: MAP<STRING, INT>"),
    ("CREATE TABLE t (a MULTISET)", "1:27", "expected `<`, found `)`", "specify the element type: MULTISET<STRING>"),
    ("SELECT CAST(a AS ROW) FROM t", "1:21", "expected `<`, found `)`", "specify the name and type of each field: ROW<id INT, name STRING>"),
    ("CREATE OR t", "1:11", "expected `REPLACE` or `ALTER`, found `t`", None),
    ("COMMIT", "1:1", "expected a statement, found `COMMIT`", "statements begin with SELECT, WITH, VALUES, INSERT, CREATE, DROP, SET, RESET, SHOW, DESCRIBE, DESC, EXPLAIN, EXECUTE, BEGIN, USE or STOP"),
    ("SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '0' MINUTES ,", "1:69", "expected an expression, found the end of the script", "is there an extra comma before it?"),
    ("SELECT CASE a END", "1:15", "expected `WHEN`, found `END`", None),
    ("SELECT a FROM t JOIN u", "1:23", "expected `ON` or `USING`, found the end of the script", None),
    ("SELECT a FORM t", "1:10", "unexpected `FORM`", "did you mean `FROM`?"),
    ("SELECT a FROM (SELECT a FORM t)", "1:25", "unexpected `FORM`", "did you mean `FROM`?"),
    ("SELECT a AS b FORM t", "1:15", "expected `;` or the rest of the statement, found `FORM`", "did you mean `FROM`?"),
    ("SELECT a FROM t GRUOP BY a", "1:17", "unexpected `GRUOP`", "did you mean `GROUP`?"),
    ("SELECT a FROM t WEHRE (a > 1)", "1:17", "unexpected `WEHRE`", "did you mean `WHERE`?"),
    ("SELECT a FROM t AS u WEHRE (a > 1)", "1:22", "expected `;` or the rest of the statement, found `WEHRE`", "did you mean `WHERE`?"),
    ("SELECT a FROM t LEFT JION u", "1:22", "expected `JOIN`, found `JION`", "did you mean `JOIN`?"),
    ("SELECT a SUM(b) FROM t", "1:10", "unexpected `(` after the alias `SUM`", "is a comma missing before `SUM`?"),
    ("SELECT a b c FROM t", "1:12", "expected `;` or the rest of the statement, found `c`", None),
    ("SELECT INTERVAL '1' FORTNIGHT", "1:21", "expected a unit of time (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND), found `FORTNIGHT`", None),
    ("SELECT EXTRACT(DAYS FROM ts)", "1:16", "expected a unit of time (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, …), found `DAYS`", "did you mean `DAY`?"),
    ("SELECT MAP['a']", "1:15", "expected `,` and the value of the last key, found `]`", None),
    ("SELECT a FROM a.b.c.d", "1:15", "a table's name has at most three parts: catalog, database, name", None),
    ("SELECT JSON_VALUE(a, 'x' NULL ON EMPTY NULL ON EMPTY)", "1:48", "expected `)`: ON EMPTY is specified twice, found `EMPTY`", None),
    ("SELECT 'abc", "1:8", "unterminated string literal", None),
    ("SELECT 'it''s", "1:8", "unterminated string literal", None),
    ("SELECT a,\n  `b FROM t", "2:3", "unterminated name: the closing backtick is missing", None),
    ("SELECT a /* b", "1:10", "unterminated comment: the closing `*/` is missing", None),
    ("SELECT a FROM t /*+ OPTIONS('a' = 'b')", "1:17", "unterminated hint: the closing `*/` is missing", None),
    ("SELECT U&'abc", "1:8", "unterminated string literal", None),
    ("SELECT a FROM ``", "1:15", "expected a table's name, found ``", "a name has at least one character"),
    ('SELECT "a" FROM t', "1:8", 'double quotes are not supported', "put strings in single quotes ('a') and names in backticks (`a`)"),
    ("SELECT ${x}", "1:8", "a variable can only be used inside a string literal", "`${name}` is replaced in the strings of WITH (…), OPTIONS (…) and SET"),
    ("SELECT a ? b", "1:10", "unexpected character `?`", None),
    ("SELECT 1a FROM t", "1:8", "a name does not start with a digit", "put it into backticks"),
    ("SELCT a FROM t", "1:1", "expected a statement, found `SELCT`", "did you mean `SELECT`?"),
    ("'SELECT'", "1:1", "expected a statement, found the string 'SELECT'", None),
    ("SET k = 'v'", "1:5", "expected an option's name, in single quotes, found `k`", "write SET 'key' = 'value'"),
    ("SET 'k' = v", "1:11", "expected the option's value, in single quotes, found `v`", None),
    ("CREATE TABLE t (a INT", "1:22", "expected `,` or `)`, found the end of the script", None),
    ("CREATE TABLE t (a INT b INT)", "1:23", "expected `,` or `)`, found `b`", None),
    ("CREATE TABLE t (a INT,)", "1:23", "expected a column, found `)`", "is there an extra comma before it?"),
    ("CREATE TABLE t ()", "1:17", "expected a column, found `)`", None),
    ("CREATE TABLE t (a INT) WITH ('x' = 1)", "1:36", "expected the option's value, in single quotes, found the number 1", None),
    ("CREATE TABLE t (a INT) WITH ('x', 'y')", "1:33", "expected `=`, found `,`", None),
    ("CREATE TABLE t (a INT) WITH (...)", "1:30", "expected an option's name, in single quotes, found `.`", None),
    ("CREATE TABLE t (a INT, WATERMARK FOR a AS a, WATERMARK FOR a AS a)", "1:46", "the table has two watermarks", "a table has at most one WATERMARK"),
    ("CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED)", "1:49", "the table has two primary keys", "list the columns in one: PRIMARY KEY (a, b) NOT ENFORCED"),
    ("INSERT INTO s", "1:14", "expected a query (SELECT, VALUES or WITH), found the end of the script", None),
    ("EXECUTE STATEMENT SET BEGIN END", "1:29", "expected `INSERT`: a statement set contains only INSERTs, found `END`", None),
    ("EXECUTE STATEMENT SET BEGIN INSERT INTO s SELECT 1; SELECT 2; END", "1:53", "expected `INSERT` or `END`, found `SELECT`", None),
    ("SELECT * FROM TUMBLE(Bid, DESCRIPTOR(ts), INTERVAL '1' DAY)", "1:22", "expected `TABLE` and a table's name, found `Bid`", "write TUMBLE(TABLE t, DESCRIPTOR(ts), …)"),
    ("SELECT * FROM TUMBLE(TABLE Bid, ts, INTERVAL '1' DAY)", "1:33", "expected `DESCRIPTOR` and the time column, found `ts`", "write TUMBLE(TABLE t, DESCRIPTOR(ts), …)"),
    ("SELECT * FROM HOP(TABLE Bid, DESCRIPTOR(ts), INTERVAL '1' DAY)", "1:62", "HOP lacks its argument SIZE", "write HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES, INTERVAL '10' MINUTES)"),
    ("SELECT * FROM TUMBLE(DATA => TABLE b, SIZ => INTERVAL '1' DAY)", "1:39", "TUMBLE has no argument `SIZ`: it takes DATA, TIMECOL, SIZE and OFFSET", "did you mean `SIZE`?"),
    ("SELECT * FROM TUMBLE(DATA => TABLE b, DESCRIPTOR(ts))", "1:39", "expected a named argument, found `DESCRIPTOR`", "name either all arguments or none"),
    ("SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), SIZE => INTERVAL '1' DAY)", "1:47", "expected an argument without a name, found `SIZE`", "name either all arguments or none"),
    ("SELECT * FROM SESSION(TABLE b, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '1' DAY)", "1:66", "expected `)`: SESSION takes DATA, TIMECOL and GAP, found `INTERVAL`", "is there an extra comma before it?"),
    ("SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts, ts), INTERVAL '1' DAY)", "1:44", "expected `)`: a window has one time column, found `,`", None),
    ("SELECT * FROM TUMBLE(DATA => TABLE b, DATA => TABLE b)", "1:39", "TUMBLE has the argument DATA twice", None),
    ("SELECT * FROM TUMBLE(TABLE (SELECT 1), DESCRIPTOR(ts), INTERVAL '1' DAY)", "1:28", "expected a table's name, found `(`", None),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "position", "message", "help_text"), WRONG)
def test_wrong_syntax_is_reported(sql: str, position: str, message: str, help_text: str | None) -> None:
    with pytest.raises(SqlError) as error:
        parse_script(sql, "q.sql")
    (found,) = error.value.diagnostics
    assert found.span is not None
    assert (found.code, found.message, found.help) == ("syntax", message, help_text)
    assert f"{found.span.line}:{found.span.column}" == position
    assert f"--> q.sql:{position}\n" in found.render()


@pytest.mark.parametrize(
    ("sql", "code", "position", "message", "help_text"),
    [
        ("SELECT * FROM TUMBEL(TABLE b, DESCRIPTOR(ts), INTERVAL '1' DAY)", "unknown-function", "1:15", "no table function is named `TUMBEL`", "did you mean `TUMBLE`?"),
        ("SELECT * FROM TABLE(sesion(DATA => TABLE b PARTITION BY k))", "unknown-function", "1:21", "no table function is named `sesion`", "did you mean `SESSION`?"),
        (r"SELECT U&'\d83d'", "wrong-literal", "1:8", r"an unpaired UTF-16 surrogate (\d800 to \dfff) is not a character", r"write the pair: U&'\d83d\de00'"),
        (r"SELECT E'\ud83d'", "wrong-literal", "1:8", r"an unpaired UTF-16 surrogate (\d800 to \dfff) is not a character", r"write the pair: U&'\d83d\de00'"),
        ("SELECT '\ud83d'", "wrong-literal", "1:9", r"an unpaired UTF-16 surrogate (\d800 to \dfff) is not a character", r"write the pair: U&'\d83d\de00'"),
        ("SELECT 1" + "0" * 1000, "wrong-literal", "1:8", "a number has at most 1000 characters", None),
        ("SELECT a FROM t LIMIT 2147483648", "wrong-literal", "1:23", "LIMIT and OFFSET are at most 2147483647", None),
    ],
)  # fmt: skip
def test_other_errors_have_their_own_code(
    sql: str, code: str, position: str, message: str, help_text: str | None
) -> None:
    with pytest.raises(SqlError) as error:
        parse_script(sql)
    (found,) = error.value.diagnostics
    assert (found.code, found.message, found.help) == (code, message, help_text)
    assert found.span is not None
    assert f"{found.span.line}:{found.span.column}" == position


REFUSED = [
    ("ALTER TABLE t RENAME TO u", "unsupported-statement", "ALTER TABLE is not supported", "ALTER TABLE"),
    ("USE MODULES a", "unsupported-statement", "USE MODULES is not supported", "USE MODULES"),
    ("LOAD MODULE hive", "unsupported-statement", "LOAD MODULE is not supported", "LOAD MODULE"),
    ("ANALYZE TABLE t COMPUTE STATISTICS", "unsupported-statement", "ANALYZE TABLE is not supported", "ANALYZE TABLE"),
    ("ADD JAR 'x'", "unsupported-statement", "ADD JAR is not supported", "ADD JAR"),
    ("DELETE FROM t", "unsupported-statement", "DELETE is not supported", "DELETE"),
    ("UPDATE t SET a = 1", "unsupported-statement", "UPDATE is not supported", "UPDATE"),
    ("CREATE CATALOG c WITH ('type' = 'x')", "unsupported-statement", "CREATE CATALOG is not supported", "CREATE CATALOG"),
    ("CREATE DATABASE d", "unsupported-statement", "CREATE DATABASE is not supported", "CREATE DATABASE"),
    ("CREATE OR REPLACE TABLE t (a INT)", "unsupported-statement", "CREATE OR REPLACE is not supported", "CREATE OR REPLACE"),
    ("CREATE MATERIALIZED TABLE t AS SELECT 1", "unsupported-statement", "CREATE MATERIALIZED TABLE is not supported", "CREATE MATERIALIZED TABLE"),
    ("DROP DATABASE d", "unsupported-statement", "DROP DATABASE is not supported", "DROP DATABASE"),
    ("SHOW PROCEDURES", "unsupported-statement", "SHOW PROCEDURES is not supported", "SHOW PROCEDURES"),
    ("DESCRIBE CATALOG c", "unsupported-statement", "DESCRIBE CATALOG is not supported", "DESCRIBE CATALOG"),
    (
        "EXPLAIN CREATE TABLE t (a INT)",
        "unsupported-statement",
        "EXPLAIN of a CREATE statement without a job is not supported",
        "EXPLAIN CREATE TABLE t (a INT)",
    ),
    ("EXECUTE PLAN 'x'", "unsupported-statement", "EXECUTE PLAN is not supported", "EXECUTE PLAN"),
    ("CREATE TABLE t (a INT) DISTRIBUTED BY HASH(a)", "unsupported-clause", "DISTRIBUTED is not supported", "DISTRIBUTED"),
    ("CREATE TABLE t (a INT, UNIQUE (a))", "unsupported-clause", "UNIQUE is not supported", "UNIQUE"),
    (
        "CREATE TABLE t (a INT PRIMARY KEY)",
        "unsupported-clause",
        "an enforced PRIMARY KEY is not supported: everfold does not own the data and cannot check it",
        "PRIMARY KEY",
    ),
    (
        "CREATE TABLE t (a INT, PRIMARY KEY (a) ENFORCED)",
        "unsupported-clause",
        "an enforced PRIMARY KEY is not supported: everfold does not own the data and cannot check it",
        "PRIMARY KEY (a) ENFORCED",
    ),
    ("INSERT INTO t PARTITION (a = 1) SELECT 1", "unsupported-clause", "INSERT … PARTITION (…) is not supported", "PARTITION"),
    ("INSERT INTO t /*+ OPTIONS('a' = 'b') */ SELECT 1", "unsupported-clause", "a hint after the target of INSERT is not supported", "/*+ OPTIONS('a' = 'b') */"),
    ("WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x", "unsupported-clause", "WITH RECURSIVE is not supported", "WITH RECURSIVE"),
    ("SELECT a FROM t GROUP BY DISTINCT a", "unsupported-clause", "GROUP BY DISTINCT is not supported", "GROUP BY DISTINCT"),
    ("SELECT * FROM (a JOIN b ON TRUE)", "unsupported-clause", "a join or a table in parentheses is not supported", "("),
    ("SELECT * FROM a LEFT SEMI JOIN b ON TRUE", "unsupported-clause", "LEFT SEMI JOIN is not supported", "LEFT SEMI"),
    ("SELECT * FROM a, b RIGHT JOIN c ON TRUE", "unsupported-clause", "RIGHT JOIN after a comma is not supported", "RIGHT JOIN"),
    ("SELECT * FROM t MATCH_RECOGNIZE (ORDER BY a)", "unsupported-clause", "MATCH_RECOGNIZE is not supported", "MATCH_RECOGNIZE"),
    ("SELECT * FROM t TABLESAMPLE BERNOULLI (10)", "unsupported-clause", "TABLESAMPLE is not supported", "TABLESAMPLE"),
    ("SELECT ARRAY(SELECT 1)", "unsupported-clause", "ARRAY(…) is not supported", "ARRAY"),
    ("SELECT INTERVAL x DAY FROM t", "unsupported-clause", "an interval of a column is not supported", "INTERVAL x DAY"),
    ("SELECT SUM(a) OVER (ORDER BY b ROWS 1 PRECEDING EXCLUDE TIES)", "unsupported-clause", "EXCLUDE in a window is not supported", "EXCLUDE"),
    ("SELECT TIMESTAMP '2020-01-01 00:00:00.1234567'", "timestamp-precision", "7 digits of a second are not supported: everfold keeps microseconds", "TIMESTAMP '2020-01-01 00:00:00.1234567'"),
    ("SELECT * FROM TUMBLE(TABLE b PARTITION BY a, DESCRIPTOR(ts), INTERVAL '1' DAY)", "unsupported-clause", "PARTITION BY in TUMBLE is not supported", "PARTITION BY"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "code", "message", "position"), REFUSED)
def test_unsupported_syntax_is_refused(sql: str, code: str, message: str, position: str) -> None:
    with pytest.raises(UnsupportedFeature) as error:
        parse_script(sql)
    (found,) = error.value.diagnostics
    assert (found.code, found.message) == (code, message)
    assert found.span is not None
    assert sql[found.span.start : found.span.end] == position


@pytest.mark.parametrize(
    ("sql", "help_text"),
    [
        ("SELECT * FROM t PIVOT (SUM(v) FOR k IN ('a'))", "SUM(x) FILTER"),
        ("SELECT * FROM t UNPIVOT (x FOR y IN (v))", "UNNEST"),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A B))", "SESSION"),
        ("SELECT * FROM t TABLESAMPLE BERNOULLI (10)", "RAND()"),
        ("SELECT CAST(a AS VARIANT) FROM t", "STRING"),
        ("SELECT MULTISET[1]", "ARRAY"),
        ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "levels"),
        ("MERGE INTO s USING t ON TRUE", "INSERT INTO"),
        ("UPDATE s SET v = 1", "INSERT INTO"),
        ("DELETE FROM s", "INSERT INTO"),
        ("TRUNCATE TABLE s", "INSERT INTO"),
        ("ALTER TABLE t ADD x INT", "edit its CREATE statement"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "leave it out"),
        ("CREATE CATALOG c", "default_catalog"),
        ("CREATE DATABASE IF NOT EXISTS d", "default_database"),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1", "CREATE TABLE"),
        ("CREATE MODEL m", "CREATE TABLE"),
        ("DROP DATABASE d", "default_database"),
        ("DROP MODEL m", "leave it out"),
        ("USE MODULES a", "leave it out"),
        ("LOAD MODULE hive", "leave it out"),
        ("UNLOAD MODULE hive", "leave it out"),
        ("ADD JAR 'a.jar'", "leave it out"),
        ("REMOVE JAR 'a.jar'", "leave it out"),
        ("DESCRIBE DATABASE d", "a table or view"),
        ("COMPILE PLAN 'p' FOR INSERT INTO s SELECT 1", "run the statement"),
        ("EXECUTE PLAN 'p'", "run the statement"),
        ("CALL p(1)", "procedures"),
        ("QUIT", "leave it out"),
    ],
)  # fmt: skip
def test_a_refusal_suggests_an_alternative(sql: str, help_text: str) -> None:
    with pytest.raises(UnsupportedFeature) as error:
        parse_script(sql)
    (found,) = error.value.diagnostics
    assert found.span is not None
    assert found.help is not None
    assert help_text in found.help


def test_a_construct_is_named_by_its_keywords_only() -> None:
    for sql, words in (("SHOW PARTITIONS t", "SHOW PARTITIONS"), ("SHOW CREATE CATALOG c", "SHOW CREATE CATALOG")):
        found = find_error(sql)
        assert found is not None
        assert found.message == f"{words} is not supported"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
        "SELECT " + "(" * 10_000,
        "SELECT " + "f(" * 10_000 + "1" + ")" * 10_000,
        "SELECT " + "-(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "- " * 10_000 + "1",
        "SELECT " + "NOT " * 10_000 + "TRUE",
        "SELECT " + "CASE WHEN " * 5_000,
        "SELECT " + "a[" * 5_000 + "1" + "]" * 5_000,
        "SELECT 1" + " + 1" * 10_000,
        "SELECT a" + ".b" * 3 + "[1]" * 10_000,
        "SELECT 1" + " UNION ALL SELECT 1" * 10_000,
        "(" * 10_000 + "SELECT 1" + ")" * 10_000,
        "SELECT * FROM (" * 5_000 + "SELECT 1" + ")" * 5_000,
        "SELECT * FROM t WHERE a IN (" * 2_000 + "1",
        "SELECT CAST(a AS " + "ARRAY<" * 10_000 + "INT" + ">" * 10_000 + ")",
        "CREATE TABLE t (a " + "ROW<b " * 10_000,
        "WITH x AS (" * 5_000 + "SELECT 1",
    ],
    ids=lambda sql: sql[:24],
)
def test_deep_nesting_is_refused(sql: str) -> None:
    with pytest.raises(SqlError) as error:
        parse_script(sql)
    assert error.value.code == "too-deep"
    assert error.value.diagnostics[0].span is not None


def test_a_long_flat_script_is_parsed() -> None:
    values = ", ".join(f"({number}, 'x')" for number in range(20_000))
    assert len(parse_script(f"INSERT INTO t VALUES {values}")) == 1


PIECES = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT UNION ALL JOIN ON AS AND OR NOT IN IS NULL BETWEEN LIKE CASE WHEN THEN ELSE END
CREATE TABLE VIEW INSERT INTO VALUES WITH SET EXPLAIN EXECUTE STATEMENT BEGIN TUMBLE SESSION DESCRIPTOR PARTITION OVER ROWS
CAST INT ARRAY ROW MAP INTERVAL DAY TIMESTAMP EXTRACT TRIM JSON_VALUE JSON_OBJECT KEY UNNEST LATERAL WATERMARK FOR PRIMARY
( ) ( ) [ ] , , . ; + - * / = < > => <> || a b t f 1 1.5 'x' `q` '1' x'0a' /*+ */ U&'\\0041' ${v} ' ` /*
"""


def find_error(sql: str) -> Diagnostic | None:
    """Return the first error of a script, or None."""
    try:
        parse_script(sql)
    except SqlError as error:
        return error.diagnostics[0]
    return None


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES.split()), max_size=25).map(" ".join))
def test_any_words_parse_or_fail_with_a_position(sql: str) -> None:
    found = find_error(sql)
    if found is not None:
        assert found.span is not None
        assert 0 <= found.span.start <= found.span.end <= len(sql)
        assert found.render()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_characters_parse_or_fail_with_a_position(text: str) -> None:
    found = find_error(f"SELECT {text}")
    assert found is None or found.span is not None
