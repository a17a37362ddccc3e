"""Nexmark's aggregation queries over the events of `nexmark.py`.

They have the meaning of the queries in the repository nexmark/nexmark. `q5` and `q7` are written as
Window Top-N, because everfold does not join streams; `q5_window` and `q7_window` are their inner
aggregations. A Window Top-N emits one of several auctions or bids of equal rank, so only the
numbers that do not depend on the choice are checked.
"""

from __future__ import annotations

from query import Query

_TABLE = (
    "CREATE TABLE nexmark (event_type BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "`dateTime` TIMESTAMP(3), extra STRING, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)"
)
_BID = "CREATE VIEW bid AS SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM nexmark WHERE event_type = 2"
_COUNTS = (
    "COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids, "
    "COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids, "
    "COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids"
)
_COUNT_COLUMNS = "total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT"


def _count_distinct(column: str) -> str:
    return (
        f"COUNT(DISTINCT {column}) AS total_{column}s, "
        f"COUNT(DISTINCT {column}) FILTER (WHERE price < 10000) AS rank1_{column}s, "
        f"COUNT(DISTINCT {column}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{column}s, "
        f"COUNT(DISTINCT {column}) FILTER (WHERE price >= 1000000) AS rank3_{column}s"
    )


def _distinct_columns(column: str) -> str:
    return ", ".join(f"{each}_{column}s BIGINT" for each in ("total", "rank1", "rank2", "rank3"))


_ALL_COUNTS = f"{_COUNTS}, {_count_distinct('bidder')}, {_count_distinct('auction')}"
_ALL_COLUMNS = f"{_COUNT_COLUMNS}, {_distinct_columns('bidder')}, {_distinct_columns('auction')}"
_ALL_SUM = "total_bids + rank1_bids + rank2_bids + rank3_bids + " + " + ".join(
    f"{each}_{column}s" for column in ("bidder", "auction") for each in ("total", "rank1", "rank2", "rank3")
)
_HOT_ITEMS = (
    "SELECT auction, COUNT(*) AS num, window_start, window_end "
    "FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
    "GROUP BY auction, window_start, window_end"
)
_TUMBLE = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))"
_DAY = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"


def _query(
    name: str,
    columns: str,
    checksum: str,
    select: str,
    *,
    updating: bool = False,
    views: tuple[str, ...] = (_BID,),
    determined: bool = True,
) -> Query:
    return Query(
        name=name,
        columns=columns,
        checksum=checksum,
        select=select,
        updating=updating,
        table=_TABLE,
        views=views,
        determined=determined,
    )


NEXMARK_QUERIES = (
    _query("q5_window", "auction BIGINT, num BIGINT, ws TIMESTAMP(3), we TIMESTAMP(3)", "num", _HOT_ITEMS),
    _query(
        "q5",
        "auction BIGINT, num BIGINT",
        "num",
        "SELECT auction, num FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY num DESC) "
        f"AS rn FROM ({_HOT_ITEMS})) WHERE rn <= 1",
    ),
    _query(
        "q7_window",
        "maxprice BIGINT, ws TIMESTAMP(3), we TIMESTAMP(3)",
        "maxprice",
        f"SELECT MAX(price) AS maxprice, window_start, window_end FROM {_TUMBLE} GROUP BY window_start, window_end",
    ),
    _query(
        "q7",
        "auction BIGINT, price BIGINT, bidder BIGINT, dt TIMESTAMP(3), extra STRING",
        "price",
        "SELECT auction, price, bidder, `dateTime`, extra FROM ("
        f"SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rn FROM {_TUMBLE}) "
        "WHERE rn <= 1",
    ),
    _query(
        "q11",
        "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)",
        "bid_count",
        "SELECT bidder, COUNT(*) AS bid_count, SESSION_START(`dateTime`, INTERVAL '10' SECOND) AS starttime, "
        "SESSION_END(`dateTime`, INTERVAL '10' SECOND) AS endtime "
        "FROM bid GROUP BY bidder, SESSION(`dateTime`, INTERVAL '10' SECOND)",
    ),
    _query(
        "q12",
        "bidder BIGINT, bid_count BIGINT, ws TIMESTAMP(3), we TIMESTAMP(3)",
        "bid_count",
        "SELECT bidder, COUNT(*) AS bid_count, window_start, window_end "
        "FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(p_time), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
        views=(_BID, "CREATE VIEW b AS SELECT *, PROCTIME() AS p_time FROM bid"),
        determined=False,
    ),
    _query(
        "q15",
        f"`day` STRING, {_ALL_COLUMNS}",
        _ALL_SUM,
        f"SELECT {_DAY} AS `day`, {_ALL_COUNTS} FROM bid GROUP BY {_DAY}",
        updating=True,
    ),
    _query(
        "q16",
        f"channel STRING, `day` STRING, `minute` STRING, {_ALL_COLUMNS}",
        _ALL_SUM,
        f"SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`, {_ALL_COUNTS} "
        f"FROM bid GROUP BY channel, {_DAY}",
        updating=True,
    ),
    _query(
        "q17",
        f"auction BIGINT, `day` STRING, {_COUNT_COLUMNS}, min_price BIGINT, max_price BIGINT, avg_price BIGINT, sum_price BIGINT",
        "rank1_bids + rank2_bids * 2 + rank3_bids * 3 + min_price + max_price + avg_price + sum_price",
        f"SELECT auction, {_DAY} AS `day`, {_COUNTS}, MIN(price) AS min_price, MAX(price) AS max_price, "
        f"AVG(price) AS avg_price, SUM(price) AS sum_price FROM bid GROUP BY auction, {_DAY}",
        updating=True,
    ),
    _query(
        "q18",
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dt TIMESTAMP(3), extra STRING",
        "auction + bidder * 3 + TIMESTAMPDIFF(SECOND, TIMESTAMP '2026-01-01 00:00:00', `dateTime`)",
        "SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM ("
        "SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rn FROM bid) WHERE rn <= 1",
        updating=True,
    ),
    _query(
        "q19",
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dt TIMESTAMP(3), extra STRING, rank_number BIGINT",
        "price * rank_number",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid) "
        "WHERE rank_number <= 10",
        updating=True,
    ),
)
