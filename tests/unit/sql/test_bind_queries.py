"""Queries without windows: names, types, what is refused in which mode, and the positions of
errors.
"""

from __future__ import annotations

import pytest

from everfold.errors import EverfoldError, SqlError, UnsupportedFeature
from everfold.plan.nodes import (
    Collect,
    Filter,
    GroupAggregate,
    Join,
    JoinKind,
    Limit,
    Project,
    SetKind,
    SetOperation,
    Sort,
    Union,
    Unnest,
)
from everfold.plan.walk import walk_plan
from everfold.sql.planner import Session, Submit

TABLES = """
CREATE TABLE t (a INT, b BIGINT, c STRING, payload ROW<`user` ROW<id INT, name STRING>, n INT>, tags ARRAY<STRING>,
                m MAP<STRING, INT>, ts TIMESTAMP(3));
CREATE TABLE r (a INT, d DOUBLE);
CREATE TABLE ev (k STRING, x INT, at TIMESTAMP(3), WATERMARK FOR at AS at);
CREATE VIEW v (p, q) AS SELECT a, c FROM t WHERE b > 1;
"""


def bind(sql: str, *, batch: bool = False) -> Collect:
    session = Session(options={"execution.runtime-mode": "batch"} if batch else {})
    list(session.run(TABLES))
    *_, action = session.run(sql)
    assert isinstance(action, Submit)
    (root,) = action.roots
    assert isinstance(root, Collect)
    return root


def columns(sql: str, *, batch: bool = False) -> str:
    return ", ".join(f"{field.name} {field.type.sql}" for field in bind(sql, batch=batch).schema)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # Names and types as in Flink 2.3.
        ("SELECT a + 1, b, t.a AS z, CAST(a AS BIGINT) FROM t", "EXPR$0 INT, b BIGINT, z INT, EXPR$3 BIGINT"),
        ("SELECT a, a, b, a + 1, b FROM t", "a INT, a0 INT, b BIGINT, EXPR$3 INT, b0 BIGINT"),
        ("SELECT a AS x, b AS x FROM t", "x INT, x0 BIGINT"),
        ("SELECT payload.`user`.id, payload.`user`, tags[1], m['k'] FROM t",
         "id INT, user ROW<`id` INT, `name` STRING>, EXPR$2 STRING, EXPR$3 INT"),
        ("SELECT payload.* FROM t", "user ROW<`id` INT, `name` STRING>, n INT"),
        ("SELECT payload.`user`.* FROM t", "id INT, name STRING"),
        ("SELECT r.*, a FROM r", "a INT, d DOUBLE, a0 INT"),
        ("SELECT q, w FROM (SELECT a, b FROM t) AS x (q, w)", "q INT, w BIGINT"),
        ("SELECT default_catalog.default_database.t.a, default_database.t.b FROM default_database.t", "a INT, b BIGINT"),
        ("SELECT * FROM v", "p INT, q STRING"),
        ("SELECT x.p FROM v AS x", "p INT"),
        ("VALUES (1, 'a'), (2, 'bcd')", "EXPR$0 INT, EXPR$1 VARCHAR(3)"),
        ("SELECT * FROM (VALUES (1, CAST(NULL AS STRING)), (3000000000, 'abc')) AS v (x, y)", "x BIGINT, y STRING"),
        ("SELECT a, c FROM t UNION ALL SELECT b, c AS d FROM t", "a BIGINT, c STRING"),
        ("SELECT 'abc', 1.5 FROM t UNION ALL SELECT 'abcd', 2 FROM t", "EXPR$0 VARCHAR(4), EXPR$1 DECIMAL(11, 1)"),
        ("WITH q (x, y) AS (SELECT a, b FROM t), w AS (SELECT x FROM q) SELECT * FROM w", "x INT"),
        ("SELECT 1, 3000000000, 0.05, .5, 1E2, 'abc', '', x'0aff', TRUE, DATE '2020-01-01', TIME '10:00:00.5'",
         ("EXPR$0 INT, EXPR$1 BIGINT, EXPR$2 DECIMAL(3, 2), EXPR$3 DECIMAL(1, 1), EXPR$4 DOUBLE, EXPR$5 CHAR(3), EXPR$6 CHAR(0), "
          "EXPR$7 BINARY(2), EXPR$8 BOOLEAN, EXPR$9 DATE, EXPR$10 TIME(1)")),
        ("SELECT -2147483648, -9223372036854775808, 2147483648", "EXPR$0 INT, EXPR$1 BIGINT, EXPR$2 BIGINT"),
        ("SELECT a, e FROM t CROSS JOIN UNNEST(tags) AS u (e)", "a INT, e STRING"),
        ("SELECT a, k, w FROM t, UNNEST(m) AS u (k, w)", "a INT, k STRING, w INT"),
        ("SELECT a, e, o FROM t CROSS JOIN UNNEST(tags) WITH ORDINALITY AS u (e, o)", "a INT, e STRING, o INT"),
        ("SELECT CASE a WHEN 1 THEN 'x' ELSE c END, a IN (1, 2.5, 3), a BETWEEN 1 AND 2 FROM t",
         "EXPR$0 STRING, EXPR$1 BOOLEAN, EXPR$2 BOOLEAN"),
        ("SELECT a FROM t WHERE NULL", "a INT"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("batch", [False, True])
def test_columns_are_named_and_typed_as_in_flink(sql: str, expected: str, batch: bool) -> None:
    assert columns(sql, batch=batch) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a, COUNT(*) FROM t GROUP BY a", "a INT, EXPR$1 BIGINT"),
        ("SELECT a + 1 + 2, COUNT(*) FROM t GROUP BY a + 1", "EXPR$0 INT, EXPR$1 BIGINT"),
        ("SELECT 1 AS x, SUM(b) / COUNT(*) FROM t GROUP BY a", "x INT, EXPR$1 BIGINT"),
        ("SELECT payload.n, COUNT(*) FROM t GROUP BY payload.n", "n INT, EXPR$1 BIGINT"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY ()", "n BIGINT"),
        ("SELECT * FROM r AS x JOIN r AS y ON x.a = y.a", "a INT, d DOUBLE, a0 INT, d0 DOUBLE"),
        ("SELECT * FROM (SELECT a, b FROM t) AS x JOIN (SELECT c, a FROM t) AS y USING (a)", "a INT, b BIGINT, c STRING"),
        ("SELECT *, x.a, a FROM (SELECT a, b FROM t) AS x FULL JOIN (SELECT c, a FROM t) AS y USING (a)",
         "a INT, b BIGINT, c STRING, a0 INT, a1 INT"),
        ("SELECT * FROM r NATURAL JOIN (SELECT a, c FROM t) AS y", "a INT, d DOUBLE, c STRING"),
        ("SELECT a, (SELECT MAX(b) FROM t) AS m FROM r", "a INT, m BIGINT"),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY a + 1", "a BIGINT"),
        ("SELECT a AS z, b FROM t ORDER BY 2 DESC, z, a + 1 LIMIT 3", "z INT, b BIGINT"),
        ("SELECT a, COUNT(*) AS n FROM t GROUP BY a ORDER BY n, SUM(b), COUNT(*) + 1", "a INT, n BIGINT"),
        ("SELECT DISTINCT a, c FROM t ORDER BY c", "a INT, c STRING"),
    ],
)  # fmt: skip
def test_columns_in_batch_are_named_and_typed(sql: str, expected: str) -> None:
    assert columns(sql, batch=True) == expected


def test_order_limit_and_distinct_become_nodes_in_batch() -> None:
    plan = bind(
        "SELECT a, COUNT(DISTINCT b) AS n FROM t GROUP BY a ORDER BY n DESC, SUM(b) LIMIT 3 OFFSET 2", batch=True
    ).input
    limit = next(node for node in walk_plan(plan) if isinstance(node, Limit))
    assert (limit.count, limit.offset) == (3, 2)
    sort = limit.input
    assert isinstance(sort, Sort)
    assert [(key.descending, key.nulls_first) for key in sort.keys] == [(True, False), (False, True)]
    aggregate = next(node for node in walk_plan(plan) if isinstance(node, GroupAggregate))
    assert [call.distinct for call in aggregate.calls] == [True, False]


def test_subqueries_become_joins() -> None:
    plan = bind(
        "SELECT a FROM t WHERE a IN (SELECT a FROM r) AND b NOT IN (SELECT a FROM r) AND EXISTS (SELECT 1 FROM r) AND a < (SELECT MAX(a) FROM r)",
        batch=True,
    ).input
    kinds = [node.kind for node in walk_plan(plan) if isinstance(node, Join)]
    assert kinds == [JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.SEMI]


def test_set_operations_become_nodes() -> None:
    plan = bind("SELECT a FROM t INTERSECT SELECT a FROM r EXCEPT ALL SELECT a FROM r", batch=True).input
    assert [node.kind for node in walk_plan(plan) if isinstance(node, SetOperation)] == [
        SetKind.EXCEPT_ALL,
        SetKind.INTERSECT,
    ]
    union = bind("SELECT a FROM t UNION ALL SELECT a FROM r UNION ALL SELECT b FROM t").input
    assert isinstance(union, Union)
    assert len(union.inputs) == 3


def test_conditions_are_applied_after_unnest() -> None:
    plan = bind("SELECT e FROM t LEFT JOIN UNNEST(tags) AS u (e) ON TRUE WHERE a > 1").input
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Filter)
    assert isinstance(plan.input.input, Unnest)
    assert plan.input.input.outer


@pytest.mark.parametrize(
    ("sql", "code", "line", "column", "words"),
    [
        ("SELECT nope FROM t", "unknown-column", 1, 8, "no column is named `nope`"),
        ("SELECT A FROM t", "unknown-column", 1, 8, "did you mean `a`?"),
        ("SELECT t.nope FROM t", "unknown-column", 1, 8, "`t` has no column `nope`"),
        ("SELECT z.a FROM t", "unknown-column", 1, 8, "no table or column is named `z`"),
        ("SELECT x.a FROM t AS x WHERE t.b = 2", "unknown-column", 1, 30, "no table or column is named `t`"),
        ("SELECT payload.zip FROM t", "unknown-field", 1, 8, "no field `zip`"),
        ("SELECT a.zip FROM t", "unknown-field", 1, 8, "not a ROW"),
        ("SELECT a FROM\n  T", "unknown-table", 2, 3, "did you mean `t`?"),
        ("SELECT a FROM other.t", "unknown-table", 1, 15, "everfold has one database"),
        ("SELECT SUMM(a) FROM t", "unknown-function", 1, 8, "did you mean `SUM`?"),
        ("SELECT x FROM (SELECT a AS x, b AS x FROM t)", "ambiguous-column", 1, 8, "`x` can refer to 2 columns"),
        ("SELECT a, a0 FROM (SELECT a, a FROM t)", "ambiguous-column", 1, 8, "`a` can refer to 2 columns"),
        ("SELECT * FROM (SELECT a, b AS a FROM t)", "ambiguous-column", 1, 8, "`a` is 2 columns"),
        ("SELECT a FROM t WHERE COUNT(*) > 1", "aggregate-in-where", 1, 23, "HAVING"),
        ("SELECT a FROM t WHERE a", "not-a-condition", 1, 23, "is an INT"),
        ("SELECT NULL AS x FROM t", "untyped-null", 1, 8, "CAST(NULL AS STRING)"),
        ("SELECT a FROM t UNION ALL SELECT c FROM t", "type-mismatch", 1, 1, "INT and STRING"),
        ("SELECT a FROM t UNION ALL SELECT a, c FROM t", "column-count", 1, 27, "1 and 2"),
        ("VALUES (1), ('a')", "type-mismatch", 1, 1, "INT and CHAR(1)"),
        ("VALUES (1), (1, 2)", "column-count", 1, 13, "1 and 2 values"),
        ("SELECT q FROM (SELECT a, b FROM t) AS x (q)", "column-count", 1, 39, "names 1 columns of 2"),
        ("SELECT *", "misplaced-star", 1, 8, "needs a FROM"),
        ("SELECT e FROM t CROSS JOIN UNNEST(a) AS u (e)", "wrong-arguments", 1, 28, "not INT"),
        ("SELECT SUM(COUNT(*)) FROM t GROUP BY a", "nested-aggregate", 1, 12, "aggregates cannot be nested"),
        ("SELECT SUM(c) FROM t", "wrong-arguments", 1, 8, "`SUM` does not take STRING"),
        ("SELECT COUNT(a, b) FROM t", "wrong-arguments", 1, 8, "takes 1 argument, not 2"),
        ("SELECT SUM() FROM t", "wrong-arguments", 1, 8, "takes an argument"),
        ("SELECT COUNT(*) FILTER (WHERE a) FROM t", "not-a-condition", 1, 31, "FILTER"),
        ("SELECT a AS z, COUNT(*) FROM t GROUP BY z", "unknown-column", 1, 41, "write `a`"),
        ("SELECT a, COUNT(*) FROM t GROUP BY 1", "not-in-group-by", 1, 8, "`a`"),
        ("SELECT a, b, COUNT(*) FROM t GROUP BY a", "not-in-group-by", 1, 11, "keys are `a`"),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING b > 0", "not-in-group-by", 1, 45, "`b`"),
        ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*)", "not-a-condition", 1, 45, "HAVING"),
        ("SELECT UPPER(DISTINCT c) FROM t", "not-an-aggregate", 1, 8, "DISTINCT"),
    ],
)  # fmt: skip
def test_wrong_queries_are_refused(sql: str, code: str, line: int, column: int, words: str) -> None:
    with pytest.raises(SqlError) as caught:
        bind(sql)
    found = caught.value.diagnostics[0]
    assert not isinstance(caught.value, UnsupportedFeature)
    assert found.span is not None
    assert (found.code, found.span.line, found.span.column) == (code, line, column), str(caught.value)
    assert words in f"{found.message} / {found.help}"


@pytest.mark.parametrize(
    ("sql", "code", "batch"),
    [
        ("SELECT a FROM t EXCEPT SELECT a FROM r", "streaming-set-operation", True),
        ("SELECT a FROM t INTERSECT SELECT a FROM r", "streaming-set-operation", True),
        ("SELECT a FROM t ORDER BY a", "streaming-order-by", True),
        ("SELECT a FROM t OFFSET 1", "streaming-offset", True),
        ("SELECT t.a FROM t JOIN r ON t.a = r.a", "streaming-join", True),
        ("SELECT t.a FROM t, r", "streaming-join", True),
        ("SELECT a FROM t WHERE a IN (SELECT a FROM r)", "streaming-join", True),
        ("SELECT a, (SELECT MAX(a) FROM r) FROM t", "streaming-join", True),
        ("SELECT SUM(a) OVER (PARTITION BY b ORDER BY PROCTIME(), a) FROM t", "over-order", True),
        ("SELECT SUM(a) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t", "over-upper-bound", True),
        ("SELECT LEAD(a) OVER (ORDER BY ts) FROM t", "over-function", False),
        ("SELECT x FROM t, LATERAL TABLE(split(c)) AS s (x)", "table-function", False),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.d = t.a)", "correlated-subquery", False),
    ],
)  # fmt: skip
def test_refused_in_streaming(sql: str, code: str, batch: bool) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        bind(sql)
    assert caught.value.code == code
    assert caught.value.diagnostics[0].span is not None
    if batch:
        bind(sql, batch=True)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT x FROM t, LATERAL TABLE(split(c)) AS s (x)", "table-function"),
        ("SELECT * FROM TABLE(split('a'))", "table-function"),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.d = t.b)", "correlated-subquery"),
        ("SELECT a FROM t WHERE a = 1 OR a IN (SELECT a FROM r)", "subquery"),
        ("SELECT (SELECT a FROM r) FROM t", "scalar-subquery"),
        ("SELECT DISTINCT a FROM t ORDER BY b", "not-in-select"),
        ("SELECT a FROM t ORDER BY 2", "unknown-column"),
        ("SELECT a FROM t AS x JOIN r AS y ON x.a = y.a", "ambiguous-column"),
    ],
)  # fmt: skip
def test_refused_in_batch(sql: str, code: str) -> None:
    with pytest.raises(EverfoldError) as caught:
        bind(sql, batch=True)
    assert caught.value.code == code, str(caught.value)
    assert caught.value.diagnostics[0].span is not None


def test_all_errors_of_a_query_are_reported_together() -> None:
    with pytest.raises(SqlError) as caught:
        bind("SELECT nope, a + nada, SUMM(a)\nFROM t\nWHERE niente > 1 AND c")
    found = [(each.code, each.span.line, each.span.column) for each in caught.value.diagnostics if each.span]
    assert found == [
        ("unknown-column", 1, 8),
        ("unknown-column", 1, 18),
        ("unknown-function", 1, 24),
        ("unknown-column", 3, 7),
        ("not-a-condition", 3, 22),
    ]


def test_an_error_in_a_view_points_into_the_views_script() -> None:
    session = Session()
    list(session.run(TABLES))
    with pytest.raises(SqlError) as caught:
        list(session.run("CREATE VIEW w AS\nSELECT nope FROM t", "views.sql"))
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert (span.source, span.line, span.column) == ("views.sql", 2, 8)
    list(session.run("CREATE VIEW w AS\nSELECT a FROM r; DROP TABLE r", "views.sql"))
    with pytest.raises(SqlError) as caught:
        list(session.run("SELECT * FROM w", "query.sql"))
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert (span.source, span.line) == ("views.sql", 2)


def test_a_time_attribute_survives_only_plain_references() -> None:
    times = [
        field.time
        for field in bind("SELECT at, CAST(at AS TIMESTAMP(3)) AS c, at + INTERVAL '1' SECOND AS d FROM ev").schema
    ]
    assert times == ["rowtime", None, None]
    assert [field.time for field in bind("SELECT at FROM ev", batch=True).schema] == [None]
