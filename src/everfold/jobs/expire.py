"""Expire the old versions of a stopped job: remove what no kept version needs.

The next manifest marks the versions as expired, so that no rollback leads to them any more. Only
then are files removed. A process that is killed in between leaves a job that resumes; what it has
left is found and removed the next time.

An expired version keeps its place in the manifest, which says which batches count, and a few small
files of its checkpoint: the last position in the input, for a table that a later query reads again,
and the names of the files that were read, while the job may have to catch up with them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from everfold.checkpoint.logs import last_finished_batch
from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.filesystem.withdrawn import find_left_files
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, Version
from everfold.storage import Entry, Location

_POSITIONS = ("offsets", "commits")
_SMALL_FILES = ("metadata", ".metadata.crc")


@dataclass(frozen=True, slots=True)
class Removal:
    """Files and folders that belong together. paths: in the order in which they are removed."""

    what: str
    paths: tuple[Location, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal frees. bytes: without files that another checkpoint shares."""

    what: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Expiry:
    """The result of an expiry. kept, expired: the numbers of the versions."""

    kept: tuple[int, ...]
    expired: tuple[int, ...]
    removed: tuple[Removed, ...]

    @property
    def files(self) -> int:
        """The number of the files."""
        return sum(each.files for each in self.removed)

    @property
    def bytes(self) -> int:
        """The space that the removal frees."""
        return sum(each.bytes for each in self.removed)


def expire(path: Location, keep: int, open_table: Callable[[str], Location], *, dry_run: bool) -> Expiry:
    """Keep the newest versions of a job, and remove what only older ones need.

    keep: the number of versions, at least one. open_table: returns the location of a table's
    folder. dry_run: change nothing; the job may be running.

    Raises UsageError `no-job`, StateError `job-is-running`, `damaged-manifest`, ConnectorError.
    """
    job = JobDir(path)
    manifest = job.load_manifest()
    if dry_run:
        return _describe(manifest.expire(keep), _plan(job, manifest.expire(keep), open_table))
    with job.locked():
        old = job.load_manifest()
        manifest = old.expire(keep)
        if manifest != old:
            job.write_manifest(manifest)
        removals = _plan(job, manifest, open_table)
        found = _describe(manifest, removals)
        for removal in removals:
            _remove(removal)
    return found


def _remove(removal: Removal) -> None:
    try:
        for each in removal.paths:
            each.delete()
    except OSError as error:
        what = f"{removal.what}: `{removal.paths[0].parent}` cannot be changed"
        raise file_system_error(error, what, "run the same command again to remove the rest") from error


def _describe(manifest: Manifest, removals: Iterable[Removal]) -> Expiry:
    sizes = _Sizes()
    for removal in removals:
        for path in removal.paths:
            sizes.add(removal.what, path)
    return Expiry(
        kept=tuple(each.number for each in manifest.kept_versions),
        expired=tuple(each.number for each in manifest.versions if each.expired),
        removed=tuple(Removed(what, files, sizes.freed[what]) for what, files in sizes.files.items()),
    )


def _plan(job: JobDir, manifest: Manifest, open_table: Callable[[str], Location]) -> list[Removal]:
    """Return what no kept version of a job needs."""
    found = [
        *(Removal(f"state of version {each.number}", _list_state(job, manifest, each)) for each in _expired(manifest)),
        Removal("unused checkpoints", _list_unused_checkpoints(job, manifest)),
        Removal("backfill", _list_backfill(job, manifest)),
        Removal("copied rows", _list_copied_rows(job, manifest)),
        Removal("key snapshots", _list_key_snapshots(job, manifest)),
        Removal("records of batches", _list_records(job, manifest)),
        *_list_withdrawn_files(manifest, open_table),
    ]
    return [each for each in found if each.paths]


def _expired(manifest: Manifest) -> list[Version]:
    return [each for each in manifest.versions if each.expired]


def _list_state(job: JobDir, manifest: Manifest, version: Version) -> tuple[Location, ...]:
    """Return what goes of the checkpoint of an expired version."""
    checkpoint = job.checkpoint(manifest, version.epoch)
    last = last_finished_batch(checkpoint)
    has_left = version in manifest.abandoned_versions
    if last < 0 or (version.epoch in manifest.left_epochs and not has_left):
        return tuple(_unfold(checkpoint))
    kept = {*_POSITIONS, *_SMALL_FILES, *(["sources"] if has_left else [])}
    files = [file for name in _POSITIONS for file in _list_other_batches(checkpoint / name, last)]
    return (*files, *(path for each in checkpoint.iterdir() if each.name not in kept for path in _unfold(each)))


def _list_other_batches(log: Location, last: int) -> list[Location]:
    """Return the files of a log of Spark but those of a batch.

    An unfinished batch comes first, and then the oldest one, as when Spark removes them.
    """
    numbers = {each: each.name.removeprefix(".").partition(".")[0] for each in log.iterdir()}
    found = [(int(number), each) for each, number in numbers.items() if number.isdigit() and int(number) != last]
    return [each for _, each in sorted(found, key=lambda entry: (entry[0] < last, entry[0], entry[1]))]


def _unfold(folder: Location) -> Iterator[Location]:
    """Yield the checksum files of a folder and then the folder, if there is any.

    A checksum without its file looks like damage.
    """
    if folder.exists():
        if folder.store.is_local:
            yield from (each for each in folder.walk() if each.name.startswith(".") and each.name.endswith(".crc"))
        yield folder


def _list_unused_checkpoints(job: JobDir, manifest: Manifest) -> tuple[Location, ...]:
    """Return the checkpoints that an interrupted change has left."""
    used = {manifest.checkpoint_name(each.epoch) for each in manifest.versions}
    folders = [each for each in (job.path / "checkpoints").iterdir() if each.name not in used]
    return tuple(path for each in folders for path in _unfold(each))


def _list_backfill(job: JobDir, manifest: Manifest) -> tuple[Location, ...]:
    used = {str(each.history) for each in manifest.kept_versions}
    return tuple(each for each in (job.path / "backfill").iterdir() if each.name not in used)


def _list_copied_rows(job: JobDir, manifest: Manifest) -> tuple[Location, ...]:
    """Return what was copied at starts at the beginning of the input that no kept version has."""
    origins = {manifest.lineage(each)[-1][0].epoch for each in manifest.kept_versions}
    there = [(int(each.name) if each.name.isdigit() else 0, each) for each in (job.path / "sources").iterdir()]
    return tuple(each for origin, each in there if origin not in origins)


def _list_key_snapshots(job: JobDir, manifest: Manifest) -> tuple[Location, ...]:
    past = manifest.job_lineage
    if past is None:
        return ()
    found: list[Location] = []
    for folder in (job.path / "sinks").glob("keys-*"):
        there = {int(each.stem): each for each in folder.glob("*.arrow") if each.stem.isdigit()}
        found += [there[epoch] for epoch in past.find_expired_snapshots(there)]
    return tuple(found)


def _list_records(job: JobDir, manifest: Manifest) -> tuple[Location, ...]:
    """Return the records of batches of expired versions, all of whose files are visible."""
    kept = {each.epoch for each in manifest.kept_versions}
    epochs = {str(each.epoch) for each in _expired(manifest) if each.epoch not in kept}
    records = (job.path / "sinks").glob("*/*-*.json")
    return tuple(each for each in records if each.stem.partition("-")[0] in epochs and _is_done(each))


def _is_done(record: Location) -> bool:
    with suppress(ValueError, AttributeError):
        return bool(json.loads(record.read_bytes()).get("done"))
    return False


def _list_withdrawn_files(manifest: Manifest, open_table: Callable[[str], Location]) -> Iterator[Removal]:
    """Yield the withdrawn files of each table that no rollback makes visible again."""
    if not manifest.left_epochs:
        return
    notes = (note for version in manifest.versions for note in version.sinks or () if "folder" in note)
    for table, folder in dict.fromkeys((note["table"], note["folder"]) for note in notes):
        sinks = manifest.sink_names.get(table, frozenset())
        if sinks:
            files = find_left_files(open_table(folder), manifest.job, sinks, manifest.left_epochs)
            yield Removal(f"withdrawn files of `{table}`", tuple(files))


@dataclass(slots=True)
class _Sizes:
    """Counts the files of removals, and the space that they free.

    The checkpoints of a local job share files by hard links. Such a file frees its space with its
    last name.
    """

    files: Counter[str] = field(default_factory=Counter)
    freed: Counter[str] = field(default_factory=Counter)
    _seen: set[str] = field(default_factory=set)
    _links: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, what: str, path: Location) -> None:
        """Count a file, or the files of a folder, unless they are counted already."""
        for file, entry in _list_files(path):
            if file.path in self._seen:
                continue
            self._seen.add(file.path)
            self.files[what] += 1
            self.freed[what] += entry.size if self._is_last(file) else 0

    def _is_last(self, file: Location) -> bool:
        if file.local_path is None:
            return True
        status = os.stat(file.local_path)
        self._links[status.st_dev, status.st_ino] += 1
        return self._links[status.st_dev, status.st_ino] == status.st_nlink


def _list_files(path: Location) -> Iterator[tuple[Location, Entry]]:
    found = path.find()
    if found is not None and not found.is_folder:
        yield path, found
    elif found is not None:
        yield from ((path / each.name, each) for each in path.store.walk(path.path))
