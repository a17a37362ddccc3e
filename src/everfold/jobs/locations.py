"""Track the locations of a job's source tables.

A source keeps its name in Spark's checkpoint as long as its rows stay at the same location, however
the location is written. If the location changes, the user decides whether the rows are the same.
See docs/design/sources.md.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from everfold.checkpoint.logs import last_planned_batch, read_positions
from everfold.compat.operator_ids import SourceNote
from everfold.connectors.contract import Source
from everfold.connectors.validate import CheckedTable
from everfold.errors import ConnectorError, EverfoldError, StateError
from everfold.jobs.changed_tables import ChangedTable, changed_source
from everfold.jobs.job_dir import JobDir
from everfold.jobs.lost_sources import LostSource, find_lost_source
from everfold.jobs.manifest import Manifest, Version
from everfold.jobs.moving import Move, find_previous_folder, move_checkpoints, path_before, read_files
from everfold.jobs.rewind import Moved
from everfold.plan.nodes import Root, Table
from everfold.plan.walk import scans_of
from everfold.storage import Location


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The current location of a table, and the identity of its data, empty if it has none."""

    table: Table
    source: Source
    connector: str
    location: str
    identity: str = ""

    @property
    def note(self) -> SourceNote:
        """The entries of a source note."""
        identity = {"identity": self.identity} if self.identity else {}
        return {"connector": self.connector, "location": self.location, **identity}

    def is_at(self, note: SourceNote) -> bool:
        """Whether a source note has this location, and the same data."""
        return self.is_at_place(note) and not self.source.is_recreated(note.get("identity", ""), self.identity)

    def is_at_place(self, note: SourceNote) -> bool:
        """Whether a source note has this location, also of data that was there before."""
        return (note.get("connector"), note.get("location")) == (self.connector, self.location)


@dataclass(frozen=True, slots=True)
class LocatedSources:
    """A job with the locations of its sources.

    manifest: its manifest with the locations. current_manifest: the manifest in place, with the
    moved ones. moves: the sources whose data was moved. previous_folder: path of the job directory
    when the job last ran. notes: sentences for the user. lost: the sources whose unread rows are
    gone; the user has an answer for all of them.
    """

    manifest: Manifest
    current_manifest: Manifest
    moves: tuple[Move, ...]
    previous_folder: str
    notes: tuple[str, ...] = ()
    lost: tuple[LostSource, ...] = ()

    @property
    def lost_tables(self) -> frozenset[str]:
        """The names of the tables with lost rows."""
        return frozenset(source.lost.table.name for source in self.lost)

    @property
    def identities(self) -> dict[str, str]:
        """The identities of the data of sources, by their names in Spark's checkpoint."""
        sources = self.manifest.version.sources or ()
        return {note["spark_name"]: note.get("identity", "") for note in sources if "spark_name" in note}

    @property
    def spark_names(self) -> dict[str, str]:
        """The names of the sources in Spark's checkpoint, by their names in the job."""
        sources = self.manifest.version.sources or ()
        return {each["name"]: each["spark_name"] for each in sources if "spark_name" in each}


def move_job(job_dir: JobDir, located: LocatedSources) -> Manifest:
    """Rewrite the paths in the checkpoints if the job directory or a source's data was moved.

    Returns the manifest of `located` with the names of the checkpoints.

    Raises StateError `changed-source` if the old positions mean nothing in the new data,
    `damaged-checkpoint`, ConnectorError `disk-full` and similar.
    """
    if not located.moves and located.previous_folder == str(job_dir.path):
        return located.manifest
    names = move_checkpoints(job_dir, located.current_manifest, located.previous_folder, located.moves)
    return located.manifest.with_checkpoints(names)


def locate_table(checked: CheckedTable, base_folder: Path) -> TableLocation:
    """Return the location of a table. Raises ConnectorError."""
    source = checked.source()
    location = source.location(base_folder)
    return TableLocation(checked.table, source, checked.connector.name, location, source.identify())


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The sources of a job by name, compared with where they were.

    kept: the notes of those whose positions are used again. moves: those whose data was moved.
    changed: the old notes of those at another location. lost: those whose unread rows are gone.
    """

    kept: dict[str, SourceNote] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    changed: dict[str, SourceNote] = field(default_factory=dict)
    lost: dict[str, LostSource] = field(default_factory=dict)


@dataclass(slots=True)
class Locations:
    """Compares the present locations of a job's tables with those that it has read.

    job_dir: the job directory, locked by this process. base_folder: start of relative paths.
    externals: tables whose rows the caller provides.
    answers: for tables at a new location or with lost rows, how to continue (`--source`).
    """

    job_dir: JobDir
    base_folder: Path
    externals: Container[str] = ()
    answers: Mapping[str, Moved] = field(default_factory=dict)
    _before: str = ""
    _known: Manifest | None = None

    def locate(self, manifest: Manifest, roots: Sequence[Root], tables: Mapping[Table, CheckedTable]) -> LocatedSources:
        """Find the sources of a job; the manifest may have a new version that is not in place yet.

        tables: the checked tables that the job reads.

        Raises StateError `changed-source`, `kafka-data-lost` with all tables at a new location or
        with lost rows that have no answer, StateError `unfinished-batch`, or a ConnectorError of a
        source.
        """
        known = self.job_dir.read_manifest() or manifest
        pending = known.current != manifest.current
        notes = manifest.version.sources or ()
        located = {name: locate_table(checked, self.base_folder) for name, checked in self._list(roots, tables).items()}
        locations = _name_locations(notes, roots, located)
        found = self._compare(known, manifest, locations)
        self._check_answers(found, locations)
        names = self._new_names(manifest, locations, found.kept, found.changed)
        new_notes = tuple(found.kept.get(each["name"]) or each | names.get(each["name"], {}) for each in notes)
        manifest = self._with_notes(manifest, manifest.version, new_notes, found.moves)
        if pending:
            old_notes = known.version.sources
            renewed = tuple(_renew(each, found.kept) for each in old_notes or ())
            known = self._with_notes(known, known.version, None if old_notes is None else renewed, found.moves)
        moves = tuple(found.moves.values())
        decided = {locations[name].table.name for name in found.changed.keys() | found.lost.keys()}
        decided |= {each.source.table.name for each in moves}
        lines = tuple(
            f"table `{name}` is at its old location: --source {name}={self.answers[name]} has no effect"
            for name in sorted(located.keys() & self.answers.keys() - decided)
        )
        lost = tuple(found.lost.values())
        return LocatedSources(manifest, known if pending else manifest, moves, self._before, lines, lost)

    def find_changed(
        self, manifest: Manifest, roots: Sequence[Root], tables: Mapping[Table, CheckedTable]
    ) -> tuple[list[ChangedTable], list[str]]:
        """Return the tables about which `locate` would ask, whatever the answers are.

        Changes nothing. The second part has a sentence for each table that cannot be reached.
        """
        known = self.job_dir.read_manifest() or manifest
        if not self._has_begun(known, manifest):
            return [], []
        located: dict[str, TableLocation] = {}
        unreachable: list[str] = []
        for name, checked in self._list(roots, tables).items():
            try:
                located[name] = locate_table(checked, self.base_folder)
            except EverfoldError as error:
                unreachable.append(
                    f"table `{name}`: its location cannot be compared with that of the job:"
                    f" {error.diagnostics[0].message}"
                )
        locations = _name_locations(manifest.version.sources or (), roots, located)
        try:
            compared = replace(self, answers={})._compare(known, manifest, locations)
        except ConnectorError as error:
            return [], [*unreachable, error.diagnostics[0].message]
        return list(_list_questions(compared, locations).values()), unreachable

    def _list(self, roots: Sequence[Root], tables: Mapping[Table, CheckedTable]) -> dict[str, CheckedTable]:
        """Return the tables that the job reads as streams, by name."""
        used = (scan.table for scan in scans_of(roots))
        return {table.name: tables[table] for table in used if table.name not in self.externals}

    def _compare(self, known: Manifest, manifest: Manifest, locations: Mapping[str, TableLocation]) -> _Comparison:
        """Compare the present locations of sources with those in a manifest.

        known: the manifest in place.
        """
        begun = self._has_begun(known, manifest)
        found = _Comparison()
        for note in manifest.version.sources or ():
            current = locations.get(note["name"])
            old = None if current is None else self._old_note(note, current)
            if current is None or old is None:
                continue
            lost = self._find_lost(old, current) if begun else None
            if lost is not None:
                found.lost[note["name"]] = lost
                continue
            moved = self._moved_with_job(old, current) or self._was_moved(old, current)
            if current.is_at(old) or (begun and moved):
                found.kept[note["name"]] = old | current.note
            elif begun:
                found.changed[note["name"]] = old
            if begun and moved:
                name = old["spark_name"]
                found.moves[name] = Move(current.source, name, old.get("location", ""), current.location)
        return found

    def _has_begun(self, known: Manifest, manifest: Manifest) -> bool:
        """Return whether a job continues in its input. known: the manifest in place."""
        self._look_at(known)
        is_rebuilt = known.current != manifest.current and manifest.version.rebuilt
        return last_planned_batch(self._checkpoint) >= 0 and not is_rebuilt

    def _look_at(self, manifest: Manifest) -> None:
        self._known = manifest
        self._before = find_previous_folder(self.job_dir, manifest)

    @property
    def _checkpoint(self) -> Location:
        assert self._known is not None, "no manifest was looked at"
        return self.job_dir.checkpoint(self._known, self._known.current)

    def _find_lost(self, old: SourceNote, current: TableLocation) -> LostSource | None:
        """Return what is gone of the unread rows of a source at its old location.

        None also if the user says that data which was created again is the same.
        """
        if not current.is_at_place(old):
            return None
        lost = find_lost_source(self._checkpoint, old, current.source, current.identity)
        if lost is not None and lost.has_same_rows and self.answers.get(current.table.name) is Moved.MOVED:
            return None
        return lost

    # --- moved sources ----------------------------------------------------------------------------

    def _was_moved(self, old: SourceNote, current: TableLocation) -> bool:
        """Whether the user says that the data was moved.

        The positions of one connector mean nothing to another, so the connector must be the same.
        """
        same_kind = old.get("connector", current.connector) == current.connector
        return same_kind and self.answers.get(current.table.name) is Moved.MOVED and not current.is_at(old)

    def _moved_with_job(self, old: SourceNote, current: TableLocation) -> bool:
        """Whether files were moved together with the job directory.

        Their path relative to the directory is unchanged, and a file that was read, if any, exists
        there.
        """
        if not current.source.reads_files or current.is_at(old) or old.get("connector") != current.connector:
            return False
        if old["location"] != self._seen_before(current):
            return False
        files = self._files(old["spark_name"])
        there = (
            Path(current.location) / file.relative_to(old["location"])
            for file in files
            if file.is_relative_to(old["location"])
        )
        return not files or any(each.exists() for each in there)

    def _seen_before(self, current: TableLocation) -> str | None:
        """Return the old location of a table if it was moved together with the job directory."""
        return path_before(current.location, self.job_dir, self._before)

    def _files(self, spark_name: str) -> Collection[Path]:
        return read_files(self._checkpoint / "sources" / spark_name)

    # --- jobs of earlier releases -----------------------------------------------------------------

    def _old_note(self, note: SourceNote, current: TableLocation) -> SourceNote | None:
        """Return the note of a source with its name in the checkpoint, None for a new source.

        Earlier releases did not record that name.
        """
        if "spark_name" in note:
            return note
        name = re.compile(re.escape(note["name"]) + "(_[0-9a-f]{8})?")
        lines = read_positions(self._checkpoint, last_planned_batch(self._checkpoint))
        found = [note | {"spark_name": each} for each in sorted(lines) if name.fullmatch(each)]
        found = [each | self._old_location(each, lines[each["spark_name"]], current) for each in found]
        return next((each for each in found if current.is_at(each)), next(iter(found), None))

    def _old_location(self, note: SourceNote, line: str, current: TableLocation) -> SourceNote:
        """Return the old location of a source, empty if it is unknown.

        The location of files is read from the checkpoint. That of other sources is the present one
        if their options are unchanged.
        """
        if not current.source.reads_files:
            from everfold.jobs.sources import name_by_options  # which imports the engines

            same = note["spark_name"] == name_by_options(current.table, note["name"], self.base_folder)
            return current.note if same else {}
        if '"logOffset"' not in line:
            return {}
        files = self._files(note["spark_name"])
        for root in (current.location, self._seen_before(current)):
            if root is not None and all(each.is_relative_to(root) for each in files):
                return current.note | {"location": root}
        return current.note | {"location": os.path.commonpath([each.parent for each in files])}

    # --- new sources ------------------------------------------------------------------------------

    def _check_answers(self, found: _Comparison, locations: Mapping[str, TableLocation]) -> None:
        """Raise StateError `changed-source`, `kafka-data-lost` for sources without an answer.

        Raises StateError `unfinished-batch` if a batch of the old data must run again.
        """
        questions = _list_questions(found, locations)
        asked = [
            question.diagnostic
            for name, question in questions.items()
            if self.answers.get(name) not in question.answers
        ]
        if asked:
            raise StateError(*asked)
        if found.changed:
            assert self._known is not None
            self.job_dir.check_finished(self._known, self._known.current)

    def _new_names(
        self,
        manifest: Manifest,
        locations: Mapping[str, TableLocation],
        kept: Mapping[str, SourceNote],
        changed: Container[str],
    ) -> dict[str, SourceNote]:
        """Return the notes of sources that are not kept, by name.

        A source gets the name suffix of another one of its table at the same location, if there is
        or was one.
        """
        others = [*kept.values(), *(each for version in reversed(manifest.versions) for each in version.sources or ())]
        taken = {each["spark_name"] for each in others if "spark_name" in each}
        sources = self._checkpoint / "sources"
        taken |= {each.name for each in sources.iterdir()}
        found: dict[str, SourceNote] = {}
        for name, current in locations.items():
            if name in kept:
                continue
            alike = (note for note in others if current.is_at(note) and note["table"] == current.table.identity)
            one = None if name in changed else next(alike, None)
            suffixes = (_digest(current, number) for number in count())
            fresh = next(each for each in suffixes if f"{name}{each}" not in taken)
            suffix = fresh if one is None else one["spark_name"].removeprefix(one["name"])
            found[name] = current.note | {"spark_name": name + suffix}
        return found

    def _with_notes(
        self,
        manifest: Manifest,
        of: Version,
        notes: tuple[SourceNote, ...] | None,
        moved: Container[str],
    ) -> Manifest:
        """Replace the source notes of a version and update moved locations in the others.

        moved: names in Spark's checkpoint of the sources whose data was moved.
        """
        known = {each["spark_name"]: each for each in notes or () if "spark_name" in each}

        def renew(version: Version) -> Version:
            if version.number == of.number:
                return replace(version, sources=notes)
            if version.sources is None:
                return version
            return replace(version, sources=tuple(_learn(each, known, moved) for each in version.sources))

        return replace(manifest, folder=str(self.job_dir.path), versions=tuple(map(renew, manifest.versions)))


def _name_locations(
    notes: Sequence[SourceNote], roots: Sequence[Root], located: Mapping[str, TableLocation]
) -> dict[str, TableLocation]:
    """Return the locations of a job's sources by their names in the job. located: by table."""
    tables = [scan.table.name for scan in scans_of(roots)]
    pairs = zip(notes, tables, strict=True)
    return {note["name"]: located[table] for note, table in pairs if table in located}


def _renew(note: SourceNote, kept: Mapping[str, SourceNote]) -> SourceNote:
    """Return a note of the previous version, completed by what was found about its source."""
    found = kept.get(note["name"])
    if found is None or note.get("spark_name", found["spark_name"]) != found["spark_name"]:
        return note
    return note | {each: found[each] for each in ("connector", "location", "spark_name", "identity") if each in found}


def _learn(note: SourceNote, known: Mapping[str, SourceNote], moved: Container[str]) -> SourceNote:
    """Return a note of another version, completed by what is known about its source.

    The version may have read data that was there before, so it keeps the identity of that.
    """
    name = note.get("spark_name", "")
    found = known.get(name)
    if found is None:
        return note
    learned = ["connector", "location"]
    if "identity" in found and (name in moved or "identity" not in note):
        learned.append("identity")
    return note | {each: found[each] for each in learned}


def _list_questions(found: _Comparison, locations: Mapping[str, TableLocation]) -> dict[str, ChangedTable]:
    """Return the questions about sources by table."""
    questions = {
        locations[name].table.name: changed_source(locations[name].table, old, locations[name].note)
        for name, old in found.changed.items()
    }
    return questions | {locations[name].table.name: lost.changed for name, lost in found.lost.items()}


def _digest(current: TableLocation, number: int) -> str:
    """Return the suffix of a source's name in Spark's checkpoint."""
    parts: Iterable[str] = (current.connector, current.location, *([str(number)] if number else []))
    return "_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
