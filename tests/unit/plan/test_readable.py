"""Canonical strings in a readable form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfold.connectors.registry import apply_connector
from everfold.plan.canonical import column_texts
from everfold.plan.readable import format_canonical_text
from everfold.sql.planner import Session, Submit


def canonical(column: str) -> str:
    """Return the canonical string of a column over `t`, whose columns are inferred
    from their use.
    """
    session = Session(lenient=True, notes=lambda _: None, connected=apply_connector)
    sql = f"CREATE TABLE t (a INT, s STRING, d DECIMAL(10, 2), ts TIMESTAMP(3), r ROW<x INT, y ARRAY<INT>>, b BOOLEAN, WATERMARK FOR ts AS ts); SELECT {column} AS c FROM t"
    [submit] = [each for each in session.run(sql) if isinstance(each, Submit)]
    return column_texts(submit.roots[0].input)[0]


@pytest.mark.parametrize(
    "readable",
    [
        "t.a",
        "t.a + 1",
        "(t.a + 1) * 2",
        "t.a > 1",
        "(t.a < 5) AND (t.a > 1)",
        "(t.a = 1) OR t.b",
        "UPPER(t.s)",
        "SUBSTRING(t.s, 1, 5)",
        "CONCAT(t.s, 'it''s, (so)')",
        "t.s || '\"'",
        "CAST(t.a AS DECIMAL(10, 2))",
        "CAST(t.a AS STRING)",
        "t.d + 1.50",
        "t.r.x",
        "t.r.y[1]",
        "t.s IS NULL",
        "(t.a + 1) IS NOT NULL",
        "NOT t.b",
        "t.a IN (1, 2)",
        "CASE WHEN t.a > 1 THEN 'x' WHEN t.b THEN 'y' ELSE 'z' END",
        "CASE WHEN t.b THEN t.a END",
        "t.ts + INTERVAL 5 min",
        "t.ts - INTERVAL 1 h",
        "COALESCE(t.b, TRUE)",
    ],
)
def test_a_canonical_expression_is_formatted_as_sql(readable: str) -> None:
    written = readable.replace("INTERVAL 5 min", "INTERVAL '5' MINUTE").replace("INTERVAL 1 h", "INTERVAL '1' HOUR")
    assert format_canonical_text(canonical(written)) == readable


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("COUNT()", "COUNT(*)"),
        ("COUNT(DISTINCT t.x) FILTER (>(t.y, 3:INT))", "COUNT(DISTINCT t.x) FILTER (WHERE t.y > 3)"),
        ("+(SUM(t.x) FILTER (t.b), 1:INT)", "SUM(t.x) FILTER (WHERE t.b) + 1"),
        ("LISTAGG(t.x, ', ')", "LISTAGG(t.x, ', ')"),
        ("t.x DESC, NULLs elsewhere", "t.x DESC, NULLs elsewhere"),
        ("(t.k | +(u.k, 1:INT))", "(t.k | u.k + 1)"),
        ("PROCTIME(), proctime in UTC", "PROCTIME(), proctime in UTC"),
        ("TUMBLE(size=5 min) of t.ts, rowtime", "TUMBLE(size=5 min) of t.ts, rowtime"),
        (
            "SUM(t.x) OVER (PARTITION BY +(t.k, 1:INT) ORDER BY t.ts RANGE BETWEEN 3600000 PRECEDING AND CURRENT ROW)",
            "SUM(t.x) OVER (PARTITION BY t.k + 1 ORDER BY t.ts RANGE BETWEEN 3600000 PRECEDING AND CURRENT ROW)",
        ),
    ],
)
def test_other_canonical_strings_are_formatted(text: str, readable: str) -> None:
    assert format_canonical_text(text) == readable


@pytest.mark.parametrize("text", ["t.(x", "a,b)", "t.x'", "+(t.x, 1:INT", ")("])
def test_unparsable_strings_are_unchanged(text: str) -> None:
    assert format_canonical_text(text) == text


@pytest.mark.parametrize(
    "text", ["PERCENTILE(t.v, (0.5,):ARRAY<DOUBLE>)", "f(a,b)", "f(,", "f(a,,b)", "(,)", "f(a)(,", "'", "f(("]
)
def test_any_text_is_read_to_its_end(text: str) -> None:
    """Names of columns can contain all characters."""
    assert format_canonical_text(text)


@given(st.text("(),:' aA1\"\\", max_size=12))
def test_random_texts_are_read_to_their_end(text: str) -> None:
    assert isinstance(format_canonical_text(text), str)
