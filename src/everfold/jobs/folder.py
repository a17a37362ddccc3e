"""A job's folder: what it is (manifest), who runs it (lock), where it got to (checkpoints), what it was told (control).

manifest.json        every version of the query; names the current checkpoint, so a switch is one atomic write
checkpoints/<epoch>/ Spark's checkpoint
control/             control files: flush, tick, past
backfill/<version>/  what the version's first batch is told of the past
sinks/               what sinks have applied
sources/, beside/    rows that are kept as they were when the job started: of a table that is no stream, of the other side of a join. Of a rebuilt job: sources/<epoch>/
lock, lock.jvm       held by the process that runs the job
job.log              what Spark and its workers said
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.compat import REFERENCE, QueryShape, Terms, shape_of
from everfold.compat.keeping import from_json, to_json
from everfold.connectors.again import Past
from everfold.connectors.troubles import os_trouble
from everfold.errors import StateError, UsageError
from everfold.jobs.change import (
    Decide,
    OnChange,
    check_finished,
    check_past,
    cleared,
    copied,
    decided,
    going_on,
    refuse,
    restored,
)
from everfold.jobs.going_back import SinkNote, sink_name, sink_notes
from everfold.jobs.naming import first_names, moves
from everfold.plan.nodes import Root, Sink
from everfold.secrets import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST_FORMAT = 2
"""2: versions with `back_to`, `back_after`, `rebuilt` and `sinks`. Format 1, without them, is read too."""
_JVM_LOCK_PATIENCE_S = 10.0
_PATTERN = re.compile(r"[\\*?\[\]{}]")
_FOLDER_HELP = "mend that and run the same command again, or name another folder with --state"


def write_atomically(path: Path, text: str) -> None:
    """Puts a file in place in one step: readers see the old text or the new one, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.new")
    with open(part, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(part, path)


def fingerprint(roots: Sequence[Root], zone: str) -> str:
    """The same for plans that mean the same: what a checkpoint is compared by. Options of tables are not in it: they hold secrets."""
    parts = [f"{root.table.name}<-{root.input!r}" if isinstance(root, Sink) else repr(root.input) for root in roots]
    return hashlib.sha256("\n".join([zone, *parts]).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a job's query. `sql`, without secrets, and `plan`, its explanation, are for people; `fingerprint` is compared; `shapes` are judged when the query changes
    (`compat.keeping`), with what each aggregate counts since. operators: their names in the checkpoint, by place (`naming`). number: from 0. state_epoch: the number of the version in which its
    state began as a whole, 0 for one that began at the beginning of the input. history: the number under which lies what its new
    aggregates were given of the past, None if they were not. back_to: the number of the version that the job went back to with it, as it was after the batch `back_after`. rebuilt: whether the job began at the beginning of its input with it. sinks: the tables that it writes, None if
    that was not noted."""

    number: int
    epoch: int
    fingerprint: str
    zone: str
    sql: str
    plan: str
    shapes: tuple[dict[str, Any], ...]
    created: str
    operators: tuple[str, ...] = ()
    state_epoch: int = 0
    history: int | None = None
    back_to: int | None = None
    back_after: int | None = None
    rebuilt: bool = False
    sinks: tuple[SinkNote, ...] | None = None

    @property
    def backfilled(self) -> bool:
        """Whether what begins with it was given its past."""
        return self.history is not None

    @property
    def known(self) -> list[QueryShape]:
        """The shapes of its queries."""
        return [from_json(each) for each in self.shapes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a job is. `buckets` and `partitions` are fixed when the job is created; `current` is the epoch of the checkpoint in use.

    Raises ValueError or TypeError when it makes no sense.
    """

    job: str
    buckets: int
    partitions: int
    current: int
    versions: tuple[Version, ...]
    format: int = MANIFEST_FORMAT

    def __post_init__(self) -> None:
        if min(self.buckets, self.partitions) < 1:
            raise ValueError("a job has buckets and partitions")
        if self.current not in (version.epoch for version in self.versions):
            raise ValueError(f"it has no version with the current epoch {self.current}")
        for at, version in enumerate(self.versions):
            if version.back_to not in (None, *(each.number for each in self.versions[:at])):
                raise ValueError(
                    f"its version {version.number} goes back to {version.back_to}, which is none before it"
                )

    @property
    def version(self) -> Version:
        """The version that the current checkpoint belongs to."""
        return next(each for each in reversed(self.versions) if each.epoch == self.current)

    def numbered(self, number: int) -> Version:
        """The version of that number. UsageError `no-version`."""
        versions = {each.number: each for each in self.versions}
        if number not in versions:
            there = ", ".join(map(str, versions))
            raise UsageError.of("no-version", f"the job has no version {number}", help=f"there are {there}")
        return versions[number]

    @property
    def next(self) -> tuple[int, int]:
        """The number and the epoch of a new version."""
        return max(each.number for each in self.versions) + 1, max(each.epoch for each in self.versions) + 1

    def line(self, of: Version) -> list[tuple[Version, int | None]]:
        """The versions whose batches a version has in it, itself first, each with the last batch that counts, None for all."""
        found: list[tuple[Version, int | None]] = [(of, None)]
        while not of.rebuilt and of != self.versions[0]:
            if of.back_to is None:
                of = self.versions[self.versions.index(of) - 1]
                found.append((of, None))
            else:
                last = of.back_after
                of = next(each for each in self.versions if each.number == of.back_to)
                found.append((of, last))
        return found

    @property
    def origin(self) -> int:
        """The epoch in which the job last began at the beginning of its input."""
        return self.line(self.version)[-1][0].epoch

    @property
    def past(self) -> Past | None:
        """Which batches count; None for a job that has never gone back, where all do."""
        if not any(each.rebuilt or each.back_to is not None for each in self.versions):
            return None
        last = {version.epoch: batch for version, batch in self.line(self.version)}
        return Past(job=self.job, epoch=self.current, last=last, origin=self.origin, sinks=self._sinks)

    @property
    def _sinks(self) -> dict[str, frozenset[str]]:
        """The names of sinks by table, of all versions."""
        found: dict[str, set[str]] = {}
        for version in self.versions:
            for at, shape in enumerate(version.known):
                found.setdefault(shape.sink, set()).add(sink_name(at, shape.sink))
        return {table: frozenset(names) for table, names in found.items()}

    @classmethod
    def parse(cls, text: str, path: Path) -> Manifest:
        """Reads a manifest; StateError `damaged-manifest` or `newer-manifest` when it cannot."""
        try:
            parsed = json.loads(text)
            if isinstance(parsed, dict) and parsed.get("format", MANIFEST_FORMAT) > MANIFEST_FORMAT:
                raise StateError.of(
                    "newer-manifest",
                    f"`{path}` was written by a newer everfold (format {parsed['format']}, this one reads {MANIFEST_FORMAT})",
                    help="run it with that everfold, or start with a new --state folder",
                )
            found = _members(cls, parsed)
            versions = tuple(_version(each) for each in found["versions"])
            return cls(**{**found, "versions": versions, "format": MANIFEST_FORMAT})
        except (ValueError, TypeError) as error:
            raise _damaged(f"`{path}` is no manifest: {error}") from error


def _members(of: type[Manifest | Version], found: Any) -> dict[str, Any]:
    """A parsed object with the fields of the class, of which those with a default may be missing; ValueError when it is none, or has others."""
    names = {each.name for each in fields(of)}
    needed = {each.name for each in fields(of) if each.default is MISSING}
    if not isinstance(found, dict) or not needed <= found.keys() <= names:
        raise ValueError(f"it is no object of {', '.join(sorted(names))}")
    return found


def _version(found: Any) -> Version:
    members = _members(Version, found)
    sinks = members.get("sinks")
    lists = {
        "shapes": tuple(members["shapes"]),
        "operators": tuple(members.get("operators", ())),
        "sinks": None if sinks is None else tuple(sinks),
    }
    version = Version(**{**members, **lists})
    try:
        # Manifests of before operators could change places lack their names.
        return replace(version, operators=version.operators or first_names(version.known))
    except KeyError as error:
        raise ValueError(f"the shape of a query has no {error}") from error


def _damaged(message: str) -> StateError:
    return StateError.of(
        "damaged-manifest", message, help="restore it from a backup, or start with a new --state folder"
    )


def manifest_of(path: Path) -> Manifest:
    """The manifest of the job in a folder. UsageError `no-job` if there is none, StateError `damaged-manifest`, `newer-manifest`."""
    found = JobFolder(path).manifest()
    if found is None:
        raise UsageError.of(
            "no-job", f"`{path}` is no folder of a job", help="it is what --state named when the job ran"
        )
    return found


@dataclass(slots=True)
class JobFolder:
    """An opened job folder. Open it with `locked`, so that no second process works on it."""

    path: Path
    _lock: Any = field(default=None, repr=False)
    _jvm_lock: Any = field(default=None, repr=False)

    @property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
        return self.path / "manifest.json"

    @property
    def control(self) -> Path:
        """Where control files are dropped."""
        return self.path / "control"

    @property
    def log_file(self) -> Path:
        """The job's log."""
        return self.path / "job.log"

    def checkpoint(self, epoch: int) -> Path:
        """Spark's checkpoint of an epoch."""
        return self.path / "checkpoints" / str(epoch)

    def lock(self) -> None:
        """Takes the folder for this process, until `release`; the kernel frees it when the process dies.

        Raises StateError `job-is-running`, ConnectorError `no-permission`, `not-a-folder`, `disk-full`, UsageError `folder-name`.
        """
        pattern = _PATTERN.search(str(self.path))
        if pattern is not None:
            raise UsageError.of(
                "folder-name",
                f"the job folder `{self.path}` has `{pattern.group()}` in its name, which Spark takes for a pattern",
                help="name another folder with --state",
            )
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "a+", encoding="utf-8")  # noqa: SIM115 held until release
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "another process"
            self._lock.close()
            self._lock = None
            raise StateError.of("job-is-running", f"the job in `{self.path}` is being run by {owner}") from error
        with self._writing():
            self._lock.truncate(0)
            self._lock.write(
                f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            )
            self._lock.flush()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """In it, what the file system refuses is a ConnectorError."""
        try:
            yield
        except OSError as error:
            raise os_trouble(error, f"the job folder `{self.path}` cannot be written", _FOLDER_HELP) from error

    def lock_in_jvm(self, spark: SparkSession) -> None:
        """Takes the folder for the JVM too: one whose Python was killed lives on for a second or two and may still write."""
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
        """Gives the folder back."""
        if self._jvm_lock is not None:
            self._jvm_lock.close()
            self._jvm_lock = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def manifest(self) -> Manifest | None:
        """The manifest, None for a new job. Raises StateError `damaged-manifest`, also when it is missing beside checkpoints."""
        try:
            text = self.manifest_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            if (self.path / "checkpoints").exists():
                raise _damaged(f"`{self.manifest_path}` is missing, and the job's checkpoints are there") from None
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged(f"`{self.manifest_path}` is no manifest: {error}") from error
        return Manifest.parse(text, self.manifest_path)

    def write_manifest(self, manifest: Manifest) -> None:
        """Puts a manifest in place."""
        with self._writing():
            write_atomically(self.manifest_path, json.dumps(asdict(manifest), indent=2) + "\n")

    def open(
        self,
        roots: Sequence[Root],
        zone: str,
        plan: str,
        *,
        buckets: int,
        partitions: int,
        sql: str = "",
        terms: Terms = REFERENCE,
        decide: Decide = refuse,
    ) -> tuple[Manifest, tuple[Root, ...]]:
        """The manifest of the job that runs these plans: made when the folder is new, with a new version when the query has changed and may go on,
        which `settle` puts in place. And the plans, in which each aggregate knows since when it counts.

        Raises StateError `incompatible-change` and its like (`change.decided`), `changed-zone`, `unfinished-batch`.
        """
        mark = fingerprint(roots, zone)
        known = self.manifest()
        if known is None:
            name = hashlib.sha256(f"{self.path.resolve()}{time.time_ns()}".encode()).hexdigest()[:12]
            version = _new_version(0, 0, mark, zone, sql, plan, roots, first_names([shape_of(root) for root in roots]))
            known = Manifest(job=name, buckets=buckets, partitions=partitions, current=0, versions=(version,))
            with self._writing():
                self.control.mkdir(parents=True, exist_ok=True)
            self.write_manifest(known)
        elif known.version.fingerprint != mark:
            return self._changed(known, roots, zone, sql, plan, mark, terms, decide)
        else:
            current = replace(known.version, sinks=sink_notes(roots))
            known = replace(
                known, versions=tuple(current if each.epoch == known.current else each for each in known.versions)
            )
        return known, going_on(known.version.known, roots, known.version.number)

    def _changed(
        self,
        known: Manifest,
        roots: Sequence[Root],
        zone: str,
        sql: str,
        plan: str,
        mark: str,
        terms: Terms,
        decide: Decide,
    ) -> tuple[Manifest, tuple[Root, ...]]:
        """The job with a new version, which is to go on with the state of the last one."""
        last = known.version
        if last.zone != zone:
            raise StateError.of(
                "changed-zone",
                f"the state in `{self.path}` was computed in the zone {last.zone}, and the session's is {zone}",
                help=f"SET 'table.local-time-zone' = '{last.zone}', or give the query a --state folder of its own",
            )
        how = decided(self.path, last.known, roots, terms=terms, decide=decide)
        number, epoch = known.next
        if how is OnChange.REBUILD:
            made = going_on([], roots, 0)
            operators = first_names([shape_of(root) for root in roots])
            version = _new_version(number, epoch, mark, zone, sql, plan, made, operators)
            return replace(known, current=epoch, versions=(*known.versions, replace(version, rebuilt=True))), made
        check_finished(self.path, self.checkpoint(last.epoch))
        reset = how is OnChange.RESET
        made = going_on([] if reset else last.known, roots, number)
        places = None if reset else moves(last.known, [shape_of(root) for root in roots])
        operators = last.operators if places is None else tuple(last.operators[at] for at in places)
        version = _new_version(number, epoch, mark, zone, sql, plan, made, operators)
        filled = how is OnChange.BACKFILL
        if filled:
            check_past(made, number)
        state_epoch = number if reset else last.state_epoch
        version = replace(version, state_epoch=state_epoch, history=number if filled else None)
        return replace(known, current=epoch, versions=(*known.versions, version)), made

    def settle(self, manifest: Manifest) -> None:
        """Carries out the change that `open` has found, if it has found one: once nothing can refuse it any more, and no process writes the old checkpoint.

        StateError `unfinished-batch`.
        """
        known = self.manifest()
        if known is None or known == manifest:
            return
        if known.current != manifest.current:
            self._begin(known, manifest)
        self.write_manifest(manifest)

    def _begin(self, known: Manifest, manifest: Manifest) -> None:
        """Makes the checkpoint of a new version."""
        if manifest.version.rebuilt:
            cleared(self.checkpoint(manifest.current))
            return
        last = self.checkpoint(known.current)
        check_finished(self.path, last)
        before, after = known.version.operators, manifest.version.operators
        self.link(last, manifest.current, [before.index(each) for each in after])
        earlier = [self.checkpoint(version.epoch) for version, _ in known.line(known.version)[1:]]
        with self._writing():
            restored(self.checkpoint(manifest.current), earlier)

    def link(self, old: Path, epoch: int, places: Sequence[int] | None = None) -> None:
        """Makes the checkpoint of a new epoch of another, if there is one. places: see `change.copied`. Raises ConnectorError `disk-full` and its like."""
        with self._writing():
            if old.exists():
                copied(old, self.checkpoint(epoch), places)


def _new_version(
    number: int,
    epoch: int,
    mark: str,
    zone: str,
    sql: str,
    plan: str,
    roots: Sequence[Root],
    operators: tuple[str, ...],
) -> Version:
    return Version(
        number=number,
        epoch=epoch,
        fingerprint=mark,
        zone=zone,
        sql=without_secrets(sql).strip(),
        plan=plan,
        shapes=tuple(to_json(shape_of(root)) for root in roots),
        created=now(),
        operators=operators,
        sinks=sink_notes(roots),
    )


def now() -> str:
    """This moment, as versions have it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
