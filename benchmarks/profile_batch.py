"""Measure where the time of everfold's batches goes, by stage.

    python profile_batch.py tumble over_range
    python profile_batch.py --data-set 1m-keys --length 5 group
    python profile_batch.py --data-set nexmark q18

Each query runs twice over Parquet files as a job; the second run is measured. The stages are:

- of the Python workers: timers around the functions (`profile_timers.py`), each without the time
  of the others within it. `receive` is the wait for rows of the JVM and their Arrow decoding,
  `process` the unpacking and packing of blobs around `step`, and the state calls wait for the JVM.
- of the JVM: the processor time of its tasks, from Spark's task metrics, for stages that read the
  input (decode, projection, Arrow encoding, shuffle write) and for the others (shuffle read, state
  store and its commit, Arrow encoding). `decode and projection` is the processor time of a batch
  query that only reads the same columns; it is a part of the former.
- of the driver: the rest of the processor time of all processes: planning, the commit of batches,
  the sink, compiling and garbage collection.

Wall times overlap, because tasks run in parallel and the JVM works while Python does; processor
times add up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare import format_table
from data_sets import DATA_SETS, FILE_ROWS, SCRATCH, Store, count_rows
from engine_process import run_in_own_session, sample_session
from floor import note_queries
from profile_timers import FOLDER, OPERATOR_STAGES, STAGES
from pyspark.sql import SparkSession
from queries import QUERIES
from query import BLACKHOLE, parquet_connector

from everfold import TableEnvironment

HERE = Path(__file__).resolve().parent
CORES = 2
_DECLARED = re.compile(r"CREATE (TABLE|VIEW) (\w+)")


@dataclass(frozen=True, slots=True)
class Part:
    """The time of a stage. wall_s: None if only the processor time is known."""

    stage: str
    cpu_s: float
    wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class JvmTimes:
    """The processor time of the JVM's tasks so far: of those that read input, and of the others."""

    reading_s: float
    other_s: float


def read_jvm_times(spark: SparkSession) -> JvmTimes:
    """Add up the metrics of all tasks so far."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(60_000)
    store = context.statusStore()
    reading = other = 0.0
    stages = store.stageList(None, False, False, _no_doubles(spark), None)
    for at in range(stages.size()):
        stage = stages.apply(at)
        seconds = stage.executorCpuTime() / 1e9
        if stage.inputRecords() > 0:
            reading += seconds
        else:
            other += seconds
    return JvmTimes(reading, other)


def _no_doubles(spark: SparkSession) -> Any:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return gateway.new_array(gateway.jvm.double, 0)


def read_timers(folder: Path) -> Iterator[Part]:
    """Yield the times of all stages of the Python workers."""
    wall: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            stage, wall_s, cpu_s = json.loads(line)
            wall[stage] += wall_s
            cpu[stage] += cpu_s
    for stage in ("receive", "pack", OPERATOR_STAGES[0], "process", OPERATOR_STAGES[1], *STAGES):
        if stage in wall:
            yield Part(f"Python: {stage}", cpu.pop(stage), wall.pop(stage))


def run_job(environment: TableEnvironment, name: str, data: Path) -> dict[str, float]:
    """Run a query as a job and return Spark's times of all batches, in seconds."""
    query = QUERIES[name]
    for statement in (*query.source_statements(parquet_connector(data)), query.sink_statement(BLACKHOLE)):
        environment.execute_sql(statement)
    with tempfile.TemporaryDirectory() as folder, note_queries() as queries:
        environment.execute_sql(f"INSERT INTO snk {query.select}", state_dir=Path(folder, "job"))
        (started,) = queries
        reports = [json.loads(report.json) for report in started.recentProgress]
    for kind, each in reversed(_DECLARED.findall(" ".join((query.table, *query.views, "CREATE TABLE snk")))):
        environment.execute_sql(f"DROP {kind} {each}")
    times: Counter[str] = Counter()
    for report in reports:
        times.update({key: ms / 1000 for key, ms in report["durationMs"].items()})
        for operator in report["stateOperators"]:
            times.update({f"state {key}": operator[f"{key}TimeMs"] / 1000 for key in ("allUpdates", "commit")})
    return dict(times)


def scan(spark: SparkSession, name: str, data: Path) -> None:
    """Read the columns of a query in the JVM, with the time as a number, and drop them."""
    query, frame = QUERIES[name], spark.read.parquet(str(data))
    read = set(re.findall(r"\w+", " ".join((query.select, *query.views))))
    columns = [column for column in frame.columns if column in read or column == frame.columns[-1]]
    texts = [
        f"unix_millis(`{name}`)" if frame.schema[name].dataType.typeName() == "timestamp" else f"`{name}`"
        for name in columns
    ]
    frame.selectExpr(*texts).write.format("noop").mode("overwrite").save()


def profile_query(
    environment: TableEnvironment, name: str, data: Path, timers: Path
) -> tuple[list[Part], dict[str, float]]:
    """Return the times of a query by stage, and Spark's own times."""
    session = os.getsid(0)
    run_job(environment, name, data)
    spark = SparkSession.getActiveSession()
    assert spark is not None
    for file in timers.glob("*.jsonl"):
        os.truncate(file, 0)
    before, cpu = read_jvm_times(spark), sample_session(session).cpu_seconds
    reported = run_job(environment, name, data)
    cpu = sample_session(session).cpu_seconds - cpu
    after = read_jvm_times(spark)
    scan(spark, name, data)
    before_scan = read_jvm_times(spark)
    scan(spark, name, data)
    decode = read_jvm_times(spark).reading_s - before_scan.reading_s
    reading, other = after.reading_s - before.reading_s, after.other_s - before.other_s
    parts = [
        Part("JVM: tasks that read (decode, projection, crossing, shuffle write)", reading),
        Part("of these: decode and projection, measured alone", decode),
        Part("JVM: other tasks (shuffle read, state store, crossing)", other),
        *read_timers(timers),
    ]
    known = sum(part.cpu_s for part in parts) - decode
    return [*parts, Part("driver and all else", cpu - known)], reported


def format_profile(parts: list[Part], rows: int) -> str:
    """Return a table of the times by stage."""
    total = sum(part.cpu_s for part in parts if not part.stage.startswith("of these"))
    lines = [
        [
            *(part.stage, f"{part.cpu_s:.2f}", f"{part.cpu_s / rows * 1e9:.0f}", f"{part.cpu_s / total:.0%}"),
            "" if part.wall_s is None else f"{part.wall_s:.2f}",
        ]
        for part in parts
    ]
    return format_table(["stage", "processor, s", "ns per row", "share", "wall, s"], lines, texts=1)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure where the time of everfold's batches goes.")
    parser.add_argument("--data-set", choices=DATA_SETS, default="1k-keys")
    parser.add_argument("--length", type=int, default=10, help="the number of files with a million rows each")
    parser.add_argument("queries", nargs="+", choices=QUERIES)
    options = parser.parse_args(arguments)
    folder = Store(SCRATCH, FILE_ROWS).prepare(DATA_SETS[options.data_set], options.length)
    rows = count_rows(folder)
    with tempfile.TemporaryDirectory() as timers:
        os.environ[FOLDER] = timers
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        conf = {"spark.driver.memory": "6g", "spark.python.daemon.module": "profile_timers"}
        conf["spark.sql.streaming.numRecentProgressUpdates"] = "10000"
        conf["spark.ui.retainedStages"] = "100000"
        environment = TableEnvironment(master=f"local[{CORES}]", conf=conf)
        for name in options.queries:
            parts, reported = profile_query(environment, name, folder / "files", Path(timers))
            print(f"\n{name}, {rows:,} rows of {options.data_set}\n")
            print(format_profile(parts, rows))
            print("\nSpark: " + ", ".join(f"{key} {seconds:.2f} s" for key, seconds in reported.items()), flush=True)
        environment.close()
    return 0


if __name__ == "__main__":
    run_in_own_session()
    sys.exit(main(sys.argv[1:]))
