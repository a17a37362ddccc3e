"""The size of a version of a local Delta table, from its log and without Delta's library."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from everfold.connectors.contract import ReadSize
from everfold.local_paths import is_remote


def measure_version(folder: str, version: int) -> ReadSize:
    """Return the size of the files of a version.

    Nothing is known of a table in another store, and of one whose first commits were cleaned up.
    """
    files: dict[str, tuple[int, int | None]] = {}
    if is_remote(folder):
        return ReadSize()
    with suppress(OSError, ValueError, KeyError):
        for commit in range(version + 1):
            for line in (Path(folder) / "_delta_log" / f"{commit:020}.json").read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                if "add" in action:
                    added = action["add"]
                    files[added["path"]] = int(added["size"]), json.loads(added.get("stats") or "{}").get("numRecords")
                elif "remove" in action:
                    files.pop(action["remove"]["path"], None)
        rows = [count for _, count in files.values()]
        return ReadSize(
            rows=None if None in rows else sum(filter(None, rows)),
            size_bytes=sum(size for size, _ in files.values()),
            files=len(files),
        )
    return ReadSize()
