"""The measured queries, in the SQL that everfold and Flink share, and the other parts of a
script.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query over the stream `src`, with the columns of its result. The sum of column `checksum`
    shows whether the result is correct.

    `updating`: the rows of the result change, so only a sink that drops everything can take them.
    """

    name: str
    columns: str
    checksum: str
    select: str
    updating: bool = False

    @property
    def check(self) -> str:
        """Return a query with one row about the current result: the number of its rows, and the sum
        of `checksum`.

        For results that change.
        """
        return f"SELECT COUNT(*) AS n, SUM({self.checksum}) AS s FROM ({self.select})"


def _over(name: str, frame: str) -> Query:
    return Query(
        name=name,
        columns="a BIGINT, ts TIMESTAMP(3), s BIGINT, n BIGINT",
        checksum="s",
        select=f"SELECT a, ts, SUM(c) OVER w, COUNT(*) OVER w FROM src WINDOW w AS (PARTITION BY a ORDER BY ts {frame})",
    )


QUERIES = {
    query.name: query
    for query in (
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
}


def source_ddl(data: Path) -> str:
    """Return the DDL of the stream.

    Times are UTC, and the watermark allows for a second of disorder.
    """
    return (
        "CREATE TABLE src (a BIGINT, b BIGINT, c BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{data.resolve().as_uri()}', 'format' = 'parquet')"
    )


def sink_ddl(query: Query, files: Path | None) -> str:
    """Return the DDL of a sink that drops every row, or of one with Parquet files whose rows
    can be counted.
    """
    if files is None:
        return f"CREATE TABLE snk ({query.columns}) WITH ('connector' = 'blackhole')"
    return (
        f"CREATE TABLE snk ({query.columns}) "
        f"WITH ('connector' = 'filesystem', 'path' = '{files.resolve().as_uri()}', 'format' = 'parquet')"
    )
