"""Measure how much CPU time `everfold explain` and `everfold check` take for the most demanding
scripts.

    python worst_scripts.py                     # all, some minutes
    python worst_scripts.py --only deep wide    # those whose names contain one of these words
    python worst_scripts.py --way run           # in memory, rows included

Every kind of script is made longer and longer, up to the limits and beyond, up to five million
characters. The output is a Markdown table: for each kind the size that took longest, its outcome,
and the seconds of CPU time. The aim is five seconds per script; `check` reads two. More fails the
run, and so does a script without an outcome.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from everfold.cli.check import check
from everfold.cli.explain import explain
from everfold.cli.run import RunOptions, Script, run
from everfold.errors import EverfoldError
from everfold.limits import MAX_CHARACTERS

AIM_S = 5.0
PATIENCE_S = 60
TABLE = "CREATE TABLE t (a INT, b INT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'number-of-rows' = '10');\n"
REFUSED = ("too-complex", "too-deep")

Make = Callable[[int], str]


def many(text: str, between: str = ", ") -> Callable[[int], str]:
    """Return a function that makes copies of a string, in each of which `{}` is replaced by its
    number.
    """
    return lambda count: between.join(text.replace("{}", str(at)) for at in range(count))


def chain(query: str, last: str = "SELECT * FROM {below}") -> Make:
    """Return a function that makes chained WITH names."""

    def make(count: int) -> str:
        names = "".join(f", c{at} AS ({query.replace('{below}', f'c{at - 1}')})" for at in range(1, count))
        return f"WITH c0 AS (SELECT * FROM t){names} {last.replace('{below}', f'c{count - 1}')}"

    return make


def views(query: str) -> Make:
    """Return a function that makes chained views."""

    def make(count: int) -> str:
        made = "".join(f"CREATE VIEW v{at} AS {query.replace('{below}', f'v{at - 1}')};\n" for at in range(1, count))
        return f"CREATE VIEW v0 AS SELECT * FROM t;\n{made}SELECT * FROM v{count - 1}"

    return make


def nest(before: str, after: str, core: str = "a", around: str = "SELECT {} FROM t") -> Make:
    """Return a function that makes nested brackets."""
    return lambda count: around.replace("{}", before * count + core + after * count)


def select(listed: Callable[[int], str], rest: str = " FROM t") -> Make:
    """Return a function that makes a query with a long list."""
    return lambda count: f"SELECT {listed(count)}{rest}"


def where(listed: Callable[[int], str]) -> Make:
    """Return a function that makes a query with a long condition."""
    return lambda count: f"SELECT a FROM t WHERE {listed(count)}"


FLINK: Mapping[str, Make] = {
    # deep
    "deep parentheses": nest("(", ")"),
    "deep calls": nest("ABS(", ")"),
    "deep CASE": nest("CASE WHEN a > 1 THEN ", " ELSE b END"),
    "deep CASE in ELSE": nest("CASE WHEN a > 1 THEN b ELSE ", " END"),
    "deep CAST": nest("CAST(", " AS BIGINT)"),
    "deep subqueries": nest("(SELECT * FROM ", ")", "t", "SELECT * FROM {}"),
    "deep IN subqueries": nest("a IN (SELECT b FROM t WHERE ", ")", "a > 1", "SELECT a FROM t WHERE {}"),
    "deep scalar subqueries": nest("(SELECT MAX(b) FROM t WHERE a = ", ")", "1"),
    "deep EXISTS": nest("EXISTS (SELECT 1 FROM t WHERE ", ")", "a > 1", "SELECT a FROM t WHERE {}"),
    "deep groups": nest("(SELECT a, COUNT(*) AS b FROM ", " GROUP BY a)", "t", "SELECT * FROM {}"),
    "deep types": lambda count: f"CREATE TABLE w (a {'ARRAY<' * count}INT{'>' * count})",
    "deep ROW types": lambda count: f"CREATE TABLE w (a {'ROW<f ' * count}INT{'>' * count})",
    "NOT": lambda count: f"SELECT a FROM t WHERE {'NOT ' * count}a > 1",
    "minus": lambda count: f"SELECT {'- ' * count}a FROM t",
    # long expressions
    "plus": lambda count: f"SELECT a{' + 1' * count} FROM t",
    "concatenation": lambda count: f"SELECT s{' || s' * count} FROM t",
    "AND": where(many("a > {}", " AND ")),
    "OR": where(many("a = {}", " OR ")),
    "OR of AND": where(many("(a = {} AND b = {})", " OR ")),
    "LIKE": where(many("s LIKE '%{}%'", " OR ")),
    "BETWEEN": where(many("a BETWEEN {} AND b", " OR ")),
    "IN list": lambda count: f"SELECT a FROM t WHERE a IN ({many('{}')(count)})",
    "IN list of texts": lambda count: f"SELECT a FROM t WHERE s IN ({many(chr(39) + 'x{}' + chr(39))(count)})",
    "IN list of expressions": lambda count: f"SELECT a FROM t WHERE a IN ({many('b + {}')(count)})",
    "IN list of rows": lambda count: f"SELECT a FROM t WHERE (a, b) IN ({many('({}, {})')(count)})",
    "NOT IN list": lambda count: f"SELECT a FROM t WHERE a NOT IN ({many('{}')(count)})",
    "CASE": lambda count: f"SELECT CASE {many('WHEN a = {} THEN b + {}', ' ')(count)} END FROM t",
    "simple CASE": lambda count: f"SELECT CASE a {many('WHEN {} THEN {}', ' ')(count)} END FROM t",
    "COALESCE": select(lambda count: f"COALESCE({many('a + {}')(count)})"),
    "CONCAT": select(lambda count: f"CONCAT({many('s')(count)})"),
    "ARRAY": select(lambda count: f"ARRAY[{many('{}')(count)}]"),
    "MAP": select(lambda count: f"MAP[{many('{}, s')(count)}]"),
    "ROW": select(lambda count: f"ROW({many('a')(count)})"),
    "JSON_OBJECT": select(lambda count: f"JSON_OBJECT({many('KEY ' + chr(39) + 'k{}' + chr(39) + ' VALUE a')(count)})"),
    "big numbers": lambda count: f"SELECT a + {'9' * count} FROM t",
    "many big numbers": select(many("CAST('" + "9" * 900 + "' AS DECIMAL(38, 0)) AS c{}")),
    # wide
    "columns": lambda count: (
        f"CREATE TABLE w ({many('c{} INT')(count)}) WITH ('connector' = 'datagen', 'number-of-rows' = '10'); SELECT * FROM w"
    ),
    "columns, joined": lambda count: (
        f"CREATE TABLE w ({many('c{} INT')(count)}) WITH ('connector' = 'datagen', 'number-of-rows' = '10'); SELECT x.* FROM w x, w y WHERE x.c0 = y.c0"
    ),
    "columns of CTAS": lambda count: (
        f"CREATE TABLE w WITH ('connector' = 'blackhole') AS SELECT {many('a AS c{}')(count)} FROM t"
    ),
    "computed columns": lambda count: (
        f"CREATE TABLE w (x INT, {many('c{} AS x + {}')(count)}) WITH ('connector' = 'datagen', 'number-of-rows' = '10'); SELECT * FROM w"
    ),
    "computed columns over each other": lambda count: (
        f"CREATE TABLE w (c INT, c0 AS c, {', '.join(f'c{at} AS c{at - 1} + 1' for at in range(1, count + 1))}) WITH ('connector' = 'datagen', 'number-of-rows' = '10'); SELECT * FROM w"
    ),
    "projection": select(many("a + {} AS c{}")),
    "the same name": select(many("a")),
    "stars": select(many("*")),
    "aliases that differ": select(many("a AS a{}")),
    "unknown columns": select(many("nope{}")),
    "unknown functions": select(many("NOPE{}(a)")),
    "windows over each other": lambda count: (
        f"SELECT {many('SUM(a) OVER w{} AS c{}')(count)} FROM t WINDOW {many('w{} AS (PARTITION BY b ORDER BY ts)')(count)}"
    ),
    "OVER": select(many("SUM(a + {}) OVER (PARTITION BY b ORDER BY ts) AS c{}")),
    "OVER, other partitions": select(many("SUM(a) OVER (PARTITION BY b + {} ORDER BY ts) AS c{}")),
    "SUM": lambda count: f"SELECT b, {many('SUM(a + {}) AS c{}')(count)} FROM t GROUP BY b",
    "SUM DISTINCT": lambda count: f"SELECT b, {many('SUM(DISTINCT a + {}) AS c{}')(count)} FROM t GROUP BY b",
    "SUM FILTER": lambda count: f"SELECT b, {many('SUM(a) FILTER (WHERE a > {}) AS c{}')(count)} FROM t GROUP BY b",
    "HAVING": lambda count: f"SELECT b FROM t GROUP BY b HAVING {many('SUM(a + {}) > {}', ' AND ')(count)}",
    "GROUP BY": lambda count: f"SELECT COUNT(*) FROM t GROUP BY {many('a + {}')(count)}",
    "GROUPING SETS": lambda count: f"SELECT COUNT(*) FROM t GROUP BY GROUPING SETS ({many('(a), (b), ()')(count)})",
    "CUBE": lambda count: f"SELECT COUNT(*) FROM t GROUP BY CUBE ({many('a + {}')(count)})",
    "CUBE and SUM": lambda count: (
        f"SELECT {many('SUM(a + {})')(count)} FROM t GROUP BY CUBE (a, b, s, a + 1, a + 2, a + 3, a + 4, a + 5)"
    ),
    "ROLLUP": lambda count: f"SELECT COUNT(*) FROM t GROUP BY ROLLUP ({many('a + {}')(count)})",
    "ORDER BY": lambda count: f"SELECT a FROM t ORDER BY {many('a + {}')(count)}",
    "PARTITION BY": lambda count: (
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {many('a + {}')(count)} ORDER BY ts) AS n FROM t) WHERE n <= 3"
    ),
    "VALUES": lambda count: f"SELECT * FROM (VALUES {many('({}, {})')(count)}) AS v(x, y)",
    "VALUES of one row": lambda count: f"VALUES ({many('{}')(count)})",
    "VALUES of texts": lambda count: f"VALUES {many('(' + chr(39) + 'x{}' + chr(39) + ')')(count)}",
    "PRIMARY KEY": lambda count: (
        f"CREATE TABLE w ({many('c{} INT')(count)}, PRIMARY KEY ({many('c{}')(count)}) NOT ENFORCED) WITH ('connector' = 'blackhole'); INSERT INTO w SELECT {many('a')(count)} FROM t"
    ),
    "options": lambda count: (
        f"CREATE TABLE w (a INT) WITH ('connector' = 'blackhole', {many(chr(39) + 'properties.x{}' + chr(39) + ' = ' + chr(39) + 'y' + chr(39))(count)}); SELECT a FROM w"
    ),
    "password options": lambda count: (
        f"CREATE TABLE w (a INT) WITH ('connector' = 'blackhole', {many(chr(39) + 'password{}' + chr(39) + ' = ' + chr(39) + 'y' + chr(39))(count)}); SELECT nope FROM w"
    ),
    # many relations
    "UNION ALL": many("SELECT a FROM t", " UNION ALL "),
    "UNION": many("SELECT a + {} FROM t", " UNION "),
    "EXCEPT": many("SELECT a FROM t", " EXCEPT "),
    "UNION ALL, wide": many(f"SELECT {', '.join(f'a + {at}' for at in range(100))} FROM t", " UNION ALL "),
    "UNION ALL of groups": many("SELECT b, SUM(a + {}) FROM t GROUP BY b", " UNION ALL "),
    "joins": lambda count: f"SELECT 1 FROM t{many(' JOIN t AS t{} ON t.a = t{}.a', '')(count)}",
    "joins of all columns": lambda count: f"SELECT * FROM t{many(' JOIN t AS t{} ON t.a = t{}.a', '')(count)}",
    "commas": lambda count: f"SELECT 1 FROM t{many(', t AS t{}', '')(count)}",
    "UNNEST": lambda count: f"SELECT 1 FROM t{many(' CROSS JOIN UNNEST(ARRAY[1]) AS u{}(x{})', '')(count)}",
    "IN subqueries": where(many("a IN (SELECT b FROM t)", " AND ")),
    "scalar subqueries": select(many("(SELECT MAX(b) FROM t) AS c{}")),
    "EXISTS": where(many("EXISTS (SELECT 1 FROM t AS u WHERE u.a = t.a AND u.b = {})", " OR ")),
    "WITH": chain("SELECT a + b AS a, b FROM {below}"),
    "WITH, stars": chain("SELECT * FROM {below}"),
    "WITH, filters": chain("SELECT * FROM {below} WHERE a > 1"),
    "WITH, groups": chain("SELECT a, SUM(b) AS b FROM {below} GROUP BY a"),
    "WITH, unions": chain("SELECT * FROM {below} UNION ALL SELECT * FROM t"),
    "WITH, doubling": chain("SELECT * FROM {below} UNION ALL SELECT * FROM {below}"),
    "WITH, doubling expressions": chain("SELECT a + a AS a, b FROM {below}"),
    "WITH, doubling CASE": chain("SELECT CASE WHEN a > b THEN a ELSE a + b END AS a, b FROM {below}"),
    "WITH, doubling joins": chain("SELECT x.a, y.b FROM {below} x JOIN {below} y ON x.a = y.a"),
    "WITH, doubling IN": chain("SELECT a, b FROM {below} WHERE a IN (SELECT b FROM {below})"),
    "WITH, unused": chain("SELECT * FROM t", "SELECT a FROM t"),
    "views": views("SELECT a + b AS a, b FROM {below}"),
    "views, doubling": views("SELECT * FROM {below} UNION ALL SELECT * FROM {below}"),
    "views, doubling expressions": views("SELECT a + a AS a, b FROM {below}"),
    "views, windows": views(
        "SELECT a, b, window_time AS ts FROM TUMBLE(TABLE {below}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    ),
    "windows, nested": nest(
        "(SELECT a, b, ts FROM TUMBLE((SELECT * FROM ",
        "), DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
        "t",
        "SELECT * FROM {}",
    ),
    "Top-N, nested": nest(
        "(SELECT a, b, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY ts) AS n FROM ",
        ") WHERE n <= 3)",
        "t",
        "SELECT * FROM {}",
    ),
    # many statements
    "SHOW TABLES": many("SHOW TABLES", ";"),
    "queries": many("SELECT a FROM t", ";"),
    "queries, wide": many(f"SELECT {', '.join(f'a + {at}' for at in range(50))} FROM t", ";"),
    "INSERTs": lambda count: (
        f"CREATE TABLE o (a INT) WITH ('connector' = 'blackhole'); {many('INSERT INTO o SELECT a FROM t', ';')(count)}"
    ),
    "statement set": lambda count: (
        f"CREATE TABLE o (a INT) WITH ('connector' = 'blackhole'); EXECUTE STATEMENT SET BEGIN {many('INSERT INTO o SELECT a + {} FROM t;', '')(count)} END"
    ),
    "statement set of groups": lambda count: (
        f"CREATE TABLE o (a INT, b BIGINT) WITH ('connector' = 'blackhole'); EXECUTE STATEMENT SET BEGIN {many('INSERT INTO o SELECT a + {}, COUNT(*) FROM t GROUP BY a + {};', '')(count)} END"
    ),
    "CREATE TABLE": many("CREATE TABLE t{} (a INT) WITH ('connector' = 'datagen')", ";"),
    "CREATE TABLE, wide": many(
        f"CREATE TABLE t{{}} ({', '.join(f'c{at} INT' for at in range(50))}) WITH ('connector' = 'datagen')", ";"
    ),
    "CREATE VIEW": many("CREATE VIEW v{} AS SELECT a, b FROM t", ";"),
    "CREATE VIEW of a view": many("CREATE VIEW v{} AS SELECT a, b FROM (SELECT * FROM t) AS x", ";"),
    "LIKE of each other": lambda count: (
        f"CREATE TABLE t0 (a INT) WITH ('connector' = 'datagen');{''.join(f'CREATE TABLE t{at} (c{at} INT) LIKE t{at - 1};' for at in range(1, count))}"
    ),
    "SET": many("SET 'pipeline.name' = 'x{}'", ";"),
    "dialects": many("SET 'everfold.dialect' = 'flink';\nSELECT {}", ";\n"),
    "SHOW CREATE": lambda count: (
        f"CREATE TABLE w ({many('c{} INT')(1000)}) WITH ('connector' = 'datagen'); {many('SHOW CREATE TABLE w', ';')(count)}"
    ),
    "EXPLAIN": many("EXPLAIN SELECT a FROM t", ";"),
    "undeclared tables": many("SELECT a{} FROM u{}", ";"),
    "undeclared columns": lambda count: f"SELECT {many('a{}')(count)} FROM undeclared",
    "undeclared tables, joined": lambda count: f"SELECT 1 FROM u{many(' JOIN u{} ON u.a = u{}.a', '')(count)}",
    # strings
    "a long text": lambda count: f"SELECT '{'x' * count}' FROM t",
    "long texts": lambda count: f"SELECT {many(chr(39) + 'x' * 10_000 + chr(39) + ' AS c{}')(count)} FROM t",
    "a long text with quotes": lambda count: f"SELECT '{chr(39) * 2 * count}' FROM t",
    "a long name": lambda count: f"SELECT a AS `{'x' * count}` FROM t",
    "a long comment": lambda count: f"SELECT a /*{'x' * count}*/ FROM t",
    "a long comment of passwords": lambda count: f"SELECT nope /*{'password=x ' * count}*/ FROM t",
    "long comments of lines": lambda count: "-- x\n" * count + "SELECT a FROM t",
    "comments that never end": lambda count: "SELECT a /* " * count,
    "spaces": lambda count: "SELECT" + " " * count + "a FROM t",
    "lines and a mistake": lambda count: "\n" * count + "SELECT nope FROM t",
    "quotes that never end": lambda count: "SELECT " + "'x " * count,
    "passwords that do not parse": lambda count: f"SELECT {'password = ' * count}",
    "passwords in quotes that do not parse": lambda count: "WITH " + "'password' '" * count,
    "URLs that do not parse": lambda count: f"SELECT {'a://b@c ' * count}",
    "keys that do not parse": lambda count: f"SELECT {'-----BEGIN PRIVATE KEY-----' * count}",
    "semicolons": lambda count: ";" * count,
    "opening parentheses": lambda count: "(" * count,
    "opening brackets": lambda count: "SELECT " + "[" * count,
    "signs": lambda count: "SELECT " + "@" * count,
    "digits": lambda count: "SELECT " + "1 " * count,
    "words": lambda count: "SELECT " + "x " * count,
    "regular expressions": lambda count: f"SELECT REGEXP_EXTRACT(s, '{'(a*)*' * count}b') FROM t",
    "LIKE pattern": lambda count: f"SELECT a FROM t WHERE s LIKE '{'%a' * count}'",
    "hints": lambda count: (
        f"SELECT a FROM t{many(' /*+ STATE_TTL(' + chr(39) + 't' + chr(39) + ' = ' + chr(39) + '1 d' + chr(39) + ') */', '')(count)}"
    ),
}
LENSES: Mapping[str, Make] = {
    "lenses: columns": lambda count: f"INSERT INTO o SELECT STREAM {many('a{} AS b{}')(count)} FROM i",
    "lenses: SUM": lambda count: f"INSERT INTO o SELECT STREAM {many('SUM(a + {}) AS b{}')(count)} FROM i GROUP BY k",
    "lenses: AND": lambda count: f"INSERT INTO o SELECT STREAM a FROM i WHERE {many('a > {}', ' AND ')(count)}",
    "lenses: plus": lambda count: f"INSERT INTO o SELECT STREAM a{' + 1' * count} AS x FROM i",
    "lenses: parentheses": lambda count: f"INSERT INTO o SELECT STREAM {'(' * count}a{')' * count} AS x FROM i",
    "lenses: INSERTs": many("INSERT INTO o{} SELECT STREAM a FROM i", ";\n"),
    "lenses: chained INSERTs": lambda count: ";\n".join(
        f"INSERT INTO o{at + 1} SELECT STREAM a FROM o{at}" for at in range(count)
    ),
    "lenses: GROUP BY": lambda count: f"INSERT INTO o SELECT STREAM COUNT(*) AS n FROM i GROUP BY {many('k{}')(count)}",
    "lenses: SET": many("SET defaults.topic.properties.x{} = 'y'", ";\n"),
    "lenses: CREATE TABLE": lambda count: (
        f"CREATE TABLE i ({many('c{} INT')(count)}) FORMAT (STRING, JSON); INSERT INTO o SELECT STREAM c0 FROM i"
    ),
    "lenses: CASE": lambda count: (
        f"INSERT INTO o SELECT STREAM CASE {many('WHEN a = {} THEN b', ' ')(count)} ELSE b END AS x FROM i"
    ),
    "lenses: quotes that never end": lambda count: "INSERT INTO o SELECT STREAM " + "'x " * count,
    "lenses: words": lambda count: "INSERT INTO o SELECT STREAM " + "x " * count,
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The outcome of a script with this number of parts: an error code or `ok`, and the seconds
    of CPU time.
    """

    count: int
    characters: int
    outcome: str
    seconds: float


def run_command(way: str, text: str, options: RunOptions, scripts: int) -> str:
    """Run a command. Return its outcome."""
    script = Script(text=text, source="q.sql", folder=Path("/nonexistent"), name="q")
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        try:
            if way == "explain":
                explain(script, options)
            elif way == "check":
                assert scripts == 2
                check(script, script, options, "text")
            else:
                run(script, options)
        except EverfoldError as error:
            return f"{error.code}{'' if len(str(error)) < 100_000 else ', a long message'}"
    return "ok" if len(out.getvalue()) < 50_000_000 else "ok, much text"


def run_in_process(way: str, count: int, text: str, options: RunOptions) -> Cost:
    """Run a command in a separate process, as it may never end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        used = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + PATIENCE_S, int(used) + PATIENCE_S))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        try:
            outcome = run_command(way, text, options, 2)
        except BaseException as error:
            outcome = f"NO ANSWER: {type(error).__name__}"
        os.write(writing, json.dumps([outcome, time.process_time() - used]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        received = answer.read()
    os.waitpid(child, 0)
    outcome, seconds = json.loads(received) if received else ("NO ANSWER: too slow", float(PATIENCE_S))
    return Cost(count, len(text), outcome, seconds)


def measure_sizes(make: Make, ask: Callable[[int, str], Cost]) -> Iterator[Cost]:
    """Yield the costs of longer and longer scripts, and of those near the size at which they
    are refused.
    """
    count, before, last = 64, 0, ""
    while True:
        text = make(count)
        if len(text) > MAX_CHARACTERS - len(TABLE) - 200:
            break
        cost = ask(count, text)
        yield cost
        if cost.outcome.startswith("NO ANSWER") or cost.seconds > 3 * AIM_S:
            return
        if last != cost.outcome and before:
            low, high = before, count
            for _ in range(2):
                middle = (low + high) // 2
                between = ask(middle, make(middle))
                yield between
                low, high = (middle, high) if between.outcome == last else (low, middle)
        last, before = cost.outcome, count
        count *= 16
    low, high = before, count  # the longest script with less than five million characters
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if len(make(middle)) <= MAX_CHARACTERS - len(TABLE) - 200 else (low, middle)
    if low > before:
        yield ask(low, make(low))


def main() -> int:
    """Measure. Return whether a script took too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=["explain", "check", "run"], nargs="*", default=["explain", "check"])
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--mode", choices=["streaming", "batch"], nargs="*", default=["streaming", "batch"])
    arguments = parser.parse_args()
    run_command("check", TABLE + "SELECT a, COUNT(*) FROM t GROUP BY a", RunOptions(), 2)  # imports are not measured
    failed = 0
    print("| script | way | parts | characters | answer | s |\n| --- | --- | ---: | ---: | --- | ---: |")
    for name, make in {**FLINK, **LENSES}.items():
        if not any(word in name for word in arguments.only):
            continue
        for way in arguments.way:
            worst: Cost | None = None
            for mode in ["streaming"] if name in LENSES else arguments.mode:
                options = RunOptions(
                    batch=mode == "batch", dialect="lenses" if name in LENSES else "flink", engine="memory"
                )
                table = "" if name in LENSES else TABLE

                def ask(
                    count: int, text: str, way: str = way, options: RunOptions = options, table: str = table
                ) -> Cost:
                    return run_in_process(way, count, table + text, options)

                for cost in measure_sizes(make, ask):
                    if "NO ANSWER" in cost.outcome or worst is None or cost.seconds > worst.seconds:
                        worst = cost
            assert worst is not None
            wrong = worst.seconds > AIM_S * (2 if way == "check" else 1) or "NO ANSWER" in worst.outcome
            failed += wrong
            mark = " **!**" if wrong else ""
            print(
                f"| {name} | {way} | {worst.count:,} | {worst.characters:,} | {worst.outcome} | {worst.seconds:.1f}{mark} |",
                flush=True,
            )
    print(f"\n{failed} over the aim" if failed else "\nall within the aim")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
