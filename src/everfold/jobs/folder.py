"""A job's folder: what it is (manifest), who runs it (lock), where it got to (checkpoints), what it was told (control).

manifest.json        every version of the query; names the current checkpoint, so a switch is one atomic write
checkpoints/<epoch>/ Spark's checkpoint
last_batch.json      epoch and number of the last batch that the sinks were given (`batch_log`)
control/             control files: flush, tick, past
backfill/<version>/  what the version's first batch is told of the past
sinks/               what sinks have applied, and which keys there were when a version began
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
from everfold.compat.operator_ids import SourceNote, first_names, fresh_names, moves, operators_of, source_notes
from everfold.compat.serde import from_json, note_positions, to_json
from everfold.connectors.connector_errors import os_trouble
from everfold.connectors.replay import Past
from everfold.errors import StateError, UsageError
from everfold.files import make_private_file, make_private_folder, write_atomically
from everfold.jobs.batch_log import NAME as LAST_BATCH
from everfold.jobs.batch_log import check_complete, last_batch
from everfold.jobs.change import (
    Decide,
    OnChange,
    check_finished,
    check_grafting,
    check_past,
    cleared,
    copied,
    decided,
    going_on,
    joined,
    refuse,
    restored,
    unsettled,
)
from everfold.jobs.control import Control
from everfold.jobs.failure import spark_may_be_gone
from everfold.jobs.moving import finish_moving, move_checkpoints
from everfold.jobs.rewind import SinkNote, sink_name, sink_notes
from everfold.jobs.spark_checkpoint import unfinished
from everfold.operators.reemit import repeating
from everfold.plan.nodes import Root, Sink
from everfold.secrets import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from everfold.jobs.locations import Located

MANIFEST_FORMAT = 4
"""2: versions with `back_to`, `back_after`, `rebuilt`, `sinks`, `operators` and `history`; 3: with `filled`, `again` and `sources`; 4: with a checksum, `folder`, and
sources that know where they lie. Earlier formats, without them, are read too."""
_CHECKED_SINCE = 4
_JVM_LOCK_PATIENCE_S = 10.0
_DIGITS_OF_TIME = 15
_PATTERN = re.compile(r"[\\*?\[\]{}]")
_FOLDER_HELP = "mend that and run the same command again, or name another folder with --state"


def fingerprint(roots: Sequence[Root], zone: str) -> str:
    """The same for plans that mean the same: what a checkpoint is compared by. Options of tables are not in it: they hold secrets."""
    parts = [f"{root.table.name}<-{root.input!r}" if isinstance(root, Sink) else repr(root.input) for root in roots]
    return hashlib.sha256("\n".join([zone, *parts]).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a job's query. `sql`, without secrets, and `plan`, its explanation, are for people; `fingerprint` is compared; `shapes` are judged when the query changes
    (`compat.serde`), with what each aggregate counts since. operators: their names in the checkpoint, by place (`naming`). number: from 0. state_epoch: the number of the version in which its
    state began as a whole, 0 for one that began at the beginning of the input. history: the number under which lies what its first batch was told of the past, None for nothing. filled: whether
    that is the past of its new aggregates. again: the operators that gave their rows again then. back_to: the number of the version that the job went back to with it, as it was after the batch `back_after`. rebuilt: whether the job began at the beginning of its input with it. sinks: the tables that it writes,
    sources: what it reads, each in the order of the plan; None if that was not noted."""

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
    filled: bool = True
    again: tuple[str, ...] = ()
    back_to: int | None = None
    back_after: int | None = None
    rebuilt: bool = False
    sinks: tuple[SinkNote, ...] | None = None
    sources: tuple[SourceNote, ...] | None = None

    @property
    def backfilled(self) -> bool:
        """Whether what begins with it was given its past."""
        return self.history is not None and self.filled

    @property
    def known(self) -> list[QueryShape]:
        """The shapes of its queries."""
        return [from_json(each) for each in self.shapes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a job is. `buckets` and `partitions` are fixed when the job is created; `current` is the epoch of the checkpoint in use. folder: where the job's
    folder was when it last ran, empty if that was not noted.

    Raises ValueError or TypeError when it makes no sense.
    """

    job: str
    buckets: int
    partitions: int
    current: int
    versions: tuple[Version, ...]
    folder: str = ""
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
    def operators(self) -> frozenset[str]:
        """The names of all operators that it has ever had."""
        return frozenset(name for version in self.versions for name in version.operators)

    @property
    def fresh(self) -> frozenset[str]:
        """The names of the operators that the version before the current one did not have."""
        before = [name for version, _ in self.line(self.version)[1:2] for name in version.operators]
        return frozenset(self.version.operators).difference(before)

    @property
    def strangers(self) -> dict[str, tuple[str, ...]]:
        """Of each operator that the job did not begin with, the others: it began with the state of one of them (`change.copied`)."""
        later = self.operators.difference(self.versions[0].operators)
        return {name: tuple(sorted(self.operators - {name})) for name in later}

    @property
    def sources(self) -> list[tuple[SourceNote, ...]]:
        """The sources of the versions whose batches the current one has in it, itself first."""
        return [version.sources or () for version, _ in self.line(self.version)]

    @property
    def origin(self) -> int:
        """The epoch in which the job last began at the beginning of its input."""
        return self.line(self.version)[-1][0].epoch

    @property
    def left(self) -> tuple[Version, ...]:
        """The versions that the job left when it last went back in its input, the oldest first; none if it never has."""
        back = self._back
        return () if back is None else self.versions[self._first_left(back) : self.versions.index(back)]

    @property
    def _back(self) -> Version | None:
        """The version with which the job last went back in its input."""
        return next((each for each, _ in self.line(self.version) if each.rebuilt or each.back_to is not None), None)

    def _first_left(self, back: Version) -> int:
        """Where the first version stands that was left."""
        return 0 if back.back_to is None else self.versions.index(self.numbered(back.back_to)) + 1

    @property
    def past(self) -> Past | None:
        """What a job has been that has had several versions; None for others."""
        if len(self.versions) == 1:
            return None
        last = {version.epoch: batch for version, batch in self.line(self.version)}
        back = self._back
        return Past(
            job=self.job,
            epoch=self.current,
            last=last,
            back=None if back is None else back.epoch,
            left=None if back is None or back.rebuilt else self.versions[self._first_left(back)].epoch,
            sinks=self._sinks,
        )

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
            found = _members(cls, _checked(parsed))
            versions = tuple(_version(each) for each in found["versions"])
            return cls(**{**found, "versions": versions, "format": MANIFEST_FORMAT})
        except (ValueError, TypeError) as error:
            raise _damaged(f"`{path}` is no manifest: {error}") from error


def checksum_of(members: dict[str, Any]) -> str:
    """Return the checksum of a manifest, from its members in JSON."""
    text = json.dumps({name: value for name, value in members.items() if name != "checksum"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _checked(parsed: Any) -> Any:
    """Return the members of a manifest without its checksum. ValueError when that does not match; manifests of earlier formats have none."""
    if not isinstance(parsed, dict) or ("checksum" not in parsed and parsed.get("format", 1) < _CHECKED_SINCE):
        return parsed
    if parsed.get("checksum") != checksum_of(parsed):
        raise ValueError("its checksum does not match: it was damaged, or changed by hand")
    return {name: value for name, value in parsed.items() if name != "checksum"}


def _members(of: type[Manifest | Version], found: Any) -> dict[str, Any]:
    """A parsed object with the fields of the class, of which those with a default may be missing; ValueError when it is none, or has others."""
    names = {each.name for each in fields(of)}
    needed = {each.name for each in fields(of) if each.default is MISSING}
    if not isinstance(found, dict) or not needed <= found.keys() <= names:
        raise ValueError(f"it is no object of {', '.join(sorted(names))}")
    return found


def _version(found: Any) -> Version:
    members = _members(Version, found)
    notes = {name: members.get(name) for name in ("sinks", "sources")}
    lists = {
        "shapes": tuple(members["shapes"]),
        "operators": tuple(members.get("operators", ())),
        "again": tuple(members.get("again", ())),
        **{name: None if found is None else tuple(found) for name, found in notes.items()},
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

    def past(self, number: int) -> Path:
        """What the first batch of a version is told."""
        return self.path / "backfill" / str(number)

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
        with self._writing():
            self._lock.truncate(0)
            self._lock.write(
                f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            )
            self._lock.flush()
            finish_moving(self.path)

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
            with spark_may_be_gone():
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
            left = next(self._left_behind(), None)
            if left is not None:
                raise _damaged(f"`{self.manifest_path}` is missing, and the job's `{left}` is there") from None
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged(f"`{self.manifest_path}` is no manifest: {error}") from error
        return Manifest.parse(text, self.manifest_path)

    def _left_behind(self) -> Iterator[str]:
        """What only a streaming job that has started leaves in its folder. A batch in the folder leaves records of sinks too, under the time as its epoch."""
        yield from (name for name in ("checkpoints", LAST_BATCH) if (self.path / name).exists())
        for record in sorted((self.path / "sinks").glob("*/*-*.json")):
            if record.name[0].isdigit() and len(record.name.partition("-")[0]) < _DIGITS_OF_TIME:
                yield str(record.relative_to(self.path))

    def check_complete(self, manifest: Manifest) -> None:
        """Refuse a checkpoint that lacks batches which the job has run. Raises StateError `damaged-checkpoint`."""
        check_complete(self.checkpoint(manifest.current), self._expected_batch(manifest))

    def _expected_batch(self, manifest: Manifest) -> int:
        """The last batch that the current checkpoint must have planned, -1 for none: that which the sinks were given last, in this epoch or in the one that it was copied from."""
        ran, version = last_batch(self.path), manifest.version
        if ran is not None and ran[0] == version.epoch:
            return ran[1]
        if version.back_after is not None:
            return version.back_after
        line = manifest.line(version)
        if ran is not None and len(line) > 1 and ran[0] == line[1][0].epoch:
            return ran[1]
        return -1

    def before(self, manifest: Manifest) -> Version | None:
        """The version that a manifest is to take the place of; None if it is settled already."""
        known = self.manifest()
        return None if known is None or known.current == manifest.current else known.version

    def write_manifest(self, manifest: Manifest) -> None:
        """Puts a manifest in place."""
        with self._writing():
            write_atomically(self.manifest_path, _text(manifest), private=True)

    def move(self, located: Located) -> None:
        """Puts in place what was found of a job's sources, where its folder or its data was moved. StateError `changed-source`, ConnectorError `disk-full` and its like."""
        if located.moves or located.before != self.path:
            with self._writing():
                move_checkpoints(self.path, _text(located.known), located.before, located.moves)

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
        refresh: bool = False,
    ) -> tuple[Manifest, tuple[Root, ...]]:
        """The manifest of the job that runs these plans: made when the folder is new, with a new version when the query has changed and may go on,
        which `settle` puts in place. And the plans, in which each aggregate knows since when it counts. refresh: a new version gives the whole result again, as far as it is kept, also one whose
        query has not changed.

        Raises StateError `incompatible-change` and its like (`change.decided`), `changed-zone`, `unfinished-batch`.
        """
        mark = fingerprint(roots, zone)
        known = self.manifest()
        if known is None:
            name = hashlib.sha256(f"{self.path.resolve()}{time.time_ns()}".encode()).hexdigest()[:12]
            version = _new_version(0, 0, mark, zone, sql, plan, roots)
            known = Manifest(job=name, buckets=buckets, partitions=partitions, current=0, versions=(version,))
            with self._writing():
                make_private_folder(self.control)
            self.write_manifest(known)
        elif known.version.fingerprint != mark or (refresh and not self._begins(known.version)):
            return self._changed(known, roots, zone, sql, plan, mark, terms, decide, refresh)
        else:
            self.check_complete(known)
            sources = known.version.sources or source_notes(roots, known.version.operators)
            shapes = note_positions(known.version.shapes, [shape_of(root) for root in roots])
            current = replace(known.version, shapes=shapes, sinks=sink_notes(roots), sources=sources)
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
        refresh: bool,
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
            version = _new_version(number, epoch, mark, zone, sql, plan, made)
            return replace(known, current=epoch, versions=(*known.versions, replace(version, rebuilt=True))), made
        self.check_complete(known)
        check_finished(self.path, self.checkpoint(last.epoch))
        reset = how is OnChange.RESET
        if not reset and self._awaits(last):
            raise unsettled(self.path)
        made = going_on([] if reset else last.known, roots, number, terms)
        places = moves(last.known, [shape_of(root) for root in roots])
        fresh = fresh_names(known.operators)
        operators = tuple(next(fresh) if at is None else last.operators[at] for at in places)
        filled = how is OnChange.BACKFILL
        nodes = operators_of(made)
        begun = {id(node) for node, at in zip(nodes, places, strict=True) if at is None}
        if begun:
            check_grafting(self.path, last.operators, noted=last.sources is not None)
        if filled:
            check_past(nodes, number, begun)
        version = _new_version(number, epoch, mark, zone, sql, plan, made, operators, known.sources)
        state_epoch = number if reset else last.state_epoch
        parts = (repeating(root, number, refresh=refresh, fresh=begun) for root in made if not reset)
        givers = {id(node) for part in parts for node in part}
        again = tuple(name for name, node in zip(operators, nodes, strict=True) if id(node) in givers)
        history = number if filled or again else None
        version = replace(version, state_epoch=state_epoch, history=history, filled=filled, again=again)
        return replace(known, current=epoch, versions=(*known.versions, version)), made

    def _begins(self, version: Version) -> bool:
        """Whether the first batch of a version that is told of the past is still to come, or was cut off."""
        if version.history is None:
            return False
        begun = unfinished(self.checkpoint(version.epoch)) and any(self.past(version.history).glob("part-*"))
        return begun or self._awaits(version)

    def _awaits(self, version: Version) -> bool:
        """Whether the first batch of a version is still to come that is told of the past."""
        if version.history is None:
            return False
        return bool(Control(self.control, self.checkpoint(version.epoch)).awaiting(self.past(version.history)))

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
        places = [before.index(each) if each in before else None for each in after]
        self.link(last, manifest.current, places)
        earlier = [self.checkpoint(version.epoch) for version, _ in known.line(known.version)[1:]]
        with self._writing():
            if manifest.version.again:
                Control.again(self.past(manifest.version.number), manifest.version.again)
            restored(self.checkpoint(manifest.current), earlier)
            joined(self.checkpoint(manifest.current), _donors(known, manifest.version), self.path / "sources")

    def link(self, old: Path, epoch: int, places: Sequence[int | None] | None = None) -> None:
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
    operators: tuple[str, ...] | None = None,
    sources: Sequence[Sequence[SourceNote]] = (),
) -> Version:
    """operators: their names, where they are not the first. sources: those of the versions before."""
    operators = first_names([shape_of(root) for root in roots]) if operators is None else operators
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
        sources=source_notes(roots, operators, sources),
    )


def _donors(known: Manifest, version: Version) -> dict[str, str]:
    """The sources that a version adds to a job and that do not begin at their beginning, each with one that stands where it is to stand: control files are read by all operators from
    the same place on, and an operator that is new takes the rows that come from now on. An INSERT without operators that is new copies what the table has."""
    before = known.version
    tables = {shape.sink for shape in before.known}
    fresh = [name for name in version.operators if name not in before.operators]
    found = {f"control_{name}": f"control_{before.operators[0]}" for name in fresh}
    notes = [note for notes in known.sources for note in notes]
    names = {note["name"] for note in notes}
    for note in version.sources or ():
        donor = next((each["name"] for each in notes if each["table"] == note["table"]), None)
        if donor is not None and note["name"] not in names and note["reader"] in {*fresh, *tables}:
            found[note["name"]] = donor
    return found


def _text(manifest: Manifest) -> str:
    members = json.loads(json.dumps(asdict(manifest)))
    return json.dumps({**members, "checksum": checksum_of(members)}, indent=2) + "\n"


def now() -> str:
    """This moment, as versions have it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
