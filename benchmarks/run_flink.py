"""Measure Apache Flink SQL on the benchmark queries, in the environment that `flink_environment.py`
creates.

    .venv-flink/bin/python run_flink.py --data ../scratch/bench/1k --jars JAR[:JAR…] tumble hop cumulate session

Flink reads the rows from `lanes/` (make_stream.py says why). Each query runs twice: into a sink
that drops every row, which is the run that is timed, and into Parquet files, which is the run that
is checked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from measurement import Check, check_changes, check_files, make_measurement
from pyflink.common import Configuration, RowKind  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]
from queries import QUERIES, Query, sink_ddl, source_ddl

MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}


def table_environment(options: argparse.Namespace, *, mini_batch: bool) -> TableEnvironment:
    """Create a new streaming environment in this process."""
    settings = {
        "parallelism.default": str(options.parallelism),
        "pipeline.jars": ";".join(Path(jar).resolve().as_uri() for jar in options.jars.split(":")),
        "table.local-time-zone": "UTC",
        **(MINI_BATCH if mini_batch else {}),
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )


def run(query: Query, options: argparse.Namespace, sink_files: Path | None) -> float:
    """Run a query to the end of its input. Return the seconds from its submission on."""
    environment = table_environment(options, mini_batch=options.mini_batch)
    environment.execute_sql(source_ddl(options.data / "lanes"))
    environment.execute_sql(sink_ddl(query, sink_files))
    start = time.perf_counter()
    environment.execute_sql(f"INSERT INTO snk {query.select}").wait()
    return time.perf_counter() - start


def run_check(query: Query, options: argparse.Namespace) -> Check:
    """Run a query to check its result.

    A query whose result changes always runs with mini-batches; otherwise its one row would change
    with every row read.
    """
    if query.updating:
        environment = table_environment(options, mini_batch=True)
        environment.execute_sql(source_ddl(options.data / "lanes"))
        with environment.execute_sql(query.check).collect() as changes:
            kept = (row for row in changes if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER))
            return check_changes((row[0], row[1]) for row in kept)
    with tempfile.TemporaryDirectory() as folder:
        run(query, options, Path(folder))
        return check_files(Path(folder), query.checksum)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure Apache Flink SQL.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--jars", required=True, help="jars for Parquet, separated by colons")
    parser.add_argument("--parallelism", type=int, default=2, help="as many as there are lanes (2)")
    parser.add_argument("--mini-batch", action="store_true", help="two phases over batches of 50,000 rows")
    parser.add_argument("queries", nargs="+", choices=QUERIES)
    options = parser.parse_args(arguments)
    for query in (QUERIES[name] for name in options.queries):
        check = run_check(query, options)
        seconds = run(query, options, None)
        engine = "flink-mini-batch" if options.mini_batch else "flink"
        print(
            make_measurement(
                engine=engine, query=query.name, data=options.data, seconds=seconds, check=check
            ).to_json(),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
