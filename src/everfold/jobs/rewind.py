"""What a job's sinks make of it when the job goes back in its input: noted in its manifest, told before it happens, refused where rows would be there twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from everfold.connectors.registry import connector_of
from everfold.connectors.replay import Again
from everfold.errors import StateError
from everfold.plan.nodes import Root, Sink


class Moved(StrEnum):
    """What the rows of a table are that lies elsewhere now: the same as before, or other ones."""

    MOVED = "moved"
    NEW = "new"


SinkNote = dict[str, str]
"""A table that a version writes: its name as `table`, its `connector`, and as `again` what becomes of rows that come again."""


def sink_name(at: int, table: str) -> str:
    """The name of a sink within its job: of the INSERT at that place, from 0."""
    return f"{at}_{table}"


def sink_notes(roots: Sequence[Root]) -> tuple[SinkNote, ...]:
    """The tables that queries write; a query without one shows its rows, and they are gone."""
    tables = [root.table for root in roots if isinstance(root, Sink)]
    found = ((table, connector_of(table)) for table in tables)
    return tuple({"table": each.name, "connector": of.name, "again": of.again(each).value} for each, of in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What a user allows when a job goes back in its input. duplicates: rows may be in a table twice. prune: rows by key that do not come again are deleted.
    refresh: re-emit the whole result, as far as state has it, when a changed job resumes.
    sources: for each table whose location has changed, whether its rows are the same. note: called with a sentence for each thing that happens to a table."""

    duplicates: bool = False
    prune: bool = False
    refresh: bool = False
    sources: Mapping[str, Moved] = field(default_factory=dict)
    note: Callable[[str], None] = lambda _: None


def told(notes: Iterable[SinkNote], words: Callable[[Again], str]) -> list[str]:
    """What happens to each table, as lines."""
    return [f"`{each['table']}` ({each['connector']}): {words(Again(each['again']))}" for each in notes]


def check_duplicates(notes: Sequence[SinkNote] | None, *, accepted: bool) -> None:
    """StateError `sink-duplicates` where rows would be in a table twice and that is not accepted; also where nobody knows (None)."""
    if accepted or (notes is not None and all(Again(each["again"]) is not Again.TWICE for each in notes)):
        return
    if notes is None:
        said = "what that version writes was not noted: rows that come again may be in its tables twice"
    else:
        names = ", ".join(f"`{each['table']}`" for each in notes if Again(each["again"]) is Again.TWICE)
        said = f"{names} would hold rows twice: those that come again are added"
    raise StateError.of("sink-duplicates", said, help="if that is all right, say --sink-duplicates accept")
