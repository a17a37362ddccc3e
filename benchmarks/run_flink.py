"""Measure Apache Flink SQL, in the environment that `flink_environment.py` creates; `run.py` starts
this script and sends it requests (`engine_protocol.py`).

Flink reads the Parquet rows from `lanes/` (make_stream.py says why).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine_protocol import CHECK, STREAM, Request, serve
from measurement import Check, check_changes, check_files
from pyflink.common import Configuration, RowKind  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]
from queries import QUERIES
from query import BLACKHOLE, Query, parquet_connector

MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}
COMMON = {
    "pipeline.object-reuse": "true",  # rows are not copied between the operators of a chain
    "table.local-time-zone": "UTC",
}
HEAP_SHARE = 0.6
"""Java would take a quarter of the machine's memory for its heap, and Flink's state is there."""
ENDLESS = {"execution.checkpointing.interval": "10 s"}
"""A bounded query would wait for another checkpoint at its end."""


def table_environment(options: argparse.Namespace, *, mini_batch: bool, endless: bool = False) -> TableEnvironment:
    """Create a new streaming environment in this process."""
    settings = {
        "parallelism.default": str(options.parallelism),
        "pipeline.jars": ";".join(Path(jar).resolve().as_uri() for jar in options.jars.split(":")),
        **COMMON,
        **(MINI_BATCH if mini_batch else {}),
        **(ENDLESS if endless else {}),
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )


def run(query: Query, request: Request, options: argparse.Namespace, sink: Mapping[str, str]) -> float:
    """Run a query to the end of its input. Return the seconds from its submission on."""
    endless = request.action == STREAM
    environment = table_environment(options, mini_batch=options.mini_batch, endless=endless)
    for statement in query.source_statements(request.connector):
        environment.execute_sql(statement)
    environment.execute_sql(query.sink_statement(sink))
    start = time.perf_counter()
    environment.execute_sql(f"INSERT INTO snk {query.select}").wait()
    return time.perf_counter() - start


def run_check(query: Query, request: Request, options: argparse.Namespace) -> Check:
    """Run a query to check its result.

    A query whose result changes always runs with mini-batches; otherwise its one row would change
    with every row read.
    """
    if query.updating:
        environment = table_environment(options, mini_batch=True)
        for statement in query.source_statements(request.connector):
            environment.execute_sql(statement)
        with environment.execute_sql(query.check).collect() as changes:
            kept = (row for row in changes if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER))
            return check_changes((row[0], row[1]) for row in kept)
    with tempfile.TemporaryDirectory() as folder:
        run(query, request, options, parquet_connector(Path(folder)))
        return check_files(Path(folder), query.checksum)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure Apache Flink SQL.")
    parser.add_argument("--jars", required=True, help="jars of formats and connectors, separated by colons")
    parser.add_argument("--parallelism", type=int, default=2, help="as many as there are lanes (2)")
    parser.add_argument("--mini-batch", action="store_true", help="two phases over batches of 50,000 rows")
    options = parser.parse_args(arguments)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    os.environ["JVM_ARGS"] = f"-Xmx{int(memory * HEAP_SHARE) >> 20}m"

    def answer(request: Request) -> dict[str, Any]:
        query = QUERIES[request.query]
        if request.action == CHECK:
            return asdict(run_check(query, request, options))
        sink = request.sink if request.action == STREAM else BLACKHOLE
        return {"seconds": run(query, request, options, sink)}

    serve(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
