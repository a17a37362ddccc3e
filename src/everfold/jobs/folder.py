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

from everfold.compat import REFERENCE, CompatOptions, QueryShape, shape_of
from everfold.compat.operator_ids import SourceNote, first_names, fresh_names, map_old_positions, source_notes
from everfold.compat.serde import add_positions, from_json, to_json
from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.replay import JobLineage
from everfold.errors import StateError, UsageError
from everfold.files import make_private_file, make_private_folder, write_atomically
from everfold.jobs.batch_log import NAME as LAST_BATCH
from everfold.jobs.batch_log import check_complete, last_batch
from everfold.jobs.change import (
    Decide,
    OnChange,
    add_source_positions,
    carry_plans,
    check_added_operators,
    check_backfill,
    check_finished,
    clear_checkpoint,
    copy_checkpoint,
    decide_change,
    refuse,
    restore_positions,
    unfinished_change_error,
)
from everfold.jobs.control import Control
from everfold.jobs.failure import spark_may_be_gone
from everfold.jobs.moving import finish_moving, move_checkpoints
from everfold.jobs.rewind import SinkNote, sink_name, sink_notes
from everfold.jobs.spark_checkpoint import has_unfinished_batch
from everfold.operators.reemit import operators_to_reemit
from everfold.plan.naming import name_operators, name_sources
from everfold.plan.nodes import Root, Sink
from everfold.plan.walk import operators_of
from everfold.secrets import redact_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from everfold.jobs.locations import LocatedSources

MANIFEST_FORMAT = 4
"""Version of the manifest format; earlier formats are still read.

2: versions have `back_to`, `back_after`, `rebuilt`, `sinks`, `operators` and `history`.
3: versions have `filled`, `again` and `sources`.
4: adds a checksum, `folder`, and the locations of sources.
"""
_CHECKED_SINCE = 4
_JVM_LOCK_PATIENCE_S = 10.0
_DIGITS_OF_TIME = 15
_PATTERN = re.compile(r"[\\*?\[\]{}]")
_FOLDER_HELP = "mend that and run the same command again, or name another folder with --state"


def fingerprint(roots: Sequence[Root], zone: str) -> str:
    """Return a digest that is equal for plans with the same meaning.

    A checkpoint is compared by it. Table options are left out because they hold secrets.
    """
    parts = [f"{root.table.name}<-{root.input!r}" if isinstance(root, Sink) else repr(root.input) for root in roots]
    return hashlib.sha256("\n".join([zone, *parts]).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a job's query.

    number: counted from 0.
    fingerprint: identifies the plan (`fingerprint`).
    sql, plan: the script without secrets and the explained plan; for people only.
    shapes: compared when the query changes (`compat.serde`); they record the version since which
        each aggregate counts.
    operators: names of the operators in the checkpoint, by position (`compat.operator_ids`).
    state_epoch: number of the version in which the state as a whole began; 0 if it began at the
        beginning of the input.
    history: number of the folder under `backfill/` with the control files for the first batch of
        this version; None if there are none.
    filled: whether those files hold the backfill of new aggregates.
    again: operators that re-emitted their rows in that batch.
    back_to, back_after: for a rollback, the number of the restored version and the last batch that
        its checkpoint had finished.
    rebuilt: whether the job started again at the beginning of its input with this version.
    sinks, sources: tables that the version writes and reads, in plan order; None if an earlier
        release did not record them.
    """

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
    def is_backfilled(self) -> bool:
        """Whether its new aggregates were backfilled."""
        return self.history is not None and self.filled

    @property
    def query_shapes(self) -> list[QueryShape]:
        """The parsed shapes of its queries."""
        return [from_json(each) for each in self.shapes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a job.

    buckets, partitions: fixed when the job is created.
    current: epoch of the checkpoint in use.
    folder: path of the job directory when the job last ran; empty if it was not recorded.

    Raises ValueError or TypeError if the values are inconsistent.
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
            raise ValueError("`buckets` and `partitions` must be positive")
        if self.current not in (version.epoch for version in self.versions):
            raise ValueError(f"it has no version with the current epoch {self.current}")
        for at, version in enumerate(self.versions):
            if version.back_to not in (None, *(each.number for each in self.versions[:at])):
                raise ValueError(
                    f"its version {version.number} goes back to {version.back_to}, which is not an earlier version"
                )

    @property
    def version(self) -> Version:
        """The version that the current checkpoint belongs to."""
        return next(each for each in reversed(self.versions) if each.epoch == self.current)

    def find_version(self, number: int) -> Version:
        """Return the version with a number. Raises UsageError `no-version`."""
        versions = {each.number: each for each in self.versions}
        if number not in versions:
            there = ", ".join(map(str, versions))
            raise UsageError.of("no-version", f"the job has no version {number}", help=f"its versions are {there}")
        return versions[number]

    @property
    def next_ids(self) -> tuple[int, int]:
        """The number and the epoch for the next version."""
        return max(each.number for each in self.versions) + 1, max(each.epoch for each in self.versions) + 1

    def lineage(self, of: Version) -> list[tuple[Version, int | None]]:
        """Return the versions whose batches are part of a version's state, newest first.

        The version itself comes first. Each comes with the last of its batches that counts, or None
        if all of them do.
        """
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
        """The names of all operators that the job has ever had."""
        return frozenset(name for version in self.versions for name in version.operators)

    @property
    def new_operators(self) -> frozenset[str]:
        """The names of the operators that are new in the current version."""
        before = [name for version, _ in self.lineage(self.version)[1:2] for name in version.operators]
        return frozenset(self.version.operators).difference(before)

    @property
    def foreign_operators(self) -> dict[str, tuple[str, ...]]:
        """The other operators, for each operator that was added to the job later.

        Such an operator starts with a copy of the state of one of them (`change.copy_checkpoint`).
        """
        later = self.operators.difference(self.versions[0].operators)
        return {name: tuple(sorted(self.operators - {name})) for name in later}

    @property
    def sources(self) -> list[tuple[SourceNote, ...]]:
        """The sources of each version in the current version's `lineage`, newest first."""
        return [version.sources or () for version, _ in self.lineage(self.version)]

    @property
    def origin(self) -> int:
        """The epoch in which the job last started at the beginning of its input."""
        return self.lineage(self.version)[-1][0].epoch

    @property
    def abandoned_versions(self) -> tuple[Version, ...]:
        """The versions that the last rewind left, oldest first; empty without a rewind."""
        back = self._back
        return () if back is None else self.versions[self._first_left(back) : self.versions.index(back)]

    @property
    def _back(self) -> Version | None:
        """The version with which the job last went back in its input, None if it never did."""
        return next((each for each, _ in self.lineage(self.version) if each.rebuilt or each.back_to is not None), None)

    def _first_left(self, back: Version) -> int:
        """Return the index of the first version that the rewind left."""
        return 0 if back.back_to is None else self.versions.index(self.find_version(back.back_to)) + 1

    @property
    def job_lineage(self) -> JobLineage | None:
        """Which batches of the job's epochs count; None for a job with a single version."""
        if len(self.versions) == 1:
            return None
        last = {version.epoch: batch for version, batch in self.lineage(self.version)}
        back = self._back
        return JobLineage(
            job=self.job,
            epoch=self.current,
            last_batches=last,
            rewind_epoch=None if back is None else back.epoch,
            first_discarded_epoch=None if back is None or back.rebuilt else self.versions[self._first_left(back)].epoch,
            sinks=self._sinks,
        )

    @property
    def _sinks(self) -> dict[str, frozenset[str]]:
        """The sink names of each table over all versions."""
        found: dict[str, set[str]] = {}
        for version in self.versions:
            for at, shape in enumerate(version.query_shapes):
                found.setdefault(shape.sink, set()).add(sink_name(at, shape.sink))
        return {table: frozenset(names) for table, names in found.items()}

    @classmethod
    def parse(cls, text: str, path: Path) -> Manifest:
        """Parse a manifest. Raises StateError `damaged-manifest` or `newer-manifest`."""
        try:
            parsed = json.loads(text)
            if isinstance(parsed, dict) and parsed.get("format", MANIFEST_FORMAT) > MANIFEST_FORMAT:
                raise StateError.of(
                    "newer-manifest",
                    f"`{path}` was written by a newer everfold (format {parsed['format']};"
                    f" this one reads {MANIFEST_FORMAT})",
                    help="run it with that release of everfold, or start with a new --state folder",
                )
            found = _check_fields(cls, _verify_checksum(parsed))
            versions = tuple(_parse_version(each) for each in found["versions"])
            return cls(**{**found, "versions": versions, "format": MANIFEST_FORMAT})
        except (ValueError, TypeError) as error:
            raise _damaged_manifest(f"`{path}` is not a valid manifest: {error}") from error


def compute_checksum(members: dict[str, Any]) -> str:
    """Return the checksum of a manifest's JSON members."""
    text = json.dumps({name: value for name, value in members.items() if name != "checksum"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _verify_checksum(parsed: Any) -> Any:
    """Return a manifest's members without the checksum, which earlier formats lack.

    Raises ValueError if the checksum does not match.
    """
    if not isinstance(parsed, dict) or ("checksum" not in parsed and parsed.get("format", 1) < _CHECKED_SINCE):
        return parsed
    if parsed.get("checksum") != compute_checksum(parsed):
        raise ValueError("its checksum does not match: it was damaged or edited by hand")
    return {name: value for name, value in parsed.items() if name != "checksum"}


def _check_fields(of: type[Manifest | Version], found: Any) -> dict[str, Any]:
    """Return a parsed object if it has the fields of the class.

    Fields with a default may be missing. Raises ValueError for anything but an object, and for
    missing or other fields.
    """
    names = {each.name for each in fields(of)}
    needed = {each.name for each in fields(of) if each.default is MISSING}
    if not isinstance(found, dict) or not needed <= found.keys() <= names:
        raise ValueError(f"it is not an object with the fields {', '.join(sorted(names))}")
    return found


def _parse_version(found: Any) -> Version:
    members = _check_fields(Version, found)
    notes = {name: members.get(name) for name in ("sinks", "sources")}
    lists = {
        "shapes": tuple(members["shapes"]),
        "operators": tuple(members.get("operators", ())),
        "again": tuple(members.get("again", ())),
        **{name: None if found is None else tuple(found) for name, found in notes.items()},
    }
    version = Version(**{**members, **lists})
    try:
        # Format 1 has no operator names: operators could not change their positions then.
        return replace(version, operators=version.operators or first_names(version.query_shapes))
    except KeyError as error:
        raise ValueError(f"the shape of a query lacks {error}") from error


def _damaged_manifest(message: str) -> StateError:
    return StateError.of(
        "damaged-manifest", message, help="restore it from a backup, or start with a new --state folder"
    )


def load_manifest(path: Path) -> Manifest:
    """Read the manifest of the job in a folder.

    Raises UsageError `no-job` if there is none, StateError `damaged-manifest`, `newer-manifest`.
    """
    found = JobFolder(path).read_manifest()
    if found is None:
        raise UsageError.of(
            "no-job", f"`{path}` is not a job directory", help="name the folder that --state named when the job ran"
        )
    return found


@dataclass(slots=True)
class JobFolder:
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
                raise _damaged_manifest(f"`{self.manifest_path}` is missing, but the job's `{trace}` exists") from None
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged_manifest(f"`{self.manifest_path}` is not a valid manifest: {error}") from error
        return Manifest.parse(text, self.manifest_path)

    def _find_traces(self) -> Iterator[str]:
        """Yield the files that only a streaming job leaves in its folder once it has started.

        A batch job leaves sink records too, but with the time as their epoch.
        """
        yield from (name for name in ("checkpoints", LAST_BATCH) if (self.path / name).exists())
        for record in sorted((self.path / "sinks").glob("*/*-*.json")):
            if record.name[0].isdigit() and len(record.name.partition("-")[0]) < _DIGITS_OF_TIME:
                yield str(record.relative_to(self.path))

    def check_complete(self, manifest: Manifest) -> None:
        """Refuse a checkpoint that lacks batches which the job has run.

        Raises StateError `damaged-checkpoint`.
        """
        check_complete(self.checkpoint(manifest.current), self._expected_batch(manifest))

    def _expected_batch(self, manifest: Manifest) -> int:
        """Return the last batch that the current checkpoint must have planned, -1 for none.

        This is the last batch that the sinks received, in this epoch or in the epoch that the
        checkpoint was copied from.
        """
        ran, version = last_batch(self.path), manifest.version
        if ran is not None and ran[0] == version.epoch:
            return ran[1]
        if version.back_after is not None:
            return version.back_after
        line = manifest.lineage(version)
        if ran is not None and len(line) > 1 and ran[0] == line[1][0].epoch:
            return ran[1]
        return -1

    def previous_version(self, manifest: Manifest) -> Version | None:
        """Return the version that a manifest replaces, None if the manifest is in place already."""
        known = self.read_manifest()
        return None if known is None or known.current == manifest.current else known.version

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest atomically."""
        with self._writing():
            write_atomically(self.manifest_path, _to_json(manifest), private=True)

    def move(self, located: LocatedSources) -> None:
        """Rewrite the paths in the checkpoints if the job directory or a source's data was moved.

        Raises StateError `changed-source` if the old positions mean nothing in the new data,
        `damaged-checkpoint`, ConnectorError `disk-full` and similar.
        """
        if located.moves or located.previous_folder != self.path:
            with self._writing():
                move_checkpoints(self.path, _to_json(located.current_manifest), located.previous_folder, located.moves)

    def open(
        self,
        roots: Sequence[Root],
        zone: str,
        plan: str,
        *,
        buckets: int,
        partitions: int,
        sql: str = "",
        terms: CompatOptions = REFERENCE,
        decide: Decide = refuse,
        refresh: bool = False,
    ) -> tuple[Manifest, tuple[Root, ...]]:
        """Return the manifest of the job that runs these plans, and the plans.

        A new folder gets its manifest at once. If the query has changed and the change is allowed,
        the manifest has a new version, which `settle` puts in place. In the returned plans each
        aggregate has the version since which it counts. refresh: add a new version that re-emits
        the current result of every operator that still holds it, even if the query is unchanged.

        Raises StateError `incompatible-change` and similar (`change.decide_change`),
        `changed-zone`, `unfinished-batch`.
        """
        mark = fingerprint(roots, zone)
        known = self.read_manifest()
        if known is None:
            name = hashlib.sha256(f"{self.path.resolve()}{time.time_ns()}".encode()).hexdigest()[:12]
            version = _new_version(0, 0, mark, zone, sql, plan, roots)
            known = Manifest(job=name, buckets=buckets, partitions=partitions, current=0, versions=(version,))
            with self._writing():
                make_private_folder(self.control)
            self.write_manifest(known)
        elif known.version.fingerprint != mark or (refresh and not self._begins(known.version)):
            return self._add_version(known, roots, zone, sql, plan, mark, terms, decide, refresh)
        else:
            self.check_complete(known)
            sources = known.version.sources or source_notes(name_operators(roots, known.version.operators))
            shapes = add_positions(known.version.shapes, [shape_of(root) for root in roots])
            current = replace(known.version, shapes=shapes, sinks=sink_notes(roots), sources=sources)
            known = replace(
                known, versions=tuple(current if each.epoch == known.current else each for each in known.versions)
            )
        return known, _name(carry_plans(known.version.query_shapes, roots, known.version.number), known.version)

    def _add_version(
        self,
        known: Manifest,
        roots: Sequence[Root],
        zone: str,
        sql: str,
        plan: str,
        mark: str,
        terms: CompatOptions,
        decide: Decide,
        refresh: bool,
    ) -> tuple[Manifest, tuple[Root, ...]]:
        """Return the manifest with a new version, which starts from the state of the last one."""
        last = known.version
        if last.zone != zone:
            raise StateError.of(
                "changed-zone",
                f"the state in `{self.path}` was computed in the time zone {last.zone}, but the session uses {zone}",
                help=f"SET 'table.local-time-zone' = '{last.zone}', or run the query with another --state folder",
            )
        how = decide_change(self.path, last.query_shapes, roots, terms=terms, decide=decide)
        number, epoch = known.next_ids
        if how is OnChange.REBUILD:
            made = carry_plans([], roots, 0)
            version = _new_version(number, epoch, mark, zone, sql, plan, made)
            rebuilt = replace(known, current=epoch, versions=(*known.versions, replace(version, rebuilt=True)))
            return rebuilt, _name(made, version)
        self.check_complete(known)
        check_finished(self.path, self.checkpoint(last.epoch))
        reset = how is OnChange.RESET
        if not reset and self._awaits(last):
            raise unfinished_change_error(self.path)
        made = carry_plans([] if reset else last.query_shapes, roots, number, terms)
        old_positions = map_old_positions(last.query_shapes, [shape_of(root) for root in roots])
        fresh = fresh_names(known.operators)
        operators = tuple(next(fresh) if at is None else last.operators[at] for at in old_positions)
        filled = how is OnChange.BACKFILL
        made = name_operators(made, operators)
        begun = {name for name, at in zip(operators, old_positions, strict=True) if at is None}
        if begun:
            check_added_operators(self.path, last.operators, noted=last.sources is not None)
        if filled:
            check_backfill(operators_of(made), number, begun)
        version = _new_version(number, epoch, mark, zone, sql, plan, made, operators, known.sources)
        state_epoch = number if reset else last.state_epoch
        parts = (operators_to_reemit(root, number, refresh=refresh, fresh=begun) for root in made if not reset)
        givers = {node.operator_id for part in parts for node in part}
        again = tuple(name for name in operators if name in givers)
        history = number if filled or again else None
        version = replace(version, state_epoch=state_epoch, history=history, filled=filled, again=again)
        return replace(known, current=epoch, versions=(*known.versions, version)), _name(made, version)

    def _begins(self, version: Version) -> bool:
        """Whether the first batch of a version with backfill or re-emit files is not done yet."""
        if version.history is None:
            return False
        begun = has_unfinished_batch(self.checkpoint(version.epoch)) and any(
            self.backfill_folder(version.history).glob("part-*")
        )
        return begun or self._awaits(version)

    def _awaits(self, version: Version) -> bool:
        """Whether no batch has read the backfill or re-emit files of a version yet."""
        if version.history is None:
            return False
        return bool(
            Control(self.control, self.checkpoint(version.epoch)).list_pending(self.backfill_folder(version.history))
        )

    def settle(self, manifest: Manifest) -> None:
        """Carry out the change that `open` found, if any.

        Call it when nothing can refuse the change any more and no process writes the old
        checkpoint. Raises StateError `unfinished-batch`.
        """
        known = self.read_manifest()
        if known is None or known == manifest:
            return
        if known.current != manifest.current:
            self._begin(known, manifest)
        self.write_manifest(manifest)

    def _begin(self, known: Manifest, manifest: Manifest) -> None:
        """Create the checkpoint of a new version."""
        if manifest.version.rebuilt:
            clear_checkpoint(self.checkpoint(manifest.current))
            return
        last = self.checkpoint(known.current)
        check_finished(self.path, last)
        before, after = known.version.operators, manifest.version.operators
        old_positions = [before.index(each) if each in before else None for each in after]
        self.link_checkpoint(last, manifest.current, old_positions)
        earlier = [self.checkpoint(version.epoch) for version, _ in known.lineage(known.version)[1:]]
        with self._writing():
            if manifest.version.again:
                Control.request_reemit(self.backfill_folder(manifest.version.number), manifest.version.again)
            restore_positions(self.checkpoint(manifest.current), earlier)
            add_source_positions(
                self.checkpoint(manifest.current), _donors(known, manifest.version), self.path / "sources"
            )

    def link_checkpoint(self, old: Path, epoch: int, old_positions: Sequence[int | None] | None = None) -> None:
        """Copy a checkpoint, if it exists, to the one of a new epoch by hard links.

        old_positions: see `change.copy_checkpoint`. Raises ConnectorError `disk-full` and similar.
        """
        with self._writing():
            if old.exists():
                copy_checkpoint(old, self.checkpoint(epoch), old_positions)


def _name(roots: Sequence[Root], version: Version) -> tuple[Root, ...]:
    """Return the plans with the names that operators and sources have in a version."""
    return name_sources(name_operators(roots, version.operators), [note["name"] for note in version.sources or ()])


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
    """Create a version.

    operators: their names, None to number them from the first. sources: those of earlier versions.
    """
    operators = first_names([shape_of(root) for root in roots]) if operators is None else operators
    return Version(
        number=number,
        epoch=epoch,
        fingerprint=mark,
        zone=zone,
        sql=redact_script(sql).strip(),
        plan=plan,
        shapes=tuple(to_json(shape_of(root)) for root in roots),
        created=now(),
        operators=operators,
        sinks=sink_notes(roots),
        sources=source_notes(name_operators(roots, operators), sources),
    )


def _donors(known: Manifest, version: Version) -> dict[str, str]:
    """Map each new source that does not start at the beginning to a source with its position.

    All operators read control files from the same position, and a new operator reads its input from
    the current position on. A new INSERT without operators starts at the beginning: it copies what
    the table holds.
    """
    before = known.version
    tables = {shape.sink for shape in before.query_shapes}
    fresh = [name for name in version.operators if name not in before.operators]
    found = {f"control_{name}": f"control_{before.operators[0]}" for name in fresh}
    notes = [note for notes in known.sources for note in notes]
    names = {note["name"] for note in notes}
    for note in version.sources or ():
        donor = next((each["name"] for each in notes if each["table"] == note["table"]), None)
        if donor is not None and note["name"] not in names and note["reader"] in {*fresh, *tables}:
            found[note["name"]] = donor
    return found


def _to_json(manifest: Manifest) -> str:
    members = json.loads(json.dumps(asdict(manifest)))
    return json.dumps({**members, "checksum": compute_checksum(members)}, indent=2) + "\n"


def now() -> str:
    """Return the current UTC time in the format of `Version.created`."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
