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

from everfold.checkpoint.damage import check_required_files
from everfold.checkpoint.logs import has_finished, last_finished_batch, list_finished, remove_batches
from everfold.errors import StateError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, Version, now
from everfold.jobs.rewind import check_duplicates, describe_effects
from everfold.jobs.sink_tables import SinkNote
from everfold.storage import Location


def roll_back(
    path: Location,
    number: int | None,
    *,
    batch: int | None = None,
    duplicates: bool,
    say: Callable[[str], None],
) -> Version:
    """Make the query and state of a version current again, as a new version, and return that.

    number: None for the current version of a job directory that was restored from an older copy.
    Batches that are in the tables but not in its checkpoint then belong to an epoch that the job
    has left. batch: resume after this batch of the version, and not after its last one. duplicates:
    accept duplicate rows in tables. say: called with the effect on each table before anything is
    done.

    Raises UsageError `no-job`, `no-version`, StateError `current-version`, `expired-version`,
    `checkpoint-gone`, `batch-gone`, `damaged-checkpoint`, `sink-duplicates`, `job-is-running`,
    ConnectorError `disk-full` and similar.
    """
    folder = JobDir(path)
    folder.load_manifest()
    with folder.locked():
        manifest = folder.load_manifest()
        wanted = manifest.version if number is None else manifest.find_version(number)
        if number is not None and batch is None and wanted == manifest.version:
            raise StateError.of("current-version", f"version {number} is already the current one")
        if wanted.expired:
            raise _expired_version_error(manifest, wanted)
        checkpoint = folder.checkpoint(manifest, wanted.epoch)
        _check_checkpoint(checkpoint, wanted.number)
        if batch is not None:
            _check_batch(checkpoint, wanted.number, batch)
        located = replace(wanted, sinks=_locate_sinks(manifest, wanted))
        versions = (located if version == wanted else version for version in manifest.versions)
        manifest, wanted = replace(manifest, versions=tuple(versions)), located
        for line in describe_rollback(manifest, wanted):
            say(line)
        check_duplicates(wanted.sinks, accepted=duplicates)
        return _carry_out(folder, manifest, wanted, checkpoint, batch)


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


def _locate_sinks(manifest: Manifest, wanted: Version) -> tuple[SinkNote, ...] | None:
    """Return the tables of a version where the job writes them now."""
    if wanted.sinks is None:
        return None
    present = {note["table"]: note for note in manifest.version.sinks or ()}
    return tuple(present.get(note["table"], note) for note in wanted.sinks)


def _expired_version_error(manifest: Manifest, wanted: Version) -> StateError:
    kept = ", ".join(str(each.number) for each in manifest.kept_versions[:-1]) or "none"
    return StateError.of(
        "expired-version",
        f"version {wanted.number} is expired: `everfold expire` has removed its state",
        help=f"versions that a rollback can restore: {kept}; to use the query of version {wanted.number} again,"
        " run it with --on-change rebuild",
    )


def _check_checkpoint(checkpoint: Location, number: int) -> None:
    if not checkpoint.is_dir():
        raise StateError.of(
            "checkpoint-gone",
            f"version {number} has no checkpoint: `{checkpoint}` does not exist",
            help="it was removed, or the version never ran; to use its query again, run it with --on-change rebuild",
        )
    check_required_files(checkpoint)


def _check_batch(checkpoint: Location, number: int, batch: int) -> None:
    """Raise StateError `batch-gone` if a job cannot resume after a batch of a version."""
    if has_finished(checkpoint, batch):
        return
    kept = [last for last in list_finished(checkpoint) if has_finished(checkpoint, last)]
    there = f"{kept[0]} to {kept[-1]}" if kept else "none"
    raise StateError.of(
        "batch-gone",
        f"the checkpoint of version {number} does not hold batch {batch}",
        help=f"it holds {there}; to read the input from its beginning, run the query with --on-change rebuild",
    )


def _carry_out(folder: JobDir, manifest: Manifest, wanted: Version, checkpoint: Location, batch: int | None) -> Version:
    number, epoch = manifest.next_ids
    last = last_finished_batch(checkpoint) if batch is None else batch
    new = folder.checkpoint(manifest, epoch)
    folder.copy_checkpoint(checkpoint, new)
    remove_batches(new, last)
    made = replace(
        wanted,
        number=number,
        epoch=epoch,
        created=now(),
        back_to=wanted.number,
        back_after=last,
        rebuilt=False,
        known_names={**wanted.known_names, **manifest.version.known_names},
        checkpoint=None,
    )
    folder.write_manifest(replace(manifest, current=epoch, versions=(*manifest.versions, made)))
    return made
