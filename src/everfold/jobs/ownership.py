"""Which process may write a job directory: a protocol, and the locks of a local one."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from everfold.checkpoint.damage import damaged_checkpoint_error
from everfold.errors import StateError
from everfold.files import make_private_file
from everfold.jobs.failure import spark_may_be_gone
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST_BATCH = "last_batch.json"
_UNKNOWN_OWNER = "another process"
_JVM_LOCK_PATIENCE_S = 10.0
_PROBES = 5
"""How often a lock that is held is tried: `find_local_owner` holds it for an instant."""
_PROBE_DELAY_S = 0.05


class Ownership(Protocol):
    """The right of one process to write a job directory, and the record of its last batch.

    was_taken_over: whether the last owner did not say that it ended, so that it, or a process that
    it started, may still write into its checkpoint.
    """

    was_taken_over: bool

    @property
    def process(self) -> str:
        """The owner, for people."""
        ...

    def claim(self) -> None:
        """Become the owner. Raises StateError `job-is-running`, OSError."""
        ...

    def claim_in_jvm(self, spark: SparkSession) -> None:
        """Become the owner for the JVM too. Raises StateError `job-is-running`."""
        ...

    def check(self) -> None:
        """Raise StateError `job-taken-over` if another process owns the directory now."""
        ...

    def record_batch(self, epoch: int, batch: int) -> None:
        """Record durably that the sinks receive a batch.

        Raises StateError `job-taken-over`, OSError.
        """
        ...

    def release(self) -> None:
        """Stop being the owner."""
        ...


@dataclass(slots=True)
class LocalOwnership:
    """Locks of the kernel, which it releases when the process dies. See `Ownership`.

    folder: the job directory.
    """

    folder: Location
    was_taken_over: bool = False
    process: str = ""
    _lock: Any = field(default=None, repr=False)
    _jvm_lock: Any = field(default=None, repr=False)

    def claim(self) -> None:
        path = self.folder.local_path
        assert path is not None, "other stores have no locks"
        make_private_file(path / "lock")
        self._lock = open(path / "lock", "a+", encoding="utf-8")  # noqa: SIM115 held until release
        for left in reversed(range(_PROBES)):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if left:
                    time.sleep(_PROBE_DELAY_S)
                    continue
                self._lock.seek(0)
                owner = self._lock.read().strip() or _UNKNOWN_OWNER
                self._lock.close()
                self._lock = None
                raise job_is_running_error(self.folder, owner) from error
        self.process = describe_process()
        self._lock.truncate(0)
        self._lock.write(self.process)
        self._lock.flush()

    def claim_in_jvm(self, spark: SparkSession) -> None:
        """Lock the folder for the JVM too.

        A JVM whose Python process was killed lives on for a second or two and may still write.
        """
        if self._jvm_lock is not None:
            return
        jvm: Any = spark._jvm
        channel = jvm.java.io.RandomAccessFile(f"{self.folder}/lock.jvm", "rw").getChannel()
        deadline = time.monotonic() + _JVM_LOCK_PATIENCE_S
        while True:
            held = channel.tryLock()
            if held is not None:
                self._jvm_lock = channel
                return
            if time.monotonic() > deadline:
                channel.close()
                raise StateError.of(
                    "job-is-running", f"the job in `{self.folder}` is still being written by another Java process"
                )
            time.sleep(0.1)

    def check(self) -> None:
        """Nothing to check: nobody else gets the lock while this process lives."""

    def record_batch(self, epoch: int, batch: int) -> None:
        (self.folder / LAST_BATCH).write(json.dumps({"epoch": epoch, "batch": batch}))

    def release(self) -> None:
        if self._jvm_lock is not None:
            with spark_may_be_gone():
                self._jvm_lock.close()
            self._jvm_lock = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def read_local_record(folder: Location) -> tuple[int, int] | None:
    """Return epoch and number of the last recorded batch of a local job, None without a record.

    Raises StateError `damaged-checkpoint`.
    """
    path = folder / LAST_BATCH
    try:
        found = json.loads(path.read_bytes())
        epoch, batch = found["epoch"], found["batch"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged_checkpoint_error(path) from error
    if type(epoch) is not int or type(batch) is not int:
        raise damaged_checkpoint_error(path)
    return epoch, batch


def find_local_owner(folder: Location) -> str | None:
    """Return the process that runs a local job, as `describe_process` has it; None if none does.

    Raises OSError.
    """
    path = folder.local_path
    assert path is not None, "other stores have no locks"
    try:
        with open(path / "lock", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().strip() or _UNKNOWN_OWNER
    except FileNotFoundError:
        pass
    return None


def describe_process() -> str:
    """Return which process this is, for people."""
    return f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def job_is_running_error(folder: Location, owner: str) -> StateError:
    """Return the error for a job directory that another process owns."""
    return StateError.of("job-is-running", f"the job in `{folder}` is being run by {owner}")
