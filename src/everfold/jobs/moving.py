"""Rewrite the paths in a job's checkpoints after its directory or its input data was moved.

All checkpoints are copied by hard links, and the files that contain paths are rewritten in the
copies. Renaming `checkpoints.new` to `checkpoints.moved` carries out the move. If the process is
killed later, the next start repeats the steps after it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from everfold.checkpoint.damage import check_file
from everfold.checkpoint.file_log import list_logged_files, move_files
from everfold.checkpoint.files import link_folder
from everfold.checkpoint.state_metadata import find_job_dir_in_state, move_schemas
from everfold.connectors.contract import Source
from everfold.files import write_atomically


@dataclass(frozen=True, slots=True)
class Move:
    """A source whose data was moved. name: in Spark's checkpoint. old, new: the locations."""

    source: Source = field(repr=False)
    name: str
    old: str
    new: str


def read_files(log: Path) -> dict[Path, int]:
    """Return the files in a source's log (`list_logged_files`), or raise `damaged-checkpoint`."""
    with check_file(log):
        return list_logged_files(log)


def find_job_dir(checkpoint: Path) -> Path | None:
    """Return the path that the job directory had when a checkpoint was written, None if unknown."""
    for log in sorted((checkpoint / "sources").glob("control_*")):
        for file in read_files(log):
            return file.parent.parent
    return find_job_dir_in_state(checkpoint)


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
    link_folder(old, new)
    for checkpoint in (each for each in new.iterdir() if each.name.isdigit()):
        with check_file(old / checkpoint.name):
            move_schemas(checkpoint, old / checkpoint.name)
            for log in (checkpoint / "sources").glob("*"):
                if log.name not in moved:
                    move_files(log, before, folder)
            for each in moved.values():
                each.source.move(checkpoint, each.name, each.old, each.new)
    write_atomically(new / "manifest.json", manifest, private=True)
    os.rename(new, folder / "checkpoints.moved")
    finish_moving(folder)


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
