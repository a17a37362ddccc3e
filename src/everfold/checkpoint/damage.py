"""Find damaged and missing files in a checkpoint.

Spark reports a damaged file often without its name. The small files consist of a version and lines
of JSON. Each file comes with a checksum file of Hadoop's file system, `.<name>.crc`. It holds
`crc\\0`, the length of a block in bytes, and the CRC32 of every block of the file.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from everfold.checkpoint.logs import newest_entry
from everfold.errors import StateError
from everfold.storage import Location

_VERSION = re.compile("\0?v\\d+")
"""The first line of a file; in the file of Kafka's first offsets it begins with a zero byte."""
_SOURCE_NAME = re.compile(r"\w+:(?=[{\d])")
"""The prefix of an offset in the offset log. The offset is a JSON object, or a number for a source
that counts seconds."""
_HALF_WRITTEN = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.TID\d+)?\.tmp")
"""Spark's name of a file that it is still writing; a task adds its number."""
_IS_CHECKSUM = re.compile(r"\..*\.crc")
_MAX_BYTES = 64 << 20
"""Larger files are not read in search of the damaged one."""


def damaged_checkpoint_error(file: Location) -> StateError:
    """Return the error for a damaged or missing file of a job directory.

    For a folder, the error is about one of the files in it. A temporary file of Spark is reported
    under its final name.
    """
    file = file.with_name(final_name(file.name) or file.name)
    return StateError.of(
        "damaged-checkpoint",
        f"{'a file in ' if file.is_dir() else ''}`{file}` is damaged or missing",
        help="restore the job directory from a backup, or start from scratch with another --state folder",
    )


@contextmanager
def check_file(file: Location) -> Iterator[None]:
    """Raise parse errors of the block as a StateError `damaged-checkpoint` of the file."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise damaged_checkpoint_error(file) from error


def find_damaged_file(job: Location) -> Location | None:
    """Return the first damaged file in a job directory, None if no damage is found."""
    for checkpoint in (job / "checkpoints").iterdir():
        for crc in sorted(each for each in checkpoint.walk() if _IS_CHECKSUM.fullmatch(each.name)):
            file = crc.with_name(crc.name[1 : -len(".crc")])
            if final_name(file.name) is None and not _has_checksum(file, crc):
                return file
        for file in _text_files(checkpoint):
            if not is_sound(file):
                return file
        gap = _find_gap(checkpoint)
        if gap is not None:
            return gap
    return None


def final_name(name: str) -> str | None:
    """Return the final name of a file that Spark is still writing, None for a finished file.

    A kill leaves half-written files behind. Spark never reads them: it writes the files again under
    other temporary names.
    """
    half_written = _HALF_WRITTEN.fullmatch(name)
    return None if half_written is None else half_written["name"]


def _find_gap(checkpoint: Location) -> Location | None:
    """Return a missing log entry that must exist, None if the logs are complete.

    Spark removes entries of its logs from the oldest on, and keeps those that a commit needs.
    """
    offsets, commits = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
    for name, found, wanted in (("offsets", offsets, offsets | commits), ("commits", commits, commits)):
        for number in range(min(found, default=0), max(wanted, default=-1)):
            if number + 1 in wanted and number not in found:
                return checkpoint / name / str(number)
        if wanted and max(wanted) not in found:
            return checkpoint / name / str(max(wanted))
    return None


def _numbers(log: Location) -> set[int]:
    return {int(each.name) for each in log.iterdir() if each.name.isdigit()}


def check_required_files(checkpoint: Location) -> None:
    """Check the files that a start depends on. Raises StateError `damaged-checkpoint`.

    These are the query's metadata, the offsets of the newest batch, and the newest commit.
    """
    logs = [newest_entry(checkpoint / name) for name in ("offsets", "commits")]
    files = [log for log in logs if log is not None]
    for file in [checkpoint / "metadata", *files] if files else []:
        if not is_sound(file):
            raise damaged_checkpoint_error(file)


def is_sound(file: Location) -> bool:
    """Whether all lines of one of the small files can be parsed."""
    try:
        lines = file.read_text().split("\n")
        if file.name == "metadata":
            return len(lines) == 1 and bool(uuid.UUID(json.loads(lines[0])["id"]))
        version, *rest = lines
        return _VERSION.fullmatch(version) is not None and all(map(_is_entry, rest))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_entry(line: str) -> bool:
    name = _SOURCE_NAME.match(line)
    found = json.loads(line if name is None else line[name.end() :])
    return isinstance(found, dict) or (name is not None and type(found) is int)


def _has_checksum(file: Location, crc: Location) -> bool:
    try:
        found = file.find()
        if found is not None and found.size > _MAX_BYTES:
            return True
        content, checksum = file.read_bytes(), crc.read_bytes()
    except OSError:
        return False
    size = int.from_bytes(checksum[4:8], "big")
    blocks = (content[at : at + size] for at in range(0, len(content), size or 1))
    expected = b"".join(zlib.crc32(block).to_bytes(4, "big") for block in blocks)
    return checksum[:4] == b"crc\0" and checksum[8:] == expected


def _text_files(checkpoint: Location) -> Iterator[Location]:
    if (checkpoint / "offsets").is_dir():
        yield checkpoint / "metadata"
    for pattern in ("offsets/*", "commits/*", "sources/*/*"):
        yield from (file for file in checkpoint.glob(pattern) if not file.name.startswith("."))
