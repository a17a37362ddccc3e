"""Takes a job back to an earlier version of its query: that version's state, as it was after its last batch, and its place in the input.

The version's checkpoint has stayed as it was when the job was changed: a new epoch begins as a copy of it. A batch that it had begun and not ended is left out
of the copy: it is planned anew, as what it was planned with (control files, the rows of tables that are no stream) may be gone. The manifest's write
is the switch, as with every change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from everfold.errors import StateError
from everfold.jobs.failure import damaged
from everfold.jobs.folder import JobFolder, Manifest, Version, manifest_of, now
from everfold.jobs.rewind import check_duplicates, told
from everfold.jobs.spark_checkpoint import is_sound, needed, newest_batch


def roll_back(path: Path, number: int | None, *, duplicates: bool, say: Callable[[str], None]) -> Version:
    """Makes a version's query and state the job's current ones again, as a new version; that one. number: None for the current version of a folder that was restored
    from an older copy: what the tables hold of batches that its checkpoint does not know is of an epoch then that the job has left.

    duplicates: rows may be in a table twice. say: told what becomes of the job's tables, before anything is done. UsageError `no-job`, `no-version`,
    StateError `current-version`, `checkpoint-gone`, `damaged-checkpoint`, `sink-duplicates`, `job-is-running`, ConnectorError `disk-full` and its like.
    """
    manifest_of(path)
    folder = JobFolder(path.absolute())
    folder.lock()
    try:
        manifest = manifest_of(path)
        wanted = manifest.version if number is None else manifest.numbered(number)
        if number is not None and wanted == manifest.version:
            raise StateError.of("current-version", f"version {number} is the current one: there is nothing to do")
        checkpoint = folder.checkpoint(wanted.epoch)
        _check_there(checkpoint, wanted.number)
        for line in consequences(manifest, wanted):
            say(line)
        check_duplicates(wanted.sinks, accepted=duplicates)
        return _carried_out(folder, manifest, wanted, checkpoint)
    finally:
        folder.release()


def consequences(manifest: Manifest, wanted: Version) -> list[str]:
    """What becomes of the tables of a version that the job goes back to, and of those that only the versions after it write; a line for each."""
    if wanted.sinks is None:
        return [f"what version {wanted.number} writes was not noted: rows that come again may be in its tables twice"]
    kept = {version.number for version, _ in manifest.line(wanted)}
    later = [version for version, _ in manifest.line(manifest.version) if version.number not in kept]
    names = {each["table"] for each in wanted.sinks}
    others = {each["table"]: each for version in later for each in version.sinks or () if each["table"] not in names}
    stays = f"stays as it is, version {wanted.number} does not write it"
    return [*told(wanted.sinks, lambda again: again.when_back), *told(others.values(), lambda _: stays)]


def _check_there(checkpoint: Path, number: int) -> None:
    if not checkpoint.is_dir():
        raise StateError.of(
            "checkpoint-gone",
            f"version {number} has no checkpoint: `{checkpoint}` is not there",
            help="it was removed, or the version never ran; to have its query again, run that with --on-change rebuild",
        )
    for file in needed(checkpoint):
        if not is_sound(file):
            raise damaged(file)


def _carried_out(folder: JobFolder, manifest: Manifest, wanted: Version, checkpoint: Path) -> Version:
    number, epoch = manifest.next
    last = newest_batch(checkpoint / "commits")
    folder.link(checkpoint, epoch)
    _forget_begun(folder.checkpoint(epoch), last)
    made = replace(
        wanted, number=number, epoch=epoch, created=now(), back_to=wanted.number, back_after=last, rebuilt=False
    )
    folder.write_manifest(replace(manifest, current=epoch, versions=(*manifest.versions, made)))
    return made


def _forget_begun(checkpoint: Path, last: int) -> None:
    """Removes what a copied checkpoint has planned after its last finished batch."""
    offsets = checkpoint / "offsets"
    for each in list(offsets.iterdir()) if offsets.is_dir() else ():
        if each.name.isdigit() and int(each.name) > last:
            each.unlink()
            each.with_name(f".{each.name}.crc").unlink(missing_ok=True)
