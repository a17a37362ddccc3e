"""The queries of Flink's page on window aggregation bind, and have the documented types."""

from __future__ import annotations

import pytest

from everfold.sql.planner import Session, Submit

TABLES = """
CREATE TABLE Bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND);
CREATE TABLE Orders (
  `user` BIGINT, product STRING, amount INT, order_time TIMESTAMP(3), WATERMARK FOR order_time AS order_time - INTERVAL '1' MINUTE);
CREATE VIEW window1 AS
SELECT window_start AS window_5mintumble_start, window_end AS window_5mintumble_end, window_time AS rowtime, SUM(price) AS partial_price
FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES)
GROUP BY supplier_id, window_start, window_end, window_time;
"""
TOTAL = "TIMESTAMP(3) TIMESTAMP(3) DECIMAL(38, 2)"
WINDOWED = "SELECT window_start, window_end, SUM(price) AS total_price\nFROM {}\nGROUP BY window_start, window_end"


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("SELECT * FROM Bid", "TIMESTAMP(3) DECIMAL(10, 2) STRING STRING"),
        (WINDOWED.format("TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)"), TOTAL),
        (WINDOWED.format("HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)"), TOTAL),
        (
            WINDOWED.format("CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES)"),
            TOTAL,
        ),
        (WINDOWED.format("SESSION(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)"), TOTAL),
        (
            """SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
               FROM SESSION(TABLE Bid PARTITION BY supplier_id, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)
               GROUP BY window_start, window_end, supplier_id""",
            "TIMESTAMP(3) TIMESTAMP(3) STRING DECIMAL(38, 2)",
        ),
        (
            """SELECT window_start, window_end, SUM(partial_price) AS total_price
               FROM TUMBLE(TABLE window1, DESCRIPTOR(rowtime), INTERVAL '10' MINUTES) GROUP BY window_start, window_end""",
            TOTAL,
        ),
        (
            """SELECT `user`, TUMBLE_START(order_time, INTERVAL '1' DAY) AS wStart, SUM(amount) FROM Orders
               GROUP BY TUMBLE(order_time, INTERVAL '1' DAY), `user`""",
            "BIGINT TIMESTAMP(3) INT",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_query_has_the_documented_types(sql: str, types: str, mode: str) -> None:
    session = Session(options={"execution.runtime-mode": mode})
    list(session.run(TABLES))
    (action,) = session.run(sql)
    assert isinstance(action, Submit)
    assert " ".join(field.type.sql for field in action.roots[0].input.schema) == types


TUMBLED = "SELECT window_start, window_end, supplier_id, SUM(price) FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)\n"


@pytest.mark.parametrize("sets", ["GROUPING SETS ((supplier_id), ())", "ROLLUP (supplier_id)", "CUBE (supplier_id)"])
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_grouping_sets_bind(sets: str, mode: str) -> None:
    session = Session(options={"execution.runtime-mode": mode})
    list(session.run(TABLES))
    (action,) = session.run(f"{TUMBLED}GROUP BY window_start, window_end, {sets}")
    assert isinstance(action, Submit)
    types = " ".join(field.type.sql for field in action.roots[0].input.schema)
    assert types == "TIMESTAMP(3) TIMESTAMP(3) STRING DECIMAL(38, 2)"
