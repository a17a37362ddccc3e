"""Rewrite the paths in a job's checkpoints after its directory or its input data was moved.

All checkpoints are copied by hard links, and the files that contain paths are rewritten in the
copies. Renaming `checkpoints.new` to `checkpoints.moved` carries out the move. If the process is
killed later, the next start repeats the steps after it.
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
from everfold.connectors.filesystem.source_log import list_logged_files, move_files
from everfold.files import write_atomically
from everfold.jobs.change import copy_links, move_schemas
from everfold.jobs.failure import damaged_checkpoint_error

_SCHEMA = re.compile(r'"(?:file:/*)?(/[^"]*)/checkpoints/\d+/state/\d+/_stateSchema')


@dataclass(frozen=True, slots=True)
class Move:
    """A source whose data was moved. name: in Spark's checkpoint. old, new: the locations."""

    source: Source = field(repr=False)
    name: str
    old: str
    new: str


def read_log(log: Path) -> dict[Path, int]:
    """Return the files in a source's log (`list_logged_files`), or raise `damaged-checkpoint`."""
    try:
        return list_logged_files(log)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged_checkpoint_error(log) from error


def find_job_folder(checkpoint: Path) -> Path | None:
    """Return the path that the job directory had when a checkpoint was written, None if unknown."""
    for log in sorted((checkpoint / "sources").glob("control_*")):
        for file in read_log(log):
            return file.parent.parent
    for file in sorted(checkpoint.glob("state/*/_metadata/v2/[0-9]*")):
        found = _SCHEMA.search(file.read_text(encoding="utf-8"))
        if found is not None:
            return Path(os.path.normpath("/" + json.loads(f'"{found.group(1)}"').lstrip("/")))
    return None


def move_checkpoints(folder: Path, manifest: str, before: Path, moves: Iterable[Move]) -> None:
    """Write the present paths of the job directory and its data into all checkpoints.

    manifest: the new manifest in JSON. before: the previous path of the directory. Raises OSError,
    and then changes nothing.
    """
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
            raise damaged_checkpoint_error(old / checkpoint.name) from error
    write_atomically(new / "manifest.json", manifest, private=True)
    os.rename(new, folder / "checkpoints.moved")
    finish_moving(folder)


def _move_files(log: Path, before: Path, folder: Path) -> None:
    """Rewrite the paths of a log's files in the job directory; other logs hold no files."""
    files = [each for each in log.iterdir() if not each.name.startswith(".")]
    if any('{"path":' in each.read_text(encoding="utf-8", errors="replace") for each in files[:1]):
        move_files(log, before, folder)


def finish_moving(folder: Path) -> None:
    """Put rewritten checkpoints in place, also after a crash. Raises OSError.

    Call it before reading anything of a job.
    """
    moved, current, old = folder / "checkpoints.moved", folder / "checkpoints", folder / "checkpoints.old"
    shutil.rmtree(folder / "checkpoints.new", ignore_errors=True)
    if moved.is_dir():
        write_atomically(folder / "manifest.json", (moved / "manifest.json").read_bytes(), private=True)
        if current.is_dir():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(current, old)
        os.rename(moved, current)
        (current / "manifest.json").unlink()
    shutil.rmtree(old, ignore_errors=True)
