"""Measure batches of one row in memory: the time of `MemoryPipeline.feed` for one operator.

    python small_batches.py
    python small_batches.py --queries sum over_rows --batches 2000

The batches of a query follow each other over three keys; the first ones, which plan queries and
fill the state, do not count. This is the cost of `batches: row` in a case file.
"""

from __future__ import annotations

import argparse
import statistics
import time

import pyarrow as pa

from everfold.memory.pipeline import MemoryPipeline
from everfold.sql.planner import Session, Submit

_TABLE = "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"
_WINDOW = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
QUERIES = {
    "sum": "SELECT k, SUM(v) FROM t GROUP BY k",
    "three_calls": "SELECT k, SUM(v), COUNT(*), MAX(v) FROM t GROUP BY k",
    "distinct": "SELECT k, COUNT(DISTINCT v) FROM t GROUP BY k",
    "tumble": f"SELECT k, SUM(v) FROM {_WINDOW} GROUP BY k, window_start, window_end",
    "over_rows": "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM t",
}
_START_US = 1_700_000_000_000_000
_WARM_UP = 100


def make_batch(number: int) -> pa.Table:
    """Return the row with this number as a batch: `k`, `v`, `ts`, one second after the one before."""
    time_of_row = pa.array([_START_US + number * 1_000_000], pa.timestamp("us"))
    return pa.table({"c0": ["abc"[number % 3]], "c1": pa.array([number % 7], pa.int32()), "c2": time_of_row})


def measure(query: str, batches: int) -> list[float]:
    """Return the times of batches in ms."""
    submits = [each for each in Session().run(f"{_TABLE}; {QUERIES[query]}") if isinstance(each, Submit)]
    pipeline = MemoryPipeline(submits[0].roots[0], submits[0].settings)
    times = []
    for batch in map(make_batch, range(_WARM_UP + batches)):
        started = time.perf_counter()
        pipeline.feed({"t": batch}, now_ms=0)
        times.append(1000 * (time.perf_counter() - started))
    return times[_WARM_UP:]


def main() -> None:
    """Print the median and the tenth percentile of each query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=[*QUERIES])
    parser.add_argument("--batches", type=int, default=500, help="batches that count (default 500)")
    options = parser.parse_args()
    for query in options.queries:
        times = measure(query, options.batches)
        tenth = statistics.quantiles(times, n=10)[0]
        print(f"{query:12} median {statistics.median(times):6.2f} ms, 10% below {tenth:6.2f} ms", flush=True)


if __name__ == "__main__":
    main()
