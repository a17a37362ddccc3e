"""What Spark's file source has noted of the files that it has read."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def files_read(log: Path, upto: int) -> list[Path]:
    """The files in a source's log up to an offset, in the order in which they were read. Entries of many offsets are rolled up into one file, and keep theirs."""
    found: dict[Path, tuple[int, int]] = {}
    for entry in sorted(log.iterdir()) if log.is_dir() else ():
        if not entry.name[0].isdigit():
            continue
        for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
            said = json.loads(line)
            if int(said["batchId"]) <= upto:
                path = Path(unquote(urlsplit(said["path"]).path))
                found[path] = (int(said["batchId"]), int(said["timestamp"]))
    return sorted(found, key=lambda path: (found[path], path))
