"""What is measured: the runs of a query by an engine, and the summary of its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.compute as pc
import pyarrow.parquet as pq

Key: TypeAlias = tuple[str, str, str, int]
"""What a measurement is of: engine, query, data, and which repetition."""
KEY_NAMES = ("engine", "query", "data", "repetition")
"""The members of a JSON line that make up the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The output of a run.

    rows_out: None if it is not determined, as for windows over processing time.
    until_ms: bounds it for engines that keep the windows that end after their last watermark.
    """

    rows_out: int | None
    sum: int
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one query, from its submission to the end of its input.

    cpu_seconds: user and system time of all processes of the engine.
    driver_mb, workers_mb: the largest resident memory of the JVM and the Python process that
    started it, and of all other processes together.
    """

    rows: int
    seconds: float
    cpu_seconds: float
    driver_mb: int
    workers_mb: int

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A short and a long run of one query in the same process, after runs that warm it up."""

    engine: str
    query: str
    data: str
    repetition: int
    short: Run
    long: Run
    right: bool

    @property
    def key(self) -> Key:
        return (self.engine, self.query, self.data, self.repetition)

    @property
    def rate(self) -> float:
        """The rows per second in addition to the short run: without start-up and shutdown."""
        return (self.long.rows - self.short.rows) / (self.long.seconds - self.short.seconds)

    @property
    def cpu_per_million(self) -> float:
        """The seconds of processor time per million rows, in the same way."""
        return (self.long.cpu_seconds - self.short.cpu_seconds) / (self.long.rows - self.short.rows) * 1_000_000

    @property
    def startup_seconds(self) -> float:
        """The seconds of a run that do not depend on the number of rows."""
        return self.short.seconds - self.short.rows / self.rate

    def to_json(self, **more: str) -> str:
        """Return a JSON line; `more` describes the circumstances."""
        return json.dumps({**asdict(self), "rate": round(self.rate), **more})


def parse_key(fields: Mapping[str, Any]) -> Key:
    """Return the key in a parsed JSON line."""
    engine, query, data, repetition = (fields[name] for name in KEY_NAMES)
    return engine, query, data, repetition


def parse_measurement(fields: Mapping[str, Any]) -> Measurement:
    """Return the measurement in a parsed JSON line."""
    same = {name: fields[name] for name in (*KEY_NAMES, "right")}
    return Measurement(**same, short=Run(**fields["short"]), long=Run(**fields["long"]))


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
