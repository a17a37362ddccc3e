"""What Spark's file source has read, by its log in a checkpoint: one file of it a batch, and now and then one that holds all before it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from everfold.connectors.contract import Position
from everfold.files import write_atomically

_UNQUOTED = "/-_.!~*'(),;:$&+=@"
"""What Java leaves as it is in the path of a URI, apart from letters and digits."""


def files_read(position: Position) -> list[Path]:
    """The files that a job has read when it stands there, in that order. ValueError, KeyError if the log is no log."""
    reached = int(json.loads(position.line)["logOffset"])
    found: dict[str, tuple[int, int]] = {}
    for entry in _entries(position.log):
        if int(entry["batchId"]) <= reached:
            found[entry["path"]] = int(entry["batchId"]), int(entry["timestamp"])
    return [_path(each) for each in sorted(found, key=lambda each: (found[each], each))]


def files_logged(log: Path) -> dict[Path, int]:
    """Return all files in a log, also those of a batch that is planned, with their modification times in milliseconds. ValueError, KeyError if the log is no log."""
    return {_path(entry["path"]): int(entry["timestamp"]) for entry in _entries(log)}


def move_files(log: Path, old: Path, new: Path) -> None:
    """Rewrite a log after the folder of its files was moved. Files elsewhere stay as they are."""
    for file in _logs(log):
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
    """Return the URI of a file as Spark writes it."""
    return "file://" + "".join(each if _is_other(each) else quote(each, _UNQUOTED) for each in str(path))


def _is_other(char: str) -> bool:
    """Whether a character is one that Java's URIs hold as it is though it is not ASCII."""
    return char > "\x7f" and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")


def _path(of: str) -> Path:
    return Path(unquote(urlsplit(of).path))


def _logs(log: Path) -> list[Path]:
    return [each for each in log.iterdir() if not each.name.startswith(".")] if log.is_dir() else []


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    for file in _logs(log):
        for line in file.read_text(encoding="utf-8").split("\n")[1:]:
            yield json.loads(line)
