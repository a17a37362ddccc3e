"""Read the log of Spark's file source in a checkpoint: the files that the source has read.

The log has one file per batch, and from time to time a compacted file with all earlier entries.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from everfold.connectors.contract import Position
from everfold.files import write_atomically

_UNESCAPED = "/-_.!~*'(),;:$&+=@"
"""Characters besides letters and digits that Java does not escape in the path of a URI."""


def list_read_files(position: Position) -> list[Path]:
    """Return the files that a job has read up to a position, in the order of reading.

    Raises ValueError, KeyError if the log is invalid.
    """
    reached = int(json.loads(position.line)["logOffset"])
    found: dict[str, tuple[int, int]] = {}
    for entry in _entries(position.log):
        if int(entry["batchId"]) <= reached:
            found[entry["path"]] = int(entry["batchId"]), int(entry["timestamp"])
    return [_path(each) for each in sorted(found, key=lambda each: (found[each], each))]


def list_logged_files(log: Path) -> dict[Path, int]:
    """Return all files in a log with their modification times in milliseconds.

    Includes files of a planned batch. Raises ValueError, KeyError if the log is invalid.
    """
    return {_path(entry["path"]): int(entry["timestamp"]) for entry in _entries(log)}


def move_files(log: Path, old: Path, new: Path) -> None:
    """Rewrite a log after the folder of its files was moved. Other paths are unchanged."""
    for file in _log_files(log):
        version, *lines = file.read_text(encoding="utf-8").split("\n")
        moved = [_move(line, old, new) for line in lines]
        if moved != lines:
            write_atomically(file, "\n".join([version, *moved]))
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _move(line: str, old: Path, new: Path) -> str:
    entry = json.loads(line)
    path = _path(entry["path"])
    if not path.is_relative_to(old):
        return line
    return json.dumps(entry | {"path": uri(new / path.relative_to(old))}, ensure_ascii=False, separators=(",", ":"))


def uri(path: Path) -> str:
    """Return the URI of a file in Spark's spelling."""
    return "file://" + "".join(each if _is_unescaped_unicode(each) else quote(each, _UNESCAPED) for each in str(path))


def _is_unescaped_unicode(char: str) -> bool:
    """Return whether a character is not ASCII and is not escaped in Java's URIs."""
    return char > "\x7f" and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")


def _path(of: str) -> Path:
    return Path(unquote(urlsplit(of).path))


def _log_files(log: Path) -> list[Path]:
    return [each for each in log.iterdir() if not each.name.startswith(".")] if log.is_dir() else []


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    for file in _log_files(log):
        for line in file.read_text(encoding="utf-8").split("\n")[1:]:
            yield json.loads(line)
