"""Effects of a rewind on the sinks of a job.

They are recorded in the manifest and reported before the rewind. A rewind that would duplicate rows
is refused unless the user accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from everfold.connectors.replay import ReplayEffect
from everfold.errors import StateError
from everfold.jobs.sink_tables import SinkNote


class Moved(StrEnum):
    """How a job continues with a table at a new location, or whose unread rows were lost.

    MOVED: the rows are the same as before: the position applies to them.
    NEW: they are other rows, which are read from their start.
    SKIP: the lost rows are skipped.
    """

    MOVED = "moved"
    NEW = "new"
    SKIP = "skip"


def split_sources(values: Iterable[tuple[str, str]]) -> tuple[dict[str, Moved], dict[str, str]]:
    """Return the answers about source tables, and the present names of renamed tables and columns.

    A name can be quoted with backticks: the table `new` is not the answer `new`. values: pairs of a
    table or column and an answer or a name; a table may have both.
    """
    answers: dict[str, Moved] = {}
    renamed: dict[str, str] = {}
    for name, value in values:
        if value in list(Moved):
            answers[name] = Moved(value)
        else:
            renamed[name] = value.strip("`")
    return answers, renamed


class NewSink(StrEnum):
    """What a table that is written at a new location receives.

    REFRESH: the current result of every operator that still holds it, and then its changes.
    EMPTY: only changes from now on.
    REBUILD: the whole result, computed again from the beginning of the input.
    """

    REFRESH = "refresh"
    EMPTY = "empty"
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What a user allows to happen to the tables of a job.

    duplicates: a rewind may leave duplicate rows in a table.
    prune: delete the rows of keys that are not replayed.
    refresh: when a changed job resumes, re-emit the current result of every operator that still
        holds it.
    sources: for each table whose location has changed, whether its rows are the same.
    renamed_sources: the present names of source tables and columns (`renamed_sources`).
    sinks: what a table receives that is written at a new location.
    note: called with a sentence for each effect on a table.
    """

    duplicates: bool = False
    prune: bool = False
    refresh: bool = False
    sources: Mapping[str, Moved] = field(default_factory=dict)
    renamed_sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, NewSink] = field(default_factory=dict)
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
