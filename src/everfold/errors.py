"""Diagnostics: what is wrong, where, and what to do about it.

An error is data first (`Diagnostic`); text and JSON are renderings of it. The error classes tell
who can act:

- `SqlError`: the author of the SQL,
- `ConnectorError`: the operator of the external system or the files,
- `FunctionError`: the author of a Python function,
- `StateError`: the operator of the job,
- `UsageError`: the author of the command line.

A bug is an `assert`, never one of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Self
from unicodedata import combining, east_asian_width

from everfold.secrets import redact_message, redact_part
from everfold.similar_names import find_similar_name

EXIT_FAILED = 1
"""Exit code of a job that failed at run time."""
EXIT_WRONG_USE = 2
"""Exit code for an invalid command, script or option: nothing has been started."""
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a process that SIGINT has ended."""

LONGEST_LINE = 100
"""Longest excerpt of a line of the script in an error message, in characters."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters in a script.

    `end` is exclusive. `source` names the script: a file name, or `-e`. `text` is the whole script.
    """

    start: int
    end: int
    source: str = "<sql>"
    text: str = field(default="", repr=False)

    @property
    def line(self) -> int:
        """Line of the first character, from 1."""
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """Column of the first character, from 1."""
        return self.start - (self.text.rfind("\n", 0, self.start) + 1) + 1

    def to(self, other: Span | None) -> Span:
        """Return the span from the start of this one to the end of the other."""
        if other is None:
            return self
        return Span(min(self.start, other.start), max(self.end, other.end), self.source, self.text)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: a permanent code, a message, its location, notes, and at most one piece of help.

    Values of secret options are removed from its texts when it is created.
    """

    code: str
    message: str
    span: Span | None = None
    help: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        script, at = ("", 0) if self.span is None else (self.span.text, self.span.start)
        object.__setattr__(self, "message", redact_message(self.message, script, at))
        object.__setattr__(self, "notes", tuple(redact_message(note, script, at) for note in self.notes))
        if self.help is not None:
            object.__setattr__(self, "help", redact_message(self.help, script, at))

    def render(self) -> str:
        """Return the finding as text, with an excerpt of the line it refers to."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.span is not None and self.span.text:
            lines += self._excerpt(self.span)
        lines += [f"  = note: {note}" for note in self.notes]
        if self.help:
            lines.append("  = help: " + self.help.replace("\n", "\n          "))
        return "\n".join(lines)

    @staticmethod
    def _excerpt(span: Span) -> list[str]:
        number, column = span.line, span.column
        start = span.start - (column - 1)
        end = span.text.find("\n", span.start)
        end = len(span.text) if end < 0 else end
        before = after = ""
        if end - start > LONGEST_LINE:
            # The mistake is in the excerpt, with as much context as fits on both sides.
            context = (LONGEST_LINE - min(span.end - span.start, LONGEST_LINE)) // 2
            first = max(start, min(span.start - context, end - LONGEST_LINE))
            last = min(end, first + LONGEST_LINE)
            before, after = "…" * (first > start), "…" * (last < end)
            start, end = first, last
        line = redact_part(span.text, start, end)
        at = span.start - start
        marked = line[at : at + span.end - span.start]
        gutter = " " * len(str(number))
        return [
            f"{gutter}--> {span.source}:{number}:{column}",
            f"{gutter} |",
            f"{number} | {before}{line}{after}",
            f"{gutter} | {' ' * len(before)}{_blank(line[:at])}{'^' * max(1, len(_blank(marked)))}",
        ]

    def to_json(self) -> dict[str, object]:
        """Return the finding as a JSON object."""
        place: dict[str, object] = {}
        if self.span is not None and self.span.text:
            place = {"source": self.span.source, "line": self.span.line, "column": self.span.column}
        notes = {"notes": list(self.notes)} if self.notes else {}
        return {
            "code": self.code,
            "message": self.message,
            **place,
            **notes,
            **({"help": self.help} if self.help else {}),
        }


def _blank(text: str) -> str:
    """Return spaces that are as wide as a text in a terminal; tabs are kept."""
    return "".join("\t" if each == "\t" else " " * _width(each) for each in text)


def _width(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


class EverfoldError(Exception):
    """Base class of all errors that a user can act on. It carries at least one diagnostic."""

    exit_code = EXIT_FAILED

    def __init__(self, *diagnostics: Diagnostic) -> None:
        assert diagnostics, "an error has at least one diagnostic"
        self.diagnostics = diagnostics
        super().__init__("\n".join(finding.render() for finding in diagnostics))

    def __reduce__(self) -> tuple[type[EverfoldError], tuple[Diagnostic, ...]]:
        return type(self), self.diagnostics

    @classmethod
    def of(cls, code: str, message: str, span: Span | None = None, help: str | None = None) -> Self:
        """Create an error of this class with one diagnostic."""
        return cls(Diagnostic(code, message, span, help))

    def at(self, span: Span | None) -> Self:
        """Return the error with a location for the diagnostics that have none."""
        return type(self)(*(replace(each, span=each.span or span) for each in self.diagnostics))

    @property
    def code(self) -> str:
        """Code of the first diagnostic."""
        return self.diagnostics[0].code


class SqlError(EverfoldError):
    """The SQL is wrong and its author can fix it. Nothing has been started."""

    exit_code = EXIT_WRONG_USE


class UnsupportedFeature(SqlError):
    """The SQL is valid, but everfold does not support it (yet, or in this mode).

    The message names the construct and the reason.
    """


class UsageError(EverfoldError):
    """A command line, an option or an API call is wrong. Nothing has been started."""

    exit_code = EXIT_WRONG_USE


class ConnectorError(EverfoldError):
    """An external resource, such as a file, a broker or a record, is not as the job needs it."""


class FunctionError(EverfoldError):
    """A user's Python function failed or returned a value of the wrong type.

    Its author can fix it.
    """


class StateError(EverfoldError):
    """The job's folder or state cannot be used.

    For example: another query's checkpoint, a damaged page, a job that is already running.
    """


def suggest_name(name: str, known: Iterable[str], *, never: Collection[str] = ()) -> str | None:
    """Return a suggestion with the known name that `name` misspells: ``did you mean `SUM`?``.

    None if no known name has the same meaning (`find_similar_name`). never: names that do damage if
    they were not meant, and are not suggested.
    """
    similar = find_similar_name(name, known)
    return None if similar is None or similar in never else f"did you mean `{similar}`?"


def suggest_or_list_names(name: str, known: Iterable[str], most: int = 8) -> str | None:
    """Return the suggestion of `suggest_name`, or list all names: ``there are `a`, `b```.

    The names are listed if none is close and there are at most `most`. Otherwise None.
    """
    names = list(known)
    listed = "there are " + ", ".join(f"`{each}`" for each in names) if 0 < len(names) <= most else None
    return suggest_name(name, names) or listed
