"""Measure the operators alone, in this process and without Spark: the CPU time of `prepare` and
`step` per input row.

    python operators.py over_range over_rows over_all
    python operators.py tumble session group --keys 1000000 --rows 5000000
    python operators.py over_rows_min --profile 30

The rows are those of `make_stream.py`. A batch reaches the operator in chunks, each chunk's prepared
rows are split into buckets, and every bucket is stepped over a store in memory; Polars runs on one
thread, as in Spark's workers. The time for making and splitting the rows does not count. The end of
the input flushes all operators. `checksum` adds up the integers of all result rows, so that two
versions of an operator can be compared.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl
from make_stream import START_MS, make_rows
from queries import QUERIES
from query import parquet_connector

from everfold.operators.factory import clock_of, operator_of
from everfold.operators.protocol import Meta, Operator
from everfold.plan.emitted_changes import is_updating
from everfold.plan.expressions import Call, Expr, InputRef
from everfold.plan.nodes import Plan, Project, Scan, StatefulNode
from everfold.plan.parts import children
from everfold.plan.walk import operators_of
from everfold.sql.planner import Session, Submit
from everfold.state.store import MemoryStore

_Found = TypeVar("_Found")
_DELAY_MS = 1000
_FRAMES = {
    "range": "RANGE BETWEEN INTERVAL '60' SECOND PRECEDING AND CURRENT ROW",
    "rows": "ROWS BETWEEN 10 PRECEDING AND CURRENT ROW",
    "all": "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
}
_CALLS = {
    "minmax": "MIN(c) OVER w, MAX(c) OVER w",
    "double": "SUM(CAST(c AS DOUBLE)) OVER w, AVG(CAST(c AS DOUBLE)) OVER w",
    "distinct": "COUNT(DISTINCT b) OVER w",
}
OTHERS = {
    f"over_{name}_{calls}": f"SELECT a, ts, {text} FROM src WINDOW w AS (PARTITION BY a ORDER BY ts {frame})"
    for name, frame in _FRAMES.items()
    for calls, text in _CALLS.items()
}
"""Queries over `src` that are measured only here."""


def plan_of(query: str) -> StatefulNode:
    """Return the only stateful node of a query."""
    text = QUERIES[query].select if query in QUERIES else OTHERS[query]
    tables = "; ".join(QUERIES["tumble"].source_statements(parquet_connector(Path())))
    submits = [each for each in Session(folder=Path()).run(f"{tables}; {text}") if isinstance(each, Submit)]
    (node,) = operators_of(submits[-1].roots)
    return node


def input_rows(operator: Operator, below: Plan, rows: pl.DataFrame, first: int) -> pl.DataFrame:
    """Return the rows as `prepare` gets them.

    first: the number of the first row.
    """
    columns = []
    for each in operator.inputs:
        value = _evaluate(each.expression, below, rows)
        if each.as_hash:
            value = value.hash(seed=1).reinterpret(signed=True)
        columns.append((value.dt.epoch("ms") if each.as_ms else value).alias(each.name))
    frame = pl.DataFrame(columns)
    keys = [frame[name] for name in operator.hash_columns]
    hashed = frame.select(pl.struct(keys).hash().reinterpret(signed=True)) if keys else pl.select(pl.lit(0))
    number = [pl.int_range(first, first + pl.len()).alias("seq")] if operator.ordered else []
    return frame.select(hashed.to_series().alias("hash"), pl.all(), *number)


def _evaluate(expression: Expr, below: Plan, rows: pl.DataFrame) -> pl.Series:
    """Return the values of a column, or of its cast, over the rows of the source."""
    if isinstance(expression, Call):
        assert expression.function == "CAST", expression
        return _evaluate(expression.args[0], below, rows).cast(expression.type.polars)
    assert isinstance(expression, InputRef), expression
    if isinstance(below, Project):
        return _evaluate(below.expressions[expression.position], below.input, rows)
    if isinstance(below, Scan):
        return rows[below.schema[expression.position].name]
    return _evaluate(expression, children(below)[0], rows)


def chunks_of(rows: int, keys: int, chunk_rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the rows of the stream in chunks, each with the number of its first row."""
    for first in range(0, rows, chunk_rows):
        table = make_rows(first, min(chunk_rows, rows - first), keys, seed=1)
        yield first, pl.DataFrame(pl.from_arrow(table)).with_columns(pl.col("ts").dt.replace_time_zone(None))


class Measured:
    """An operator with its buckets, and the CPU seconds spent in it.

    profile: what takes the time, if wanted.
    """

    def __init__(self, node: StatefulNode, buckets: int, profile: cProfile.Profile | None) -> None:
        self.operator = operator_of(node, "w1", clock_of(node, ("src",), None), updating=is_updating(node.input))
        self.stores = [MemoryStore() for _ in range(buckets)]
        (self.below,), self.profile = children(node), profile
        self.prepare_s = self.step_s = 0.0
        self.rows_in = self.rows_prepared = self.rows_out = self.checksum = 0

    def run_batch(self, chunks: list[tuple[int, pl.DataFrame]], *, flush: bool = False) -> None:
        """Run a batch over all buckets."""
        parts: list[list[pl.DataFrame]] = [[] for _ in self.stores]
        metas = [Meta(0, {}, flush)]
        for first, rows in chunks:
            self.rows_in += rows.height
            metas.append(Meta(0, {"src": START_MS + first + rows.height - 1 - _DELAY_MS}))
            given = input_rows(self.operator, self.below, rows, first)
            prepared, seconds = self._time(partial(self.operator.prepare, given))
            self.prepare_s += seconds
            self.rows_prepared += prepared.height
            index = (pl.col("hash") & (len(parts) - 1)).alias("__bucket")
            split = prepared.with_columns(index).partition_by("__bucket", as_dict=True, include_key=False)
            for (at,), part in split.items():
                parts[at].append(part.rechunk())
        for store, frames in zip(self.stores, parts, strict=True):
            step, seconds = self._time(partial(self.operator.step, store, frames, metas))
            self.step_s += seconds
            self.rows_out += step.rows.height
            self._add_up(step.rows)

    def _add_up(self, rows: pl.DataFrame) -> None:
        numbers = rows.select(pl.col(pl.Int64, pl.Float64).fill_null(-1)).select(pl.all().cast(pl.Int64))
        for at, each in enumerate(numbers, 1):
            self.checksum = (self.checksum + at * int(each.cast(pl.Int128).sum() or 0)) % (1 << 61)

    def _time(self, work: Callable[[], _Found]) -> tuple[_Found, float]:
        """Run some work and return its result and the CPU seconds that it took."""
        if self.profile is not None:
            self.profile.enable()
        start = time.process_time()
        found = work()
        seconds = time.process_time() - start
        if self.profile is not None:
            self.profile.disable()
        return found, seconds


def measure(query: str, options: argparse.Namespace) -> dict[str, object]:
    """Run a query over the whole stream and return its line."""
    profile = cProfile.Profile(time.process_time) if options.profile else None
    run = Measured(plan_of(query), options.buckets, profile)
    batch: list[tuple[int, pl.DataFrame]] = []
    for first, rows in chunks_of(options.rows, options.keys, options.chunk_rows):
        batch.append((first, rows))
        if sum(each.height for _, each in batch) >= options.batch_rows:
            run.run_batch(batch)
            batch = []
    if batch:
        run.run_batch(batch)
    run.run_batch([], flush=True)
    if profile is not None:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(options.profile)
        pstats.Stats(profile).sort_stats("tottime").print_stats(options.profile)
    total = run.prepare_s + run.step_s
    return {
        "query": query,
        "rows": run.rows_in,
        "keys": options.keys,
        "prepare_rows_per_s": int(run.rows_in / run.prepare_s),
        "step_rows_per_s": int(run.rows_in / run.step_s),
        "rows_per_s": int(run.rows_in / total),
        "prepare_s": round(run.prepare_s, 3),
        "step_s": round(run.step_s, 3),
        "prepared": run.rows_prepared,
        "out": run.rows_out,
        "checksum": run.checksum,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the operators in this process.")
    parser.add_argument("queries", nargs="+", choices=[*(QUERIES.keys() - {"cascade", "retract"}), *OTHERS])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--buckets", type=int, default=16, help="a power of two")
    parser.add_argument("--chunk-rows", type=int, default=1_000_000, help="rows in a call of prepare")
    parser.add_argument("--batch-rows", type=int, default=5_000_000)
    parser.add_argument("--profile", type=int, metavar="LINES", help="print the functions that take the most time")
    options = parser.parse_args()
    for query in options.queries:
        print(json.dumps(measure(query, options)), flush=True)


if __name__ == "__main__":
    main()
