"""Make a stream of uniform rows, whose event time advances by one millisecond per row.

    python make_stream.py --out ../scratch/bench/flat --rows 10000000 --keys 1000

Columns: the key `a`, one of 100 groups `b`, an amount below a million `c`, all BIGINT and uniform,
and `ts` TIMESTAMP. The same seed makes the same rows. Parquet files are written in one of two
layouts:

- `files/`: the files follow each other in time, by name and by modification time, as a micro-batch
  engine reads them.
- `lanes/`: the rows are distributed over two files, so that time advances for each of two parallel
  readers. Flink reads the files of a folder in no order. Given those of `files/`, it finds most of
  an earlier file late after a later one, and drops it (seen: 20% of all rows).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
FIRST_FILE_TIME = START_MS // 1000
GROUPS = 100
AMOUNTS = 1_000_000
CHUNK_ROWS = 100_000
LANES = 2
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def make_rows(first: int, count: int, keys: int, seed: int) -> pa.Table:
    """Return rows `first` to `first + count` of the stream.

    The random values of a chunk depend only on its position.
    """
    chunks = [
        _make_chunk(start, min(start + CHUNK_ROWS, first + count) - start, keys, seed)
        for start in range(first, first + count, CHUNK_ROWS)
    ]
    return pa.concat_tables(chunks)


def _make_chunk(first: int, count: int, keys: int, seed: int) -> pa.Table:
    random = np.random.default_rng((seed, first))
    micros = (START_MS + np.arange(first, first + count, dtype=np.int64)) * 1000
    columns = [random.integers(0, bound, CHUNK_ROWS, dtype=np.int64)[:count] for bound in (keys, GROUPS, AMOUNTS)]
    return pa.table([*columns, pa.array(micros).cast(SCHEMA.field("ts").type)], schema=SCHEMA)


def write_file(folder: Path, number: int, rows: pa.Table) -> None:
    """Write a file of a stream. Its modification time follows that of the previous file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{number:05}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (FIRST_FILE_TIME + number, FIRST_FILE_TIME + number))


def write_lanes(folder: Path, files: Iterable[pa.Table]) -> None:
    """Write a stream as parallel files: row n of a table is in file n mod `LANES`."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        writers: list[pq.ParquetWriter] = []
        for rows in files:
            writers = writers or [
                stack.enter_context(pq.ParquetWriter(folder / f"lane-{lane:04}.parquet", rows.schema))
                for lane in range(LANES)
            ]
            for lane, writer in enumerate(writers):
                writer.write_table(rows.take(pa.array(np.arange(lane, rows.num_rows, LANES))))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Make the input of the benchmarks.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--files", type=int, help="default: a million rows a file")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    files = options.files or max(1, round(options.rows / 1_000_000))
    if files > -(-options.rows // CHUNK_ROWS):
        parser.error(f"a file holds at least {CHUNK_ROWS} rows")
    chunks = -(-options.rows // CHUNK_ROWS)
    for number in range(files):
        start, end = (min(chunks * edge // files * CHUNK_ROWS, options.rows) for edge in (number, number + 1))
        write_file(options.out / "files", number, make_rows(start, end - start, options.keys, options.seed))
    print(f"{options.rows} rows over {options.keys} keys in {files} files in {options.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
