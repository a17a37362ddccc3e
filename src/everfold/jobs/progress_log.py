"""The recent history of a job: its runs and batches, in a file that any process can read.

The history is a local file next to the job's log, in the folder `progress/` of the job directory.
A job in another store than the local disk has both in everfold's cache folder, on the machine of
the driver: such stores cannot append to a file, and a new object per batch would cost more than it
tells.

`current.jsonl` has one JSON object per line: a run begins, a batch was committed, the run ends.
When it is full, it becomes `previous.jsonl`, and the next one begins with the run again. A line is
written at once, so a reader sees at most one partial line, the last, which it ignores. The history
is not synchronized to the disk and nothing depends on it: a failure to write it never fails a job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from everfold.files import make_private_file, make_private_folder
from everfold.jobs.progress import Progress, Record, RunInfo

HISTORY_BYTES = 2 << 20
"""Size of each of the two files."""
RUN, BATCH, END = "run", "batch", "end"
_KIND = "kind"

HowEnded: TypeAlias = Literal["finished", "suspended", "stopped", "failed"]
"""Why a run ended: its input has ended, `--suspend`, on request, an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd(Record):
    """The end of a run. error, message: the code and the message of the error of a failed run."""

    how: HowEnded
    ended_ms: int
    error: str | None = None
    message: str | None = None


@dataclass(slots=True)
class ProgressLog:
    """Writes the history of a job. folder: of the history."""

    folder: Path
    limit_bytes: int = HISTORY_BYTES
    _run: bytes = b""
    _file: IO[bytes] | None = field(default=None, repr=False)
    _size: int = 0

    def begin(self, run: RunInfo) -> None:
        """Record that a run begins, or what has become known about it."""
        self._run = _encode(RUN, run)
        self._append(self._run)

    def add(self, progress: Progress) -> None:
        """Record a batch."""
        self._append(_encode(BATCH, progress))

    def end(self, end: RunEnd) -> None:
        """Record the end of the run, and close the file."""
        self._append(_encode(END, end))
        self.close()

    def close(self) -> None:
        """Close the file; a later record opens it again."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _append(self, line: bytes) -> None:
        with suppress(OSError):
            if self._file is None:
                self._open()
            if self._size and self._size + len(line) > self.limit_bytes:
                self._rotate()
                line = line if line == self._run else self._run + line
            assert self._file is not None
            self._file.write(line)
            self._size += len(line)

    def _open(self) -> None:
        make_private_folder(self.folder)
        path = self.folder / "current.jsonl"
        make_private_file(path)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 closed by `end`
        self._size = self._file.tell()
        if self._size:
            self._file.write(b"\n")  # a killed process may have left a partial line
            self._size += 1

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        os.replace(self.folder / "current.jsonl", self.folder / "previous.jsonl")
        self._open()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The recent history of a job.

    run: the last one, None if there is none. end: its end, None while it lasts or if it was killed.
    batches: the newest ones, oldest first; they may belong to earlier runs.
    """

    run: RunInfo | None = None
    end: RunEnd | None = None
    batches: tuple[Progress, ...] = ()


def locate_history(log_file: Path) -> Path:
    """Return the folder of the history of a job whose log is this file."""
    return log_file.parent / "progress"


def read_history(folder: Path, batches: int) -> History:
    """Return the history in a folder, with at most so many batches. Raises OSError.

    Lines that cannot be read are left out.
    """
    run: RunInfo | None = None
    end: RunEnd | None = None
    found: list[Progress] = []
    for line in reversed(_read_lines(folder)):
        if run is not None and len(found) >= batches:
            break
        with suppress(ValueError, TypeError, KeyError):
            members = json.loads(line)
            kind = members.pop(_KIND)
            if kind == BATCH and len(found) < batches:
                found.append(Progress.from_json(members))
            elif kind == END and run is None and end is None:
                end = RunEnd.from_json(members)
            elif kind == RUN and run is None:
                run = RunInfo.from_json(members)
    return History(run=run, end=end, batches=tuple(reversed(found)))


def _read_lines(folder: Path) -> list[bytes]:
    current, previous = folder / "current.jsonl", folder / "previous.jsonl"
    while True:
        try:
            with current.open("rb") as file:
                content = _read_or_empty(previous) + file.read()
                # Files that were rotated in between do not follow each other: read them again.
                if os.path.samestat(os.fstat(file.fileno()), current.stat()):
                    return content.splitlines()
        except FileNotFoundError:  # none yet, or it has just become the previous one
            return _read_or_empty(previous).splitlines()


def _read_or_empty(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _encode(kind: str, record: Record) -> bytes:
    members: Mapping[str, Any] = {_KIND: kind, **record.to_json()}
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
