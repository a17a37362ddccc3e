"""Moves the checkpoints of a job: its folder or the data that it reads lies elsewhere, and Spark's files hold paths.

All checkpoints are copied by hard links, and what holds a path is written again in the copies. One rename settles it, `checkpoints.new` to `checkpoints.moved`; what follows
is done again at the next start when the process is killed on the way.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from everfold.connectors.contract import Source
from everfold.connectors.filesystem.source_log import files_logged, move_files
from everfold.files import write_atomically
from everfold.jobs.change import copy_links, move_schemas
from everfold.jobs.failure import damaged

_SCHEMA = re.compile(r'"(?:file:/*)?(/[^"]*)/checkpoints/\d+/state/\d+/_stateSchema')


@dataclass(frozen=True, slots=True)
class Move:
    """A source whose data was moved. name: in Spark's checkpoint. old, new: its locations."""

    source: Source = field(repr=False)
    name: str
    old: str
    new: str


def read_log(log: Path) -> dict[Path, int]:
    """Return the files in a source's log (`files_logged`). StateError `damaged-checkpoint`."""
    try:
        return files_logged(log)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(log) from error


def find_job_folder(checkpoint: Path) -> Path | None:
    """Return where a job's folder was when its checkpoint was written, None if that does not say it."""
    for log in sorted((checkpoint / "sources").glob("control_*")):
        for file in read_log(log):
            return file.parent.parent
    for file in sorted(checkpoint.glob("state/*/_metadata/v2/[0-9]*")):
        found = _SCHEMA.search(file.read_text(encoding="utf-8"))
        if found is not None:
            return Path(os.path.normpath("/" + json.loads(f'"{found.group(1)}"').lstrip("/")))
    return None


def move_checkpoints(folder: Path, manifest: str, before: Path, moves: Iterable[Move]) -> None:
    """Write into all checkpoints where the job's folder and its data lie now. manifest: the text of the one that says so. before: where the folder was. OSError when it cannot, and then
    nothing is changed."""
    old, new = folder / "checkpoints", folder / "checkpoints.new"
    if not old.is_dir():
        return
    moved = {each.name: each for each in moves}
    shutil.rmtree(new, ignore_errors=True)
    copy_links(old, new)
    for checkpoint in (each for each in new.iterdir() if each.name.isdigit()):
        try:
            move_schemas(checkpoint, old / checkpoint.name)
            for log in (checkpoint / "sources").glob("*"):
                if log.name not in moved:
                    _move_files(log, before, folder)
            for each in moved.values():
                each.source.move(checkpoint, each.name, each.old, each.new)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(old / checkpoint.name) from error
    write_atomically(new / "manifest.json", manifest, private=True)
    os.rename(new, folder / "checkpoints.moved")
    finish_moving(folder)


def _move_files(log: Path, before: Path, folder: Path) -> None:
    """Move the files of a log that lie in the job's folder; the logs of other sources hold no files."""
    files = [each for each in log.iterdir() if not each.name.startswith(".")]
    if any('{"path":' in each.read_text(encoding="utf-8", errors="replace") for each in files[:1]):
        move_files(log, before, folder)


def finish_moving(folder: Path) -> None:
    """Put checkpoints in place that were moved, also after a crash. To be called before anything is read of a job. OSError when it cannot."""
    moved, place, old = folder / "checkpoints.moved", folder / "checkpoints", folder / "checkpoints.old"
    shutil.rmtree(folder / "checkpoints.new", ignore_errors=True)
    if moved.is_dir():
        write_atomically(folder / "manifest.json", (moved / "manifest.json").read_bytes(), private=True)
        if place.is_dir():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(place, old)
        os.rename(moved, place)
        (place / "manifest.json").unlink()
    shutil.rmtree(old, ignore_errors=True)
