"""Measure what a batch of `SELECT a, SUM(c), COUNT(*) … GROUP BY a` costs as its state grows, in
everfold and in Spark's own aggregation.

    python growth.py --out ../scratch/bench/growth.jsonl    # 1 and 20 million keys, both engines
    python growth.py --repeat 3
    python growth.py --keys 1e6 --engines everfold --loads zipf

Each engine has a separate process. It first loads all keys once, then runs the loads of
`touches.py` one after another, one file per batch. The times are Spark's (`triggerExecution`); the
bytes are those written to its RocksDB (`rocksdbTotalBytesWritten`). Both engines run on the same
Spark with the same configuration. The first half of a load does not count: each worker maps the
files of the state into its memory when it needs them first, and the JVM is still warming up.

The output is one JSON line for each engine, size, load and repetition, and a table. Sizes and
engines take turns.
`amp` is the bytes written per byte that changed; a changed row consists of its key and three numbers.
`workers_mb` is the peak of the memory of all Python workers together, in the whole run of an engine;
`workers_private_mb` is that without the files of the state cache, which the system may drop.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from compare import format_spread, format_table
from engine_process import measure_usage, run_in_own_session, run_session
from make_stream import FIRST_FILE_TIME
from run_spark import start_spark
from touches import Keys, batches

ENGINES = ("everfold", "spark")
SCHEMA = "a BIGINT, c BIGINT"
ROW_BYTES = 4 * 8
LOADING_ROWS = 2_000_000
"""The rows of a file while the keys are loaded."""
SCRATCH = Path(__file__).resolve().parent.parent / "scratch" / "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Batches of one kind."""

    name: str
    draws: int
    batches: int

    @property
    def warm_up(self) -> int:
        return max(self.batches // 2, 1)


LOADS = (
    Load(name="uniform", draws=10_000, batches=40),
    Load(name="recent", draws=10_000, batches=40),
    Load(name="zipf", draws=10_000, batches=40),
    Load(name="uniform", draws=100_000, batches=32),
    Load(name="recent", draws=100_000, batches=32),
    Load(name="zipf", draws=100_000, batches=32),
    Load(name="uniform", draws=1_000_000, batches=6),
)


def shuffle_keys(keys: int) -> Iterator[Keys]:
    """Yield all keys, once, in random order."""
    shuffled = np.random.default_rng(7).permutation(keys)
    for start in range(0, keys, LOADING_ROWS):
        yield shuffled[start : start + LOADING_ROWS]


def write_input(folder: Path, keys: int, loads: Sequence[Load]) -> list[int]:
    """Write one file per batch. Return the number of different keys in each file."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(11)
    touched: list[int] = []

    def write(drawn: Keys) -> None:
        path = folder / f"{len(touched):05}.parquet"
        pq.write_table(pa.table({"a": drawn, "c": random.integers(0, 10**6, len(drawn))}), path)
        os.utime(path, (FIRST_FILE_TIME + len(touched), FIRST_FILE_TIME + len(touched)))
        touched.append(len(np.unique(drawn)))

    for drawn in shuffle_keys(keys):
        write(drawn)
    for load in loads:
        for _, drawn in zip(range(load.batches), batches(load.name, keys, load.draws), strict=False):
            write(drawn)
    return touched


def run(engine: str, data: Path, *, cores: int, memory: str) -> list[dict[str, Any]]:
    """Run a query and return Spark's progress reports, one for each batch."""
    spark = start_spark(cores, memory)
    if engine == "spark":
        from pyspark.sql import functions as sf

        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(data))
        frame = source.groupBy("a").agg(sf.sum("c").alias("s"), sf.count("*").alias("n"))
    else:
        from everfold import TableEnvironment

        environment = TableEnvironment(spark)
        environment.execute_sql(
            f"CREATE TABLE src ({SCHEMA}) WITH ('connector' = 'filesystem', 'path' = '{data.as_uri()}', "
            "'format' = 'parquet', 'scan.max-files-per-batch' = '1')"
        )
        frame = environment.sql_query("SELECT a, SUM(c) AS s, COUNT(*) AS n FROM src GROUP BY a").to_changelog()
    with tempfile.TemporaryDirectory(dir=data.parent) as checkpoint:
        query = (
            frame.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        reports = [json.loads(report.json) for report in query.recentProgress if report.numInputRows]
        spark.stop()  # otherwise it may still write snapshots into the folder that is removed
    return reports


def summarize(
    reports: Sequence[dict[str, Any]],
    touched: Sequence[int],
    loads: Sequence[Load],
    run_as: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Yield the measurements of each load."""
    if len(reports) != len(touched):
        raise SystemExit(f"{len(touched)} files made {len(reports)} batches")
    at = len(touched) - sum(load.batches for load in loads)
    loading_ms = sum(report["durationMs"]["triggerExecution"] for report in reports[:at])
    for load in loads:
        here = slice(at + load.warm_up, at + load.batches)
        ms = [report["durationMs"]["triggerExecution"] for report in reports[here]]
        written = [
            sum(each["customMetrics"]["rocksdbTotalBytesWritten"] for each in report["stateOperators"])
            for report in reports[here]
        ]
        yield run_as | {
            "load": load.name,
            "draws": load.draws,
            "touched": round(statistics.mean(touched[here])),
            "ms": round(statistics.median(ms)),
            "ms_most": max(ms),
            "mb": round(statistics.mean(written) / 1e6, 2),
            "amp": round(sum(written) / (sum(touched[here]) * ROW_BYTES), 2),
            "loading_s": round(loading_ms / 1000, 1),
        }
        at += load.batches


def tabulate(lines: Sequence[dict[str, Any]]) -> str:
    """Return a table with a row for each load, and the engines and sizes side by side.

    A number is the median of the repetitions, followed by the least and the greatest one.
    """
    runs = {(each["engine"], each["keys"], each["load"], each["draws"], each["repetition"]): each for each in lines}
    engines, sizes, repetitions = (list(dict.fromkeys(key[at] for key in runs)) for at in (0, 1, 4))
    loads = list(dict.fromkeys(key[2:4] for key in runs))
    head = ["load", "draws"]
    rows = [[name, f"{draws:,}"] for name, draws in loads]
    for engine in engines:
        head += [f"{engine}, {keys / 1e6:g}M, s" for keys in sizes] + ["growth"] * (len(sizes) > 1)
        head += [f"written / changed, {keys / 1e6:g}M" for keys in sizes]
        for row, load in zip(rows, loads, strict=True):
            measured = [[runs[engine, keys, *load, at] for at in repetitions] for keys in sizes]
            row += [format_spread([each["ms"] / 1e3 for each in same]) for same in measured]
            if len(sizes) > 1:
                pairs = zip(measured[0], measured[-1], strict=True)
                row.append(format_spread([large["ms"] / small["ms"] for small, large in pairs]))
            row += [format_spread([each["amp"] for each in same], 1) for same in measured]
    loading = []
    for engine, keys in itertools.product(engines, sizes):
        same = [runs[engine, keys, *loads[0], at] for at in repetitions]
        loading.append(
            f"{engine}, {keys / 1e6:g}M keys: loaded in {format_spread([each['loading_s'] for each in same], 1)} s, "
            f"workers at most {max(each['workers_mb'] for each in same):,} MB "
            f"({max(each['workers_private_mb'] for each in same):,} MB without mapped files)"
        )
    return "\n".join([format_table(head, rows, texts=1), "", *loading])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure the time of a batch by the size of its state.")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--keys", nargs="+", type=float, default=[1e6, 20e6])
    parser.add_argument("--loads", nargs="+", choices=sorted({load.name for load in LOADS}))
    parser.add_argument("--repeat", type=int, default=1, help="repetitions (default: 1)")
    parser.add_argument("--repetition", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--out", type=Path, default=SCRATCH / "growth.jsonl")
    options = parser.parse_args(arguments)
    loads = [load for load in LOADS if options.loads is None or load.name in options.loads]
    if options.repetition is None:
        options.out.unlink(missing_ok=True)
        same = ["--cores", str(options.cores), "--memory", options.memory, "--out", str(options.out)]
        same += ["--loads", *options.loads] if options.loads else []
        for repetition, keys, engine in itertools.product(range(options.repeat), options.keys, options.engines):
            one = ["--engines", engine, "--keys", str(keys), "--repetition", str(repetition), *same]
            if code := run_session([sys.executable, __file__, *one]):
                return code
        print(tabulate([json.loads(line) for line in options.out.read_text().splitlines()]))
        return 0
    (engine,), keys = options.engines, int(options.keys[0])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out.parent) as folder:
        data = Path(folder, "data").resolve()
        touched = write_input(data, keys, loads)
        with measure_usage(os.getpid()) as usage:
            reports = run(engine, data, cores=options.cores, memory=options.memory)
    run_as = {
        "engine": engine,
        "keys": keys,
        "repetition": options.repetition,
        "workers_mb": usage.workers_mb,
        "workers_private_mb": usage.workers_private_mb,
    }
    with options.out.open("a") as file:
        for line in summarize(reports, touched, loads, run_as):
            print(json.dumps(line), flush=True)
            file.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    run_in_own_session()
    sys.exit(main(sys.argv[1:]))
