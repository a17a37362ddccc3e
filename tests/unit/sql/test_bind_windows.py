"""Window TVFs and the aggregates over them: the plans of queries, and what is refused where."""

from __future__ import annotations

from typing import TypeVar

import pytest

from everfold.errors import EverfoldError
from everfold.plan.expressions import InputRef
from everfold.plan.nodes import Filter, GroupAggregate, Plan, TimeKind, Unnest, WindowAggregate, WindowTableFunction
from everfold.plan.walk import walk_plan
from everfold.plan.windows import Cumulate, Hop, Session, Tumble, Window
from everfold.sql.planner import Session as SqlSession
from everfold.sql.planner import Submit

BID = """
CREATE TABLE Bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING, tags ARRAY<STRING>,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND);
CREATE TABLE Local (ts TIMESTAMP_LTZ(3), x INT, WATERMARK FOR ts AS ts);
CREATE TABLE Plain (ts TIMESTAMP(3), s STRING, x INT);
"""
MINUTE = 60_000
Node = TypeVar("Node")


def plan_of(sql: str, *, batch: bool = False, tables: str = BID, zone: str = "UTC") -> Plan:
    mode = {"execution.runtime-mode": "batch"} if batch else {}
    session = SqlSession(options={**mode, "table.local-time-zone": zone})
    list(session.run(tables))
    *_, action = session.run(sql)
    assert isinstance(action, Submit)
    (root,) = action.roots
    return root.input


def node_of(plan: Plan, kind: type[Node]) -> Node:
    found = [node for node in walk_plan(plan) if isinstance(node, kind)]
    assert found, f"no {kind.__name__}"
    return found[0]


def refusal(sql: str, *, batch: bool = False, tables: str = BID) -> tuple[str, str, int, int]:
    with pytest.raises(EverfoldError) as caught:
        plan_of(sql, batch=batch, tables=tables)
    found = caught.value.diagnostics[0]
    assert found.span is not None, found
    return found.code, found.message, found.span.line, found.span.column


@pytest.mark.parametrize(
    ("function", "window"),
    [
        ("TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)", Tumble(size_ms=10 * MINUTE)),
        (
            "TABLE(TUMBLE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL '1' HOUR, OFFSET => INTERVAL '-5' MINUTE))",
            Tumble(size_ms=60 * MINUTE, offset_ms=-5 * MINUTE),
        ),
        (
            "HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES, INTERVAL '12' MINUTES)",
            Hop(slide_ms=5 * MINUTE, size_ms=10 * MINUTE, offset_ms=12 * MINUTE),
        ),
        (
            "TABLE(CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES))",
            Cumulate(step_ms=2 * MINUTE, size_ms=10 * MINUTE),
        ),
        ("SESSION(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)", Session(gap_ms=2 * MINUTE)),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_window_functions_are_bound(function: str, window: Window, batch: bool) -> None:
    aggregate = node_of(
        plan_of(f"SELECT window_start, SUM(price) FROM {function} GROUP BY window_start, window_end", batch=batch),
        WindowAggregate,
    )
    assert aggregate.window == window
    assert aggregate.time is (TimeKind.BOUNDED if batch else TimeKind.ROWTIME)
    assert aggregate.zone is None
    plain = node_of(plan_of(f"SELECT * FROM {function}", batch=batch), WindowTableFunction)
    assert plain.window == window


def test_a_window_aggregate_has_keys_calls_and_a_window() -> None:
    plan = plan_of(
        """SELECT window_time, supplier_id, COUNT(*) + 1 AS n, window_end FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY)
           WHERE item <> 'x' GROUP BY window_end, supplier_id, window_start, window_time HAVING MAX(price) > 3"""
    )
    assert plan.schema.names == ("window_time", "supplier_id", "n", "window_end")
    assert [field.time for field in plan.schema] == ["rowtime", None, None, None]
    aggregate = node_of(plan, WindowAggregate)
    assert aggregate.schema.names == ("k0", "a0", "a1", "window_start", "window_end", "window_time")
    assert isinstance(aggregate.input, Filter)
    having = node_of(plan, Filter)
    assert having.input == aggregate


def test_equal_calls_are_computed_once() -> None:
    plan = plan_of(
        """SELECT SUM(price), SUM(price) + 1, SUM(price) FILTER (WHERE item = 'A')
           FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY) GROUP BY window_start, window_end HAVING SUM(price) > 1"""
    )
    assert len(node_of(plan, WindowAggregate).calls) == 2


def test_sessions_are_grouped_by_their_partition_keys() -> None:
    plan = plan_of(
        """SELECT window_start, supplier_id, item, SUM(price)
           FROM SESSION(TABLE Bid PARTITION BY (supplier_id, item), DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)
           GROUP BY window_start, window_end, item, supplier_id"""
    )
    assert [key.name for key in node_of(plan, WindowAggregate).keys if isinstance(key, InputRef)] == [
        "item",
        "supplier_id",
    ]


def test_the_session_time_zone_applies_to_local_timestamps() -> None:
    sql = "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE Local, DESCRIPTOR(ts), INTERVAL '1' DAY) GROUP BY window_start, window_end"
    assert node_of(plan_of(sql, zone="Asia/Shanghai"), WindowAggregate).zone == "Asia/Shanghai"
    assert node_of(plan_of(sql), WindowAggregate).zone == "UTC"


def test_processing_time_windows_are_refused_in_batch() -> None:
    tables = "CREATE TABLE Clock (x INT, proc AS PROCTIME());"
    sql = "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE Clock, DESCRIPTOR(proc), INTERVAL '1' DAY) GROUP BY window_start, window_end"
    assert node_of(plan_of(sql, tables=tables), WindowAggregate).time is TimeKind.PROCTIME
    assert refusal(sql, batch=True, tables=tables)[0] == "proctime-in-batch"


def test_window_columns_keep_their_meaning_through_subqueries() -> None:
    plan = plan_of(
        """SELECT s, e, i, COUNT(*) FROM (
             SELECT ws AS s, we AS e, i FROM (
               SELECT window_start AS ws, window_end AS we, item || '!' AS i, price
               FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)) WHERE price > 1)
           GROUP BY s, e, i"""
    )
    aggregate = node_of(plan, WindowAggregate)
    assert aggregate.window == Tumble(size_ms=10 * MINUTE)
    assert not [node for node in walk_plan(plan) if isinstance(node, WindowTableFunction)]
    assert isinstance(aggregate.input, Filter)


def test_conditions_on_the_window_are_applied_after_the_aggregate() -> None:
    plan = plan_of(
        """SELECT window_start, COUNT(*) FROM HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)
           WHERE window_start >= TIMESTAMP '2020-01-01 00:00:00' AND price > 1 GROUP BY window_start, window_end"""
    )
    above = node_of(plan, Filter)
    assert isinstance(above.input, WindowAggregate)
    assert isinstance(above.input.input, Filter)
    assert above.input.window == Hop(slide_ms=5 * MINUTE, size_ms=10 * MINUTE)


@pytest.mark.parametrize(
    ("function", "slice_ms", "keys"),
    [
        ("TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)", 10 * MINUTE, 1),
        ("HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)", 5 * MINUTE, 2),
        ("CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES)", 2 * MINUTE, 2),
    ],
)
def test_rows_that_use_their_window_are_expanded_before_aggregation(function: str, slice_ms: int, keys: int) -> None:
    plan = plan_of(
        f"""SELECT window_start, window_end, item, MAX(CASE WHEN bidtime < window_start + INTERVAL '1' MINUTE THEN price END)
            FROM {function} WHERE price > 1 OR window_end > bidtime + INTERVAL '1' MINUTE GROUP BY window_start, window_end, item"""
    )
    aggregate = node_of(plan, WindowAggregate)
    assert aggregate.window == Tumble(size_ms=slice_ms)
    assert aggregate.input.schema.names[aggregate.time_column] == "window_time"
    assert len(aggregate.keys) == keys
    assert node_of(aggregate, WindowTableFunction)


def test_windowed_results_can_be_aggregated_by_window() -> None:
    plan = plan_of(
        """SELECT window_start, window_end, SUM(n) FROM (
             SELECT window_start, window_end, item, COUNT(*) AS n FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
             GROUP BY window_start, window_end, item) GROUP BY window_start, window_end"""
    )
    outer, inner = (node for node in walk_plan(plan) if isinstance(node, WindowAggregate))
    assert outer.window == inner.window == Tumble(size_ms=10 * MINUTE)
    assert outer.input.schema.names[outer.time_column] == "window_time"
    assert (len(outer.keys), len(inner.keys)) == (0, 1)


def test_windows_can_be_chained() -> None:
    tables = (
        BID
        + """CREATE VIEW window1 AS SELECT window_start AS s, window_end AS e, window_time AS rowtime, SUM(price) AS part
      FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES) GROUP BY supplier_id, window_start, window_end, window_time;"""
    )
    plan = plan_of(
        """SELECT window_start, window_end, SUM(part) FROM TUMBLE(TABLE window1, DESCRIPTOR(rowtime), INTERVAL '10' MINUTES)
           GROUP BY window_start, window_end""",
        tables=tables,
    )
    outer, inner = (node for node in walk_plan(plan) if isinstance(node, WindowAggregate))
    assert (outer.window, inner.window) == (Tumble(size_ms=10 * MINUTE), Tumble(size_ms=5 * MINUTE))


def test_a_common_table_expression_can_have_windows() -> None:
    plan = plan_of(
        """WITH q (at, x) AS (SELECT bidtime, price FROM Bid)
           SELECT window_start, SUM(x) AS s FROM TUMBLE(TABLE q, DESCRIPTOR(at), INTERVAL '1' DAY) AS w
           WHERE w.x > 1 GROUP BY window_start, w.window_end"""
    )
    assert plan.schema.names == ("window_start", "s")
    assert node_of(plan, WindowAggregate).time is TimeKind.ROWTIME


def test_unnest_may_be_between_window_and_aggregate() -> None:
    plan = plan_of(
        """SELECT window_start, tag, COUNT(*) FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
           CROSS JOIN UNNEST(tags) AS u (tag) GROUP BY window_start, window_end, tag"""
    )
    assert isinstance(node_of(plan, WindowAggregate).input, Unnest)


def test_distinct_windows_are_an_aggregate_without_calls() -> None:
    plan = plan_of(
        "SELECT DISTINCT window_start, window_end, item FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY)"
    )
    assert node_of(plan, WindowAggregate).calls == ()
    assert plan.schema.names == ("window_start", "window_end", "item")


def test_batch_accepts_windows_that_a_stream_refuses() -> None:
    half = "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY) GROUP BY window_start"
    assert isinstance(node_of(plan_of(half, batch=True), GroupAggregate).input, WindowTableFunction)
    sessions = """SELECT window_start, window_end, item, COUNT(*) FROM SESSION(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY)
                  GROUP BY window_start, window_end, item"""
    assert isinstance(node_of(plan_of(sessions, batch=True), GroupAggregate).input, WindowTableFunction)
    bounded = "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE Plain, DESCRIPTOR(ts), INTERVAL '1' DAY) GROUP BY window_start, window_end"
    assert node_of(plan_of(bounded, batch=True), WindowAggregate).time is TimeKind.BOUNDED


def _select_windows(arguments: str, kind: str = "TUMBLE", table: str = "Bid", time: str = "bidtime") -> str:
    return f"SELECT *\nFROM {kind}(TABLE {table}, DESCRIPTOR({time}), {arguments})"


@pytest.mark.parametrize(
    ("sql", "code", "words", "line", "column"),
    [
        (_select_windows("INTERVAL '0' MINUTES"), "window-size", "size of TUMBLE must be positive", 2, 45),
        (_select_windows("INTERVAL '-5' MINUTES"), "window-size", "must be positive", 2, 45),
        (_select_windows("INTERVAL '1' MONTH"), "window-size", "months are not", 2, 45),
        (_select_windows("INTERVAL '1' MINUTE + INTERVAL '1' MINUTE"), "window-size", "constant INTERVAL", 2, 45),
        (_select_windows("10"), "window-size", "constant INTERVAL", 2, 45),
        (_select_windows("INTERVAL '10' MINUTES, -INTERVAL '1' MINUTE"), "window-size", "constant INTERVAL", 2, 68),
        (_select_windows("INTERVAL '10' MINUTES, INTERVAL '10' MINUTE"), "window-offset", "shorter than its size", 2, 68),
        (
            _select_windows("INTERVAL '3' MINUTES, INTERVAL '10' MINUTES", "HOP").replace("*", "COUNT(*)")
            + " GROUP BY window_start, window_end",
            "window-size",
            "multiple of its slide",
            2,
            6,
        ),
        (_select_windows("INTERVAL '3' MINUTES, INTERVAL '10' MINUTES", "CUMULATE"), "window-size", "multiple of its step", 2, 69),
        (_select_windows("INTERVAL '0' MINUTES", "SESSION"), "window-size", "gap of SESSION must be positive", 2, 46),
        (_select_windows("INTERVAL '1' DAY", time="bidtme"), "unknown-column", "`bidtme`", 2, 35),
        (_select_windows("INTERVAL '1' DAY", time="item"), "no-time-attribute", "`item` is a STRING", 2, 35),
        (_select_windows("INTERVAL '1' DAY", table="Plain", time="ts"), "no-time-attribute", "needs one in streaming", 2, 37),
        (_select_windows("INTERVAL '1' DAY", table="Bit"), "unknown-table", "`Bit`", 2, 19),
        (
            "SELECT * FROM SESSION(TABLE Bid PARTITION BY nobody, DESCRIPTOR(bidtime), INTERVAL '1' DAY)",
            "unknown-column", "a PARTITION BY column", 1, 46,
        ),
        (
            "SELECT window_start, window_time FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY) GROUP BY window_start, window_end",
            "not-in-group-by", "`window_time`", 1, 22,
        ),
        ("SELECT TUMBLE_START(bidtime, INTERVAL '1' DAY) FROM Bid", "misplaced-window", "`TUMBLE_START`", 1, 8),
    ],
)  # fmt: skip
def test_wrong_windows_are_refused(sql: str, code: str, words: str, line: int, column: int) -> None:
    found = refusal(sql)
    assert (found[0], *found[2:]) == (code, line, column), found
    assert words in found[1]


def test_a_column_without_a_time_attribute_is_explained() -> None:
    def help_for(view: str, time: str) -> str:
        with pytest.raises(EverfoldError) as caught:
            plan_of(_select_windows("INTERVAL '1' DAY", table="v", time=time), tables=f"{BID} CREATE VIEW v AS {view};")
        found = caught.value.diagnostics[0]
        assert found.code == "no-time-attribute"
        return f"{found.message} / {found.help}"

    inner = "FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '1' DAY)"
    assert "the window_start of a window" in help_for(f"SELECT window_start AS ws {inner}", "ws")
    assert "group by window_time too" in help_for(
        f"SELECT window_start AS ws, COUNT(*) AS n {inner} GROUP BY window_start, window_end", "ws"
    )
    assert "WATERMARK FOR x" in help_for("SELECT bidtime + INTERVAL '1' SECOND AS x FROM Bid", "x")
    assert "an expression over a time attribute is not one" in help_for(
        "SELECT CAST(bidtime AS TIMESTAMP(3)) AS bidtime FROM Bid", "bidtime"
    )
    assert "all sides of UNION ALL" in help_for("SELECT bidtime FROM Bid UNION ALL SELECT ts FROM Plain", "bidtime")
    assert "the time attribute here is `bidtime`" in help_for(
        "SELECT bidtime, bidtime + INTERVAL '1' SECOND AS x FROM Bid", "x"
    )


def test_a_time_attribute_survives_views_and_unions() -> None:
    tables = (
        BID
        + "CREATE VIEW u AS SELECT item AS i, bidtime AS t FROM Bid WHERE price > 1 UNION ALL SELECT supplier_id, bidtime FROM Bid;"
    )
    plan = plan_of("SELECT window_time, i FROM TUMBLE(TABLE u, DESCRIPTOR(t), INTERVAL '1' DAY)", tables=tables)
    assert node_of(plan, WindowTableFunction).time is TimeKind.ROWTIME
    assert plan.schema[0].time == "rowtime"


@pytest.mark.parametrize("precision", [0, 1, 3])
def test_a_time_attribute_has_milliseconds_in_a_stream(precision: int) -> None:
    tables = f"CREATE TABLE w (t TIMESTAMP({precision}), WATERMARK FOR t AS t - INTERVAL '1' SECOND);"
    assert plan_of("SELECT * FROM w", tables=tables).schema[0].type.sql == "TIMESTAMP(3)"
    assert plan_of("SELECT * FROM w", tables=tables, batch=True).schema[0].type.sql == f"TIMESTAMP({precision})"
