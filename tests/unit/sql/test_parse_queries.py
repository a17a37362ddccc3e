"""Queries, shown as their canonical string, which must parse to the same tree."""

from __future__ import annotations

import pytest

from everfold.sql import syntax
from everfold.sql.dialects.flink import parse_query
from everfold.sql.dialects.render import render

CANONICAL = [
    ("SELECT 1", "SELECT 1"),
    ("SELECT ALL a, t.*, * FROM t", "SELECT `a`, `t`.*, * FROM `t`"),
    ("SELECT */* all of them */ FROM t -- and more", "SELECT * FROM `t`"),
    ("SELECT DISTINCT a b, c AS user FROM t", "SELECT DISTINCT `a` AS `b`, `c` AS `user` FROM `t`"),
    ("SELECT a AS value, count(*) count FROM c.d.t AS x (a, b)", "SELECT `a` AS `value`, COUNT(*) AS `count` FROM `c`.`d`.`t` AS `x` (`a`, `b`)"),
    ("SELECT user, SUM(amount) FROM Orders GROUP BY user", "SELECT `user`, SUM(`amount`) FROM `Orders` GROUP BY `user`"),
    ("SELECT a FROM (SELECT b AS a FROM t) s", "SELECT `a` FROM (SELECT `b` AS `a` FROM `t`) AS `s`"),
    ("WITH x AS (SELECT 1 AS a), y (b) AS (SELECT a FROM x) SELECT * FROM y", "WITH `x` AS (SELECT 1 AS `a`), `y` (`b`) AS (SELECT `a` FROM `x`) SELECT * FROM `y`"),
    ("SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x)", "SELECT * FROM (WITH `x` AS (SELECT 1) SELECT * FROM `x`)"),
    ("TABLE t", "SELECT * FROM `t`"),
    ("SELECT * FROM (TABLE t)", "SELECT * FROM (SELECT * FROM `t`)"),
    # grouping
    ("SELECT a FROM t WHERE b > 1 GROUP BY a, c / 2 HAVING COUNT(*) > 1", "SELECT `a` FROM `t` WHERE `b` > 1 GROUP BY `a`, `c` / 2 HAVING COUNT(*) > 1"),
    ("SELECT 1 FROM t GROUP BY GROUPING SETS ((a, b), (a), b, ())", "SELECT 1 FROM `t` GROUP BY GROUPING SETS ((`a`, `b`), (`a`), (`b`), ())"),
    ("SELECT 1 FROM t GROUP BY a, ROLLUP (b, (c, d)), CUBE(e)", "SELECT 1 FROM `t` GROUP BY `a`, ROLLUP (`b`, (`c`, `d`)), CUBE (`e`)"),
    ("SELECT 1 FROM t GROUP BY (a, b), ()", "SELECT 1 FROM `t` GROUP BY (`a`, `b`), ()"),
    # set operations
    ("SELECT 1 UNION ALL SELECT 2 UNION SELECT 3", "SELECT 1 UNION ALL SELECT 2 UNION SELECT 3"),
    ("SELECT 1 UNION ALL (SELECT 2 UNION SELECT 3)", "SELECT 1 UNION ALL (SELECT 2 UNION SELECT 3)"),
    ("SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 3", "SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 3"),
    ("(SELECT 1 UNION ALL SELECT 2) EXCEPT ALL SELECT 3", "SELECT 1 UNION ALL SELECT 2 EXCEPT ALL SELECT 3"),
    ("(SELECT 1 UNION ALL SELECT 2) INTERSECT SELECT 3", "(SELECT 1 UNION ALL SELECT 2) INTERSECT SELECT 3"),
    ("(SELECT 1 LIMIT 1) UNION ALL (SELECT 2) ORDER BY 1", "(SELECT 1 LIMIT 1) UNION ALL SELECT 2 ORDER BY 1"),
    ("(SELECT 1 LIMIT 1)", "SELECT 1 LIMIT 1"),
    ("((SELECT 1))", "SELECT 1"),
    ("(SELECT a FROM t ORDER BY a LIMIT 5) ORDER BY b LIMIT 1", "(SELECT `a` FROM `t` ORDER BY `a` LIMIT 5) ORDER BY `b` LIMIT 1"),
    # VALUES
    ("VALUES (1, 'a'), (2, 'b')", "VALUES (1, 'a'), (2, 'b')"),
    ("VALUES 1, (2), ROW(3)", "VALUES (1), (2), (3)"),
    ("VALUES (1 + 1) * 2, ((SELECT 1))", "VALUES ((1 + 1) * 2), ((SELECT 1))"),
    ("SELECT * FROM (VALUES (1, 'a')) AS t (x, y)", "SELECT * FROM (VALUES (1, 'a')) AS `t` (`x`, `y`)"),
    # ORDER BY, LIMIT
    ("SELECT a FROM t ORDER BY a DESC NULLS LAST, b ASC LIMIT 5 OFFSET 2", "SELECT `a` FROM `t` ORDER BY `a` DESC NULLS LAST, `b` LIMIT 5 OFFSET 2 ROWS"),
    ("SELECT a FROM t OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY", "SELECT `a` FROM `t` LIMIT 2 OFFSET 1 ROWS"),
    ("SELECT a FROM t FETCH FIRST ROW ONLY", "SELECT `a` FROM `t` LIMIT 1"),
    ("SELECT a FROM t LIMIT ALL", "SELECT `a` FROM `t`"),
    # joins
    ("SELECT * FROM a, b AS c", "SELECT * FROM `a`, `b` AS `c`"),
    ("SELECT * FROM a JOIN b ON a.x = b.x", "SELECT * FROM `a` JOIN `b` ON `a`.`x` = `b`.`x`"),
    ("SELECT * FROM a LEFT OUTER JOIN b USING (x, y)", "SELECT * FROM `a` LEFT JOIN `b` USING (`x`, `y`)"),
    ("SELECT * FROM a RIGHT JOIN b ON TRUE FULL JOIN c ON TRUE", "SELECT * FROM `a` RIGHT JOIN `b` ON TRUE FULL JOIN `c` ON TRUE"),
    ("SELECT * FROM a INNER JOIN b ON TRUE CROSS JOIN c NATURAL LEFT JOIN d", "SELECT * FROM `a` JOIN `b` ON TRUE CROSS JOIN `c` NATURAL LEFT JOIN `d`"),
    (
        "SELECT * FROM o JOIN r FOR SYSTEM_TIME AS OF o.ts AS x ON o.c = x.c",
        "SELECT * FROM `o` JOIN `r` FOR SYSTEM_TIME AS OF `o`.`ts` AS `x` ON `o`.`c` = `x`.`c`",
    ),
    ("SELECT * FROM t CROSS JOIN UNNEST(tags) AS u (tag)", "SELECT * FROM `t` CROSS JOIN UNNEST(`tags`) AS `u` (`tag`)"),
    ("SELECT * FROM t, UNNEST(t.tags) WITH ORDINALITY u(a, b)", "SELECT * FROM `t`, UNNEST(`t`.`tags`) WITH ORDINALITY AS `u` (`a`, `b`)"),
    ("SELECT * FROM t LEFT JOIN UNNEST(tags) AS u (tag) ON TRUE", "SELECT * FROM `t` LEFT JOIN UNNEST(`tags`) AS `u` (`tag`) ON TRUE"),
    ("SELECT * FROM t, LATERAL TABLE(split(a)) AS s (w)", "SELECT * FROM `t`, LATERAL TABLE(SPLIT(`a`)) AS `s` (`w`)"),
    ("SELECT * FROM t, LATERAL (SELECT 1) AS s", "SELECT * FROM `t`, LATERAL (SELECT 1) AS `s`"),
    ("SELECT * FROM f(1)", "SELECT * FROM TABLE(F(1))"),
    ("SELECT * FROM t /*+ OPTIONS('a' = 'b;') */ AS x", "SELECT * FROM `t` /*+ OPTIONS('a' = 'b;') */ AS `x`"),
    # windows of OVER
    (
        "SELECT SUM(a) OVER w AS s FROM t WINDOW w AS (PARTITION BY b ORDER BY ts), v AS (w)",
        "SELECT SUM(`a`) OVER `w` AS `s` FROM `t` WINDOW `w` AS (PARTITION BY `b` ORDER BY `ts`), `v` AS (`w`)",
    ),
    ("SELECT a FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1", "SELECT `a` FROM `t` QUALIFY ROW_NUMBER() OVER (ORDER BY `a`) = 1"),
    # legacy windows are calls
    ("SELECT TUMBLE_START(ts, INTERVAL '1' DAY) AS w FROM t GROUP BY TUMBLE(ts, INTERVAL '1' DAY), user", "SELECT TUMBLE_START(`ts`, INTERVAL '1' DAY) AS `w` FROM `t` GROUP BY TUMBLE(`ts`, INTERVAL '1' DAY), `user`"),
]  # fmt: skip

TUMBLE = "TUMBLE(DATA => TABLE `Bid`, TIMECOL => DESCRIPTOR(`bidtime`), SIZE => INTERVAL '10' MINUTE)"
WINDOWS = [
    ("TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)", TUMBLE),
    ("TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))", TUMBLE),
    ("TABLE(TUMBLE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL '10' MINUTES))", TUMBLE),
    ("tumble(SIZE => INTERVAL '10' MINUTE, TIMECOL => DESCRIPTOR(bidtime), DATA => TABLE Bid)", TUMBLE),
    (
        "TUMBLE(TABLE db.Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES, INTERVAL -'1' MINUTE) AS w (a, b)",
        "TUMBLE(DATA => TABLE `db`.`Bid`, TIMECOL => DESCRIPTOR(`bidtime`), SIZE => INTERVAL '10' MINUTE, OFFSET => INTERVAL '-1' MINUTE) AS `w` (`a`, `b`)",
    ),
    (
        "HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
        "HOP(DATA => TABLE `Bid`, TIMECOL => DESCRIPTOR(`bidtime`), SLIDE => INTERVAL '5' MINUTE, SIZE => INTERVAL '10' MINUTE)",
    ),
    (
        "TABLE(HOP(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL '10' MINUTES, SLIDE => INTERVAL '5' MINUTES))",
        "HOP(DATA => TABLE `Bid`, TIMECOL => DESCRIPTOR(`bidtime`), SLIDE => INTERVAL '5' MINUTE, SIZE => INTERVAL '10' MINUTE)",
    ),
    (
        "CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES)",
        "CUMULATE(DATA => TABLE `Bid`, TIMECOL => DESCRIPTOR(`bidtime`), STEP => INTERVAL '2' MINUTE, SIZE => INTERVAL '10' MINUTE)",
    ),
    (
        "SESSION(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)",
        "SESSION(DATA => TABLE `Bid`, TIMECOL => DESCRIPTOR(`bidtime`), GAP => INTERVAL '2' MINUTE)",
    ),
    (
        "SESSION(TABLE Bid PARTITION BY supplier_id, item, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)",
        "SESSION(DATA => TABLE `Bid` PARTITION BY (`supplier_id`, `item`), TIMECOL => DESCRIPTOR(`bidtime`), GAP => INTERVAL '2' MINUTE)",
    ),
    (
        "SESSION(DATA => TABLE Bid PARTITION BY (supplier_id), TIMECOL => DESCRIPTOR(bidtime), GAP => INTERVAL '2' MINUTES)",
        "SESSION(DATA => TABLE `Bid` PARTITION BY (`supplier_id`), TIMECOL => DESCRIPTOR(`bidtime`), GAP => INTERVAL '2' MINUTE)",
    ),
    (
        "TUMBLE((SELECT * FROM Bid), DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)",
        "TUMBLE(DATA => (SELECT * FROM `Bid`), TIMECOL => DESCRIPTOR(`bidtime`), SIZE => INTERVAL '10' MINUTE)",
    ),
]


@pytest.mark.parametrize(
    ("sql", "canonical"), [*CANONICAL, *((f"SELECT * FROM {sql}", f"SELECT * FROM {text}") for sql, text in WINDOWS)]
)
def test_a_query_has_a_canonical_string(sql: str, canonical: str) -> None:
    tree = parse_query(sql)
    assert render(tree) == canonical
    assert parse_query(canonical) == tree
    assert all(node.span is not None for node in syntax.walk(tree))


def test_a_window_function_has_the_documented_fields() -> None:
    query = parse_query("SELECT * FROM SESSION(TABLE Bid PARTITION BY s, DESCRIPTOR(ts), INTERVAL '2' MINUTES) AS w")
    (tvf,) = syntax.find_all(query, syntax.WindowTvf)
    assert (tvf.kind, tvf.time_column.names, [key.names for key in tvf.partition_by]) == ("SESSION", ("ts",), [("s",)])
    assert isinstance(tvf.table, syntax.Table)
    assert tvf.alias is not None
    assert (tvf.table.names, tvf.alias.name.name) == (("Bid",), "w")
    assert list(tvf.by_role) == ["GAP"]


def test_nested_queries_within_the_limits_are_parsed() -> None:
    sql = "SELECT a FROM t"
    for _ in range(15):
        sql = f"SELECT a FROM ({sql}) AS s"
    assert parse_query(sql) == parse_query(render(parse_query(sql)))
    union = " UNION ALL ".join(["SELECT a FROM t"] * 100)
    assert len(list(syntax.find_all(parse_query(union), syntax.Select))) == 100
