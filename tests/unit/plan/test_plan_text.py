"""The text by which a job recognizes its query, pinned by a golden file.

Jobs store a digest of it: if this test fails because the text of a plan has changed, every stored
job would take its query for a changed one. Then increase `PLAN_TEXT_VERSION`, keep reading jobs of
the old version, and write the golden file again with `python tests/unit/plan/test_plan_text.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from everfold.connectors.registry import apply_connector
from everfold.jobs.manifest import fingerprint
from everfold.plan.nodes import Plan, Root
from everfold.plan.plan_text import PLAN_TEXT_VERSION, root_text
from everfold.plan.walk import walk_plan
from everfold.sql.planner import Session, Submit

GOLDEN = Path(__file__).parents[2] / "golden" / "plan_text.txt"
TABLES = """
CREATE TABLE t (k STRING, x INT, y DECIMAL(9, 2), f DOUBLE, xs ARRAY<INT>, r ROW<p INT>, ts TIMESTAMP(3),
  path STRING METADATA FROM 'file.path', pt AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'csv');
CREATE TABLE dim (k STRING, name STRING) WITH ('connector' = 'filesystem', 'path' = 'dim', 'format' = 'json');
CREATE TABLE u (k STRING PRIMARY KEY NOT ENFORCED, x INT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'u', 'properties.bootstrap.servers' = 'b:9092', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'print');
"""
STREAMS = (
    "SELECT k, x FROM t WHERE x > 1 AND k LIKE 'a%' OR y BETWEEN 1 AND 2.5",
    "SELECT UPPER(k), CAST(x AS STRING), CASE WHEN f > 1e0 THEN 'it''s' ELSE NULL END, r.p, path FROM t WHERE x IN (3, 1, 2)",
    "INSERT INTO o SELECT k, COUNT(*) FROM t GROUP BY k",
    "SET 'table.exec.state.ttl' = '1 h'; SELECT k, SUM(x) FILTER (WHERE x > 0), COUNT(DISTINCT x), AVG(y), LISTAGG(k, ';') FROM t GROUP BY k; RESET 'table.exec.state.ttl'",
    "SELECT k, x, COUNT(*) FROM t GROUP BY GROUPING SETS ((k), (x), ())",
    "SELECT k, window_start, MAX(x) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k",
    "SELECT k, window_end, MAX(x) FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR) GROUP BY window_start, window_end, k",
    "SELECT k, window_end, MAX(x) FROM CUMULATE(TABLE t, DESCRIPTOR(pt), INTERVAL '1' MINUTE, INTERVAL '1' HOUR) GROUP BY window_start, window_end, k",
    "SELECT k, window_end, MAX(x) FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k",
    "SELECT k, x, window_time FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
    "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) FROM t",
    "SELECT k, MIN(x) OVER (PARTITION BY k ORDER BY pt ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT k, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS n FROM t) WHERE n <= 3",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY x) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE n <= 2",
    "SELECT t.k, d.name, e FROM t LEFT JOIN dim AS d ON t.k = d.k CROSS JOIN UNNEST(t.xs) AS a (e) WHERE t.x IN (SELECT 1 FROM dim)",
    "SELECT k, SUM(v) FROM (SELECT k, x AS v FROM t UNION ALL SELECT k, x + 1 AS v FROM t WHERE NOT x > 3) GROUP BY k",
    "SELECT k, COUNT(*) FROM u GROUP BY k",
    "SET 'table.exec.emit.early-fire.enabled' = 'true'; SET 'table.exec.emit.early-fire.delay' = '1 s'; SELECT k, TUMBLE_END(ts, INTERVAL '1' HOUR), COUNT(*) FROM t GROUP BY k, TUMBLE(ts, INTERVAL '1' HOUR); RESET 'table.exec.emit.early-fire.enabled'",
)  # fmt: skip
BATCHES = (
    "SELECT k, x FROM t ORDER BY x DESC NULLS LAST LIMIT 3 OFFSET 1",
    "SELECT k FROM t INTERSECT SELECT k FROM dim",
    "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v (n, s)",
)
LENSES = (
    "INSERT INTO others SELECT STREAM k, COUNT(*) AS n FROM orders WINDOW BY TUMBLE 1h GROUP BY k",
    "INSERT INTO made SELECT TABLE k, COUNT(*) AS n FROM latest GROUP BY k",
)
TOPICS = """
CREATE TABLE orders(_key STRING, k STRING, x INT) FORMAT (STRING, JSON);
CREATE TABLE latest(_key STRING, k STRING, x INT) FORMAT (STRING, JSON);
CREATE TABLE made(_key STRING, k STRING, n LONG) FORMAT (STRING, JSON);
"""


def make_plans() -> Iterator[tuple[str, Root]]:
    """Yield the queries with their plans."""
    for queries, tables, options in (
        (STREAMS, TABLES, {}),
        (BATCHES, TABLES, {"execution.runtime-mode": "batch"}),
        (LENSES, TOPICS, {"everfold.dialect": "lenses"}),
    ):
        session = Session(options, lenient=True, connected=apply_connector)
        list(session.run(tables))
        for query in queries:
            for action in session.run(query):
                if isinstance(action, Submit):
                    yield from ((query, root) for root in action.roots)


def write_texts() -> str:
    parts = [f"version {PLAN_TEXT_VERSION}"]
    parts += [f"-- {query}\n{root_text(root)}" for query, root in make_plans()]
    return "\n\n".join(parts) + "\n"


def test_the_texts_are_those_of_the_golden_file() -> None:
    assert write_texts() == GOLDEN.read_text(encoding="utf-8")


def test_the_golden_file_has_every_node() -> None:
    seen = {type(node) for _, root in make_plans() for node in walk_plan(root.input)}
    assert seen == {*get_args(Plan)}


def test_each_query_has_a_fingerprint_of_its_own() -> None:
    fingerprints = [fingerprint([root], "UTC") for _, root in make_plans()]
    assert len({*fingerprints}) == len(fingerprints)
    assert all(text.startswith(f"{PLAN_TEXT_VERSION}:") for text in fingerprints)


if __name__ == "__main__":
    GOLDEN.write_text(write_texts(), encoding="utf-8")
