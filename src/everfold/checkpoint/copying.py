"""Copy a checkpoint for a new epoch, and move the state of its operators.

The copy consists of hard links. Spark writes its files once and never changes them, so the copy is
cheap and the old checkpoint stays intact if anything happens to the new one. Only files that
contain their own path, or the positions of operators, are rewritten.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from everfold.checkpoint.files import link_folder, replace_file
from everfold.checkpoint.state_metadata import move_schemas


def copy_checkpoint(old: Path, new: Path, old_positions: Sequence[int | None] | None = None) -> None:
    """Copy a checkpoint by hard links, replacing the remains of an interrupted copy.

    old_positions: the old position of the operator at each position, None for a new one. The state
    of operators that are not in it is left out. Raises OSError, and then leaves no copy.
    """
    clear_checkpoint(new)
    part = _part_folder(new)
    try:
        link_folder(old, part)
        if old_positions is not None:
            _move_operators(part, old_positions)
        move_schemas(part, new)
        os.rename(part, new)
    except OSError:
        clear_checkpoint(new)
        raise


def clear_checkpoint(new: Path) -> None:
    """Remove the remains of an interrupted copy to a checkpoint that is not in use yet."""
    for left in (_part_folder(new), new):
        shutil.rmtree(left, ignore_errors=True)


def _part_folder(new: Path) -> Path:
    return new.with_name(f".{new.name}.new")


def _move_operators(checkpoint: Path, old_positions: Sequence[int | None]) -> None:
    """Move the state of operators to their new positions.

    A new operator starts with a copy of another one's state, because Spark requires the state of
    all operators to have the same number of versions. Its pages have another name, so it finds none
    of its own, and its first batch removes the foreign ones (`BucketProcessor`).
    """
    state, moved = checkpoint / "state", checkpoint / "moved"
    there = {each.name for each in state.iterdir()} if state.is_dir() else set()
    if not there or (list(old_positions) == [*range(len(old_positions))] and there == set(map(str, old_positions))):
        return
    origins = {str(at): min(there) if before is None else str(before) for at, before in enumerate(old_positions)}
    state.rename(moved)
    state.mkdir()
    for at, before in origins.items():
        link_folder(moved / before, state / at)
    shutil.rmtree(moved, ignore_errors=True)
    for file in (checkpoint / "commits").glob("[0-9]*"):
        version, _, text = file.read_text(encoding="utf-8").partition("\n")
        commit = json.loads(text)
        ids = commit.get("stateUniqueIds", {})
        commit["stateUniqueIds"] = {at: ids[before] for at, before in origins.items() if before in ids}
        replace_file(file, f"{version}\n{json.dumps(commit)}")
