"""Measure everfold; `run.py` starts this script and sends it requests (`engine_protocol.py`)."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine_protocol import CHECK, STREAM, Request, serve
from measurement import Check, check_changes, check_files
from queries import QUERIES
from query import BLACKHOLE, Query, parquet_connector

from everfold import TableEnvironment


def run(environment: TableEnvironment, query: Query, request: Request, sink: Mapping[str, str]) -> float:
    """Run a query to the end of its input as a new job.

    Return the seconds from its submission on.
    """
    _declare(environment, query, request)
    environment.execute_sql(query.sink_statement(sink))
    with tempfile.TemporaryDirectory() as state:
        start = time.perf_counter()
        environment.execute_sql(f"INSERT INTO snk {query.select}", state_dir=Path(state, "job"))
        seconds = time.perf_counter() - start
    environment.execute_sql("DROP TABLE snk")
    _drop(environment, query)
    return seconds


def run_check(environment: TableEnvironment, query: Query, request: Request) -> Check:
    """Run a query to check its result."""
    if query.updating:
        _declare(environment, query, request)
        changes = environment.sql_query(query.check).execute().collect()
        _drop(environment, query)
        return check_changes(row for row in changes)
    with tempfile.TemporaryDirectory() as folder:
        run(environment, query, request, parquet_connector(Path(folder, "out")))
        return check_files(Path(folder, "out"), query.checksum)


def _declare(environment: TableEnvironment, query: Query, request: Request) -> None:
    for statement in query.source_statements(request.connector):
        environment.execute_sql(statement)


def _drop(environment: TableEnvironment, query: Query) -> None:
    for statement in reversed(query.source_statements({})):
        _, kind, name, *_ = statement.split()
        environment.execute_sql(f"DROP {kind} {name}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure everfold.")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    options = parser.parse_args(arguments)
    environment = TableEnvironment(master=f"local[{options.cores}]", conf={"spark.driver.memory": options.memory})

    def answer(request: Request) -> dict[str, Any]:
        query = QUERIES[request.query]
        if request.action == CHECK:
            return asdict(run_check(environment, query, request))
        sink = request.sink if request.action == STREAM else BLACKHOLE
        return {"seconds": run(environment, query, request, sink)}

    serve(answer)
    environment.close()


if __name__ == "__main__":
    main(sys.argv[1:])
