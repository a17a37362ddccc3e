"""Find files that have changed since they were read.

A file is read once, by its path: data appended to it is not read, and a renamed file is read again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from everfold.checkpoint.file_log import list_logged_files
from everfold.connectors.filesystem.paths import list_files
from everfold.storage import Location

FileStamp = tuple[int, int]
"""Modification time in milliseconds and size in bytes."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Files that have changed since they were read.

    changed: files with another time or size than when they were read. moved: files that are not yet
    read, each with a file of the same size and time that was read and no longer exists.
    """

    changed: tuple[Path, ...]
    moved: tuple[tuple[Path, Path], ...]


def find_changed_files(log: Location, record: Location, root: Path) -> ChangedFiles:
    """Compare the files in a log with their recorded state, and record their current state.

    A change is reported once. log: of Spark's file source. record: the file that stores the state.
    root: the table's folder. Raises OSError, ValueError, KeyError if something cannot be read.
    """
    before: dict[str, FileStamp] = {}
    if record.is_file():
        before = {name: (seen[0], seen[1]) for name, seen in json.loads(record.read_text()).items()}
    now = dict(before)
    changed: list[Path] = []
    gone: dict[FileStamp, Path] = {}
    logged = list_logged_files(log)
    for path, read_ms in logged.items():
        name = os.path.relpath(path, root)
        seen = _stat(path)
        if seen is None:
            if name in before:
                gone[before[name]] = path
            continue
        if seen != before.get(name, (read_ms, seen[1])):
            changed.append(path)
        now[name] = seen
    moved: list[tuple[Path, Path]] = []
    for path in list_files(root) if gone else ():
        old = gone.get(_stat(path) or (0, 0))
        if path not in logged and old is not None:
            moved.append((path, old))
    if now != before:
        record.write(json.dumps(now, ensure_ascii=False))
    return ChangedFiles(tuple(sorted(changed)), tuple(moved))


def _stat(path: Path) -> FileStamp | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns // 1_000_000, state.st_size
