"""The SQL examples of the documents that everfold started from, and of the benchmark Nexmark.

Each parses, and keeps its meaning as a canonical string. Prompts (`Flink SQL>`) and results are
left out, and `WITH (...)` is filled in.
"""

from __future__ import annotations

import pytest

from everfold.sql import syntax
from everfold.sql.dialects.flink import parse_query
from everfold.sql.dialects.render import render
from everfold.sql.script import parse_script
from everfold.sql.statements import CreateTable, CreateView, Insert, Query

OVER_AGGREGATION = """
SELECT order_id, order_time, amount,
  SUM(amount) OVER (
    PARTITION BY product
    ORDER BY order_time
    RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW
  ) AS one_hour_prod_amount_sum
FROM Orders;

SELECT order_id, order_time, amount,
  SUM(amount) OVER w AS sum_amount,
  AVG(amount) OVER w AS avg_amount
FROM Orders
WINDOW w AS (
  PARTITION BY product
  ORDER BY order_time
  RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW);
"""

WINDOW_AGGREGATION = """
desc Bid;
SELECT * FROM Bid;
SELECT window_start, window_end, SUM(price) AS total_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(price) AS total_price
  FROM HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(price) AS total_price
  FROM CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end;
SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
           FROM SESSION(TABLE Bid PARTITION BY supplier_id, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)
           GROUP BY window_start, window_end, supplier_id;
SELECT window_start, window_end, SUM(price) AS total_price
           FROM SESSION(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES)
           GROUP BY window_start, window_end;
SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end, GROUPING SETS ((supplier_id), ());
SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
GROUP BY window_start, window_end, ROLLUP (supplier_id);
SELECT window_start, window_end, item, supplier_id, SUM(price) AS total_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end, CUBE (supplier_id, item);
SELECT window_start, window_end, item, supplier_id, SUM(price) AS total_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end, GROUPING SETS (
      (supplier_id, item),
      (supplier_id      ),
      (             item),
      (                 )
);
-- tumbling 5 minutes for each supplier_id
CREATE VIEW window1 AS
-- Note: The window start and window end fields of inner Window TVF are optional in the select clause. However, if they appear in the clause, they need to be aliased to prevent name conflicting with the window start and window end of the outer Window TVF.
SELECT window_start AS window_5mintumble_start, window_end AS window_5mintumble_end, window_time AS rowtime, SUM(price) AS partial_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES)
  GROUP BY supplier_id, window_start, window_end, window_time;
-- tumbling 10 minutes on the first window
SELECT window_start, window_end, SUM(partial_price) AS total_price
  FROM TUMBLE(TABLE window1, DESCRIPTOR(rowtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end;
CREATE TABLE Orders (
  user       BIGINT,
  product    STRING,
  amount     INT,
  order_time TIMESTAMP(3),
  WATERMARK FOR order_time AS order_time - INTERVAL '1' MINUTE
) WITH ('connector' = 'print');
SELECT
  user,
  TUMBLE_START(order_time, INTERVAL '1' DAY) AS wStart,
  SUM(amount) FROM Orders
GROUP BY
  TUMBLE(order_time, INTERVAL '1' DAY),
  user
"""

GROUP_COMPATIBILITY = """
SELECT a, SUM(b), MAX(c) FROM MyTable GROUP BY a;
SELECT a, SUM(b), MAX(c) FROM (
  SELECT a, b, SUBSTRING(c, 1, 5) AS c FROM MyTable
) GROUP BY a;
INSERT INTO MySink
SELECT a, MAX(b), SUM(DISTINCT b), COUNT(DISTINCT b) FROM MyTable GROUP BY a;
SELECT c/2, AVG(avg_a) AS avg_avg_a, MAX(max_b) max_max_b FROM
    (SELECT c, MAX(b) AS max_b, AVG(a) AS avg_a FROM MyTable GROUP BY c)
GROUP BY c/2;
SELECT SUM(b), MAX(c) FROM MyTable;
SELECT a, SUM(b), MAX(c) FROM (
  SELECT a + 1 AS a, b, c FROM MyTable
) GROUP BY a;
SELECT a, SUM(b), MAX(c), SUM(DISTINCT b), COUNT(DISTINCT c) FROM (
     SELECT a, b, AVG(c) AS c FROM MyTable GROUP BY a, b
) GROUP BY a;
SELECT a/2, AVG(b), MIN(c), COUNT(c) FROM (
    SELECT a, SUM(b) AS b, MAX(c) AS c FROM MyTable GROUP BY a
) GROUP BY a/2;
INSERT INTO MySink
SELECT COUNT(DISTINCT b), a, MAX(b), SUM(DISTINCT b) FROM MyTable GROUP BY a;
INSERT INTO MySink
SELECT a, MAX(c) FROM (SELECT a, b, c + 1 AS c, ts FROM MyTable) GROUP BY a;
SELECT a, MAX(b), SUM(DISTINCT b), COUNT(DISTINCT b), weighted_avg(a, b)
FROM MyTable GROUP BY a, b;
"""

OVER_COMPATIBILITY = """
select a, b, c, sum(b) over (partition by a order by ts), max(c) over (partition by a order by ts) from MyTable;
select a, b, c, sum(b) over (partition by b,a order by ts), max(c) over (partition by b,a order by ts) from MyTable;
select a, b, c, cnt from (select a, b, c, d, count(b) over (partition by a order by proctime) as cnt from src);
select a, b, c, max(c) over (partition by a order by ts), sum(b) over (partition by a order by ts) from (
  select a, b, substring(c, 1, 5) as c from MyTable );
select a, b, c, max(c) over (partition by a order by ts asc rows between unbounded preceding and current row) from MyTable;
select a, b, c, max(c) over (partition by a order by ts desc rows between unbounded preceding and current row) from MyTable;
select a, b, c, max(c) over (partition by a order by ts asc rows between 2 preceding and current row) from MyTable;
select a, b, c, max(c) over (partition by b order by ts), count(distinct b) over (partition by b order by ts) from MyTable;
select min(a), min(b), min(c), weighted_avg(a, b), min(cnt)
from (select a, b, c, count(b)
over (partition by a, b order by ts) as cnt from MyTable);
"""

NEXMARK = """
SELECT w.category, AVG(w.final) FROM (
  SELECT MAX(b.price) AS final, a.category FROM auction a, bid b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category) w GROUP BY w.category;
WITH c AS (SELECT auction, COUNT(*) AS num, window_start, window_end
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end)
SELECT c.auction, c.num FROM c JOIN (SELECT MAX(num) AS maxn, window_start, window_end FROM c GROUP BY window_start, window_end) m
  ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.maxn;
SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra FROM bid b JOIN (
  SELECT MAX(price) AS maxprice, window_end AS t
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) m
  ON b.price = m.maxprice WHERE b.`dateTime` BETWEEN m.t - INTERVAL '10' SECOND AND m.t;
SELECT bidder, COUNT(*) AS bid_count, SESSION_START(`dateTime`, INTERVAL '10' SECOND), SESSION_END(`dateTime`, INTERVAL '10' SECOND)
FROM bid GROUP BY bidder, SESSION(`dateTime`, INTERVAL '10' SECOND);
CREATE VIEW b AS SELECT *, PROCTIME() AS p_time FROM bid;
SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders
FROM bid GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
"""


@pytest.mark.parametrize(
    ("script", "count"),
    [
        pytest.param(OVER_AGGREGATION, 2, id="over aggregation"),
        pytest.param(WINDOW_AGGREGATION, 15, id="window aggregation"),
        pytest.param(GROUP_COMPATIBILITY, 11, id="group aggregate compatibility"),
        pytest.param(OVER_COMPATIBILITY, 9, id="over aggregate compatibility"),
        pytest.param(NEXMARK, 6, id="nexmark"),
    ],
)
def test_every_example_is_parsed(script: str, count: int) -> None:
    statements = parse_script(script)
    assert len(statements) == count
    for statement in statements:
        if isinstance(statement, (Query, Insert, CreateView)):
            assert parse_query(render(statement.query)) == statement.query
            assert parse_query(statement.text) == statement.query


def test_the_windows_of_the_seed_are_found() -> None:
    windows = [
        window.kind
        for statement in parse_script(WINDOW_AGGREGATION)
        if isinstance(statement, (Query, CreateView))
        for window in syntax.find_all(statement.query, syntax.WindowTvf)
    ]
    assert windows == ["TUMBLE", "HOP", "CUMULATE", "SESSION", "SESSION", *["TUMBLE"] * 6]


def test_a_column_may_be_named_user() -> None:
    *_, table, query = parse_script(WINDOW_AGGREGATION)
    assert isinstance(table, CreateTable)
    assert table.columns[0].name == "user"
    assert isinstance(query, Query)
    assert isinstance(query.query, syntax.Select)
    assert query.query.group is not None
    assert render(query.query.group.elements[1]) == "`user`"
