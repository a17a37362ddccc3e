"""The log of Spark's file source in a checkpoint: the files that the source has read.

The log has one file per batch, and from time to time a compacted file with all earlier entries.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from everfold.checkpoint.files import replace_file
from everfold.checkpoint.logs import Position

_UNESCAPED = "/-_.!~*'(),;:$&+=@"
"""Characters besides letters and digits that Java does not escape in the path of a URI."""


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file that a source has read, or that is part of a planned batch.

    uri: as Spark spells it. number: position in the source at which the file was read.
    modified_ms: its modification time in milliseconds.
    """

    uri: str
    number: int
    modified_ms: int

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(unquote(urlsplit(self.uri).path))


def list_logs(log: Path) -> list[Path]:
    """Return the files of a source's log; none if the source has not read anything."""
    return [each for each in sorted(log.iterdir()) if not each.name.startswith(".")] if log.is_dir() else []


def read_log(file: Path) -> list[LoggedFile]:
    """Read a file of a log. Raises ValueError, KeyError, TypeError if it is invalid."""
    return [_parse(line) for line in file.read_text(encoding="utf-8").split("\n")[1:]]


def read_batch(log: Path, number: int) -> list[LoggedFile]:
    """Return the files under a number in a log, also after Spark has compacted the log."""
    own = log / str(number)
    if not own.exists():
        compacted = (each for each in log.glob("*.compact") if int(each.stem) >= number)
        found = min(compacted, key=lambda each: int(each.stem), default=None)
        if found is None:
            return []
        own = found
    mark = f'"batchId":{number}'
    lines = (line for line in own.read_text(encoding="utf-8").splitlines()[1:] if mark in line)
    return [entry for entry in map(_parse, lines) if entry.number == number]


def _parse(line: str) -> LoggedFile:
    entry = json.loads(line)
    return LoggedFile(entry["path"], int(entry["batchId"]), int(entry["timestamp"]))


def parse_number(position: str) -> int:
    """Return the number in the position of a file source.

    Raises ValueError, KeyError, TypeError if it is not one.
    """
    return int(json.loads(position)["logOffset"])


def list_read_files(position: Position) -> list[Path]:
    """Return the files that a job has read up to a position, in the order of reading.

    Raises ValueError, KeyError if the log is invalid.
    """
    reached = parse_number(position.line)
    entries = (each for file in list_logs(position.log) for each in read_log(file))
    found = {each.uri: each for each in entries if each.number <= reached}
    return [each.path for each in sorted(found.values(), key=lambda each: (each.number, each.modified_ms, each.uri))]


def list_logged_files(log: Path) -> dict[Path, int]:
    """Return all files in a log with their modification times in milliseconds.

    Includes files of a planned batch. Raises ValueError, KeyError if the log is invalid.
    """
    return {each.path: each.modified_ms for file in list_logs(log) for each in read_log(file)}


def move_files(log: Path, old: Path, new: Path) -> None:
    """Rewrite a log after the folder of its files was moved.

    Other paths, and logs that hold no files, are unchanged.
    """
    files = list_logs(log)
    if not any('{"path":' in each.read_text(encoding="utf-8", errors="replace") for each in files[:1]):
        return
    for file in files:
        version, *lines = file.read_text(encoding="utf-8").split("\n")
        moved = [_move(line, old, new) for line in lines]
        if moved != lines:
            replace_file(file, "\n".join([version, *moved]))


def _move(line: str, old: Path, new: Path) -> str:
    path = _parse(line).path
    if not path.is_relative_to(old):
        return line
    moved = json.loads(line) | {"path": uri(new / path.relative_to(old))}
    return json.dumps(moved, ensure_ascii=False, separators=(",", ":"))


def uri(path: Path) -> str:
    """Return the URI of a file in Spark's spelling."""
    return "file://" + "".join(each if _is_unescaped_unicode(each) else quote(each, _UNESCAPED) for each in str(path))


def _is_unescaped_unicode(char: str) -> bool:
    """Return whether a character is not ASCII and is not escaped in Java's URIs."""
    return char > "\x7f" and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")
