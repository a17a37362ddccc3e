"""What Spark's file source has read, by its log in a checkpoint: one file of it a batch, and now and then one that holds all before it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from everfold.connectors.contract import Position


def files_read(position: Position) -> list[Path]:
    """The files that a job has read when it stands there, in that order. ValueError, KeyError if the log is no log."""
    reached = int(json.loads(position.line)["logOffset"])
    found: dict[str, tuple[int, int]] = {}
    for log in position.log.iterdir() if position.log.is_dir() else ():
        if log.name.startswith("."):
            continue
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            entry = json.loads(line)
            if int(entry["batchId"]) <= reached:
                found[entry["path"]] = int(entry["batchId"]), int(entry["timestamp"])
    return [Path(unquote(urlsplit(each).path)) for each in sorted(found, key=lambda each: (found[each], each))]
