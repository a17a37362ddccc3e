"""The inputs of the benchmarks, in any of several lengths: a longer one begins with a shorter one.

Of every length there are two layouts of the same rows:

- `files/`: files that follow each other in time, as a micro-batch engine reads them. Those of a
  shorter input are links to those of the longest.
- `lanes/`, where asked for: the rows are distributed over two files, so that time advances for each
  of two parallel readers (make_stream.py says why Flink needs that).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import make_stream
import nexmark
import pyarrow as pa
import pyarrow.parquet as pq

SCRATCH = Path(__file__).resolve().parent.parent / "scratch" / "bench"
SEED = 1
LENGTHS = (2, 5, 10, 20, 40, 80, 160, 320, 640)
"""The lengths of inputs, in files."""
CHECKED_LENGTH = LENGTHS[0]
FILE_ROWS, QUICK_FILE_ROWS = 1_000_000, 200_000
_WINDOWS = ("tumble", "hop", "cumulate", "session", "cascade")
_OVER = ("over_range", "over_rows", "over_all")
_NEXMARK_WINDOWS = ("q5_window", "q5", "q7_window", "q7", "q11", "q12")
_NEXMARK_GROUPS = ("q15", "q16", "q17", "q18", "q19")
"""The state of these grows with the events: Flink's heap is full after about 40 million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """An input, and the queries that are measured over it.

    keys: None for the events of Nexmark.
    queries: with the length at which the data of each ends.
    shortest: the least length of a measured run: a shorter one would not see all keys.
    """

    name: str
    keys: int | None
    queries: Mapping[str, int]
    shortest: int

    def make_rows(self, first: int, count: int) -> pa.Table:
        """Return rows `first` to `first + count`."""
        if self.keys is None:
            return nexmark.make_events(first, count, SEED)
        return make_stream.make_rows(first, count, self.keys, SEED)


DATA_SETS = {
    each.name: each
    for each in (
        DataSet(
            name="1k-keys",
            keys=1000,
            queries=dict.fromkeys((*_WINDOWS, *_OVER, "group", "count_distinct", "retract"), 640),
            shortest=2,
        ),
        DataSet(
            name="1m-keys",
            keys=1_000_000,
            queries=dict.fromkeys(("tumble", "session", "over_range", "group", "retract"), 160),
            shortest=5,
        ),
        DataSet(name="20m-keys", keys=20_000_000, queries={"group": 20}, shortest=5),
        DataSet(
            name="nexmark",
            keys=None,
            queries=dict.fromkeys(_NEXMARK_WINDOWS, 640) | dict.fromkeys(_NEXMARK_GROUPS, 40),
            shortest=2,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Store:
    """The folder in which the inputs are created when they are first needed."""

    folder: Path
    file_rows: int

    def prepare(self, data_set: DataSet, length: int) -> Path:
        """Return the folder of an input with `length` files."""
        base = self.folder / f"{data_set.name}-{self.file_rows // 1000}k"
        folder = base / f"{length * self.file_rows // 1000}k-rows"
        if not folder.exists():
            for number in range(length):
                if not (base / "files" / f"part-{number:05}.parquet").exists():
                    rows = data_set.make_rows(number * self.file_rows, self.file_rows)
                    make_stream.write_file(base / "files", number, rows)
            started = folder.with_suffix(".started")
            shutil.rmtree(started, ignore_errors=True)
            (started / "files").mkdir(parents=True)
            files = sorted((base / "files").glob("*.parquet"))[:length]
            for file in files:
                os.link(file, started / "files" / file.name)
            started.rename(folder)
        return folder

    def prepare_lanes(self, data_set: DataSet, length: int) -> Path:
        """Return the folder of an input with `length` files, which also has `lanes/`."""
        folder = self.prepare(data_set, length)
        if not (folder / "lanes").exists():
            started = folder / "lanes.started"
            shutil.rmtree(started, ignore_errors=True)
            make_stream.write_lanes(started, _read_tables(sorted((folder / "files").glob("*.parquet"))))
            started.rename(folder / "lanes")
        return folder


def _read_tables(files: Iterable[Path]) -> Iterator[pa.Table]:
    for file in files:
        yield pq.ParquetFile(file).read()


def count_rows(folder: Path) -> int:
    """Count the rows of an input from the footers of its files."""
    return sum(pq.read_metadata(file).num_rows for file in (folder / "files").glob("*.parquet"))
