"""The expected results of the queries, computed by DuckDB with plain arithmetic on the times of
the same rows.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
from measurement import Check

_ROWS = "SELECT a, b, c, epoch_ms(ts) AS t FROM read_parquet($files)"

# Each returns one row per result row: `e`, the window's end in milliseconds (0 without windows),
# and `x`, the checksum column.
RESULTS = {
    "tumble": "SELECT t // 10000 * 10000 + 10000 AS e, sum(c) AS x FROM src GROUP BY e, a",
    "hop": """
        SELECT t // 10000 * 10000 + step * 10000 AS e, sum(c) AS x
        FROM src, (SELECT unnest(range(1, 7)) AS step)
        GROUP BY e, a
    """,
    "cumulate": """
        SELECT t // 600000 * 600000 + step * 60000 AS e, count(*) AS x
        FROM src, (SELECT unnest(range(1, 11)) AS step)
        WHERE t % 600000 // 60000 < step
        GROUP BY t // 600000, step, a
    """,
    "session": """
        WITH marked AS (
            SELECT a, t, coalesce(t - lag(t) OVER (PARTITION BY a ORDER BY t) > 2000, true) AS is_first FROM src
        ),
        numbered AS (
            SELECT a, t, count(*) FILTER (WHERE is_first) OVER (PARTITION BY a ORDER BY t) AS session FROM marked
        )
        SELECT max(t) + 2000 AS e, count(*) AS x FROM numbered GROUP BY a, session
    """,
    "cascade": "SELECT t // 60000 * 60000 + 60000 AS e, sum(c) AS x FROM src GROUP BY e",
    "over_range": "SELECT 0 AS e, sum(c) OVER (PARTITION BY a ORDER BY t RANGE BETWEEN 60000 PRECEDING AND CURRENT ROW) AS x FROM src",
    "over_rows": "SELECT 0 AS e, sum(c) OVER (PARTITION BY a ORDER BY t ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS x FROM src",
    "over_all": "SELECT 0 AS e, sum(c) OVER (PARTITION BY a ORDER BY t) AS x FROM src",
    "group": "SELECT 0 AS e, sum(c) AS x FROM src GROUP BY a",
    "count_distinct": "SELECT 0 AS e, count(DISTINCT a) AS x FROM src GROUP BY b",
    "retract": """
        SELECT 0 AS e, max(s) AS x FROM (SELECT count(*) AS times, sum(c) AS s FROM src GROUP BY a) GROUP BY times
    """,
}


def compute_expected(query: str, data: Path, until_ms: int | None) -> Check:
    """Return the correct result over a data folder; with `until_ms`, only the windows that end
    by then.
    """
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"CREATE TABLE src AS {_ROWS}", {"files": str(data / "files" / "*.parquet")})
        bound = "true" if until_ms is None else f"e <= {until_ms}"
        row = connection.execute(
            f"SELECT count(*), coalesce(sum(x), 0) FROM ({RESULTS[query]}) WHERE {bound}"
        ).fetchone()
    assert row is not None, "an aggregate without GROUP BY returns one row"
    return Check(rows_out=int(row[0]), sum=int(row[1]), until_ms=until_ms)
