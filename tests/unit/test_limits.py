"""Scripts that exceed the limits.

Each gets an answer or `too-complex` in limited time, and never a RecursionError.
"""

from __future__ import annotations

import cProfile
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from everfold.cli.main import everfold
from everfold.compat import CompatOptions, QueryShape, judge, shape_of
from everfold.errors import EverfoldError, SqlError
from everfold.limits import (
    MAX_CHARACTERS,
    MAX_COLUMNS,
    MAX_FINDINGS,
    MAX_HEIGHT,
    MAX_SETS,
    MAX_STATEMENTS,
    MAX_TOKENS,
    MAX_VIEWS,
)
from everfold.plan.explain import explain
from everfold.sql.planner import Session, Submit

TABLE = "CREATE TABLE t (a INT, b INT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);\n"


def chain(count: int, query: str) -> str:
    """Return a query over names of WITH, each defined in terms of the previous one."""
    names = (f"c{at} AS ({query.format(below=f'c{at - 1}')})" for at in range(1, count))
    return f"{TABLE}WITH c0 AS (SELECT * FROM t), {', '.join(names)} SELECT * FROM c{count - 1}"


def views(count: int, query: str) -> str:
    """Return a query over views, each defined in terms of the previous one."""
    made = "".join(f"CREATE VIEW v{at} AS {query.format(below=f'v{at - 1}')};\n" for at in range(1, count))
    return f"{TABLE}CREATE VIEW v0 AS SELECT * FROM t;\n{made}SELECT * FROM v{count - 1}"


def check_script(sql: str, mode: str = "streaming") -> str:
    """Bind, explain and judge the plans of a script.

    Return `ok`, or the code of the error.
    """
    try:
        for action in Session({"execution.runtime-mode": mode}).run(sql):
            if isinstance(action, Submit):
                for root in action.roots:
                    explain(root)
                    shape_of(root)
    except EverfoldError as error:
        return error.code if len(str(error)) < 100_000 else "much text"
    return "ok"


DOUBLING = [
    "SELECT * FROM {below} UNION ALL SELECT * FROM {below}",
    "SELECT a + a AS a, b FROM {below}",
    "SELECT CASE WHEN a > b THEN a ELSE a + b END AS a, b FROM {below}",
    "SELECT a + a AS a, SUM(b + a) AS b FROM {below} GROUP BY a + a",
    "SELECT x.a, y.b FROM {below} x JOIN {below} y ON x.a = y.a",
    "SELECT a, b FROM {below} WHERE a IN (SELECT b FROM {below})",
    "SELECT a, (SELECT MAX(b) FROM {below}) AS b FROM {below}",
]


@pytest.mark.parametrize("query", DOUBLING)
def test_exponential_scripts_are_refused(query: str) -> None:
    for made in (views, chain):
        assert check_script(made(30, query), "batch") == "too-complex"


def test_names_used_twice_are_bound_once() -> None:
    assert check_script(views(9, DOUBLING[0])) == "ok"
    assert check_script(chain(9, DOUBLING[0])) == "ok"


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_long_chains_are_limited(mode: str) -> None:
    """Consecutive projections, filters and unions are one step. Each GROUP BY is its own step."""
    grouped = "SELECT a, SUM(b) AS b FROM {below} GROUP BY a"
    merged = ["SELECT a + b AS a, b FROM {below}", "SELECT * FROM {below} WHERE a > 1", "SELECT * FROM {below}"]
    for query in (*merged, grouped):
        assert check_script(views(MAX_VIEWS + 5, query), mode) == "too-complex"
        assert check_script(chain(MAX_HEIGHT // 2 - 5, query), mode) == "ok"
        assert check_script(views(20, query), mode) == "ok"
        assert check_script(chain(1_000, query), mode) == ("too-complex" if query == grouped else "ok")
    assert check_script(chain(400, "SELECT * FROM {below} UNION ALL SELECT * FROM t"), mode) == "ok"


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_long_chain_runs(mode: str, tmp_path: Path) -> None:
    rows = [(1, 2), (3, 4), (-9, 1)]
    (tmp_path / "t.json").write_text("".join(f'{{"a": {a}, "b": {b}}}\n' for a, b in rows))
    links = [
        f"c{at} AS (SELECT a + b AS a, b FROM c{at - 1}{' WHERE a > 0' * (at % 100 == 50)})" for at in range(1, 600)
    ]
    links += [f"c{at} AS (SELECT * FROM c{at - 1} WHERE a > {at})" for at in range(600, 1000)]
    script = tmp_path / "q.sql"
    script.write_text(
        "CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'path' = 't.json', 'format' = 'json');\n"
        f"WITH c0 AS (SELECT * FROM t), {', '.join(links)} SELECT * FROM c999"
    )
    batch = ["--batch"] if mode == "batch" else []
    done = CliRunner().invoke(everfold, ["run", str(script), "--engine", "memory", "--format", "csv", *batch])
    assert done.exit_code == 0, done.output
    expected = []
    for a, b in rows:
        sums = [a + b * at for at in range(600)]
        if all(sums[at - 1] > 0 for at in range(50, 600, 100)) and sums[599] > 999:
            expected.append(f"{sums[599]},{b}")
    assert sorted(line for line in done.stdout.splitlines() if line[:1].isdigit()) == sorted(expected)


LONG = {
    "IN": "SELECT a FROM t WHERE a IN (" + ", ".join(map(str, range(200_000))) + ")",
    "SUM": "SELECT b, " + ", ".join(f"SUM(a + {at}) AS s{at}" for at in range(5_000)) + " FROM t GROUP BY b",
    "columns": "CREATE TABLE w (" + ", ".join(f"c{at} INT" for at in range(10_000)) + "); SELECT * FROM w",
    "statements": "SHOW TABLES;" * 180_000,
    "plus": "SELECT a" + " + 1" * 100_000 + " FROM t",
    "text": "SELECT s" + " || s" * 20_000 + " FROM t",
    "NOT": "SELECT a FROM t WHERE " + "NOT " * 20_000 + "a > 1",
    "minus": "SELECT " + "- " * 20_000 + "a FROM t",
    "IS NULL": "SELECT a" + " IS NULL" * 15_000 + " FROM t",
    "index": "SELECT a" + "[1]" * 10_000 + " FROM t",
    "field": "SELECT a" + ".b" * 20_000 + " FROM t",
    "calls": "SELECT " + "ABS(" * 10_000 + "a" + ")" * 10_000 + " FROM t",
    "parentheses": "SELECT " + "(" * 10_000 + "a" + ")" * 10_000 + " FROM t",
    "types": "CREATE TABLE w (a " + "ARRAY<" * 10_000 + "INT" + ">" * 10_000 + ")",
    "arrays": "CREATE TABLE w (a INT" + " ARRAY" * 10_000 + ")",
    "UNION ALL": " UNION ALL ".join(["SELECT a FROM t"] * 5_000),
    "JOIN": "SELECT 1 FROM t" + "".join(f" JOIN t AS t{at} ON t.a = t{at}.a" for at in range(3_000)),
    "comma": "SELECT 1 FROM t" + "".join(f", t AS t{at}" for at in range(3_000)),
    "UNNEST": "SELECT 1 FROM t" + "".join(f" CROSS JOIN UNNEST(ARRAY[1]) AS u{at}(x{at})" for at in range(1_000)),
    "subqueries": "SELECT a FROM t WHERE " + " AND ".join(["a IN (SELECT b FROM t)"] * 3_000),
    "CUBE": "SELECT COUNT(*) FROM t GROUP BY CUBE(" + ", ".join(f"a + {at}" for at in range(30)) + ")",
    "ROLLUP": "SELECT COUNT(*) FROM t GROUP BY " + ", ".join(f"ROLLUP(a + {at}, b)" for at in range(20)),
    "keys": "SELECT COUNT(*) FROM t GROUP BY " + ", ".join(f"a + {at}" for at in range(5_000)),
    "dialects": "SET 'everfold.dialect' = 'flink';\n" * 5_000,
    "characters": "SELECT '" + "x" * MAX_CHARACTERS + "'",
}


@pytest.mark.parametrize("what", LONG)
def test_long_lists_are_refused(what: str) -> None:
    assert check_script(TABLE + LONG[what], "batch") in ("too-complex", "too-deep", "unknown-field")


@pytest.mark.parametrize(
    "condition",
    [
        " AND ".join(f"a > {at}" for at in range(1_000)),
        " OR ".join(f"a = {at}" for at in range(1_000)),
        f"a IN ({', '.join(map(str, range(2_000)))})",
        " OR ".join(f"(a = {at} AND b = {at})" for at in range(500)),
        "a + 1" + " + 1" * 100 + " > 0",
    ],
)
def test_long_conditions_of_normal_size_are_accepted(condition: str) -> None:
    assert check_script(f"{TABLE}SELECT a FROM t WHERE {condition}") == "ok"


def test_large_scripts_within_the_limits_are_accepted() -> None:
    columns = ", ".join(f"c{at} INT" for at in range(MAX_COLUMNS))
    assert check_script(f"CREATE TABLE w ({columns}); SELECT * FROM w") == "ok"
    assert check_script(TABLE + "SELECT a FROM t;\n" * 100) == "ok"
    assert (
        check_script(f"{TABLE}SELECT b, {', '.join(f'SUM(a + {at})' for at in range(300))} FROM t GROUP BY b") == "ok"
    )


def test_the_work_of_a_judgement_is_proportional_to_the_number_of_columns() -> None:
    """Counted in calls of functions. Before, 2,000 columns took more than ten minutes."""

    def shapes(count: int) -> list[QueryShape]:
        sql = f"{TABLE}SELECT b, {', '.join(f'SUM(a + {n}) AS c{n}' for n in range(count))} FROM t GROUP BY b"
        submits = [action for action in Session().run(sql) if isinstance(action, Submit)]
        return [shape_of(root) for submit in submits for root in submit.roots]

    def count_work(count: int, terms: CompatOptions) -> int:
        old, new = shapes(count), shapes(count + count // 5)
        profile = cProfile.Profile(builtins=False)
        judgement = profile.runcall(judge, old, new, terms)
        statuses = {column.name: column.status.value for column in judgement.columns}
        assert (statuses[f"c{count - 1}"], statuses[f"c{count}"]) == ("kept", "starts at the restart")
        return sum(entry.callcount for entry in profile.getstats())

    for terms in (CompatOptions(), CompatOptions(extended=True)):
        assert count_work(400, terms) < 6 * count_work(100, terms)


def test_over_windows_are_counted_before_they_are_bound() -> None:
    def query(count: int) -> str:
        return f"{TABLE}SELECT {', '.join(f'SUM(a) OVER (PARTITION BY b + {at} ORDER BY ts) AS c{at}' for at in range(count))} FROM t"

    assert check_script(query(MAX_HEIGHT - 50)) == "ok"
    assert check_script(query(MAX_HEIGHT + 1)) == "too-complex"


def test_columns_copied_by_like_are_counted() -> None:
    def tables(count: int) -> str:
        return "CREATE TABLE t0 (a INT);" + "".join(
            f"CREATE TABLE t{at} (c{at} INT) LIKE t{at - 1};" for at in range(1, count)
        )

    assert check_script(tables(300)) == "ok"
    assert check_script(tables(1_000)) == "too-complex"


def test_the_number_of_reported_errors_is_limited() -> None:
    with pytest.raises(SqlError) as caught:
        list(Session().run(f"{TABLE}SELECT {', '.join(f'nope{at}' for at in range(1_000))} FROM t"))
    assert len(caught.value.diagnostics) == MAX_FINDINGS


def test_the_error_names_the_exceeded_limit() -> None:
    with pytest.raises(SqlError) as caught:
        list(Session().run(views(30, DOUBLING[0])))
    message = caught.value.diagnostics[0].message
    assert (
        message
        == "the script is too complex: its query has 3,069 steps, counting those of a view or WITH query once per use; the limit is 2,000"
    )
    assert caught.value.diagnostics[0].span is not None
    assert (MAX_TOKENS, MAX_STATEMENTS, MAX_SETS) == (125_000, 2_000, 1_000)  # docs/security.md documents these values


def limit_processor_time() -> None:
    """Limit the processor time of a process to what any script may take.

    This includes the start, and both readings of `check`.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


LARGE = {
    "SUM": "SELECT b, " + ", ".join(f"SUM(a + {at}) AS s{at}" for at in range(1_900)) + " FROM t GROUP BY b",
    "OVER": "SELECT "
    + ", ".join(f"SUM(a) OVER (PARTITION BY b + {at} ORDER BY ts) AS c{at}" for at in range(1_900))
    + " FROM t",
    "LIKE": "CREATE TABLE t0 (a INT);"
    + "".join(f"CREATE TABLE t{at} (c{at} INT) LIKE t{at - 1};" for at in range(1, 1_900)),
    "WITH": chain(1_000, "SELECT a + b AS a, b FROM {below}").removeprefix(TABLE),
}
"""Scripts below the limits that once took minutes, or were refused."""


@pytest.mark.slow
@pytest.mark.parametrize("what", LARGE)
def test_check_answers_in_a_limited_time_below_the_limits(what: str, tmp_path: Path) -> None:
    check_in_limited_time(TABLE + LARGE[what], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("what", LONG)
@pytest.mark.parametrize("size", [1, 10])
def test_check_answers_in_a_limited_time(what: str, size: int, tmp_path: Path) -> None:
    text = TABLE + LONG[what]
    check_in_limited_time(text[: len(text) // size], tmp_path)


def check_in_limited_time(text: str, tmp_path: Path) -> None:
    """Run `check`, which reads two scripts: five seconds of processor time for each, plus the
    start.
    """
    script = tmp_path / "q.sql"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "everfold", "check", str(script), str(script)],
        capture_output=True,
        text=True,
        preexec_fn=limit_processor_time,
        check=False,
    )
    assert done.returncode in (0, 2, 3, 4, 5), done.stderr[-500:]
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
