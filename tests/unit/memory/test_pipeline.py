"""The in-process engine: streams in batches, restarts, and batch queries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from property.queries import BID, Query, tuples

from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import check_tables
from everfold.errors import ConnectorError, UnsupportedFeature
from everfold.memory.batch import run_batch
from everfold.sql.planner import Session, Submit


def at(minute: float) -> datetime:
    return datetime(2020, 4, 15, 8) + timedelta(minutes=minute)


def bids(*rows: tuple[float, str, str]) -> list[dict[str, Any]]:
    return [
        {"bidtime": at(minute), "price": Decimal(price), "item": "x", "supplier_id": who} for minute, price, who in rows
    ]


SIX = bids((5, "4", "s1"), (7, "2", "s1"), (9, "5", "s2"), (11, "3", "s2"), (13, "1", "s1"), (17, "6", "s2"))
TUMBLE = (
    BID
    + """SELECT window_start, window_end, SUM(price) AS total FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
GROUP BY window_start, window_end"""
)
EXPECTED = [(at(0), at(10), Decimal("11.00")), (at(10), at(20), Decimal("10.00"))]


def test_tumble_streams() -> None:
    query = Query(TUMBLE)
    pipeline = query.pipeline()
    assert tuples(pipeline.feed(query.input(Bid=SIX[:3]))) == []
    assert tuples(pipeline.feed(query.input(Bid=SIX[3:]))) == EXPECTED[:1]
    assert pipeline.watermark_ms == (at(17) - datetime(1970, 1, 1)) // timedelta(milliseconds=1) - 1000
    assert pipeline.state_rows == 1
    assert tuples(pipeline.feed({})) == []
    out = pipeline.flush()
    assert tuples(out) == EXPECTED[1:]
    assert out.schema.types == [field.type.arrow for field in query.root.input.schema]
    assert (pipeline.late_rows, pipeline.state_rows, pipeline.dropped_rows) == (0, 0, 0)


def test_a_batch_has_the_same_result_as_the_stream() -> None:
    assert sorted(Query(TUMBLE).batch(Bid=SIX)) == EXPECTED
    assert Query(TUMBLE).batch() == []


def test_a_restarted_pipeline_resumes() -> None:
    query = Query(TUMBLE)
    pipeline, out = query.pipeline(buckets=3), []
    for bid in SIX:
        out += tuples(pipeline.feed(query.input(Bid=[bid])))
        pipeline = pipeline.restart()
    late = query.input(Bid=bids((1, "9", "s1")))
    out += tuples(pipeline.feed(late))
    pipeline = pipeline.restart()
    assert pipeline.late_rows == 1
    assert [*out, *tuples(pipeline.flush())] == EXPECTED


def test_rows_that_where_excludes_move_the_watermark() -> None:
    query = Query(TUMBLE.replace("GROUP BY", "WHERE price < 100 GROUP BY"))
    pipeline = query.pipeline()
    assert tuples(pipeline.feed(query.input(Bid=[*SIX[:3], *bids((11, "100", "s1"))]))) == EXPECTED[:1]


def test_a_null_time_stops_the_job_or_is_dropped() -> None:
    rows = [*SIX, {"price": Decimal(1)}]
    query = Query(TUMBLE)
    with pytest.raises(ConnectorError, match=r"null-rowtime.*`bidtime`"):
        query.pipeline().feed(query.input(Bid=rows))
    assert sorted(query.batch(Bid=rows)) == EXPECTED
    query = Query("SET 'everfold.null-rowtime' = 'drop';" + TUMBLE)
    pipeline = query.pipeline()
    out = tuples(pipeline.feed(query.input(Bid=rows)))
    assert [*out, *tuples(pipeline.flush())] == EXPECTED
    assert pipeline.restart().dropped_rows == 1
    assert sorted(query.batch(Bid=rows)) == EXPECTED


def test_chained_windows() -> None:
    text = (
        BID
        + """
    CREATE VIEW fives AS SELECT window_time AS rowtime, supplier_id, COUNT(*) AS n
      FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES)
      GROUP BY window_start, window_end, window_time, supplier_id;
    SELECT window_start, window_end, SUM(n) AS n, COUNT(*) AS parts
    FROM TUMBLE(TABLE fives, DESCRIPTOR(rowtime), INTERVAL '10' MINUTES) GROUP BY window_start, window_end"""
    )
    query = Query(text)
    for batches in ([SIX], [[bid] for bid in SIX], [SIX[:4], SIX[4:]]):
        pipeline = query.pipeline(buckets=2)
        out = [row for rows in batches for row in tuples(pipeline.feed(query.input(Bid=rows)))]
        out += tuples(pipeline.flush())
        assert out == [(at(0), at(10), 3, 2), (at(10), at(20), 3, 3)]
        assert [each.operator for each in pipeline.stats] == ["w1", "w2"]
        assert pipeline.late_rows == 0
    assert sorted(query.batch(Bid=SIX)) == [(at(0), at(10), 3, 2), (at(10), at(20), 3, 3)]


def test_union_waits_for_the_slower_input() -> None:
    other = BID.replace("Bid", "Ask")
    query = Query(
        BID
        + other
        + """
    CREATE VIEW both_sides AS SELECT bidtime, price FROM Bid UNION ALL SELECT bidtime, price FROM Ask;
    """
        + TUMBLE.removeprefix(BID).replace("TABLE Bid", "TABLE both_sides")
    )
    pipeline = query.pipeline()
    assert tuples(pipeline.feed(query.input(Bid=SIX))) == []
    assert tuples(pipeline.feed(query.input(Ask=SIX[:3]))) == []
    assert tuples(pipeline.feed(query.input(Ask=SIX[5:]))) == [(at(0), at(10), Decimal("22.00"))]


def test_an_idle_input_does_not_hold_back_the_watermark() -> None:
    other = BID.replace("Bid", "Ask")
    query = Query(
        "SET 'table.exec.source.idle-timeout' = '10 s';"
        + BID
        + other
        + """
    CREATE VIEW both_sides AS SELECT bidtime, price FROM Bid UNION ALL SELECT bidtime, price FROM Ask;
    """
        + TUMBLE.removeprefix(BID).replace("TABLE Bid", "TABLE both_sides")
    )
    pipeline = query.pipeline()
    assert tuples(pipeline.feed(query.input(Bid=SIX[:3]), now_ms=0)) == []
    assert tuples(pipeline.feed(query.input(Bid=SIX[3:]), now_ms=10_000)) == EXPECTED[:1]


def test_scalar_queries_and_constants() -> None:
    query = Query(BID + "SELECT supplier_id, price * 2 AS twice FROM Bid WHERE price > 4")
    pipeline = query.pipeline()
    assert tuples(pipeline.feed(query.input(Bid=SIX))) == [("s2", Decimal("10.00")), ("s2", Decimal("12.00"))]
    assert tuples(pipeline.flush()) == []
    assert pipeline.watermark_ms is None
    constant = Query("SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(x, y)")
    once = constant.pipeline()
    assert sorted(tuples(once.feed({}))) == [(1, "a"), (2, "b")]
    assert tuples(once.flush()) == []
    assert sorted(tuples(constant.pipeline().flush())) == [(1, "a"), (2, "b")]


def test_plain_window_functions() -> None:
    query = Query(
        BID
        + "SELECT item, window_start FROM HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)"
    )
    assert sorted(tuples(query.pipeline().feed(query.input(Bid=SIX[:1])))) == [("x", at(0)), ("x", at(5))]
    assert sorted(query.batch(Bid=SIX[:1])) == [("x", at(0)), ("x", at(5))]
    sessions = Query(
        BID
        + "SELECT price, window_start, window_end FROM SESSION(TABLE Bid PARTITION BY supplier_id, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)"
    )
    pipeline = sessions.pipeline()
    out = tuples(pipeline.feed(sessions.input(Bid=SIX)))
    out += tuples(pipeline.flush())
    assert sorted(out) == sorted(sessions.batch(Bid=SIX))
    assert (Decimal("4.00"), at(5), at(9)) in out


def test_processing_time_windows() -> None:
    text = """CREATE TABLE c (v INT, p AS PROCTIME());
    SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE c, DESCRIPTOR(p), INTERVAL '10' SECONDS) GROUP BY window_start, window_end"""
    query = Query(text)
    pipeline = query.pipeline()
    row = query.input(c=[{"v": 1}])
    assert tuples(pipeline.feed(row, now_ms=1000)) == []
    assert tuples(pipeline.feed(row, now_ms=9000)) == []
    assert tuples(pipeline.feed({}, now_ms=10_000)) == [(datetime(1970, 1, 1), 2)]


def test_windows_over_instants_align_in_the_zone() -> None:
    text = """SET 'table.local-time-zone' = 'Europe/Berlin';
    CREATE TABLE e (ts TIMESTAMP_LTZ(3), v INT, WATERMARK FOR ts AS ts);
    SELECT window_start, window_time, SUM(v) AS v FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR)
    GROUP BY window_start, window_end, window_time"""
    query = Query(text)
    # The night when 03:00 becomes 02:00: two hours of UTC are one window.
    hours = [datetime(2020, 10, 24, 23, 30, tzinfo=UTC) + timedelta(hours=each) for each in range(4)]
    rows = [{"ts": instant, "v": 1 << each} for each, instant in enumerate(hours)]
    pipeline = query.pipeline()
    out = [row for each in rows for row in tuples(pipeline.feed(query.input(e=[each])))]
    out += tuples(pipeline.flush())
    assert [(row[0].hour, row[2]) for row in out] == [(1, 1), (2, 6), (3, 8)]
    assert [row[1].hour for row in out] == [23, 0, 2]
    assert sorted(query.batch(e=rows)) == out
    assert pipeline.late_rows == 0


def test_unsupported_nodes_are_refused_before_anything_runs() -> None:
    from everfold.plan.nodes import Collect, Limit

    query = Query(TUMBLE)
    limited = Collect(
        input=Limit(input=query.root.input, count=1),
    )
    query.root = limited
    with pytest.raises(UnsupportedFeature, match="Limit"):
        query.pipeline()
    assert len(query.batch(Bid=SIX)) == 1


def test_a_batch_refuses_changes() -> None:
    source = "CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'debezium-json');"
    session = Session({"execution.runtime-mode": "batch"}, connected=apply_connector)
    *_, submit = session.run(f"{source} SELECT SUM(n) FROM t")
    assert isinstance(submit, Submit)
    with pytest.raises(UnsupportedFeature, match="changes-in-batch"):
        run_batch(submit.roots[0], {}, submit.settings)
    with pytest.raises(UnsupportedFeature, match="changes-in-batch"):
        check_tables(submit.roots, streaming=False)
    *_, submit = Session(connected=apply_connector).run(
        f"{source} SELECT * FROM (VALUES (1)) AS v(k) JOIN t ON v.k = t.n"
    )
    assert isinstance(submit, Submit)
    with pytest.raises(UnsupportedFeature, match="changes-in-batch"):
        check_tables(submit.roots, streaming=True)


def test_a_failing_expression_raises_an_error_with_a_code() -> None:
    query = Query(BID + "SELECT CAST(item AS INT) AS n FROM Bid")
    with pytest.raises(ConnectorError) as caught:
        query.pipeline().feed(query.input(Bid=SIX))
    assert caught.value.code == "cast-failed"
