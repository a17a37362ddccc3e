"""Roll a job back to an earlier version.

The rollback restores the version's query, its state after its last batch, and its position in the
input. The checkpoint of a version stays as it was when the job was changed, and a new epoch starts
with a copy of it. The copy leaves out a batch that was planned but not finished. Spark plans that
batch again, because its input (control files, the rows of bounded tables) may no longer exist.
Writing the manifest is the switch, as with every change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from everfold.errors import StateError
from everfold.jobs.failure import damaged_checkpoint_error
from everfold.jobs.folder import JobFolder, Manifest, Version, load_manifest, now
from everfold.jobs.rewind import check_duplicates, describe_effects
from everfold.jobs.spark_checkpoint import is_sound, list_required_files, newest_batch


def roll_back(path: Path, number: int | None, *, duplicates: bool, say: Callable[[str], None]) -> Version:
    """Make the query and state of a version current again, as a new version, and return that.

    number: None for the current version of a job directory that was restored from an older copy.
    Batches that are in the tables but not in its checkpoint then belong to an epoch that the job
    has left. duplicates: accept duplicate rows in tables. say: called with the effect on each table
    before anything is done.

    Raises UsageError `no-job`, `no-version`, StateError `current-version`, `checkpoint-gone`,
    `damaged-checkpoint`, `sink-duplicates`, `job-is-running`, ConnectorError `disk-full` and
    similar.
    """
    load_manifest(path)
    folder = JobFolder(path.absolute())
    folder.lock()
    try:
        manifest = load_manifest(path)
        wanted = manifest.version if number is None else manifest.find_version(number)
        if number is not None and wanted == manifest.version:
            raise StateError.of("current-version", f"version {number} is already the current one")
        checkpoint = folder.checkpoint(wanted.epoch)
        _check_checkpoint(checkpoint, wanted.number)
        for line in describe_rollback(manifest, wanted):
            say(line)
        check_duplicates(wanted.sinks, accepted=duplicates)
        return _carry_out(folder, manifest, wanted, checkpoint)
    finally:
        folder.release()


def describe_rollback(manifest: Manifest, wanted: Version) -> list[str]:
    """Return a line for each table that says how a rollback to a version affects it.

    This covers the tables of that version and those that only later versions write.
    """
    if wanted.sinks is None:
        return [f"the tables of version {wanted.number} were not recorded: replayed rows may be duplicates there"]
    kept = {version.number for version, _ in manifest.lineage(wanted)}
    later = [version for version, _ in manifest.lineage(manifest.version) if version.number not in kept]
    names = {each["table"] for each in wanted.sinks}
    others = {each["table"]: each for version in later for each in version.sinks or () if each["table"] not in names}
    stays = f"stays as it is: version {wanted.number} does not write it"
    return [
        *describe_effects(wanted.sinks, lambda again: again.on_rollback),
        *describe_effects(others.values(), lambda _: stays),
    ]


def _check_checkpoint(checkpoint: Path, number: int) -> None:
    if not checkpoint.is_dir():
        raise StateError.of(
            "checkpoint-gone",
            f"version {number} has no checkpoint: `{checkpoint}` does not exist",
            help="it was removed, or the version never ran; to use its query again, run it with --on-change rebuild",
        )
    for file in list_required_files(checkpoint):
        if not is_sound(file):
            raise damaged_checkpoint_error(file)


def _carry_out(folder: JobFolder, manifest: Manifest, wanted: Version, checkpoint: Path) -> Version:
    number, epoch = manifest.next_ids
    last = newest_batch(checkpoint / "commits")
    folder.link_checkpoint(checkpoint, epoch)
    _remove_planned(folder.checkpoint(epoch), last)
    made = replace(
        wanted, number=number, epoch=epoch, created=now(), back_to=wanted.number, back_after=last, rebuilt=False
    )
    folder.write_manifest(replace(manifest, current=epoch, versions=(*manifest.versions, made)))
    return made


def _remove_planned(checkpoint: Path, last: int) -> None:
    """Remove what a copied checkpoint has planned after its last finished batch."""
    offsets = checkpoint / "offsets"
    for each in list(offsets.iterdir()) if offsets.is_dir() else ():
        if each.name.isdigit() and int(each.name) > last:
            each.unlink()
            each.with_name(f".{each.name}.crc").unlink(missing_ok=True)
