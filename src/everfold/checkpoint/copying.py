"""Copy a checkpoint for a new epoch, and move the state of its operators.

Spark writes its files once and never changes them, so the copies may share their content with the
originals, and the old checkpoint stays intact if anything happens to the new one. Only files that
contain their own path, or the positions of operators, are rewritten. A copy counts only when the
manifest names it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from everfold.checkpoint.files import replace_file
from everfold.checkpoint.state_metadata import move_schemas
from everfold.storage import Location

_STATE = "state"


def copy_checkpoint(old: Location, new: Location, old_positions: Sequence[int | None] | None = None) -> None:
    """Copy a checkpoint, replacing the remains of an interrupted copy.

    old_positions: the old position of the operator at each position, None for a new one. The state
    of operators that are not in it is left out. Raises OSError, and then leaves no copy.
    """
    clear_checkpoint(new)
    try:
        origins = None if old_positions is None else _find_origins(old, old_positions)
        if origins is None:
            old.copy_to(new)
        else:
            _copy_moved(old, new, origins)
        move_schemas(new)
    except OSError:
        new.delete()
        raise


def clear_checkpoint(new: Location) -> None:
    """Remove the remains of an interrupted copy to a checkpoint that is not in use yet."""
    new.delete()
    if new.store.is_local:  # an earlier everfold copied into this folder
        new.with_name(f".{new.name}.new").delete()


def _find_origins(checkpoint: Location, old_positions: Sequence[int | None]) -> dict[str, str] | None:
    """Return the old folder of each operator's state by its new one, None if all keep theirs.

    A new operator starts with a copy of another one's state, because Spark requires the state of
    all operators to have the same number of versions. Its pages have another name, so it finds none
    of its own, and its first batch removes the foreign ones (`BucketProcessor`).
    """
    there = {each.name for each in (checkpoint / _STATE).iterdir()}
    if not there or (list(old_positions) == [*range(len(old_positions))] and there == set(map(str, old_positions))):
        return None
    return {str(at): min(there) if before is None else str(before) for at, before in enumerate(old_positions)}


def _copy_moved(old: Location, new: Location, origins: dict[str, str]) -> None:
    """Copy a checkpoint with the state of operators at new positions."""
    for each in old.iterdir():
        if each.name != _STATE:
            each.copy_to(new / each.name)
    for at, before in origins.items():
        (old / _STATE / before).copy_to(new / _STATE / at)
    for file in (new / "commits").glob("[0-9]*"):
        version, _, text = file.read_text().partition("\n")
        commit = json.loads(text)
        ids = commit.get("stateUniqueIds", {})
        commit["stateUniqueIds"] = {at: ids[before] for at, before in origins.items() if before in ids}
        replace_file(file, f"{version}\n{json.dumps(commit)}")
