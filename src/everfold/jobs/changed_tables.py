"""Tables whose location has changed since the job last ran, and the answers that users can give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everfold.compat import QueryPair
from everfold.connectors.lost_input import LostInput
from everfold.connectors.validate import CheckedTable
from everfold.errors import Diagnostic, StateError
from everfold.jobs.rewind import Moved, NewSink
from everfold.jobs.sink_tables import SinkComparison, may_share_location
from everfold.operators.reemit import can_reemit
from everfold.plan.nodes import Root, Sink, Table
from everfold.plan.walk import last_operators

LocationNote = Mapping[str, str]
"""The `connector` and the `location` of a table; an early release recorded neither."""

_SOURCE_ANSWERS: dict[str, str] = {
    Moved.MOVED: "the same data was moved: resume at the job's position in it",
    Moved.NEW: "other data: read it from its start, and keep the state",
}
_RECREATED_ANSWERS: dict[str, str] = {
    Moved.NEW: "other records: read them from their start, and keep the state",
    Moved.MOVED: "the same records, with the same offsets: resume at the job's position",
    Moved.SKIP: "the same records, with the same offsets: resume without those that are gone",
}
_SKIP_ANSWER = "skip what is gone: resume with the first record that is still there, and keep the state"
_SINK_ANSWERS: dict[str, str] = {
    NewSink.REFRESH: "write the current result to it, as far as the state holds it",
    NewSink.EMPTY: "write only what changes from now on, also if you have copied the rows there",
    NewSink.REBUILD: "discard the state, and compute the whole result from the beginning of the input",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTable:
    """A table at another location than before, or whose rows were lost.

    option: the option of the command line for the answer. answers: what each one means. suffixes:
    what an answer needs besides the option. commands: other commands for users, and what they do.
    """

    table: Table
    code: str
    message: str
    option: str
    answers: Mapping[str, str]
    suffixes: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def choices(self) -> dict[str, str]:
        """The answers as they are written on the command line, with what they mean."""
        answers = {
            f"{self.option} {self.table.name}={answer}{self.suffixes.get(answer, '')}": meaning
            for answer, meaning in self.answers.items()
        }
        return {**self.commands, **answers}

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


def lost_source(lost: LostInput, lost_if_same: LostInput | None) -> ChangedTable:
    """Return a table whose unread rows were lost, or that was created again.

    lost_if_same: what is lost if a table that was created again has the same rows.
    """
    if lost.recreated:
        left_out = Moved.MOVED if lost_if_same else Moved.SKIP
        answers = {answer: text for answer, text in _RECREATED_ANSWERS.items() if answer != left_out}
    else:
        answers = {Moved.SKIP: _SKIP_ANSWER}
    return ChangedTable(table=lost.table, code=lost.code, message=lost.message, option="--source", answers=answers)


def changed_sink(table: Table, old: LocationNote, new: LocationNote, *, can_refresh: bool) -> ChangedTable:
    """Return a table that is now written elsewhere, where the rows written so far are missing.

    can_refresh: whether the state of any operator holds the rows.
    """
    message = f"table `{table.name}`: the job has written {show_location(old)}, but the table is now at"
    return _ask_about_sink(table, f"{message} {show_location(new)}", can_refresh=can_refresh)


def added_sink(table: Table, source: str, *, can_refresh: bool) -> ChangedTable:
    """Return a table that the job has not written yet, and that gets the rows of kept operators.

    source: the table that the job has written their rows to, empty for a bare SELECT.
    """
    written = f"into `{source}` only" if source else "into no table"
    message = f"table `{table.name}`: the job has written the rows of this query {written} so far"
    return _ask_about_sink(table, message, can_refresh=can_refresh)


def behind_sink(
    table: Table,
    batches: str,
    *,
    can_refresh: bool,
    can_change: bool,
    duplicated: Sequence[str],
    commands: Mapping[str, str],
) -> ChangedTable:
    """Return a table that lacks batches which the job has written to it.

    batches: the last batches of both. can_refresh: whether the state of any operator holds the
    rows. can_change: whether the job has no batch to finish. duplicated: the tables in which a
    rebuild duplicates rows. commands: see `ChangedTable`.
    """
    answers: dict[str, str] = {
        NewSink.REFRESH: _SINK_ANSWERS[NewSink.REFRESH],
        NewSink.EMPTY: "write only what changes from now on, also if you have restored the missing rows",
        NewSink.REBUILD: _SINK_ANSWERS[NewSink.REBUILD],
    }
    if not can_change:
        answers[NewSink.EMPTY] += "; finishes the interrupted batch, after which --refresh writes the current result"
    if not can_refresh or not can_change:
        del answers[NewSink.REFRESH]
    suffixes: dict[str, str] = {}
    if duplicated:
        names = ", ".join(f"`{name}`" for name in duplicated)
        answers[NewSink.REBUILD] += f"; empty {names} first, or rows are duplicated there"
        suffixes[NewSink.REBUILD] = " --sink-duplicates accept"
    return ChangedTable(
        table=table,
        code="sink-behind",
        message=f"table `{table.name}` is behind the job: {batches}; nothing was written",
        option="--sink",
        answers=answers,
        suffixes=suffixes,
        commands=commands,
    )


def _ask_about_sink(table: Table, message: str, *, can_refresh: bool) -> ChangedTable:
    answers = {answer: text for answer, text in _SINK_ANSWERS.items() if can_refresh or answer != NewSink.REFRESH}
    return ChangedTable(table=table, code="changed-sink", message=message, option="--sink", answers=answers)


def show_location(note: LocationNote) -> str:
    """Return a location for people."""
    if "location" not in note:
        return "a location that an earlier everfold did not record"
    location = note["location"].replace("\n", ", ")
    return f"`{location}` ({note['connector']})" if location else f"`{note['connector']}`"


def compare_sources(
    old: Mapping[str, CheckedTable], new: Mapping[str, CheckedTable], base_folder: Path
) -> Iterator[ChangedTable]:
    """Compare where two versions of a script read their tables of the same name.

    Touches no external system. base_folder: start of relative paths.
    """
    for name, after in new.items():
        if name not in old:
            continue
        before, current = (describe_location(checked, base_folder) for checked in (old[name], after))
        if not may_share_location(before, current):
            yield changed_source(after.table, before, current)


def describe_location(checked: CheckedTable, base_folder: Path) -> LocationNote:
    """Return where a table is by its options. base_folder: start of relative paths."""
    return {"connector": checked.connector.name, "location": "\n".join(sorted(checked.locations(base_folder)))}


def list_changed_sinks(
    roots: Sequence[Root], pairs: Sequence[QueryPair], comparison: SinkComparison
) -> list[ChangedTable]:
    """Return the tables that lack rows which the job has written: moved ones, and new ones for the
    result of operators that keep their state.

    pairs: the old and new queries, the new ones in the order of `roots`.
    """
    sinks = [
        (root, pair)
        for root, pair in zip(roots, pairs, strict=False)
        if isinstance(root, Sink) and root.table.name in comparison.notes
    ]
    refreshable = {root.table.name for root, _ in sinks if any(can_reemit(node) for node in last_operators(root.input))}
    changed: dict[str, ChangedTable] = {}
    for root, pair in sinks:
        table = root.table
        note, can_refresh = comparison.notes[table.name], table.name in refreshable
        if table.name in comparison.moved:
            changed[table.name] = changed_sink(table, comparison.moved[table.name], note, can_refresh=can_refresh)
        elif pair.is_redirected and note.get("location"):
            changed.setdefault(table.name, added_sink(table, pair.old.sink, can_refresh=can_refresh))
    return list(changed.values())


def select_answers(changed: Iterable[ChangedTable], answers: Mapping[str, NewSink]) -> dict[str, NewSink]:
    """Return the valid answers about tables that are now written elsewhere, by table."""
    names = (table.table.name for table in changed if answers.get(table.table.name) in table.answers)
    return {name: answers[name] for name in names}


def check_sink_answers(changed: Iterable[ChangedTable], answers: Mapping[str, NewSink]) -> None:
    """Raise StateError `changed-sink` with all tables without a valid answer."""
    asked = [table.diagnostic for table in changed if answers.get(table.table.name) not in table.answers]
    if asked:
        raise StateError(*asked)
