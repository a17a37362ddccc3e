"""Plan rewrites: fewer columns and fewer projections, the same results."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

from everfold.plan.branches import column_texts
from everfold.plan.canonical import call_text
from everfold.plan.explain import duration, explain
from everfold.plan.nodes import Collect, GroupAggregate, Plan, Project, Scan, WindowAggregate
from everfold.plan.rewrites import RULES, SHORTENING_RULES
from everfold.plan.walk import walk_plan
from everfold.sql.planner import Session, Submit

TABLES = """
CREATE TABLE Bid (bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING, tags ARRAY<STRING>,
                  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND);
CREATE TABLE t (a INT, b INT, c STRING);
CREATE TABLE s (x INT);
"""


def plan_script(sql: str, *, batch: bool = False) -> Submit:
    session = Session(options={"execution.runtime-mode": "batch"} if batch else {})
    list(session.run(TABLES))
    *_, action = session.run(sql)
    assert isinstance(action, Submit)
    return action


def plan_of(sql: str, *, batch: bool = False) -> Plan:
    (root,) = plan_script(sql, batch=batch).roots
    assert isinstance(root, Collect)
    return root.input


def scan_columns(sql: str, *, batch: bool = False) -> list[str]:
    return [" ".join(node.schema.names) for node in walk_plan(plan_of(sql, batch=batch)) if isinstance(node, Scan)]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT c FROM t WHERE a > 1", ["a c"]),
        ("SELECT * FROM t", ["a b c"]),
        ("SELECT 1 AS x FROM t", ["a"]),
        ("SELECT COUNT(*) FROM t", ["a"]),
        ("SELECT a FROM (SELECT a, b FROM t) UNION ALL SELECT b FROM t", ["a b", "a b"]),
        ("SELECT x.c FROM t AS x JOIN t AS y ON x.a = y.a", ["a c", "a c"]),
        ("SELECT a FROM t UNION SELECT a FROM t", ["a", "a"]),
        ("SELECT n FROM (SELECT COUNT(*) AS n, SUM(b) AS m FROM t GROUP BY a) ORDER BY n LIMIT 1", ["a"]),
        ("SELECT item FROM Bid CROSS JOIN UNNEST(tags) AS u (e) WHERE e = 'x'", ["item tags"]),
        (
            "SELECT window_start, SUM(price) FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY) GROUP BY window_start, window_end",
            ["bidtime price"],
        ),
        ("SELECT item FROM SESSION(TABLE Bid PARTITION BY supplier_id, DESCRIPTOR(bidtime), INTERVAL '1' DAY)",
         ["bidtime item supplier_id"]),
    ],
)  # fmt: skip
def test_scans_read_only_used_columns(sql: str, columns: list[str]) -> None:
    assert scan_columns(sql, batch=True) == columns


def test_a_stream_reads_its_time_attribute_too() -> None:
    assert scan_columns("SELECT item FROM Bid WHERE price > 1") == ["bidtime price item"]


def test_unused_calls_are_removed() -> None:
    plan = plan_of(
        """SELECT window_end, n FROM (SELECT window_end, COUNT(*) AS n, SUM(price) AS m, MAX(item) AS i
           FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY) GROUP BY window_start, window_end)"""
    )
    aggregate = next(node for node in walk_plan(plan) if isinstance(node, WindowAggregate))
    assert [call.function for call in aggregate.calls] == ["COUNT"]
    aggregate_all = next(node for node in walk_plan(plan_of("SELECT 1 AS x FROM (SELECT SUM(a) AS m FROM t)", batch=True))
                         if isinstance(node, GroupAggregate))  # fmt: skip
    assert len(aggregate_all.calls) == 1


def test_a_statement_set_reads_a_table_once() -> None:
    action = plan_script(
        "BEGIN STATEMENT SET; INSERT INTO s SELECT a FROM t; INSERT INTO s SELECT b FROM t WHERE a > 1; END"
    )
    scans = [node.schema.names for root in action.roots for node in walk_plan(root.input) if isinstance(node, Scan)]
    assert scans == [("a", "b"), ("a", "b")]
    assert len(action.sources) == 1


def test_projections_are_merged() -> None:
    plan = plan_of("SELECT y + 1 AS z FROM (SELECT x * 2 AS y FROM (SELECT a AS x, b FROM t))")
    assert [type(node) for node in walk_plan(plan)] == [Project, Scan]
    plan = plan_of("SELECT y + y AS z FROM (SELECT a * 2 AS y FROM t)")
    assert [type(node) for node in walk_plan(plan)] == [Project, Project, Scan]
    assert isinstance(plan_of("SELECT a, b, c FROM t"), Scan)


@pytest.mark.parametrize("rule", [*RULES, *SHORTENING_RULES], ids=lambda rule: rule.__name__)
def test_a_rule_is_a_module_with_an_example(rule: Callable[..., object]) -> None:
    assert rule.__module__ == f"everfold.plan.rewrites.{rule.__name__}"
    assert re.search(r"\n\nBefore: \S.*\nAfter:  \S", inspect.cleandoc(rule.__doc__ or ""), re.S)


# --- canonical strings --------------------------------------------------------------------------


def calls_of(sql: str) -> list[str]:
    aggregate = next(node for node in walk_plan(plan_of(sql)) if isinstance(node, WindowAggregate))
    return [call_text(aggregate, call) for call in aggregate.calls]


def test_a_call_is_named_by_its_arguments_and_filter() -> None:
    window = "TUMBLE(TABLE {}, DESCRIPTOR(bidtime), INTERVAL '1' DAY) GROUP BY window_start, window_end"
    plain = calls_of(
        f"SELECT SUM(price), COUNT(*) AS n, MIN(item) FILTER (WHERE price > 1) FROM {window.format('Bid')}"
    )
    assert plain[:2] == ["SUM(Bid.price)", "COUNT()"]
    assert plain[2].startswith("MIN(Bid.item) FILTER (>(")
    session = Session()
    list(session.run(TABLES + "CREATE VIEW v AS SELECT bidtime, item AS thing, price AS p FROM Bid WHERE item <> 'x';"))
    *_, action = session.run(f"SELECT MIN(thing) FILTER (WHERE p > 1), SUM(p) AS total FROM {window.format('v')}")
    assert isinstance(action, Submit)
    aggregate = next(node for node in walk_plan(action.roots[0].input) if isinstance(node, WindowAggregate))
    assert [call_text(aggregate, call) for call in aggregate.calls] == [plain[2], plain[0]]


def test_columns_have_canonical_strings() -> None:
    assert column_texts(plan_of("SELECT a, b FROM t UNION ALL SELECT b, b FROM t")) == ("(t.a | t.b)", "t.b")
    assert column_texts(plan_of("SELECT a, SUM(b) AS n FROM t GROUP BY a", batch=True)) == ("t.a", "SUM(t.b)")
    assert column_texts(plan_of("SELECT e FROM Bid CROSS JOIN UNNEST(tags) AS u (e)")) == ("UNNEST(Bid.tags)[0]",)


# --- EXPLAIN --------------------------------------------------------------------------------------


def test_explain_shows_the_plan() -> None:
    action = plan_script(
        """SELECT window_start, supplier_id, COUNT(*) AS n, MAX(price) FILTER (WHERE item = 'A') AS m
           FROM HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '1' HOUR)
           WHERE item <> 'x' GROUP BY window_start, window_end, supplier_id"""
    )
    assert explain(action.roots[0]).splitlines() == [
        "Collect(columns=[window_start, supplier_id, n, m]) [I]",
        "└─ Project(window_start, k0 AS supplier_id, a0 AS n, a1 AS m) [I]",
        (
            "   └─ WindowAggregate(HOP(slide=5 min, size=1 h), time=[bidtime], keys=[supplier_id], "
            "calls=[COUNT(*), MAX(price) FILTER (WHERE item = 'A')]) [I]"
        ),
        "      │  state: accumulators per slice of 5 min and key, until its last window has fired",
        "      └─ Filter(item <> 'x') [I]",
        "         └─ WatermarkAssigner(rowtime=[bidtime], watermark=[bidtime - INTERVAL 1 s]) [I]",
        "            └─ Scan(table=[Bid], columns=[bidtime, price, item, supplier_id]) [I]",
    ]


def test_explain_shows_batch_plans_and_several_inputs() -> None:
    action = plan_script(
        "SELECT x.a, COUNT(*) AS n FROM t AS x JOIN t AS y ON x.a = y.b GROUP BY x.a ORDER BY n DESC LIMIT 5",
        batch=True,
    )
    assert explain(action.roots[0], streaming=False).splitlines() == [
        "Collect(columns=[a, n])",
        "└─ Limit(count=[5], offset=[0])",
        "   └─ Sort(n DESC)",
        "      └─ Project(k0 AS a, a0 AS n)",
        "         └─ GroupAggregate(keys=[a], calls=[COUNT(*)])",
        "            └─ Join(kind=[inner], on=[a = b])",
        "               ├─ Scan(table=[t], columns=[a, b])",
        "               └─ Scan(table=[t], columns=[a, b])",
    ]


def test_durations_are_formatted() -> None:
    assert [duration(ms) for ms in (0, 1, 1500, 90_000, 3_600_000, 86_400_000)] == [
        "0 ms",
        "1 ms",
        "1500 ms",
        "90 s",
        "1 h",
        "1 d",
    ]
