"""The parser never fails: the rest of a script, cut or mixed up in any way, parses or yields an
error with its position.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everfold.errors import SqlError
from everfold.sql.script import parse_script
from everfold.testing.casefile import find_case_files, load

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    {
        step.sql.text
        for path in find_case_files([ROOT / "tests" / "cases"])
        for case in load(path).cases
        for step in case.steps
    }
    | {path.read_text(encoding="utf-8") for path in ROOT.glob("examples/**/*.sql")}
)
ANY_CHARACTERS = st.text(st.characters(exclude_categories=()), max_size=4)
STATEMENTS = """
SET 'k' = 'v'; RESET 'k'; SHOW CREATE TABLE a.b.c; DESCRIBE t; DROP TEMPORARY VIEW IF EXISTS v;

CREATE TEMPORARY TABLE IF NOT EXISTS t (
  a INT NOT NULL COMMENT 'c', b ROW<x DECIMAL(10, 2), y ARRAY<MAP<STRING, INT>>>, c AS a + 1, d TIMESTAMP_LTZ(3) METADATA FROM 'k' VIRTUAL,
  e TIMESTAMP(3) WITHOUT TIME ZONE, f INTERVAL DAY(3) TO SECOND(3), g DOUBLE PRECISION, h MULTISET<INT>,
  WATERMARK FOR e AS e - INTERVAL '5' SECOND, CONSTRAINT k PRIMARY KEY (a) NOT ENFORCED
) COMMENT 'c' PARTITIONED BY (a) WITH ('connector' = 'print');

CREATE VIEW v (a COMMENT 'c', b) COMMENT 'c' AS WITH w (x) AS (SELECT 1) SELECT * FROM w;

EXPLAIN CHANGELOG_MODE SELECT DISTINCT t.*, a AS b FROM t /*+ OPTIONS('k' = 'v') */ AS x (y) LEFT OUTER JOIN u ON TRUE, LATERAL (SELECT 1)
  WHERE NOT a IS NOT NULL AND b BETWEEN SYMMETRIC 1 AND 2 OR c NOT IN (1, 2) AND d LIKE 'x' ESCAPE '!' AND (a, b) OVERLAPS (c, d)
  GROUP BY GROUPING SETS ((a), ()), ROLLUP (b) HAVING COUNT(DISTINCT a) FILTER (WHERE b) > 1
  WINDOW w AS (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
  ORDER BY a DESC NULLS LAST OFFSET 5 ROWS FETCH FIRST 3 ROWS ONLY;

SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(e), INTERVAL '0' MINUTES , INTERVAL '1' MINUTE);

SELECT * FROM TABLE(SESSION(DATA => TABLE t PARTITION BY (a, b), TIMECOL => DESCRIPTOR(e), GAP => INTERVAL '1-2' YEAR TO MONTH));

SELECT CASE a WHEN 1 THEN 2 ELSE 3 END, CAST(a AS INT), a.b[1].c, ARRAY[1, 2], MAP['k', 1], ROW(1, 2), -a * (b + 1) || 'x' % 3, 1.5e3, X'0A',
  U&'!00e9' UESCAPE '!', TIMESTAMP '2020-01-01 00:00:00', EXTRACT(DAY FROM e), TRIM(BOTH ' ' FROM a), SUBSTRING(a FROM 1 FOR 2),
  JSON_VALUE(a, '$.b' RETURNING INT NULL ON EMPTY DEFAULT 1 ON ERROR), JSON_OBJECT(KEY 'k' VALUE 1 ABSENT ON NULL), a IS JSON OBJECT,
  SUM(a) OVER w, LAST_VALUE(a) IGNORE NULLS OVER (ORDER BY b RANGE INTERVAL '1' DAY PRECEDING), EXISTS (SELECT 1), (SELECT 1)
  FROM t CROSS JOIN UNNEST(ARRAY[1]) WITH ORDINALITY AS u (x, y) UNION ALL (SELECT 1 INTERSECT VALUES (1), ROW(2) EXCEPT TABLE t) LIMIT 10;

EXECUTE STATEMENT SET BEGIN INSERT INTO s (a, b) SELECT 1, 2; INSERT OVERWRITE s SELECT 1; END;
"""
"""Statements that together have every form of the grammar."""


def check(text: str) -> None:
    """Check that the string parses, or that the error has a position within it."""
    try:
        parse_script(text)
    except SqlError as error:
        for found in error.diagnostics:
            assert found.span is not None
            assert 0 <= found.span.start <= found.span.end <= len(text)
            assert found.render()


@pytest.mark.parametrize("form", STATEMENTS.split("\n\n"), ids=lambda form: form.split(maxsplit=1)[0])
def test_a_truncated_statement(form: str) -> None:
    parse_script(form)
    for at in range(len(form)):
        check(form[:at])


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_script_with_an_inserted_piece(data: st.DataObject) -> None:
    text, other = data.draw(st.sampled_from(SCRIPTS)), data.draw(st.sampled_from(SCRIPTS))
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(other)), st.integers(0, len(other)))))
    piece = data.draw(st.one_of(st.just(""), st.just(other[first:last]), ANY_CHARACTERS))
    check(text[:start] + piece + text[end:])
