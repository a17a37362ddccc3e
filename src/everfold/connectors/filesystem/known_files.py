"""Files that were read and have changed since. A file counts once, by its path: what is appended to it is not read, and under another name it is read again."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from everfold.connectors.filesystem.paths import files
from everfold.connectors.filesystem.source_log import files_logged
from everfold.files import write_atomically

Seen = tuple[int, int]
"""Modification time in milliseconds and size in bytes."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """changed: files that were read before they became what they are. moved: files that are still to be read, each with one that was read, is gone, and was of the same
    size and time."""

    changed: tuple[Path, ...]
    moved: tuple[tuple[Path, Path], ...]


def find_changed_files(log: Path, record: Path, place: Path) -> ChangedFiles:
    """Compare the files in a log with what they were when this was last asked, and note what they are now. A change is found once.

    log: of Spark's file source. record: where the files are noted. place: the table's folder. OSError, ValueError, KeyError when something cannot be read.
    """
    before: dict[str, Seen] = {}
    if record.is_file():
        before = {name: (seen[0], seen[1]) for name, seen in json.loads(record.read_text(encoding="utf-8")).items()}
    now = dict(before)
    changed: list[Path] = []
    gone: dict[Seen, Path] = {}
    logged = files_logged(log)
    for path, read_ms in logged.items():
        name = os.path.relpath(path, place)
        seen = _look(path)
        if seen is None:
            if name in before:
                gone[before[name]] = path
            continue
        if seen != before.get(name, (read_ms, seen[1])):
            changed.append(path)
        now[name] = seen
    moved: list[tuple[Path, Path]] = []
    for path in files(place) if gone else ():
        old = gone.get(_look(path) or (0, 0))
        if path not in logged and old is not None:
            moved.append((path, old))
    if now != before:
        write_atomically(record, json.dumps(now, ensure_ascii=False))
    return ChangedFiles(tuple(sorted(changed)), tuple(moved))


def _look(path: Path) -> Seen | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns // 1_000_000, state.st_size
