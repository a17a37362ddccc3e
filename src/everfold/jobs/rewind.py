"""Effects of a rewind on the sinks of a job.

They are recorded in the manifest and reported before the rewind. A rewind that would duplicate rows
is refused unless the user accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from everfold.connectors.registry import connector_of
from everfold.connectors.replay import ReplayEffect
from everfold.errors import StateError
from everfold.plan.nodes import Root, Sink, Table


class Moved(StrEnum):
    """Whether a table at a new location has the same rows as before or other ones."""

    MOVED = "moved"
    NEW = "new"


class NewSink(StrEnum):
    """What a table that is written at a new location receives.

    REFRESH: the current result of every operator that still holds it, and then its changes.
    EMPTY: only changes from now on.
    REBUILD: the whole result, computed again from the beginning of the input.
    """

    REFRESH = "refresh"
    EMPTY = "empty"
    REBUILD = "rebuild"


SinkNote = dict[str, str]
"""A table that a version writes: its name as `table`, its `connector`, the effect of replayed rows
as `again`, and as `folder` where its withdrawn files lie, if it can have any."""


def sink_name(at: int, table: str) -> str:
    """Return the name of a sink in its job. at: position of its INSERT, counted from 0."""
    return f"{at}_{table}"


def sink_notes(roots: Sequence[Root], base_folder: Path | None = None) -> tuple[SinkNote, ...]:
    """Return the tables that queries write; a bare SELECT has none.

    base_folder: start of relative paths, None to leave the folders out.
    """
    return tuple(_create_note(root.table, base_folder) for root in roots if isinstance(root, Sink))


def _create_note(table: Table, base_folder: Path | None) -> SinkNote:
    connector = connector_of(table)
    note = {"table": table.name, "connector": connector.name, "again": connector.replay_effect(table).value}
    folder = None if base_folder is None else connector.withdrawal_folder(table, base_folder)
    return note if folder is None else note | {"folder": folder}


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What a user allows to happen to the tables of a job.

    duplicates: a rewind may leave duplicate rows in a table.
    prune: delete the rows of keys that are not replayed.
    refresh: when a changed job resumes, re-emit the current result of every operator that still
        holds it.
    sources: for each table whose location has changed, whether its rows are the same.
    note: called with a sentence for each effect on a table.
    """

    duplicates: bool = False
    prune: bool = False
    refresh: bool = False
    sources: Mapping[str, Moved] = field(default_factory=dict)
    note: Callable[[str], None] = lambda _: None


def describe_effects(notes: Iterable[SinkNote], words: Callable[[ReplayEffect], str]) -> list[str]:
    """Return a line for each table that says what happens to it."""
    return [f"`{each['table']}` ({each['connector']}): {words(ReplayEffect(each['again']))}" for each in notes]


def check_duplicates(notes: Sequence[SinkNote] | None, *, accepted: bool) -> None:
    """Raise StateError `sink-duplicates` if a table would hold duplicate rows.

    Also raised if it is unknown which tables are written (None). Duplicates can be accepted.
    """
    if accepted or (
        notes is not None and all(ReplayEffect(each["again"]) is not ReplayEffect.DUPLICATES for each in notes)
    ):
        return
    if notes is None:
        message = "the tables of that version were not recorded: replayed rows may be duplicates there"
    else:
        names = ", ".join(
            f"`{each['table']}`" for each in notes if ReplayEffect(each["again"]) is ReplayEffect.DUPLICATES
        )
        message = f"{names} would hold duplicate rows: replayed rows are appended"
    raise StateError.of("sink-duplicates", message, help="to accept duplicates, pass --sink-duplicates accept")
