"""Record of the batches that a job has passed to its sinks.

It consists of the number of the last batch and a digest of the input of each batch. The number is
written to the job directory before the sinks receive the batch. Spark has written the batch's
offsets by then, so a checkpoint without the batch has lost files, and a start would read the input
again from an earlier position (docs/design/checkpoints.md).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from everfold.checkpoint.file_log import read_batches
from everfold.checkpoint.logs import last_finished_batch, last_planned_batch, read_batch_time, read_positions
from everfold.errors import StateError
from everfold.jobs.ownership import Ownership, read_local_record
from everfold.jobs.shared_ownership import read_shared_record
from everfold.storage import Location

_OFFSET = "logOffset"


@dataclass(frozen=True, slots=True)
class BatchLog:
    """The batches of one epoch. owner: the right to write the job directory."""

    owner: Ownership
    checkpoint: Location
    epoch: int

    def begin(self, batch: int) -> str:
        """Record durably that the sinks receive a batch, and return its digest.

        Raises StateError `job-taken-over`, OSError.
        """
        self.owner.record_batch(self.epoch, batch)
        return compute_digest(self.checkpoint, batch)

    def read_time(self, batch: int) -> int:
        """Return the processing time of a batch, ms."""
        return read_batch_time(self.checkpoint, batch)


def last_batch(folder: Location) -> tuple[int, int] | None:
    """Return epoch and number of the last batch that the sinks received, None without a record.

    folder: the job directory. Raises StateError `damaged-checkpoint`.
    """
    return read_local_record(folder) if folder.store.is_local else read_shared_record(folder)


def check_complete(checkpoint: Location, expected: int) -> None:
    """Refuse a checkpoint that has lost its newest batches. Raises StateError `damaged-checkpoint`.

    expected: the last batch that it must have planned, -1 for none.
    """
    planned, done = last_planned_batch(checkpoint), last_finished_batch(checkpoint)
    if planned < expected:
        raise _missing(checkpoint / "offsets" / str(expected), expected, planned)
    # Spark runs only the last planned batch again, on top of the state of the last finished one.
    if done < planned - 1:
        raise _missing(checkpoint / "commits" / str(planned - 1), planned - 1, done)


def _missing(file: Location, expected: int, found: int) -> StateError:
    known = f"the newest one present is batch {found}" if found >= 0 else "none is present"
    return StateError.of(
        "damaged-checkpoint",
        f"`{file}` is missing: the job has run batch {expected}, but {known}",
        help="restore the whole job directory from a backup, or start from scratch with another --state folder",
    )


def compute_digest(checkpoint: Location, batch: int) -> str:
    """Return a digest of the input of a planned batch: the range of each source, and its files.

    A batch that runs again has the same digest. It does not cover times, settings and the folders
    of files, because files may be moved. Returns an empty string if the batch was not planned.
    """
    end = read_positions(checkpoint, batch)
    if not end:
        return ""
    start = read_positions(checkpoint, batch - 1) if batch else {}
    read = {name: _list_input(checkpoint / "sources" / name, start.get(name), line) for name, line in end.items()}
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:32]


def _list_input(log: Location, start: str | None, end: str) -> list[Any]:
    first, last = _parse(start), _parse(end)
    files: list[tuple[str, int]] = []
    if isinstance(last, dict) and _OFFSET in last:
        before = first[_OFFSET] if isinstance(first, dict) else -1
        read = read_batches(log, before, last[_OFFSET])
        files = sorted((file.uri.rsplit("/", 1)[-1], file.modified_ms) for file in read)
    return [first, last, files]


def _parse(line: str | None) -> Any:
    try:
        return None if line is None else json.loads(line)
    except ValueError:
        return line
