"""Samples of the rows that a job has dropped as late or skipped: the newest few, in a file.

The file `samples.json` is in the folder of the job's history, and replaced when a batch has
further samples. Like the history, it is not synchronized to the disk, and nothing depends on it. It
contains values of rows, which are cut, and nothing of the options of tables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everfold.files import make_private_file, make_private_folder
from everfold.jobs.progress import Record

KEPT_SAMPLES = 10
"""How many late rows are kept, and how many skipped ones."""
_FILE = "samples.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSample(Record):
    """A row that was dropped as late.

    operator: that dropped it. time_ms: of the row; if is_window_end, the end of its last window.
    watermark_ms: before its batch, None without one. values: of columns, or of the key if rows were
    aggregated before they were found to be late.
    """

    batch: int
    operator: str
    time_ms: int
    is_window_end: bool
    watermark_ms: int | None
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedSample(Record):
    """A row that an option allows to skip, or not to read in full.

    location: of the row, empty if the source does not know it. record: its text, empty if only a
    field is wrong.
    """

    batch: int
    reason: str
    table: str
    location: str
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSamples(Record):
    """The samples of a job, newest first."""

    late: tuple[LateSample, ...] = ()
    skipped: tuple[SkippedSample, ...] = ()

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> RowSamples:
        """Return the record of JSON members. Raises TypeError, KeyError or ValueError."""
        return cls(
            late=tuple(LateSample.from_json(each) for each in members["late"]),
            skipped=tuple(SkippedSample.from_json(each) for each in members["skipped"]),
        )

    def add(self, late: Sequence[LateSample], skipped: Sequence[SkippedSample]) -> RowSamples:
        """Return the newest samples after further ones."""
        return RowSamples(
            late=(*late, *self.late)[:KEPT_SAMPLES],
            skipped=(*skipped, *self.skipped)[:KEPT_SAMPLES],
        )


def read_samples(folder: Path) -> RowSamples:
    """Return the samples in the folder of a history; none if there is no readable file."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return RowSamples.from_json(json.loads((folder / _FILE).read_bytes()))
    return RowSamples()


def write_samples(folder: Path, samples: RowSamples) -> None:
    """Replace the samples in the folder of a history, if it can be written."""
    with suppress(OSError):
        make_private_folder(folder)
        part = folder / f".{_FILE}.new"
        make_private_file(part)
        part.write_text(json.dumps(samples.to_json(), ensure_ascii=False), encoding="utf-8")
        os.replace(part, folder / _FILE)
