"""The manifest of a job: every version of its query, and which checkpoint is in use.

It is a JSON file with a checksum. It names the current checkpoint, so creating the next manifest
switches to another one.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from everfold.checkpoint.state_metadata import StoredOperator
from everfold.compat import QueryShape, Verdict, judge, shape_of
from everfold.compat.new_columns import hide_new_columns
from everfold.compat.operator_ids import SourceNote, first_names, source_notes
from everfold.compat.serde import from_json, to_json
from everfold.connectors.lost_input import Gap
from everfold.connectors.replay import JobLineage
from everfold.errors import StateError, UsageError
from everfold.jobs.earlier_shapes import (
    BindStatement,
    complete_shapes,
    compute_earlier_fingerprint,
    is_earlier,
    plan_stored_script,
    plan_with_new_script,
    read_alone,
)
from everfold.jobs.function_sources import digest_functions
from everfold.jobs.sink_tables import SinkNote, compare_sinks, list_rewritten, sink_name, sink_notes
from everfold.plan.known_names import KnownTable
from everfold.plan.naming import name_operators, name_sources
from everfold.plan.nodes import Root
from everfold.plan.plan_text import PLAN_TEXT_VERSION, root_text
from everfold.plan.walk import operators_of
from everfold.secrets import redact_script
from everfold.spark.buckets import bucket_ids
from everfold.storage import Location

MANIFEST_FORMAT = 8
"""Version of the manifest format; earlier formats are still read.

2: versions have `back_to`, `back_after`, `rebuilt`, `sinks`, `operators` and `history`.
3: versions have `filled`, `again` and `sources`.
4: adds a checksum, `folder`, and the locations of sources.
5: a file for each manifest, with its `writer`, and `modulus`; versions have `checkpoint` and
`partitions`.
6: versions have `expired` and `script`, and their tables `folder`.
7: shapes have `branches`, `conditions` and `state_names`; a fingerprint begins with its version.
8: versions have `gaps`, and sources `identity`.
"""
_CHECKED_SINCE = 4


def fingerprint(roots: Sequence[Root], zone: str) -> str:
    """Return a digest that is equal for plans with the same meaning.

    A checkpoint is compared by it. It begins with the version of the text that it is made from.
    """
    text = "\n".join([zone, *map(root_text, roots)])
    return f"{PLAN_TEXT_VERSION}:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapNote:
    """A gap in what a job has read of a table (`Gap`).

    is_new: whether the records after the gap are other ones, of a topic that was created again.
    """

    table: str
    split: str
    position: int
    resumed: int | None
    is_new: bool

    @classmethod
    def of(cls, table: str, gap: Gap, *, is_new: bool) -> GapNote:
        """Return the note of a gap in a table."""
        return cls(table=table, split=gap.split, position=gap.position, resumed=gap.resumed, is_new=is_new)

    @property
    def summary(self) -> str:
        """The gap as a sentence."""
        if self.is_new and self.resumed is not None:
            return (
                f"table `{self.table}`: {self.split} was created again and is read from offset {self.resumed};"
                f" the one before was read up to offset {self.position}"
            )
        read = f"it was read up to offset {self.position}"
        if self.resumed is None:
            return f"table `{self.table}`: {self.split} did not exist any more; {read}"
        if self.resumed <= self.position:
            return f"table `{self.table}`: {self.split} ended at offset {self.resumed}; {read}"
        return f"table `{self.table}`: skipped {Gap(self.split, self.position, self.resumed).summary}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a job's query.

    number: counted from 0.
    fingerprint: identifies the plan (`fingerprint`).
    sql, script, plan: the statement of the query and the script that it is in, both without
        secrets, and the explained plan; for people only.
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
        its checkpoint had finished. `back_after` alone: a later batch had begun and wrote nothing.
    gaps: what the job has skipped of its input with this version, because it was lost.
    rebuilt: whether the job started again at the beginning of its input with this version.
    rules, ignores_filters: the options by which the change to this version was judged; `rules` is
        empty for the first version, and if an earlier release did not record them.
    functions: digests of the source of its Python functions, by module and attribute.
    decision: what the user decided about the change (`OnChange`), empty likewise.
    checkpoint: name of the folder of its checkpoint, None for that of its epoch.
    partitions: its shuffle partitions, None for those that the job was created with.
    expired: whether `everfold expire` has removed its state, so that no rollback leads to it.
    known_names: the names by which the job knows the tables and columns that were renamed since.
    state_names: for operators that have started with a copy of the state of another one, the name
        of that one, which their state still has.
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
    gaps: tuple[GapNote, ...] = ()
    rebuilt: bool = False
    rules: str = ""
    ignores_filters: bool = False
    decision: str = ""
    functions: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    partitions: int | None = None
    expired: bool = False
    script: str = ""
    known_names: dict[str, KnownTable] = field(default_factory=dict)
    state_names: dict[str, str] = field(default_factory=dict)
    sinks: tuple[SinkNote, ...] | None = None
    sources: tuple[SourceNote, ...] | None = None

    @property
    def created_ms(self) -> int:
        """When the version was created, in epoch milliseconds."""
        return int(datetime.fromisoformat(self.created).timestamp() * 1000)

    @property
    def is_backfilled(self) -> bool:
        """Whether its new aggregates were backfilled."""
        return self.history is not None and self.filled

    @property
    def query_shapes(self) -> list[QueryShape]:
        """The shapes of its queries, see `read_shapes`."""
        return self.read_shapes()

    def read_shapes(self, query: NewQuery | None = None) -> list[QueryShape]:
        """Return the shapes of its queries.

        Those of an earlier release are completed, if its query can be planned again. query: the
        query that is to continue the job.
        """
        shapes = [from_json(shape) for shape in self.shapes]
        if any(map(is_earlier, shapes)):
            plans = plan_stored_script(self.sql, self.script, self.zone)
            if query is not None:
                plans = chain(plans, plan_with_new_script(self.sql, query.roots, query.bind))
            completed = (complete_shapes(shapes, planned) for planned in plans)
            return next((found for found in completed if found is not None), [*map(read_alone, shapes)])
        return shapes

    def find_operator(self, name: str) -> StoredOperator:
        """Return where the state of an operator is in the checkpoint of the version."""
        return StoredOperator(self.operators.index(name), self.state_names.get(name, name))

    def carry_state_names(self, copied: Mapping[str, str]) -> dict[str, str]:
        """Return the `state_names` of the next version.

        copied: by operator of that version, the operator whose state it starts with a copy of, or
        an empty string.
        """
        origins = {name: origin or name for name, origin in copied.items()}
        names = {name: self.state_names.get(origin, origin) for name, origin in origins.items()}
        return {name: state_name for name, state_name in names.items() if state_name != name}

    def is_query(self, query: NewQuery) -> bool:
        """Whether a query means the same as that of the version."""
        if ":" in self.fingerprint:
            return self.fingerprint == query.fingerprint
        if self.fingerprint != compute_earlier_fingerprint(query.roots, query.zone):
            return False
        # Earlier fingerprints do not tell from where in a record a column is read.
        return judge(self.read_shapes(query), query.shapes).verdict is Verdict.FULLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a job.

    buckets, partitions: of the job when it was created; the buckets never change.
    modulus: see `bucket_ids`; 0 in jobs of earlier releases, which took the partitions.
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
    modulus: int = 0
    format: int = MANIFEST_FORMAT

    def __post_init__(self) -> None:
        if min(self.buckets, self.partitions) < 1:
            raise ValueError("`buckets` and `partitions` must be positive")
        if self.current not in (version.epoch for version in self.versions):
            raise ValueError(f"it has no version with the current epoch {self.current}")
        if self.version.expired:
            raise ValueError("its current version is expired")
        for at, version in enumerate(self.versions):
            if version.back_to not in (None, *(each.number for each in self.versions[:at])):
                raise ValueError(
                    f"its version {version.number} goes back to {version.back_to}, which is not an earlier version"
                )

    @property
    def version(self) -> Version:
        """The version that the current checkpoint belongs to."""
        return next(each for each in reversed(self.versions) if each.epoch == self.current)

    @property
    def bucket_ids(self) -> tuple[int, ...]:
        """The ids of the buckets."""
        return bucket_ids(self.buckets, self.modulus or self.partitions)

    def count_partitions(self, version: Version) -> int:
        """Return the number of shuffle partitions of a version."""
        return version.partitions or self.partitions

    def checkpoint_name(self, epoch: int) -> str:
        """Return the name of the folder of an epoch's checkpoint."""
        names = (each.checkpoint for each in self.versions if each.epoch == epoch)
        return next(filter(None, names), str(epoch))

    def with_checkpoints(self, names: Mapping[int, str]) -> Manifest:
        """Return the manifest with other names of checkpoints, by epoch."""
        versions = (replace(each, checkpoint=names.get(each.epoch, each.checkpoint)) for each in self.versions)
        return replace(self, versions=tuple(versions))

    def find_version(self, number: int) -> Version:
        """Return the version with a number. Raises UsageError `no-version`."""
        versions = {each.number: each for each in self.versions}
        if number not in versions:
            there = ", ".join(map(str, versions))
            raise UsageError.of("no-version", f"the job has no version {number}", help=f"its versions are {there}")
        return versions[number]

    def expire(self, keep: int) -> Manifest:
        """Return the manifest in which all versions but the newest ones are expired."""
        old = self.versions[:-keep]
        return replace(self, versions=(*(replace(each, expired=True) for each in old), *self.versions[len(old) :]))

    @property
    def kept_versions(self) -> tuple[Version, ...]:
        """The versions that are not expired, oldest first; the current one is among them."""
        return tuple(each for each in self.versions if not each.expired)

    @property
    def left_epochs(self) -> frozenset[int]:
        """The epochs none of whose batches belongs to a kept version, nor will after a rollback."""
        counted = {each.epoch for kept in self.kept_versions for each, _ in self.lineage(kept)}
        return frozenset(each.epoch for each in self.versions).difference(counted)

    @property
    def next_ids(self) -> tuple[int, int]:
        """The number and the epoch for the next version."""
        return max(each.number for each in self.versions) + 1, max(each.epoch for each in self.versions) + 1

    def lineage(self, of: Version) -> list[tuple[Version, int | None]]:
        """Return the versions whose batches are part of a version's state, newest first.

        The version itself comes first. Each comes with the last of its batches that counts, or None
        if all of them do.
        """
        # A rollback asks for a version whose tables have moved since, which equals none of these.
        numbers = [version.number for version in self.versions]
        found: list[tuple[Version, int | None]] = [(of, None)]
        while not of.rebuilt and of.number != numbers[0]:
            if of.back_to is None:
                of = self.versions[numbers.index(of.number) - 1]
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
        return frozenset(self.version.operators).difference(before, self.version.state_names)

    @property
    def foreign_operators(self) -> dict[str, tuple[str, ...]]:
        """The other operators, for each operator that was added to the job later.

        Such an operator starts with a copy of the state of one of them (`change.copy_checkpoint`).
        """
        later = self.operators.difference(self.versions[0].operators)
        own = self.version.state_names
        return {name: tuple(sorted(self.operators - {name, own.get(name, name)})) for name in later}

    @property
    def sources(self) -> list[tuple[SourceNote, ...]]:
        """The sources of each version in the current version's `lineage`, newest first."""
        return [version.sources or () for version, _ in self.lineage(self.version)]

    @property
    def gaps(self) -> tuple[GapNote, ...]:
        """What is missing in the input of the current version's state, oldest first."""
        return tuple(gap for version, _ in reversed(self.lineage(self.version)) for gap in version.gaps)

    @property
    def origin(self) -> int:
        """The epoch in which the job last started at the beginning of its input."""
        return self.lineage(self.version)[-1][0].epoch

    @property
    def abandoned_versions(self) -> tuple[Version, ...]:
        """The versions that the last rewind left, oldest first.

        Empty without a rewind, and if the version of the rewind is expired.
        """
        back = self._back
        return () if back is None or back.expired else self.versions[self._first_left(back) : self.versions.index(back)]

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
            sinks=self.sink_names,
            oldest_epoch=self.kept_versions[0].epoch,
            left_epochs=self.left_epochs,
        )

    @property
    def rewritten_sinks(self) -> list[SinkNote]:
        """The tables of the current version that may already hold rows of the job."""
        notes, earlier = self.version.sinks or (), self.versions[:-1]
        if any(version.sinks is None for version in earlier):
            return [*notes]
        return list_rewritten(notes, [note for version in earlier for note in version.sinks or ()])

    @property
    def sink_names(self) -> dict[str, frozenset[str]]:
        """The sink names of each table over all versions, also those under an earlier name."""
        names: dict[str, set[str]] = {}
        for before, version in zip((None, *self.versions), self.versions, strict=False):
            if before is not None:
                renamed = compare_sinks(before.sinks or (), version.sinks or ()).renamed
                names |= {table: names.get(table, set()) | names.get(old, set()) for table, old in renamed.items()}
            for at, shape in enumerate(version.query_shapes):
                names.setdefault(shape.sink, set()).add(sink_name(at, shape.sink))
        return {table: frozenset(of_table) for table, of_table in names.items()}

    @classmethod
    def parse(cls, text: str, path: Location | Path) -> Manifest:
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
            versions = _complete_coverage([_parse_version(each) for each in found["versions"]])
            return cls(**{**found, "versions": versions, "format": MANIFEST_FORMAT})
        except (ValueError, TypeError) as error:
            raise damaged_manifest_error(f"`{path}` is not a valid manifest: {error}") from error

    def to_json(self) -> str:
        """Return the manifest as the content of its file."""
        # The writer makes the content unique, see `Store.create`.
        members = json.loads(json.dumps(asdict(self))) | {"writer": uuid.uuid4().hex}
        return json.dumps({**members, "checksum": compute_checksum(members)}, indent=2) + "\n"


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
    return {name: value for name, value in parsed.items() if name not in ("checksum", "writer")}


def _check_fields(of: type[Manifest | Version], found: Any) -> dict[str, Any]:
    """Return a parsed object if it has the fields of the class.

    Fields with a default may be missing. Raises ValueError for anything but an object, and for
    missing or other fields.
    """
    names = {each.name for each in fields(of)}
    needed = {each.name for each in fields(of) if each.default is MISSING and each.default_factory is MISSING}
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
        "gaps": tuple(GapNote(**gap) for gap in members.get("gaps", ())),
        **{name: None if found is None else tuple(found) for name, found in notes.items()},
        "known_names": {name: KnownTable(**table) for name, table in members.get("known_names", {}).items()},
    }
    version = Version(**{**members, **lists})
    try:
        # Format 1 has no operator names: operators could not change their positions then.
        return replace(version, operators=version.operators or first_names(version.query_shapes))
    except KeyError as error:
        raise ValueError(f"the shape of a query lacks {error}") from error


def _complete_coverage(versions: Sequence[Version]) -> tuple[Version, ...]:
    """Return the versions whose calls know since when they cover rows.

    A call covers past rows if the version that it began with was backfilled.
    """
    filled = {version.number for version in versions if version.is_backfilled}

    def complete(call: dict[str, Any]) -> dict[str, Any]:
        since = call.get("counts_since", call.get("since", 0))
        return call | {"counts_since": 0 if since in filled else since}

    return tuple(
        replace(
            version,
            shapes=tuple(
                shape
                | {
                    "operators": [
                        operator | {"calls": [*map(complete, operator["calls"])]} for operator in shape["operators"]
                    ]
                }
                for shape in version.shapes
            ),
        )
        for version in versions
    )


def damaged_manifest_error(message: str) -> StateError:
    return StateError.of(
        "damaged-manifest", message, help="restore it from a backup, or start with a new --state folder"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuery:
    """A query that a job is to run.

    sql, script, explained: its statement, the script that it is in, and its plan, for people.
    base_folder: start of relative paths. known_names: see `Version`.
    bind: binds another statement with the declarations of the script.
    """

    roots: Sequence[Root]
    zone: str
    sql: str = ""
    script: str = ""
    explained: str = ""
    base_folder: Path | None = None
    known_names: dict[str, KnownTable] = field(default_factory=dict)
    bind: BindStatement | None = None

    @property
    def fingerprint(self) -> str:
        """The digest of its plans."""
        return fingerprint(self.roots, self.zone)

    @property
    def shapes(self) -> list[QueryShape]:
        """The shapes of its plans."""
        return [shape_of(root) for root in self.roots]


def create_version(
    number: int, epoch: int, query: NewQuery, roots: Sequence[Root], sources: Sequence[Sequence[SourceNote]] = ()
) -> Version:
    """Create a version of a job's query.

    roots: the plans, with named operators, and with the versions since which aggregates count.
    sources: the sources of earlier versions, the latest first.
    """
    return Version(
        number=number,
        epoch=epoch,
        fingerprint=query.fingerprint,
        zone=query.zone,
        sql=redact_script(query.sql).strip(),
        script=redact_script(query.script),
        plan=query.explained,
        shapes=tuple(to_json(shape_of(root)) for root in roots),
        created=now(),
        operators=tuple(node.operator_id for node in operators_of(roots)),
        sinks=sink_notes(roots, query.base_folder),
        sources=source_notes(roots, sources),
        functions=digest_functions(roots),
        known_names=query.known_names,
    )


def name_plans(roots: Sequence[Root], version: Version) -> tuple[Root, ...]:
    """Return the plans as a version runs them, with the names of its operators and sources."""
    names = [note["name"] for note in version.sources or ()]
    return tuple(map(hide_new_columns, name_sources(name_operators(roots, version.operators), names)))


def now() -> str:
    """Return the current UTC time in the format of `Version.created`."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
