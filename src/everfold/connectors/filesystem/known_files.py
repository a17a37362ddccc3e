"""Find files that have changed since they were read, and how much of them was read.

A file is read once, by its path: data appended to it is not read, and a renamed file is read again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from everfold.checkpoint.file_log import list_logs, read_log
from everfold.connectors.contract import SourceContext
from everfold.connectors.filesystem.paths import list_files
from everfold.storage import Location

FileStamp = tuple[int, int]
"""Modification time in milliseconds and size in bytes."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """The recorded state of a file that was read.

    stamp: when it was last looked at. read_bytes: its size when it was read, None if it had changed
    before it was looked at.
    """

    stamp: FileStamp
    read_bytes: int | None


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Files that have changed since they were read.

    changed: files with another time or size than when they were read. moved: files that are not yet
    read, each with a file of the same size and time that was read and no longer exists.
    """

    changed: tuple[Path, ...]
    moved: tuple[tuple[Path, Path], ...]


def find_changed_files(log: Location, record: Location, root: Path, reached: int) -> ChangedFiles:
    """Compare the files in a log with their recorded state, and record their current state.

    A change is reported once. log: of Spark's file source. record: the file that stores the state.
    root: the table's folder. reached: the position after the last finished batch; files after it
    may be read again. Raises OSError, ValueError, KeyError if something cannot be read.
    """
    before = read_known_files(record)
    now = dict(before)
    changed: list[Path] = []
    gone: dict[FileStamp, Path] = {}
    logged = {file.path: file for each in list_logs(log) for file in read_log(each)}
    for path, file in logged.items():
        name = os.path.relpath(path, root)
        known, stamp = before.get(name), find_stamp(path)
        if stamp is None:
            if known is not None:
                gone[known.stamp] = path
            continue
        if stamp != ((file.modified_ms, stamp[1]) if known is None else known.stamp):
            changed.append(path)
        read_bytes = None if known is None or file.number > reached else known.read_bytes
        if read_bytes is None and file.number <= reached and stamp[0] == file.modified_ms:
            read_bytes = stamp[1]
        now[name] = KnownFile(stamp, read_bytes)
    moved: list[tuple[Path, Path]] = []
    for path in list_files(root) if gone else ():
        old = gone.get(find_stamp(path) or (0, 0))
        if path not in logged and old is not None:
            moved.append((path, old))
    if now != before:
        members = {name: (*file.stamp, file.read_bytes) for name, file in now.items()}
        record.write(json.dumps(members, ensure_ascii=False))
    return ChangedFiles(tuple(sorted(changed)), tuple(moved))


def read_known_files(record: Location) -> dict[str, KnownFile]:
    """Return the recorded state of files by their paths relative to the table's folder.

    Earlier versions did not record the size that was read. Raises ValueError, TypeError.
    """
    if not record.is_file():
        return {}
    members = json.loads(record.read_text()).items()
    return {name: KnownFile((seen[0], seen[1]), seen[2] if len(seen) > 2 else None) for name, seen in members}


def record_of_files(context: SourceContext) -> Location:
    """Return the file that records the state of the files that a job has read."""
    assert context.start_folder is not None
    return context.start_folder / f"{context.name}.files.json"


def find_stamp(path: Path) -> FileStamp | None:
    """Return the stamp of a file, None if it cannot be read."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns // 1_000_000, state.st_size
