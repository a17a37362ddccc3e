"""The measured queries over the uniform stream, and all queries by name."""

from __future__ import annotations

from nexmark_queries import NEXMARK_QUERIES
from query import Query


def _over(name: str, frame: str) -> Query:
    return Query(
        name=name,
        columns="a BIGINT, ts TIMESTAMP(3), s BIGINT, n BIGINT",
        checksum="s",
        select=f"SELECT a, ts, SUM(c) OVER w, COUNT(*) OVER w FROM src WINDOW w AS (PARTITION BY a ORDER BY ts {frame})",
    )


_UNIFORM_QUERIES = (
    Query(
        name="tumble",
        columns="ws TIMESTAMP(3), a BIGINT, s BIGINT, n BIGINT",
        checksum="s",
        select="SELECT window_start, a, SUM(c), COUNT(*) FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECONDS) "
        "GROUP BY window_start, window_end, a",
    ),
    Query(
        name="hop",
        columns="ws TIMESTAMP(3), a BIGINT, s BIGINT, n BIGINT",
        checksum="s",
        select="SELECT window_start, a, SUM(c), COUNT(*) "
        "FROM HOP(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECONDS, INTERVAL '60' SECONDS) "
        "GROUP BY window_start, window_end, a",
    ),
    Query(
        name="cumulate",
        columns="ws TIMESTAMP(3), we TIMESTAMP(3), a BIGINT, n BIGINT",
        checksum="n",
        select="SELECT window_start, window_end, a, COUNT(*) "
        "FROM CUMULATE(TABLE src, DESCRIPTOR(ts), INTERVAL '60' SECONDS, INTERVAL '10' MINUTES) "
        "GROUP BY window_start, window_end, a",
    ),
    Query(
        name="session",
        columns="ws TIMESTAMP(3), a BIGINT, n BIGINT",
        checksum="n",
        select="SELECT window_start, a, COUNT(*) FROM SESSION(TABLE src PARTITION BY a, DESCRIPTOR(ts), INTERVAL '2' SECONDS) "
        "GROUP BY window_start, window_end, a",
    ),
    Query(
        name="cascade",
        columns="ws TIMESTAMP(3), s BIGINT, m BIGINT",
        checksum="s",
        select="SELECT window_start, SUM(s), MAX(s) FROM TUMBLE((SELECT s, wt FROM ("
        "SELECT window_time AS wt, SUM(c) AS s FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECONDS) "
        "GROUP BY window_start, window_end, window_time, a)), DESCRIPTOR(wt), INTERVAL '60' SECONDS) GROUP BY window_start, window_end",
    ),
    _over("over_range", "RANGE BETWEEN INTERVAL '60' SECOND PRECEDING AND CURRENT ROW"),
    _over("over_rows", "ROWS BETWEEN 10 PRECEDING AND CURRENT ROW"),
    _over("over_all", "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"),
    Query(
        name="group",
        columns="a BIGINT, s BIGINT, m BIGINT, n BIGINT",
        checksum="s",
        select="SELECT a, SUM(c) AS s, MAX(c) AS m, COUNT(*) AS n FROM src GROUP BY a",
        updating=True,
    ),
    Query(
        name="count_distinct",
        columns="b BIGINT, n BIGINT",
        checksum="n",
        select="SELECT b, COUNT(DISTINCT a) AS n FROM src GROUP BY b",
        updating=True,
    ),
    Query(
        name="retract",
        columns="times BIGINT, n BIGINT, most BIGINT",
        checksum="most",
        select="SELECT times, COUNT(*) AS n, MAX(s) AS most FROM (SELECT a, COUNT(*) AS times, SUM(c) AS s FROM src GROUP BY a) GROUP BY times",
        updating=True,
    ),
)

COUNTS = Query(
    name="counts",
    columns="a BIGINT, n BIGINT, PRIMARY KEY (a) NOT ENFORCED",
    checksum="n",
    select="SELECT a, COUNT(*) AS n FROM src GROUP BY a",
    updating=True,
)
"""The query whose latency is measured."""

QUERIES = {query.name: query for query in (*_UNIFORM_QUERIES, *NEXMARK_QUERIES, COUNTS)}
