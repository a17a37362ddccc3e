"""Measure what the number of buckets costs: the time of a batch, and the meta rows in its shuffle.

    python buckets.py
    python buckets.py --buckets 64 1024 --queries tumble --repeat 5

A job of two shuffle partitions reads eight files per batch, each in a task of its own: first small
batches of 800 rows, then one of a million rows. The numbers of buckets take turns. A measurement is
a run of the job: the median time of the small batches after the first ones and that of the large
batch, both without planning; the user and system time of all processes for the whole run; and for
the median small batch the rows and bytes of the exchanges that are not data: those from which the
buckets learn the time, and that they are called at all.

Results are appended to the file of `run.py` in `history/`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import make_stream
from compare import format_table
from count_exchange import FOLDER
from engine_process import run_in_own_session, sample_session
from floor import note_queries
from history import describe_circumstances, history_file
from queries import QUERIES
from query import BLACKHOLE, parquet_connector

from everfold import TableEnvironment
from everfold.jobs.engine import Engine
from everfold.spark.task_input import READ, ROWS, STATS

HERE = Path(__file__).resolve().parent
FILES, KEYS, PARTITIONS = 8, 1000, 2
SMALL_ROWS, LARGE_ROWS = 100, 125_000
"""The rows of a file."""
WARM_UP = 4
"""The first small batches do not count."""
_FILE_BYTES = 4 << 20
"""The partition size that gives every file a task: Spark counts as many bytes for opening it."""
_DATA = {kind.decode() for kind in (ROWS, STATS, READ)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run.

    label: a name of the measured code. tasks: those of the exchanges in a small batch.
    """

    query: str
    buckets: int
    repetition: int
    label: str
    tasks: int
    meta_rows: int
    meta_bytes: int
    small_ms: float
    large_ms: float
    cpu_seconds: float


def write_input(folder: Path, batches: int) -> None:
    """Write the files of the small batches, and those of the large one."""
    folder.mkdir(parents=True)
    first = 0
    for batch in range(batches + 1):
        rows = SMALL_ROWS if batch < batches else LARGE_ROWS
        for file in range(FILES):
            make_stream.write_file(folder, batch * FILES + file, make_stream.make_rows(first, rows, KEYS, 1))
            first += rows


def run_job(environment: TableEnvironment, name: str, data: Path, folder: Path) -> list[float]:
    """Run a query as a job and return the execution times of its batches, in ms."""
    query = QUERIES[name]
    connector = {**parquet_connector(data), "scan.max-files-per-batch": str(FILES)}
    for statement in (*query.source_statements(connector), query.sink_statement(BLACKHOLE)):
        environment.execute_sql(statement)
    with note_queries() as queries:
        environment.execute_sql(f"INSERT INTO snk {query.select}", state_dir=folder)
    environment.execute_sql("DROP TABLE snk; DROP TABLE src")
    (started,) = queries
    reports = [json.loads(report.json) for report in started.recentProgress]
    return [float(each["durationMs"]["addBatch"]) for each in reports if each["numInputRows"]]


def read_counts(folder: Path, batch: int) -> tuple[int, int, int]:
    """Return the tasks of a batch's exchanges, and the rows and bytes that are not data."""
    tasks = rows = size = 0
    for file in folder.glob("*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            if line["batch"] == batch:
                tasks += 1
                for kind, (count, length) in line["found"].items():
                    if kind not in _DATA:
                        rows, size = rows + count, size + length
    return tasks, rows, size


def measure(options: argparse.Namespace) -> Iterator[Measurement]:
    """Run the jobs in turns."""
    batches = options.batches
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        counts = folder / "counts"
        counts.mkdir()
        os.environ[FOLDER] = str(counts)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        conf = {
            "spark.python.daemon.module": "count_exchange",
            "spark.sql.files.maxPartitionBytes": str(_FILE_BYTES),
            "spark.sql.streaming.numRecentProgressUpdates": str(2 * batches + 20),
            "spark.driver.memory": "3g",
        }
        environment = TableEnvironment(master=f"local[{PARTITIONS}]", conf=conf)
        environment.execute_sql(f"SET 'parallelism.default' = '{PARTITIONS}'")
        write_input(folder / "data", batches)
        for repetition in range(options.repeat):
            for query in options.queries:
                for buckets in options.buckets:
                    Engine.buckets = staticmethod(lambda _, number=buckets: number)  # type: ignore[method-assign,assignment]
                    for file in counts.glob("*.jsonl"):
                        os.truncate(file, 0)
                    before = sample_session(os.getpid()).cpu_seconds
                    place = folder / f"{query}-{buckets}-{repetition}"
                    times = run_job(environment, query, folder / "data", place)
                    used = sample_session(os.getpid()).cpu_seconds - before
                    tasks, rows, size = read_counts(counts, batches // 2)
                    yield Measurement(
                        query=query,
                        buckets=buckets,
                        repetition=repetition,
                        label=options.label,
                        tasks=tasks,
                        meta_rows=rows,
                        meta_bytes=size,
                        small_ms=statistics.median(times[WARM_UP:batches]),
                        large_ms=times[batches],
                        cpu_seconds=round(used, 2),
                    )
        environment.close()


def format_results(results: Sequence[Measurement]) -> str:
    """Return a table of the medians."""
    rows = []
    for (query, buckets), _ in Counter((one.query, one.buckets) for one in results).items():
        same = [one for one in results if (one.query, one.buckets) == (query, buckets)]
        last = same[-1]
        times = [f"{statistics.median(getattr(one, each) for one in same):.0f}" for each in ("small_ms", "large_ms")]
        cpu = f"{statistics.median(one.cpu_seconds for one in same):.1f}"
        rows.append([query, str(buckets), str(last.tasks), f"{last.meta_rows:,}", f"{last.meta_bytes:,}", *times, cpu])
    head = ["query", "buckets", "tasks", "meta rows", "bytes", "small batch, ms", "large batch, ms", "processor, s"]
    return format_table(head, rows, texts=1)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure what the number of buckets costs.")
    parser.add_argument("--buckets", type=int, nargs="+", default=[2, 64, 1024], help="powers of two")
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=["tumble", "cascade"])
    parser.add_argument("--batches", type=int, default=12, help="small ones")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--label", default="", help="a name of the measured code")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(arguments)
    results = []
    file = options.results or history_file()
    for result in measure(options):
        results.append(result)
        line = json.dumps({"kind": "buckets", **asdict(result), **describe_circumstances()})
        print(line, file=sys.stderr, flush=True)
        with file.open("a") as out:
            out.write(line + "\n")
    print(format_results(results))
    return 0


if __name__ == "__main__":
    run_in_own_session()
    sys.exit(main(sys.argv[1:]))
