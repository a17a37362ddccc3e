"""Measure what a small batch costs in everfold, and what it costs at least.

    python floor.py --out ../scratch/bench/floor.jsonl

The floor is a minimal query of the shape of everfold's: a file of 500 rows in union with control
files, `mapInArrow` that packs the rows for 16 buckets, `transformWithState` with one read and two
writes of state for each bucket, in two tasks, and `foreachBatch`. everfold runs `tumble` and
`group` over the same files as jobs. All run in one session with everfold's settings, in turns.

The times are Spark's, in milliseconds: the median of the batches after the first ten. `batch` is
the whole batch, `planning` the query's planning, `addBatch` the execution, and `state updates` and
`state commit` the parts of it that both tasks report together. `processor` is the user and system
time of all processes, divided by the number of all batches: it includes the start of the query. The
ratios compare whole batches and processor time in the same repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import make_stream
import polars as pl
from compare import format_table
from data_sets import SCRATCH
from engine_process import run_in_own_session, sample_session
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from queries import QUERIES
from query import BLACKHOLE, parquet_connector

from everfold import TableEnvironment
from everfold.spark.session import create_session

if TYPE_CHECKING:
    import pyarrow as pa

ROWS, KEYS, BUCKETS, TASKS = 500, 1000, 16, 2
WARM_UP = 10
"""The first batches do not count."""
HEAD_BYTES, PAGE_BYTES = 2_000, 16_000
STAGES = {
    "batch": "triggerExecution",
    "planning": "queryPlanning",
    "addBatch": "addBatch",
    "state updates": "allUpdatesTimeMs",
    "state commit": "commitTimeMs",
}
MINIMAL = "minimal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The median times of a query's batches, by stage, and their processor time."""

    query: str
    repetition: int
    batches: int
    ms: dict[str, float]


PROCESSOR = "processor"


def write_input(folder: Path, batches: int) -> None:
    """Write a JSON file for each batch."""
    folder.mkdir(parents=True)
    rows = pl.DataFrame(pl.from_arrow(make_stream.make_rows(0, batches * ROWS, KEYS, 1)))
    rows = rows.with_columns(pl.col("ts").dt.strftime("%Y-%m-%d %H:%M:%S%.3f"))
    for batch in range(batches):
        path = folder / f"part-{batch:05}.json"
        rows.slice(batch * ROWS, ROWS).write_ndjson(path)
        os.utime(path, (make_stream.FIRST_FILE_TIME + batch, make_stream.FIRST_FILE_TIME + batch))


def pack_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Aggregate the rows of a task and pack them for the buckets; every bucket gets a meta row."""
    from io import BytesIO

    import polars as pl
    import pyarrow as pa

    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    rows = pl.DataFrame(pl.from_arrow(pa.Table.from_batches(filled)))
    rows = rows.with_columns((pl.col("h") & (BUCKETS - 1)).alias("bucket"), pl.col("t") // 10_000)
    summed = rows.group_by("bucket", "a", "t").agg(pl.col("c").sum())
    wire: list[tuple[int, bytes]] = [(bucket, b"M") for bucket in range(BUCKETS)]
    for (bucket,), part in summed.partition_by("bucket", as_dict=True, include_key=False).items():
        stream = BytesIO()
        part.write_ipc_stream(stream)
        wire.append((bucket, stream.getvalue()))
    columns = [pa.array([bucket for bucket, _ in wire], pa.int64()), pa.array([blob for _, blob in wire], pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, names=["bucket", "payload"])


class MinimalProcessor(StatefulProcessor):
    """Reads one page of a bucket, writes two, and passes the rows on."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._pages = handle.getMapState("pages", "k INT", "b BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        blobs = [bytes(row.payload) for row in rows]
        self._pages.getValue((0,))
        self._pages.updateValue((0,), (bytearray(HEAD_BYTES),))
        self._pages.updateValue((1,), (bytearray(PAGE_BYTES),))
        yield Row(payload=bytearray(b"".join(blobs)))

    def close(self) -> None:
        pass


def run_minimal(
    spark: SparkSession, data: Path, folder: Path, received: Callable[[], None] = lambda: None
) -> StreamingQuery:
    """Run the minimal query over all files, one per batch. `received` is called after each batch."""
    (folder / "control").mkdir(parents=True)
    rows = (
        spark.readStream.name("data")
        .schema("a BIGINT, c BIGINT, ts TIMESTAMP")
        .option("maxFilesPerTrigger", 1)
        .json(str(data))
    )
    rows = rows.selectExpr("xxhash64(a) AS h", "a", "c", "unix_millis(ts) AS t", "CAST(NULL AS STRING) AS control")
    control = spark.readStream.name("control").text(str(folder / "control"))
    rows = rows.union(control.selectExpr("0L", "NULL", "NULL", "NULL", "value"))
    packed = rows.mapInArrow(pack_rows, "bucket BIGINT, payload BINARY")
    stepped = packed.groupBy("bucket").transformWithState(MinimalProcessor(), "payload BINARY", "Append", "None")

    def collect(frame: DataFrame, _batch: int) -> None:
        frame.toArrow()
        received()

    query = (
        stepped.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="0 milliseconds")
        .start()
    )
    query.processAllAvailable()
    query.stop()
    return query


def run_everfold(environment: TableEnvironment, name: str, data: Path, folder: Path) -> StreamingQuery:
    """Run a query of the benchmarks as a job over all files, one per batch."""
    query = QUERIES[name]
    connector = {**parquet_connector(data), "format": "json", "scan.max-files-per-batch": "1"}
    for statement in (*query.source_statements(connector), query.sink_statement(BLACKHOLE)):
        environment.execute_sql(statement)
    with note_queries() as queries:
        environment.execute_sql(f"INSERT INTO snk {query.select}", state_dir=folder)
    environment.execute_sql("DROP TABLE snk; DROP TABLE src")
    (started,) = queries
    return started


@contextmanager
def note_queries() -> Iterator[list[StreamingQuery]]:
    """Collect the streaming queries that are started within the block."""
    started: list[StreamingQuery] = []
    start = DataStreamWriter.start

    def start_and_note(self: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        started.append(start(self, *args, **options))
        return started[-1]

    DataStreamWriter.start = start_and_note  # type: ignore[method-assign]
    try:
        yield started
    finally:
        DataStreamWriter.start = start  # type: ignore[method-assign]


def summarize(query: StreamingQuery, name: str, repetition: int, cpu_seconds: float) -> Result:
    """Return the median times of the batches with input after the first ones."""
    reports = [json.loads(report.json) for report in query.recentProgress]
    reports = [report for report in reports if report["numInputRows"]]
    ms = {PROCESSOR: cpu_seconds * 1000 / len(reports)}
    reports = reports[WARM_UP:]
    for stage, key in STAGES.items():
        times = [_read_time(report, key) for report in reports]
        ms[stage] = statistics.median(times)
    return Result(query=name, repetition=repetition, batches=len(reports), ms=ms)


def _read_time(report: dict[str, Any], key: str) -> float:
    if key in report["durationMs"]:
        return float(report["durationMs"][key])
    return float(sum(operator[key] for operator in report["stateOperators"]))


def measure(batches: int, repeat: int) -> Iterator[Result]:
    """Run the queries in turns."""
    environment = TableEnvironment(
        master=f"local[{TASKS}]", conf={"spark.sql.streaming.numRecentProgressUpdates": str(batches * 2 + WARM_UP)}
    )
    environment.sql_query("SELECT 1").collect()  # starts Spark
    active = SparkSession.getActiveSession()
    assert active is not None
    spark = create_session(active, TASKS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_input(folder / "data", batches)
        runs: dict[str, Callable[[Path], StreamingQuery]] = {
            MINIMAL: lambda place: run_minimal(spark, folder / "data", place),
            "tumble": lambda place: run_everfold(environment, "tumble", folder / "data", place),
            "group": lambda place: run_everfold(environment, "group", folder / "data", place),
        }
        for repetition in range(repeat):
            for query, run in runs.items():
                before = sample_session(os.getpid()).cpu_seconds
                done = run(folder / f"{query}-{repetition}")
                used = sample_session(os.getpid()).cpu_seconds - before
                yield summarize(done, query, repetition, used)
    environment.close()


def format_results(results: list[Result]) -> str:
    """Return a table of the medians of all repetitions, and of the ratios to the minimal query."""
    floor = {one.repetition: one.ms for one in results if one.query == MINIMAL}
    columns = (*STAGES, PROCESSOR)
    rows = []
    for query in dict.fromkeys(one.query for one in results):
        same = [one for one in results if one.query == query]
        medians = [f"{statistics.median(one.ms[each] for one in same):.0f}" for each in columns]
        ratios = [
            f"{statistics.median(one.ms[each] / floor[one.repetition][each] for one in same):.2f}"
            for each in ("batch", PROCESSOR)
        ]
        rows.append([query, *medians, *ratios])
    return format_table(["query", *(f"{each}, ms" for each in columns), "ratio", "processor, ratio"], rows, texts=1)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure what a small batch costs, and what it costs at least.")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=SCRATCH / "floor.jsonl")
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    results = []
    with options.out.open("w") as file:
        for result in measure(options.batches, options.repeat):
            results.append(result)
            line = json.dumps({"query": result.query, "repetition": result.repetition, **result.ms})
            print(line, file=sys.stderr, flush=True)
            file.write(line + "\n")
    print(format_results(results))
    return 0


if __name__ == "__main__":
    run_in_own_session()
    sys.exit(main(sys.argv[1:]))
