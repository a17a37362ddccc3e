"""The style of formatted scripts, and the place of their comments."""

from __future__ import annotations

import pytest

from everfold.errors import SqlError
from everfold.sql.formatting import format_script

STYLE = [
    ("select a,b from t where a>1;", "SELECT a, b\nFROM t\nWHERE a > 1;\n"),
    (
        "create table t(a int,b decimal(10,2)) with('connector'='print');",
        "CREATE TABLE t (a INT, b DECIMAL(10, 2)) WITH ('connector' = 'print');\n",
    ),
    (
        "create table orders(customer string not null, price int, ts timestamp(3)) with ('connector'='filesystem','path'='in')",
        (
            "CREATE TABLE orders (\n  customer STRING NOT NULL,\n  price INT,\n  ts TIMESTAMP(3)\n) WITH (\n"
            "  'connector' = 'filesystem',\n  'path' = 'in'\n)\n"
        ),
    ),
    ("insert into t(a) select sum(x) from u group by k", "INSERT INTO t (a)\nSELECT SUM(x)\nFROM u\nGROUP BY k\n"),
    ("select - -1, -a, a - -1, x[1], t.*", "SELECT - -1, -a, a - -1, x[1], t.*\n"),
    ("select cast(a as row<x int,y map<string,int>>)", "SELECT CAST(a AS ROW<x INT, y MAP<STRING, INT>>)\n"),
    ("select `from`, Value, my_udf(a), left(a, 1) from T", "SELECT `from`, Value, my_udf(a), LEFT(a, 1)\nFROM T\n"),
    ("select 'a'\n  'b'", "SELECT 'a'\n  'b'\n"),
    (
        "select a from t left join u on t.a=u.a cross join unnest(x) as v(y)",
        "SELECT a\nFROM t\nLEFT JOIN u ON t.a = u.a\nCROSS JOIN UNNEST(x) AS v(y)\n",
    ),
    (
        "select a from (select a from t) where a in (1,2)",
        "SELECT a\nFROM (\n  SELECT a\n  FROM t\n)\nWHERE a IN (1, 2)\n",
    ),
    ("set 'a'='b';set 'c'='d';\n\n\n\nset 'e'='f';", "SET 'a' = 'b';\nSET 'c' = 'd';\n\nSET 'e' = 'f';\n"),
    (
        "execute statement set begin insert into a select 1; insert into b select 2; end;",
        "EXECUTE STATEMENT SET\nBEGIN\n  INSERT INTO a\n  SELECT 1;\n  INSERT INTO b\n  SELECT 2;\nEND;\n",
    ),
    (
        "explain json_execution_plan,changelog_mode create table u as select 1",
        "EXPLAIN JSON_EXECUTION_PLAN, CHANGELOG_MODE\nCREATE TABLE u AS\nSELECT 1\n",
    ),
    ("create view v as select 1", "CREATE VIEW v AS\nSELECT 1\n"),
    ("", ""),
]


@pytest.mark.parametrize(("script", "formatted"), STYLE)
def test_a_script_has_one_style(script: str, formatted: str) -> None:
    assert format_script(script) == formatted
    assert format_script(formatted) == formatted


def test_lenses_names_durations_and_options_are_unchanged() -> None:
    script = "set a.b-c = x y;insert into total.sums select stream sum(p) as s from gaming-s window by tumble 10m group by _key;"
    formatted = (
        "SET a.b-c = x y;\n\nINSERT INTO total.sums\nSELECT STREAM SUM(p) AS s\nFROM gaming-s\n"
        "WINDOW BY TUMBLE 10m\nGROUP BY _key;\n"
    )
    assert format_script(script, dialect="lenses") == formatted
    assert format_script(formatted, dialect="lenses") == formatted


def test_a_script_may_change_its_dialect() -> None:
    script = "select 1;\nset 'everfold.dialect'='lenses';\n-- topics\nset a.b=c;"
    assert format_script(script) == "SELECT 1;\nSET 'everfold.dialect' = 'lenses';\n\n-- topics\nSET a.b = c;\n"


def test_long_clauses_are_broken() -> None:
    formatted = format_script(
        "select customer_name, sum(price_of_the_order) as total_price, count(*) as number_of_orders, "
        "case when sum(price_of_the_order) > 1000000 then 'a very good customer' else 'a customer' end as kind "
        "from orders where customer_name is not null and price_of_the_order between 1 and 1000000 or shop = 'the first one'"
    )
    assert (
        formatted
        == """\
SELECT
  customer_name,
  SUM(price_of_the_order) AS total_price,
  COUNT(*) AS number_of_orders,
  CASE
    WHEN SUM(price_of_the_order) > 1000000 THEN 'a very good customer'
    ELSE 'a customer'
  END AS kind
FROM orders
WHERE customer_name IS NOT NULL
  AND price_of_the_order BETWEEN 1 AND 1000000
  OR shop = 'the first one'
"""
    )


COMMENTS = """\
-- What it does.

// The input:
CREATE TABLE t (
  a INT, -- the key
  -- the value
  b INT /* cents */
) WITH (
  'connector' = 'print'
);

/* A
   block. */
SELECT
  a, -- first
  b
-- from where
FROM t /* here */
WHERE a > 1; -- the end

-- Nothing follows.
"""


def test_comments_stay_in_place() -> None:
    assert format_script(COMMENTS) == COMMENTS


def test_a_comma_moves_before_the_comment_of_its_element() -> None:
    assert format_script("SELECT a -- first\n, b\nFROM t") == "SELECT\n  a, -- first\n  b\nFROM t\n"


def test_wrong_syntax_is_reported() -> None:
    with pytest.raises(SqlError, match="unexpected `FORM`"):
        format_script("SELECT a FORM t")
