"""Measure the format of keyed state (`everfold.state.keyed`) without Spark: what a batch costs by
keys, load, page size and cache.

    python state_format.py    # the tables of docs/design/keyed-state.md, half an hour
    python state_format.py --keys 20e6 --draws 1e4 --loads zipf --page-kb 64 --batches 400

This process runs one of eight buckets. Each batch decodes the table from its head page, finds the
old rows of the touched keys and writes new ones. The time is CPU time, since the wall time of a
busy machine means little, plus the time of Spark's state API: each call of the store is charged by
its bytes, as measured on PySpark 4.2.1. `ms` of a batch is that of all eight buckets on two cores.

`amp`: bytes written per byte that changed (a row of a batch counts as many bytes as a row of a
large page). `p95`: over the batches, in ms.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import polars as pl
from touches import LOADS, Keys, batches

from everfold.state import keyed, segments
from everfold.state.cache import FrameCache
from everfold.state.keyed import KeyedTable
from everfold.state.pages import decode_head, encode_head
from everfold.state.store import MemoryStore, PageKey

BUCKETS, CORES = 8, 2
GET_US, GET_US_A_KB = 190, 11
PUT_US, PUT_US_A_KB = 130, 4
DELETE_US = 100
"""The cost of a call of Spark's map state from Python: fixed, and per kB of the page."""
HEAD = PageKey(0, "head", 0, 0)


@dataclass
class ChargingStore(MemoryStore):
    """A store that adds up what its calls would cost in Spark."""

    pages: dict[PageKey, bytes] = field(default_factory=dict)
    seconds: float = 0.0
    gets: int = 0
    puts: int = 0
    put_bytes: int = 0

    def get(self, key: PageKey) -> bytes | None:
        blob = self.pages.get(key)
        self.gets += 1
        self.seconds += (GET_US + GET_US_A_KB * len(blob or b"") / 1000) / 1e6
        return blob

    def put(self, key: PageKey, blob: bytes) -> None:
        self.pages[key] = blob
        self.puts += 1
        self.put_bytes += len(blob)
        self.seconds += (PUT_US + PUT_US_A_KB * len(blob) / 1000) / 1e6

    def delete(self, key: PageKey) -> None:
        self.pages.pop(key, None)
        self.seconds += DELETE_US / 1e6


def hash_keys(keys: Keys) -> Keys:
    """Return a hash of 64 bits (SplitMix64) for each key."""
    mixed = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


def filter_bucket(keys: Keys) -> Keys:
    """Return the keys that belong to the bucket of this process."""
    chosen: Keys = keys[hash_keys(keys) & (BUCKETS - 1) == 0]
    return chosen


def make_rows(keys: Keys, batch: int) -> pl.DataFrame:
    """Return new rows of a SUM and a COUNT with TTL."""
    random = np.random.default_rng(batch)
    return pl.DataFrame(
        {
            "h": hash_keys(keys),
            "key k": keys,
            "SUM(v)|sum": random.integers(0, 10**6, len(keys)),
            "SUM(v)|nonnull": random.integers(1, 99, len(keys)),
            "COUNT(*)|count": random.integers(1, 99, len(keys)),
            "touched": np.full(len(keys), batch),
        }
    )


@contextmanager
def make_cache(kind: str) -> Iterator[FrameCache]:
    """Create a cache. none: keeps nothing. process: what fits into one process. folder: files
    too, as in Spark's workers.
    """
    if kind == "none":
        yield FrameCache(0)
    elif kind == "process":
        yield FrameCache()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield FrameCache(folder=Path(folder))


def open_table(store: ChargingStore, cache: FrameCache) -> KeyedTable:
    """Return the table as a batch finds it."""
    blob = store.get(HEAD)
    return KeyedTable.decode(store, 0, "groups", ["key k"], None if blob is None else decode_head(blob), cache)


def measure(load: str, keys: int, draws: int, page_kb: int, cache: FrameCache, count: int) -> dict[str, Any]:
    """Run batches. The first quarter of them does not count in the times."""
    for module in (keyed, segments):
        module.PAGE_BYTES = page_kb << 10  # type: ignore[attr-defined]
    store = ChargingStore()
    table = open_table(store, cache)
    there = filter_bucket(np.arange(keys))
    table.write(make_rows(there, 0), added=len(there))
    store.put(HEAD, encode_head(table.encode()))
    row_bytes = store.put_bytes / len(there)
    cpu, charged, touched, put_bytes = [], [], 0, store.put_bytes
    gets, puts = store.gets, store.puts
    for batch, drawn in zip(range(1, count + 1), batches(load, keys, draws), strict=False):
        rows = make_rows(np.unique(filter_bucket(drawn)), batch)
        touched += rows.height
        store.seconds, start = 0.0, time.process_time()
        table = open_table(store, cache)
        known = table.find(rows)
        table.write(rows, added=rows.height - known.height)
        store.put(HEAD, encode_head(table.encode()))
        cpu.append(time.process_time() - start)
        charged.append(store.seconds)
    share = 1000 * BUCKETS / CORES
    seconds = (np.array(cpu) + np.array(charged))[count // 4 :]
    return {
        "load": load,
        "keys": keys,
        "draws": draws,
        "touched": touched * BUCKETS // count,
        "page_kb": page_kb,
        "ms": round(float(seconds.mean()) * share, 1),
        "p95": round(float(np.percentile(seconds, 95)) * share, 1),
        "cpu_ms": round(float(np.mean(cpu[count // 4 :])) * share, 1),
        "gets": (store.gets - gets) * BUCKETS // count,
        "puts": (store.puts - puts) * BUCKETS // count,
        "amp": round((store.put_bytes - put_bytes) / (touched * row_bytes), 2),
        "runs": len(table.runs),
        "mb": round(sum(map(len, store.pages.values())) * BUCKETS / 1e6),
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure the format of keyed state.")
    parser.add_argument("--keys", nargs="+", type=float, default=[1e6, 20e6])
    parser.add_argument("--draws", nargs="+", type=float, default=[1e4, 1e5, 1e6])
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=LOADS[:3])
    parser.add_argument("--page-kb", nargs="+", type=int, default=[64])
    parser.add_argument("--caches", nargs="+", choices=("none", "process", "folder"), default=["folder"])
    parser.add_argument("--batches", type=int, default=60)
    options = parser.parse_args(arguments)
    for kind in options.caches:
        for page_kb in options.page_kb:
            for load in options.loads:
                for draws in map(int, options.draws):
                    for keys in map(int, options.keys):
                        with make_cache(kind) as cache:
                            found = measure(load, keys, draws, page_kb, cache, options.batches)
                        print(json.dumps({"cache": kind, **found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
