"""The output of every engine's script: one JSON line per query, and the summary of a check
run's result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The output of a run.

    `until_ms` bounds it for engines that keep the windows that end after their last watermark.
    """

    rows_out: int
    sum: int
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of one query, from its start to the end of its input."""

    engine: str
    query: str
    data: str
    rows: int
    seconds: float
    rows_per_s: int
    check: Check

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def make_measurement(*, engine: str, query: str, data: Path, seconds: float, check: Check) -> Measurement:
    """Return a measurement over all rows of a data folder."""
    rows = count_rows(data)
    return Measurement(
        engine=engine,
        query=query,
        data=data.name,
        rows=rows,
        seconds=round(seconds, 3),
        rows_per_s=int(rows / seconds),
        check=check,
    )


def count_rows(data: Path) -> int:
    """Count the rows of a data folder from the footers of its files."""
    return sum(pq.read_metadata(file).num_rows for file in (data / "files").glob("*.parquet"))


def check_changes(rows: Iterable[Sequence[int]]) -> Check:
    """Return the last of the rows that a query's `check` emitted as its result changed, without
    retracted rows.
    """
    *_, (rows_out, total) = rows
    return Check(rows_out=rows_out, sum=total)


def check_files(folder: Path, column: str) -> Check:
    """Count the rows of a run that wrote Parquet files, and sum up one column."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    columns = [pq.ParquetFile(file).read([column]).column(column) for file in files]
    return Check(
        rows_out=sum(len(values) for values in columns), sum=sum(pc.sum(values).as_py() or 0 for values in columns)
    )
