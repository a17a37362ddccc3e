"""Finish a move of checkpoints that an earlier everfold had begun when it was killed."""

from __future__ import annotations

from everfold.storage import Location


def finish_old_move(folder: Location) -> None:
    """Put rewritten checkpoints in place. Raises OSError.

    `checkpoints.moved` is the folder of rewritten copies, with the manifest that belongs to them;
    `checkpoints.new` is one whose copies were not complete. Call it before reading anything of a
    job. It can be repeated after a crash.
    """
    moved, current = folder / "checkpoints.moved", folder / "checkpoints"
    (folder / "checkpoints.new").delete()
    if moved.is_dir():
        if (moved / "manifest.json").exists():
            (folder / "manifest.json").write((moved / "manifest.json").read_bytes())
        current.delete()
        for each in moved.iterdir():
            if each.name != "manifest.json":
                each.copy_to(current / each.name)
        moved.delete()
    (folder / "checkpoints.old").delete()
