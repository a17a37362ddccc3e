"""The job directory: manifest, lock, checkpoints and control files of one job.

manifest.json        every version of the query. It names the current checkpoint, so switching to
                     another one is a single atomic write.
checkpoints/<epoch>/ Spark's checkpoint of an epoch
last_batch.json      epoch and number of the last batch that the sinks received (`batch_log`)
control/             control files: flush, tick, backfill, re-emit
backfill/<version>/  control files for the first batch of a version (backfill, re-emit)
sinks/               which batches the sinks have applied, and the key snapshots
sources/, beside/    rows copied when the job started: of bounded tables read as a stream, and of
                     lookup tables. A rebuilt job uses sources/<epoch>/.
lock, lock.jvm       held by the process that runs the job
job.log              log of Spark and its workers
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.checkpoint.copying import copy_checkpoint
from everfold.checkpoint.logs import has_unfinished_batch
from everfold.connectors.connector_errors import file_system_error
from everfold.errors import StateError, UsageError
from everfold.files import make_private_file, make_private_folder, write_atomically
from everfold.jobs.batch_log import NAME as LAST_BATCH
from everfold.jobs.failure import spark_may_be_gone
from everfold.jobs.manifest import Manifest, damaged_manifest_error
from everfold.jobs.moving import finish_moving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_LOCK_PATIENCE_S = 10.0
_DIGITS_OF_TIME = 15
_PATTERN = re.compile(r"[\\*?\[\]{}]")
_FOLDER_HELP = "mend that and run the same command again, or name another folder with --state"


@dataclass(slots=True)
class JobDir:
    """A job directory. Call `lock` before writing to it, so that no other process uses it."""

    path: Path
    _lock: Any = field(default=None, repr=False)
    _jvm_lock: Any = field(default=None, repr=False)

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest."""
        return self.path / "manifest.json"

    @property
    def control(self) -> Path:
        """Folder of the control files."""
        return self.path / "control"

    def backfill_folder(self, number: int) -> Path:
        """Return the folder of the control files for the first batch of a version."""
        return self.path / "backfill" / str(number)

    @property
    def log_file(self) -> Path:
        """Path of the job's log."""
        return self.path / "job.log"

    def checkpoint(self, epoch: int) -> Path:
        """Return the folder of Spark's checkpoint of an epoch."""
        return self.path / "checkpoints" / str(epoch)

    @contextmanager
    def locked(self) -> Iterator[JobDir]:
        """Lock the folder for the block. Raises what `lock` raises."""
        self.lock()
        try:
            yield self
        finally:
            self.release()

    def lock(self) -> None:
        """Lock the folder for this process until `release`.

        The kernel releases the lock if the process dies. Also finishes a move of checkpoints that a
        crash interrupted. Raises StateError `job-is-running`, UsageError `folder-name`,
        ConnectorError `no-permission`, `not-a-folder`, `disk-full`.
        """
        pattern = _PATTERN.search(str(self.path))
        if pattern is not None:
            raise UsageError.of(
                "folder-name",
                f"the path of the job directory `{self.path}` contains `{pattern.group()}`,"
                " which Spark reads as a glob",
                help="name another folder with --state",
            )
        with self.writing():
            make_private_folder(self.path)
            make_private_file(self.path / "lock")
            self._lock = open(self.path / "lock", "a+", encoding="utf-8")  # noqa: SIM115 held until release
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "another process"
            self._lock.close()
            self._lock = None
            raise StateError.of("job-is-running", f"the job in `{self.path}` is being run by {owner}") from error
        with self.writing():
            self._lock.truncate(0)
            self._lock.write(
                f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            )
            self._lock.flush()
            finish_moving(self.path)

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
        """Lock the folder for the JVM too.

        A JVM whose Python process was killed lives on for a second or two and may still write.
        Raises StateError `job-is-running`.
        """
        jvm: Any = spark._jvm
        channel = jvm.java.io.RandomAccessFile(str(self.path / "lock.jvm"), "rw").getChannel()
        deadline = time.monotonic() + _JVM_LOCK_PATIENCE_S
        while True:
            held = channel.tryLock()
            if held is not None:
                self._jvm_lock = channel
                return
            if time.monotonic() > deadline:
                channel.close()
                raise StateError.of(
                    "job-is-running", f"the job in `{self.path}` is still being written by another Java process"
                )
            time.sleep(0.1)

    def release(self) -> None:
        """Release the locks."""
        if self._jvm_lock is not None:
            with spark_may_be_gone():
                self._jvm_lock.close()
            self._jvm_lock = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def read_manifest(self) -> Manifest | None:
        """Read the manifest; return None for a new job.

        Raises StateError `newer-manifest`, or `damaged-manifest`, also if the manifest is missing
        although the job has run.
        """
        try:
            text = self.manifest_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            trace = next(self._find_traces(), None)
            if trace is not None:
                raise damaged_manifest_error(
                    f"`{self.manifest_path}` is missing, but the job's `{trace}` exists"
                ) from None
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise damaged_manifest_error(f"`{self.manifest_path}` is not a valid manifest: {error}") from error
        return Manifest.parse(text, self.manifest_path)

    def _find_traces(self) -> Iterator[str]:
        """Yield the files that only a streaming job leaves in its folder once it has started.

        A batch job leaves sink records too, but with the time as their epoch.
        """
        yield from (name for name in ("checkpoints", LAST_BATCH) if (self.path / name).exists())
        for record in sorted((self.path / "sinks").glob("*/*-*.json")):
            if record.name[0].isdigit() and len(record.name.partition("-")[0]) < _DIGITS_OF_TIME:
                yield str(record.relative_to(self.path))

    def check_finished(self, epoch: int) -> None:
        """Raise StateError `unfinished-batch` if the last batch of an epoch is not finished."""
        if has_unfinished_batch(self.checkpoint(epoch)):
            raise StateError.of(
                "unfinished-batch",
                f"the job in `{self.path}` was interrupted during a batch, which only the old query can finish",
                help="run the old query once more, stop it, and then change it; --on-change rebuild needs no old state",
            )

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest atomically."""
        with self.writing():
            write_atomically(self.manifest_path, manifest.to_json(), private=True)

    def link_checkpoint(self, old: Path, epoch: int, old_positions: Sequence[int | None] | None = None) -> None:
        """Copy a checkpoint, if it exists, to the one of a new epoch by hard links.

        old_positions: see `copy_checkpoint`. Raises ConnectorError `disk-full` and similar.
        """
        with self.writing():
            if old.exists():
                copy_checkpoint(old, self.checkpoint(epoch), old_positions)


def load_manifest(path: Path) -> Manifest:
    """Read the manifest of the job in a folder.

    Raises UsageError `no-job` if there is none, StateError `damaged-manifest`, `newer-manifest`.
    """
    found = JobDir(path).read_manifest()
    if found is None:
        raise UsageError.of(
            "no-job", f"`{path}` is not a job directory", help="name the folder that --state named when the job ran"
        )
    return found
