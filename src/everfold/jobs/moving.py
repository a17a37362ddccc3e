"""Rewrite the paths in a job's checkpoints after its directory or its input data was moved.

All checkpoints are copied, and the files that contain paths are rewritten in the copies. The next
manifest, which names the copies, carries out the move.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from everfold.checkpoint.damage import check_file
from everfold.checkpoint.file_log import decode_uri, list_logged_files, list_logs, move_files, read_log
from everfold.checkpoint.state_metadata import find_job_dir_in_state, move_schemas
from everfold.connectors.contract import Source
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest
from everfold.jobs.sink_tables import SinkNote
from everfold.storage import Location


@dataclass(frozen=True, slots=True)
class Move:
    """A source whose data was moved. name: in Spark's checkpoint. old, new: the locations."""

    source: Source = field(repr=False)
    name: str
    old: str
    new: str


def read_files(log: Location) -> dict[Path, int]:
    """Return the files in a source's log (`list_logged_files`), or raise `damaged-checkpoint`."""
    with check_file(log):
        return list_logged_files(log)


def find_job_dir(checkpoint: Location) -> str | None:
    """Return the path that the job directory had when a checkpoint was written, None if unknown."""
    for source in (checkpoint / "sources").glob("control_*"):
        for log in list_logs(source):
            with check_file(log):
                for file in read_log(log):
                    return decode_uri(file.uri).rsplit("/", 2)[0]
    return find_job_dir_in_state(checkpoint)


def find_previous_folder(job_dir: JobDir, manifest: Manifest) -> str:
    """Return the path of a job directory when the job last ran. manifest: the one in place."""
    recorded = manifest.folder or find_job_dir(job_dir.checkpoint(manifest, manifest.current))
    return recorded or str(job_dir.path)


def path_before(path: str, job_dir: JobDir, previous_folder: str) -> str | None:
    """Return the previous path of a folder if it was moved together with the job directory.

    Return None for a folder in another store than the directory was.
    """
    folder = job_dir.path.local_path
    if folder is None or not os.path.isabs(previous_folder):
        return None
    return os.path.normpath(os.path.join(previous_folder, os.path.relpath(path, folder)))


def move_sinks(job_dir: JobDir, manifest: Manifest, notes: Iterable[SinkNote]) -> Manifest:
    """Return a manifest with the present paths of tables that were moved together with the job
    directory.

    A table was not moved if it is still at its previous path, and not at the present one. notes:
    the tables that the job writes now.
    """
    before = find_previous_folder(job_dir, manifest)
    if before == str(job_dir.path):
        return manifest
    present: dict[str, str] = {}
    for path in {note.get("location", "") for note in notes}:
        old = path_before(path, job_dir, before) if os.path.isabs(path) else None
        if old is not None and (os.path.exists(path) or not os.path.exists(old)):
            present[old] = path

    def move(note: SinkNote) -> SinkNote:
        location = note.get("location", "")
        return note | {"location": present[location]} if location in present else note

    versions = (
        version if version.sinks is None else replace(version, sinks=tuple(map(move, version.sinks)))
        for version in manifest.versions
    )
    return replace(manifest, versions=tuple(versions))


def move_checkpoints(job_dir: JobDir, manifest: Manifest, before: str, moves: Sequence[Move]) -> dict[int, str]:
    """Write the present paths of the job directory and its data into all checkpoints.

    manifest: the new manifest, to which the names of the copies are added. before: the previous
    path of the directory. Returns the names of the checkpoints by epoch. Raises StateError
    `damaged-checkpoint`, ConnectorError `disk-full` and similar; nothing is changed then.
    """
    moved = {each.name: each for each in moves}
    names: dict[int, str] = {}
    with job_dir.writing():
        for epoch in sorted({version.epoch for version in manifest.versions}):
            old = job_dir.checkpoint(manifest, epoch)
            if not old.is_dir():
                continue
            names[epoch] = job_dir.rename_checkpoint(manifest, epoch).checkpoint_name(epoch)
            new = old.with_name(names[epoch])
            old.copy_to(new)
            with check_file(old):
                move_schemas(new)
                for log in (new / "sources").iterdir():
                    if log.name not in moved:
                        move_files(log, before, str(job_dir.path))
                for each in moved.values():
                    each.source.move(new, each.name, each.old, each.new)
        manifest = manifest.with_checkpoints(names)
        job_dir.write_manifest(manifest)
        job_dir.remove_left_checkpoints(manifest, list(names))
    return names
