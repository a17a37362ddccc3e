"""Patterns for which Java's engine recurses or backtracks, over strings that make it do so.

Each ends quickly: with the value, which follows from the meaning of the pattern, or with an error
that has the string.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spark.running import Run

LONG = "ab" * 20_000
VALUES: dict[str, Any] = {
    "k SIMILAR TO '(a|b)*'": True,
    "REGEXP(k, '^(a|b)*c$')": False,
    "REGEXP(k, p)": True,
    "REGEXP_EXTRACT(k, '(?:a|b)*(b)', 1)": "b",
    "REGEXP_EXTRACT(k, p, 1)": "b",
    "REGEXP_REPLACE(k, '(a|bb?)+', '$1')": "$1",
    "REGEXP_REPLACE(n, '(a|bb?)+', k)": f"1-{LONG}-",
    "REGEXP_COUNT(k, '(a|b)+')": 1,
    "REGEXP_INSTR(CONCAT('-', k), '(a|b)+')": 2,
    "CHAR_LENGTH(REGEXP_SUBSTR(k, '(ab?)+'))": len(LONG),
    "CARDINALITY(REGEXP_EXTRACT_ALL(k, '(ab|ba)', 1))": len(LONG) // 2,
    "CARDINALITY(STR_TO_MAP(CONCAT('x=1,', k), '(,|b|a)+', '(=)+'))": 2,
    "CHAR_LENGTH(PARSE_URL(CONCAT('http://h/?', k, '=', k), 'QUERY', '(?:a|b)*'))": len(LONG),
    "REGEXP(n, CONCAT(k, '('))": False,
    "k LIKE '%a%a%a%a%a%_c'": False,
    "k LIKE '%a%a%a%a%b_b'": True,
    "k LIKE '%!%%a%a%a%a' ESCAPE '!'": False,
    "k LIKE likes": False,
    "IS_DECIMAL(CONCAT(REPEAT('1', 100000), 'x'))": False,
    "TRY_CAST(CONCAT('2020-01-01 ', REPEAT(' ', 300000), 'x') AS DATE)": "2020-01-01",
    "TRY_CAST(CONCAT(CHR(1), REPEAT('1', 100000), 'x') AS DECIMAL(10, 2))": None,
}
TABLES = """
CREATE TABLE t (k STRING, n STRING, p STRING, likes STRING)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
"""


def put_rows(folder: Path, **row: object) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "1.json").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize("engine", [(), ("--engine", "memory")], ids=["spark", "memory"])
def test_long_strings_have_values(tmp_path: Path, run: Run, engine: tuple[str, ...]) -> None:
    put_rows(tmp_path, k=LONG, n="1-abb-", p="^(?:a|b)*(b)$", likes="%a%a%a%a%a%c")
    expressions = {f"x{number}": text for number, text in enumerate(VALUES)}
    if engine:
        # RE2 knows the key of a URL only as a string, and a group by its constant number.
        expressions = {name: text for name, text in expressions.items() if "PARSE_URL" not in text}
    columns = ", ".join(f"{text} AS {name}" for name, text in expressions.items())
    (tmp_path / "job.sql").write_text(f"{TABLES}SELECT {columns} FROM t;")
    done = run(*engine, "--format", "json")
    assert done.code == 0, done.err
    (row,) = map(json.loads, done.out.splitlines())
    assert {text: row[name] for name, text in expressions.items()} == {
        text: VALUES[text] for text in expressions.values()
    }


@pytest.mark.parametrize(
    "expression",
    [
        "REGEXP(k, '^(a|aa)+?$')",
        pytest.param("k SIMILAR TO '(a|aa){1,9000}'", marks=pytest.mark.slow),
        pytest.param("REGEXP_EXTRACT(k, p, 0)", marks=pytest.mark.slow),
        pytest.param("REGEXP_REPLACE(k, '.*a.*a.*a.*c', '')", marks=pytest.mark.slow),
    ],
)
def test_an_error_has_the_string_and_the_expression(tmp_path: Path, run: Run, expression: str) -> None:
    put_rows(tmp_path, k="a" * 5_000 + "!", p="(a?){2000}b|(a+?)+?c")
    (tmp_path / "job.sql").write_text(
        f"""{TABLES}CREATE TABLE o (x STRING) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO o SELECT CAST({expression} AS STRING) FROM t;"""
    )
    done = run()
    assert done.code == 1
    assert done.err.startswith(
        f"error[regex-too-costly]: the pattern takes too long for '{'a' * 60}…', a string of 5,001"
    )
    assert f" characters, in `{expression}` at job.sql:5:" in done.err
