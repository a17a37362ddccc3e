"""Ownership of a job directory in a store that many machines reach and that has no locks.

`owner/<n>.json` is a chain of entries, each created if absent: a process claims the directory,
begins a batch, or ends. The highest number counts, and it names the owner. A process that was
paused, and whose directory another one has claimed since, fails to create its next entry, so no
batch of it begins.

The owner changes `owner/<token>.beat` again and again. A directory is claimed from an owner that
did not say that it ended if its process is known to be dead, or after a time without a beat. That
time is measured here, so the clocks of the machines need not agree.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.checkpoint.damage import damaged_checkpoint_error
from everfold.errors import StateError
from everfold.jobs.ownership import describe_process, job_is_running_error
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_S = 30.0
"""An owner without a beat for so long has lost its job directory."""
_BEATS_PER_LEASE = 5
_KEPT = 20
"""Entries that stay; older ones are deleted now and then."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the chain.

    token: of the owner. process: the owner, for people. machine, pid, started: identify its
    process. ended: whether the owner has ended. epoch, batch: the last batch that the sinks
    received, None if there is none.
    """

    token: str
    process: str
    machine: str = ""
    pid: int = 0
    started: str = ""
    ended: bool = False
    epoch: int | None = None
    batch: int | None = None


@dataclass(slots=True)
class SharedOwnership:
    """See `Ownership`. folder: the job directory. note: called with sentences for the user."""

    folder: Location
    note: Callable[[str], None] = field(default=lambda _: None, repr=False)
    lease_s: float = LEASE_S
    was_taken_over: bool = False
    _number: int = 0
    _entry: Entry | None = None
    _stopping: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def process(self) -> str:
        """The owner, for people."""
        return "" if self._entry is None else self._entry.process

    def claim(self) -> None:
        own = _describe_self()
        while True:
            number, last = read_newest(self.folder) or (0, None)
            taken = last is not None and not last.ended
            if last is not None and taken and not is_dead(last) and self._is_alive(last):
                raise job_is_running_error(self.folder, last.process)
            entry = own if last is None else replace(own, epoch=last.epoch, batch=last.batch)
            if self._create(number + 1, entry):
                self.was_taken_over = taken
                break
        self._stopping = threading.Event()
        self._write_beat(0)
        threading.Thread(target=self._beat, name="everfold-beat", daemon=True).start()

    def claim_in_jvm(self, spark: SparkSession) -> None:
        """Nothing to do: the JVM of a killed owner writes into a checkpoint of its own."""

    def check(self) -> None:
        newest = read_newest(self.folder)
        if self._entry is None or newest is None or newest[1].token != self._entry.token:
            raise self._lost(None if newest is None else newest[1])

    def record_batch(self, epoch: int, batch: int) -> None:
        assert self._entry is not None, "not claimed"
        if not self._create(self._number + 1, replace(self._entry, epoch=epoch, batch=batch)):
            raise self._lost(None)
        # An entry may have been created below others that another owner has deleted.
        self.check()
        if self._number % _KEPT == 0:
            self._delete_old()

    def release(self) -> None:
        self._stopping.set()
        if self._entry is None:
            return
        with suppress(OSError):  # the next owner waits then
            self._create(self._number + 1, replace(self._entry, ended=True))
            self._beat_file(self._entry).delete()
        self._entry = None

    def _create(self, number: int, entry: Entry) -> bool:
        """Append an entry; return False if another process has appended one."""
        if not (_folder(self.folder) / f"{number}.json").create(json.dumps(asdict(entry))):
            return False
        self._number, self._entry = number, entry
        return True

    def _delete_old(self) -> None:
        for number in list_numbers(_folder(self.folder))[:-_KEPT]:
            (_folder(self.folder) / f"{number}.json").delete()

    def _lost(self, owner: Entry | None) -> StateError:
        if owner is None:
            newest = read_newest(self.folder)
            owner = None if newest is None else newest[1]
        who = "another process" if owner is None else owner.process
        return StateError.of("job-taken-over", f"the job in `{self.folder}` has been taken over by {who}")

    # --- beats ------------------------------------------------------------------------------------

    def _beat_file(self, entry: Entry) -> Location:
        return _folder(self.folder) / f"{entry.token}.beat"

    def _write_beat(self, count: int) -> None:
        if self._entry is not None:
            self._beat_file(self._entry).write(f"{count} {time.time():.3f}\n")

    def _beat(self) -> None:
        stopping, count = self._stopping, 0
        while not stopping.wait(self.lease_s / _BEATS_PER_LEASE):
            count += 1
            with suppress(OSError):  # the next beat may succeed; without any, the job is taken over
                self._write_beat(count)

    def _is_alive(self, owner: Entry) -> bool:
        """Wait for a beat of the owner; return False if there is none in the time of the lease."""
        file = self._beat_file(owner)
        before = _read_or_none(file)
        self.note(
            f"the job in `{self.folder}` was run by {owner.process}, which did not say that it had ended:"
            f" waiting up to {self.lease_s:.0f} s for a sign of life"
        )
        deadline = time.monotonic() + self.lease_s
        while time.monotonic() < deadline:
            time.sleep(min(_POLL_S, self.lease_s / _BEATS_PER_LEASE))
            newest = read_newest(self.folder)
            if newest is not None and newest[1].token != owner.token:
                return False  # someone else was faster, or the owner has ended: look again
            if newest is not None and newest[1].ended:
                return False
            if _read_or_none(file) != before:
                return True
        return False


def read_newest(folder: Location) -> tuple[int, Entry] | None:
    """Return the newest entry of a job directory and its number, None if there is none.

    Raises StateError `damaged-checkpoint`, OSError.
    """
    while numbers := list_numbers(_folder(folder)):
        file = _folder(folder) / f"{numbers[-1]}.json"
        try:
            return numbers[-1], Entry(**json.loads(file.read_bytes()))
        except FileNotFoundError:
            continue  # deleted meanwhile: there are newer ones
        except (ValueError, TypeError) as error:
            raise damaged_checkpoint_error(file) from error
    return None


def find_shared_owner(folder: Location) -> str | None:
    """Return the process that runs a job, None if none does.

    A process without a beat for `LEASE_S`, by the clocks of this machine and of the store, does not
    count. Raises StateError `damaged-checkpoint`, OSError.
    """
    newest = read_newest(folder)
    if newest is None or newest[1].ended or is_dead(newest[1]):
        return None
    beat = (_folder(folder) / f"{newest[1].token}.beat").find()
    if beat is None or time.time() - beat.modified_ms / 1000 > LEASE_S:
        return None
    return newest[1].process


def read_shared_record(folder: Location) -> tuple[int, int] | None:
    """Return epoch and number of the last recorded batch, None without a record."""
    newest = read_newest(folder)
    if newest is None or newest[1].epoch is None or newest[1].batch is None:
        return None
    return newest[1].epoch, newest[1].batch


def list_numbers(folder: Location) -> list[int]:
    """Return the numbers of the files `<n>.json` in a folder, in order."""
    return sorted(int(each.stem) for each in folder.iterdir() if each.name.endswith(".json") and each.stem.isdigit())


def is_dead(entry: Entry) -> bool:
    """Whether the process of an entry ran on this machine and is gone."""
    if not entry.machine or entry.machine != _machine():
        return False
    return _start_time(entry.pid) != entry.started


def _folder(job: Location) -> Location:
    return job / "owner"


def _read_or_none(file: Location) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _describe_self() -> Entry:
    pid = os.getpid()
    return Entry(
        token=uuid.uuid4().hex, process=describe_process(), machine=_machine(), pid=pid, started=_start_time(pid)
    )


def _machine() -> str:
    """Return what tells this machine, its boot and its processes from others, empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Return when a process of this machine started, in units of the kernel, empty without one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
