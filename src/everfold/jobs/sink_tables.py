"""The tables that a job writes, as its manifest records them, and where they were before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from everfold.connectors.contract import Role
from everfold.connectors.registry import connector_of
from everfold.connectors.validate import check_table
from everfold.errors import EverfoldError
from everfold.plan.nodes import Root, Sink, Table

SinkNote = dict[str, str]
"""A table that a version writes: its name as `table`, its `connector`, the effect of replayed rows
as `again`, and as `folder` where its withdrawn files lie, if it can have any. `location` has a line
for each of its locations (`Connector.locations`). An earlier release did not record them."""


def sink_name(at: int, table: str) -> str:
    """Return the name of a sink in its job. at: position of its INSERT, counted from 0."""
    return f"{at}_{table}"


def sink_notes(roots: Sequence[Root], base_folder: Path | None = None) -> tuple[SinkNote, ...]:
    """Return the tables that queries write; a bare SELECT has none.

    base_folder: start of relative paths, None to leave folders and locations out.
    """
    return tuple(_create_note(root.table, base_folder) for root in roots if isinstance(root, Sink))


def _create_note(table: Table, base_folder: Path | None) -> SinkNote:
    connector = connector_of(table)
    note = {"table": table.name, "connector": connector.name, "again": connector.replay_effect(table).value}
    if base_folder is None:
        return note
    with suppress(EverfoldError):  # the options of an old script may be wrong
        note["location"] = "\n".join(sorted(check_table(table, Role.SINK).locations(base_folder)))
    folder = connector.withdrawal_folder(table, base_folder)
    return note if folder is None else note | {"folder": folder}


def may_share_location(note: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether two tables may hold the same rows: also if a location was not recorded."""
    if note["connector"] != other["connector"]:
        return False
    if "location" not in note or "location" not in other:
        return True
    return not {*note["location"].split("\n")}.isdisjoint(other["location"].split("\n"))


def list_rewritten(notes: Iterable[SinkNote], earlier: Iterable[SinkNote]) -> list[SinkNote]:
    """Return the tables that may already hold rows of a job.

    notes: of the tables that it writes now. earlier: of those that it has written.
    """
    written = list(earlier)
    return [note for note in notes if any(may_share_location(note, other) for other in written)]


@dataclass(frozen=True, slots=True)
class SinkComparison:
    """The tables that a query writes, compared with those that its job has written.

    notes: the present ones by name. renamed: the old name of each table that has another name now,
    at the same location. moved: the old notes of those at another location.
    """

    notes: Mapping[str, SinkNote]
    renamed: Mapping[str, str]
    moved: Mapping[str, SinkNote]


def compare_sinks(old: Iterable[SinkNote], new: Iterable[SinkNote]) -> SinkComparison:
    """Compare where a job writes its tables.

    A table is the same as before if it is at the same location, under any name. One that keeps no
    rows, such as `print`, may replace any other.
    """
    before = {note["table"]: note for note in old}
    notes = {note["table"]: note for note in new}
    same = {name for name, note in notes.items() if name in before and may_share_location(note, before[name])}
    left = {name: note for name, note in before.items() if name not in same}
    renamed: dict[str, str] = {}
    for name, note in notes.items():
        alike = (other for other in left if left[other].get("location") and may_share_location(note, left[other]))
        former = next(alike, None) if name not in same and note.get("location") else None
        if former is not None:
            del left[former]
            renamed[name] = former
    others = {name: note for name, note in notes.items() if name in left and name not in renamed}
    moved = {name: left[name] for name, note in others.items() if note.get("location") and "location" in left[name]}
    return SinkComparison(notes, renamed, moved)
