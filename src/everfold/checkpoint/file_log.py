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
from everfold.storage import Location

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
    def place(self) -> str:
        """The path of the file, or its URI without escapes in another store."""
        return decode_uri(self.uri)

    @property
    def path(self) -> Path:
        """The path of a local file."""
        return Path(self.place)


def list_logs(log: Location) -> list[Location]:
    """Return the files of a source's log; none if the source has not read anything."""
    return [each for each in log.iterdir() if not each.name.startswith(".")]


def read_log(file: Location) -> list[LoggedFile]:
    """Read a file of a log. Raises ValueError, KeyError, TypeError if it is invalid."""
    return [_parse(line) for line in file.read_text().split("\n")[1:]]


def read_batch(log: Location, number: int) -> list[LoggedFile]:
    """Return the files under a number in a log, also after Spark has compacted the log."""
    own = log / str(number)
    if not own.exists():
        compacted = (each for each in log.glob("*.compact") if int(each.stem) >= number)
        found = min(compacted, key=lambda each: int(each.stem), default=None)
        if found is None:
            return []
        own = found
    mark = f'"batchId":{number}'
    lines = (line for line in own.read_text().splitlines()[1:] if mark in line)
    return [entry for entry in map(_parse, lines) if entry.number == number]


def read_batches(log: Location, after: int, until: int) -> list[LoggedFile]:
    """Return the files in a log after a number, up to another one."""
    return [file for number in range(after + 1, until + 1) for file in read_batch(log, number)]


def _parse(line: str) -> LoggedFile:
    entry = json.loads(line)
    return LoggedFile(entry["path"], int(entry["batchId"]), int(entry["timestamp"]))


def parse_number(position: str) -> int:
    """Return the number in the position of a file source.

    Raises ValueError, KeyError, TypeError if it is not one.
    """
    return int(json.loads(position)["logOffset"])


def list_read_files(position: Position) -> list[LoggedFile]:
    """Return the files that a job has read up to a position, in the order read.

    Raises ValueError, KeyError if the log is invalid.
    """
    reached = parse_number(position.line)
    entries = (entry for file in list_logs(position.log) for entry in read_log(file))
    files = {entry.uri: entry for entry in entries if entry.number <= reached}
    return sorted(files.values(), key=lambda file: (file.number, file.modified_ms, file.uri))


def list_read_places(position: Position) -> list[str]:
    """Return paths or URIs of the files that a job has read. See `list_read_files`."""
    return [file.place for file in list_read_files(position)]


def list_logged_files(log: Location) -> dict[Path, int]:
    """Return all files in a log with their modification times in milliseconds.

    Includes files of a planned batch. Raises ValueError, KeyError if the log is invalid.
    """
    return {each.path: each.modified_ms for file in list_logs(log) for each in read_log(file)}


def move_files(log: Location, old: str, new: str) -> None:
    """Rewrite a log after the folder of its files was moved.

    Other paths, and logs that hold no files, are unchanged.
    """
    files = list_logs(log)
    if not any(b'{"path":' in each.read_bytes() for each in files[:1]):
        return
    for file in files:
        version, *lines = file.read_text().split("\n")
        moved = [_move(line, old, new) for line in lines]
        if moved != lines:
            replace_file(file, "\n".join([version, *moved]))


def _move(line: str, old: str, new: str) -> str:
    entry = json.loads(line)
    place = decode_uri(entry["path"])
    if not place.startswith(f"{old}/"):
        return line
    moved = entry | {"path": uri(new + place[len(old) :])}
    return json.dumps(moved, ensure_ascii=False, separators=(",", ":"))


def decode_uri(uri: str) -> str:
    """Return the path of a file from its URI; other stores than the local one keep their scheme."""
    parts = urlsplit(uri)
    return (
        unquote(parts.path) if parts.scheme in ("", "file") else f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"
    )


def uri(path: str | Path) -> str:
    """Return the URI of a file in Spark's spelling."""
    scheme, _, rest = str(path).rpartition("://")
    return f"{scheme or 'file'}://" + "".join(
        each if _is_unescaped_unicode(each) else quote(each, _UNESCAPED) for each in rest
    )


def _is_unescaped_unicode(char: str) -> bool:
    """Return whether a character is not ASCII and is not escaped in Java's URIs."""
    return char > "\x7f" and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")
