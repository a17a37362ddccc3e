"""Whether Spark's files in a checkpoint are as Spark wrote them. Spark says that one is broken, often without saying which.

The small ones are a version and lines of JSON. Beside each file lies its checksum, as Hadoop's file system writes it: `.<name>.crc`, which holds
`crc\\0`, the length of a block in bytes, and the CRC32 of every block of the file.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

_VERSION = re.compile("\0?v\\d+")
"""The first line; that of Kafka's first offsets begins with a zero."""
_NAMED = re.compile(r"\w+:(?=[{\d])")
"""What stands before the JSON of a source in the log of offsets: an object, or the number of a source that counts seconds."""
_HALF_WRITTEN = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.TID\d+)?\.tmp")
"""What Spark calls a file while it writes it; a task adds its number."""
_MOST_BYTES = 64 << 20
"""Bigger files are not read to find the broken one."""


def unsound(job: Path) -> Path | None:
    """The first file in a job's folder that is not as it was written, None when all are, as far as can be seen."""
    for checkpoint in sorted((job / "checkpoints").glob("*")):
        for crc in sorted(checkpoint.rglob(".*.crc")):
            file = crc.with_name(crc.name[1 : -len(".crc")])
            if finished_name(file.name) is None and not _has_checksum(file, crc):
                return file
        for file in _texts(checkpoint):
            if not is_sound(file):
                return file
        gap = _gap(checkpoint)
        if gap is not None:
            return gap
    return None


def finished_name(name: str) -> str | None:
    """Return the name that Spark gives a file when it has written it, None for a file that has its name. A kill leaves half-written files behind: Spark
    writes them again under other names, and never reads these."""
    half_written = _HALF_WRITTEN.fullmatch(name)
    return None if half_written is None else half_written["name"]


def _gap(checkpoint: Path) -> Path | None:
    """A file that is not there though those before and after it are: Spark removes entries of its logs from the oldest on, and keeps what a commit needs."""
    offsets, commits = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
    for name, found, wanted in (("offsets", offsets, offsets | commits), ("commits", commits, commits)):
        for number in range(min(found, default=0), max(wanted, default=-1)):
            if number + 1 in wanted and number not in found:
                return checkpoint / name / str(number)
        if wanted and max(wanted) not in found:
            return checkpoint / name / str(max(wanted))
    return None


def _numbers(log: Path) -> set[int]:
    return {int(each.name) for each in log.iterdir() if each.name.isdigit()} if log.is_dir() else set()


def needed(checkpoint: Path) -> Iterator[Path]:
    """The files that a start goes by: what the query is, what its newest batch reads, and the newest batch that is done."""
    logs = [log for log in (newest(checkpoint / "offsets"), newest(checkpoint / "commits")) if log is not None]
    if logs:
        yield checkpoint / "metadata"
    yield from logs


def newest(log: Path) -> Path | None:
    """The entry with the highest number in a log of Spark's, None for none."""
    entries = [each for each in log.iterdir() if each.name.isdigit()] if log.is_dir() else []
    return max(entries, key=lambda each: int(each.name), default=None)


def newest_batch(log: Path) -> int:
    """The highest number in a log of Spark's, -1 for none."""
    entry = newest(log)
    return -1 if entry is None else int(entry.name)


def unfinished(checkpoint: Path) -> bool:
    """Whether a batch was begun and is not done: the next start runs it again."""
    return newest_batch(checkpoint / "offsets") > newest_batch(checkpoint / "commits")


def positions(checkpoint: Path, batch: int | None = None) -> dict[str, str]:
    """How far each source had come, as JSON: after a batch, or after the last that is done."""
    batch = newest_batch(checkpoint / "commits") if batch is None else batch
    log = checkpoint / "offsets" / str(batch)
    lines = log.read_text(encoding="utf-8").splitlines()[2:] if log.exists() else []
    return {name: offset for name, _, offset in (line.partition(":") for line in lines)}


def is_sound(file: Path) -> bool:
    """Whether one of the small files can be read from its first line to its last."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
        if file.name == "metadata":
            return len(lines) == 1 and bool(uuid.UUID(json.loads(lines[0])["id"]))
        version, *rest = lines
        return _VERSION.fullmatch(version) is not None and all(map(_is_entry, rest))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_entry(line: str) -> bool:
    named = _NAMED.match(line)
    found = json.loads(line if named is None else line[named.end() :])
    return isinstance(found, dict) or (named is not None and type(found) is int)


def _has_checksum(file: Path, crc: Path) -> bool:
    try:
        if file.stat().st_size > _MOST_BYTES:
            return True
        content, said = file.read_bytes(), crc.read_bytes()
    except OSError:
        return False
    size = int.from_bytes(said[4:8], "big")
    blocks = (content[at : at + size] for at in range(0, len(content), size or 1))
    return said[:4] == b"crc\0" and said[8:] == b"".join(zlib.crc32(block).to_bytes(4, "big") for block in blocks)


def _texts(checkpoint: Path) -> Iterator[Path]:
    if (checkpoint / "offsets").is_dir():
        yield checkpoint / "metadata"
    for pattern in ("offsets/*", "commits/*", "sources/*/*"):
        yield from (file for file in sorted(checkpoint.glob(pattern)) if not file.name.startswith("."))
