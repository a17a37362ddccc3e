"""Measure everfold on the benchmark queries.

    python run_everfold.py --data ../scratch/bench/1k tumble hop cumulate session

Each query runs twice: into Parquet files, which is the run that is checked, and into a sink that
drops every row, which is the run that is timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from measurement import Check, check_changes, check_files, make_measurement
from queries import QUERIES, Query, sink_ddl, source_ddl

from everfold import TableEnvironment


def run(environment: TableEnvironment, query: Query, data: Path, sink_files: Path | None) -> float:
    """Run a query to the end of its input as a new job.

    Return the seconds from its submission on.
    """
    environment.execute_sql(source_ddl(data / "files"))
    environment.execute_sql(sink_ddl(query, sink_files))
    with tempfile.TemporaryDirectory() as state:
        start = time.perf_counter()
        environment.execute_sql(f"INSERT INTO snk {query.select}", state_dir=Path(state, "job"))
        seconds = time.perf_counter() - start
    environment.execute_sql("DROP TABLE snk; DROP TABLE src")
    return seconds


def run_check(environment: TableEnvironment, query: Query, data: Path) -> Check:
    """Run a query to check its result."""
    if query.updating:
        environment.execute_sql(source_ddl(data / "files"))
        changes = environment.sql_query(query.check).execute().collect()
        environment.execute_sql("DROP TABLE src")
        return check_changes(row for row in changes)
    with tempfile.TemporaryDirectory() as folder:
        run(environment, query, data, Path(folder, "out"))
        return check_files(Path(folder, "out"), query.checksum)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure everfold.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    parser.add_argument("queries", nargs="+", choices=QUERIES)
    options = parser.parse_args(arguments)
    environment = TableEnvironment(master=f"local[{options.cores}]", conf={"spark.driver.memory": options.memory})
    for query in (QUERIES[name] for name in options.queries):
        check = run_check(environment, query, options.data)
        seconds = run(environment, query, options.data, None)
        print(
            make_measurement(
                engine="everfold", query=query.name, data=options.data, seconds=seconds, check=check
            ).to_json(),
            flush=True,
        )
    environment.close()


if __name__ == "__main__":
    main(sys.argv[1:])
