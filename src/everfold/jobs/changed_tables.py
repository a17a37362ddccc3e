"""Tables whose location has changed since the job last ran, and the answers that users can give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from everfold.connectors.validate import CheckedTable
from everfold.errors import Diagnostic
from everfold.jobs.rewind import Moved, NewSink
from everfold.plan.nodes import Table

LocationNote = Mapping[str, str]
"""The `connector` and the `location` of a table; an early release recorded neither."""

_SOURCE_ANSWERS: dict[str, str] = {
    Moved.MOVED: "the same data was moved: resume at the job's position in it",
    Moved.NEW: "other data: read it from its start, and keep the state",
}
_SINK_ANSWERS: dict[str, str] = {
    NewSink.REFRESH: "re-emit the current result of every operator that still holds it",
    NewSink.EMPTY: "emit only what changes from now on",
    NewSink.REBUILD: "discard the state, and compute the whole result from the beginning of the input",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTable:
    """A table at another location than before.

    option: the option of the command line for the answer. answers: what each one means.
    """

    table: Table
    code: str
    message: str
    option: str
    answers: Mapping[str, str]

    @property
    def choices(self) -> dict[str, str]:
        """The answers as they are written on the command line, with what they mean."""
        return {f"{self.option} {self.table.name}={answer}": meaning for answer, meaning in self.answers.items()}

    @property
    def diagnostic(self) -> Diagnostic:
        """The error if there is no answer."""
        width = max(map(len, self.choices))
        lines = [f"  {choice:{width}}  {meaning}" for choice, meaning in self.choices.items()]
        return Diagnostic(self.code, self.message, self.table.span, "\n".join(["choose one:", *lines]))


def changed_source(table: Table, old: LocationNote, new: LocationNote) -> ChangedTable:
    """Return a table that is now read elsewhere. Another connector cannot resume at a position."""
    message = f"table `{table.name}`: the job has read {show_location(old)}, but the table is now at"
    same_kind = old.get("connector", new["connector"]) == new["connector"]
    answers = {answer: text for answer, text in _SOURCE_ANSWERS.items() if same_kind or answer == Moved.NEW}
    return ChangedTable(
        table=table,
        code="changed-source",
        message=f"{message} {show_location(new)}",
        option="--source",
        answers=answers,
    )


def changed_sink(table: Table, old: LocationNote, new: LocationNote) -> ChangedTable:
    """Return a table that is now written elsewhere, where the rows written so far are missing."""
    message = f"table `{table.name}`: the job has written {show_location(old)}, but the table is now at"
    return ChangedTable(
        table=table,
        code="changed-sink",
        message=f"{message} {show_location(new)}",
        option="--sink",
        answers=_SINK_ANSWERS,
    )


def show_location(note: LocationNote) -> str:
    """Return a location for people."""
    if "location" not in note:
        return "a location that an earlier everfold did not record"
    return f"`{note['location']}` ({note['connector']})" if note["location"] else f"`{note['connector']}`"


@dataclass(frozen=True, slots=True)
class DeclaredTables:
    """The tables that a stream reads and writes, by name."""

    sources: Mapping[str, CheckedTable]
    sinks: Mapping[str, CheckedTable]


def compare_declared(old: DeclaredTables, new: DeclaredTables, base_folder: Path) -> Iterator[ChangedTable]:
    """Compare where two versions of a script declare their tables of the same name.

    Touches no external system. A sink that keeps no rows, such as `print`, may replace any other.
    base_folder: start of relative paths.
    """
    for name, after in new.sources.items():
        before = old.sources.get(name)
        if before is not None and not _is_same(before, after, base_folder):
            yield changed_source(after.table, _note(before, base_folder), _note(after, base_folder))
    for name, after in new.sinks.items():
        before = old.sinks.get(name)
        if before is not None and after.locations(base_folder) and not _is_same(before, after, base_folder):
            yield changed_sink(after.table, _note(before, base_folder), _note(after, base_folder))


def _is_same(old: CheckedTable, new: CheckedTable, base_folder: Path) -> bool:
    before, after = old.locations(base_folder), new.locations(base_folder)
    return old.connector.name == new.connector.name and (before == after or bool(before & after))


def _note(checked: CheckedTable, base_folder: Path) -> LocationNote:
    return {"connector": checked.connector.name, "location": ", ".join(sorted(checked.locations(base_folder)))}
