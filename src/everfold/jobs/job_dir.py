"""The job directory: manifests, owner, checkpoints and control files of one job.

manifest/<n>.json    every version of the query; the highest number counts. It names the current
                     checkpoint, so creating the next one switches to another.
checkpoints/<epoch>/ Spark's checkpoint of an epoch; `<epoch>.<n>` if it was copied since
last_batch.json      epoch and number of the last batch that the sinks received (`batch_log`)
applied_batches.json the last batches that each sink has applied (`applied_batches`)
control/             control files: flush, tick, backfill, re-emit
backfill/<version>/  control files for the first batch of a version (backfill, re-emit)
sinks/               which batches the sinks have applied, and the key snapshots
sources/, beside/    rows copied when the job started: of bounded tables read as a stream, and of
                     lookup tables. A rebuilt job uses sources/<epoch>/.
lock, lock.jvm       held by the process that runs the job
job.log              log of Spark and its workers
progress/            recent history: runs and batches (`progress_log`)

In another store than the local disk, `owner/` takes the place of the locks and of
`last_batch.json` (`shared_ownership`), and log and history lie in everfold's cache folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.checkpoint.copying import copy_checkpoint
from everfold.checkpoint.logs import has_unfinished_batch
from everfold.connectors.connector_errors import file_system_error
from everfold.errors import StateError, UsageError
from everfold.files import cache_folder, use_cache_folder
from everfold.jobs.folders import FolderName
from everfold.jobs.manifest import Manifest, damaged_manifest_error
from everfold.jobs.old_move import finish_old_move
from everfold.jobs.ownership import LAST_BATCH, LocalOwnership, Ownership
from everfold.jobs.shared_ownership import SharedOwnership, list_numbers
from everfold.storage import UNFINISHED, Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DIGITS_OF_TIME = 15
_PATTERN = re.compile(r"[\\*?\[\]{}]")
_FOLDER_HELP = "mend that and run the same command again, or name another folder with --state"
_KEPT_MANIFESTS = 10
_KEPT_LOG_FOLDERS = 100
"""Number of jobs in other stores whose logs and histories are kept on this machine."""


def _ignore(_: str) -> None:
    """Take a note that nobody reads."""


@dataclass(slots=True)
class JobDir:
    """A job directory. Call `lock` before writing to it, so that no other process uses it.

    note: called with sentences for the user. other_log: where Spark logs instead of `log_file`.
    """

    path: Location
    note: Callable[[str], None] = field(default=_ignore, repr=False)
    other_log: Path | None = None
    _ownership: Ownership | None = field(default=None, repr=False)
    _newest: int = 0

    @property
    def control(self) -> Location:
        """Folder of the control files."""
        return self.path / "control"

    def backfill_folder(self, number: int) -> Location:
        """Return the folder of the control files for the first batch of a version."""
        return self.path / "backfill" / str(number)

    @property
    def log_file(self) -> Path:
        """Path of the job's log, which is always a local file."""
        return locate_log(self.path.local_path or str(self.path))

    @property
    def spark_log(self) -> Path:
        """Path of the log of Spark and its workers, for messages."""
        return self.other_log or self.log_file

    def checkpoint(self, manifest: Manifest, epoch: int) -> Location:
        """Return the folder of Spark's checkpoint of an epoch."""
        return self.path / "checkpoints" / manifest.checkpoint_name(epoch)

    @property
    def ownership(self) -> Ownership:
        """The right to write the folder, which `lock` gets."""
        assert self._ownership is not None, "the job directory is not locked"
        return self._ownership

    @contextmanager
    def locked(self) -> Iterator[JobDir]:
        """Lock the folder for the block.

        Raises what `lock` raises, and StateError `job-taken-over` for any failure after another
        process has taken the job over: that process moves and deletes files.
        """
        self.lock()
        try:
            yield self
        except Exception:
            with suppress(OSError):
                self.ownership.check()
            raise
        finally:
            self.release()

    def lock(self) -> None:
        """Lock the folder for this process until `release`.

        Also finishes what a crash interrupted. Raises StateError `job-is-running`, UsageError
        `folder-name`, ConnectorError `no-permission`, `not-a-folder`, `disk-full`.
        """
        pattern = _PATTERN.search(str(self.path))
        if pattern is not None:
            raise UsageError.of(
                "folder-name",
                f"the path of the job directory `{self.path}` contains `{pattern.group()}`,"
                " which Spark reads as a glob",
                help="name another folder with --state",
            )
        is_local = self.path.store.is_local
        ownership = LocalOwnership(self.path) if is_local else SharedOwnership(self.path, self.note)
        with self.writing():
            self.path.make_folder()
            ownership.claim()
            self._ownership = ownership
            if is_local:
                finish_old_move(self.path)
            else:
                use_cache_folder(self.log_file.parent, keep=_KEPT_LOG_FOLDERS)
            self._remove_unfinished_files()
        if ownership.was_taken_over:
            self._leave_checkpoint()

    def _remove_unfinished_files(self) -> None:
        """Remove the hidden files of a process that was killed while it wrote others."""
        for folder in (self.path, self.path / "manifest", self.control, *(self.path / "sinks").iterdir()):
            for each in folder.iterdir():
                if each.name.startswith(".") and each.name.endswith(UNFINISHED):
                    each.delete()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise an OSError of the block as a ConnectorError."""
        try:
            yield
        except OSError as error:
            raise file_system_error(
                error, f"the job directory `{self.path}` cannot be written", _FOLDER_HELP
            ) from error

    def lock_in_jvm(self, spark: SparkSession) -> None:
        """Lock the folder for the JVM too. Raises StateError `job-is-running`."""
        self.ownership.claim_in_jvm(spark)

    def release(self) -> None:
        """Release the locks."""
        if self._ownership is not None:
            self._ownership.release()
            self._ownership = None

    def read_manifest(self) -> Manifest | None:
        """Read the manifest; return None for a new job.

        Raises StateError `newer-manifest`, or `damaged-manifest`, also if the manifest is missing
        although the job has run.
        """
        folder = self.path / "manifest"
        number = max(list_numbers(folder), default=0)
        # Before there were numbers, there was one manifest.
        file = folder / f"{number}.json" if number else self.path / "manifest.json"
        try:
            text = file.read_text()
        except (FileNotFoundError, NotADirectoryError):
            trace = next(self._find_traces(), None)
            if trace is not None:
                raise damaged_manifest_error(f"`{file}` is missing, but the job's `{trace}` exists") from None
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise damaged_manifest_error(f"`{file}` is not a valid manifest: {error}") from error
        self._newest = number
        return Manifest.parse(text, file)

    def load_manifest(self) -> Manifest:
        """Read the manifest of a job that exists.

        Raises UsageError `no-job`, StateError `damaged-manifest`, `newer-manifest`.
        """
        found = self.read_manifest()
        if found is None:
            raise no_job_error(self.path)
        return found

    def _find_traces(self) -> Iterator[str]:
        """Yield the files that only a streaming job leaves in its folder once it has started.

        A batch job leaves sink records too, but with the time as their epoch.
        """
        yield from (name for name in ("checkpoints", LAST_BATCH) if (self.path / name).exists())
        for record in (self.path / "sinks").glob("*/*-*.json"):
            if record.name[0].isdigit() and len(record.name.partition("-")[0]) < _DIGITS_OF_TIME:
                yield record.relative_to(self.path)

    def check_finished(self, manifest: Manifest, epoch: int) -> None:
        """Raise StateError `unfinished-batch` if the last batch of an epoch is not finished."""
        if not has_unfinished_batch(self.checkpoint(manifest, epoch)):
            return
        version = next(each for each in reversed(manifest.versions) if each.epoch == epoch)
        message = (
            f"the job in `{self.path}` was interrupted during a batch, which only the old query can finish:"
            f" that of version {version.number}"
        )
        help_ = (
            "run the old query once more, stop it, and then change it"
            f" (`everfold history {self.path} --sql {version.number}` prints it)"
        )
        earlier = [each for each, _ in manifest.lineage(version)[1:2] if not each.expired]
        if earlier:
            help_ += f"; if it fails in this batch, go back: everfold rollback {self.path} {earlier[0].number}"
        raise StateError.of("unfinished-batch", message, help=f"{help_}; --on-change rebuild needs no old state")

    def write_manifest(self, manifest: Manifest) -> None:
        """Create the next manifest. Raises StateError `job-taken-over`, ConnectorError."""
        folder = self.path / "manifest"
        with self.writing():
            if not (folder / f"{self._newest + 1}.json").create(manifest.to_json()):
                self.ownership.check()
                raise damaged_manifest_error(f"`{folder}/{self._newest + 1}.json` was written by another process")
            self._newest += 1
            (self.path / "manifest.json").delete()
            for number in list_numbers(folder)[:-_KEPT_MANIFESTS]:
                (folder / f"{number}.json").delete()

    def copy_checkpoint(self, old: Location, new: Location, old_positions: Sequence[int | None] | None = None) -> None:
        """Copy a checkpoint, if it exists, to one that no manifest names yet.

        old_positions: see `copy_checkpoint`. Raises ConnectorError `disk-full` and similar.
        """
        with self.writing():
            if old.exists():
                copy_checkpoint(old, new, old_positions)

    def rename_checkpoint(self, manifest: Manifest, epoch: int) -> Manifest:
        """Return a manifest with another folder for the checkpoint of an epoch.

        The folder does not exist.
        """
        there = {each.name for each in (self.path / "checkpoints").iterdir()}
        number = 1
        while f"{epoch}.{number}" in there:
            number += 1
        return manifest.with_checkpoints({epoch: f"{epoch}.{number}"})

    def remove_left_checkpoints(self, manifest: Manifest, epochs: Sequence[int]) -> None:
        """Remove the checkpoints of epochs which the manifest in place does not name."""
        for each in (self.path / "checkpoints").iterdir():
            epoch = each.name.partition(".")[0]
            if epoch.isdigit() and int(epoch) in epochs and each.name != manifest.checkpoint_name(int(epoch)):
                each.delete()

    def _leave_checkpoint(self) -> None:
        """Leave the current checkpoint to the last owner, which may still write, and use a copy.

        Creating the manifest also keeps that owner from creating one.
        """
        manifest = self.read_manifest()
        if manifest is None:
            return
        renamed = self.rename_checkpoint(manifest, manifest.current)
        old = self.checkpoint(manifest, manifest.current)
        if old.exists():
            self.copy_checkpoint(old, self.checkpoint(renamed, manifest.current))
            manifest = renamed
        self.write_manifest(manifest)
        with self.writing():
            self.remove_left_checkpoints(manifest, [manifest.current])


def locate_log(folder: FolderName) -> Path:
    """Return the path of the log of the job in a folder."""
    if isinstance(folder, str):
        digest = hashlib.sha256(folder.encode()).hexdigest()[:8]
        folder = cache_folder() / "jobs" / f"{folder.rpartition('/')[2]}-{digest}"
    return folder / "job.log"


def no_job_error(path: Location) -> UsageError:
    """Return the error for a folder that is not a job directory."""
    return UsageError.of(
        "no-job", f"`{path}` is not a job directory", help="name the folder that --state named when the job ran"
    )


def load_manifest(path: Location) -> Manifest:
    """Read the manifest of the job in a folder. Raises what `JobDir.load_manifest` raises."""
    return JobDir(path).load_manifest()
