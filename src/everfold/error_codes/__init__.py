"""The registry of error codes.

Each code that everfold can report has one entry, from which `everfold explain CODE` and
docs/errors.md are made. Codes are permanent: they are never renamed or reused. A test compares the
registry with the codes that the source code uses.
"""

from __future__ import annotations

from everfold.error_codes import commands, connectors, data, functions, jobs, lenses, queries, scripts, windows
from everfold.error_codes.entry import ErrorCode, Family

__all__ = ["TOPICS", "ErrorCode", "Family", "all_codes", "find_code"]

TOPICS = (
    ("Scripts, options, tables and views", scripts.ENTRIES),
    ("Queries and expressions", queries.ENTRIES),
    ("Windows and time", windows.ENTRIES),
    ("Lenses SQL and translation", lenses.ENTRIES),
    ("Python functions", functions.ENTRIES),
    ("Values and rows at run time", data.ENTRIES),
    ("Connectors and formats", connectors.ENTRIES),
    ("Jobs and their state", jobs.ENTRIES),
    ("Commands, case files, the Python API and the setup", commands.ENTRIES),
)
"""The entries by topic, in the order of docs/errors.md."""


def all_codes() -> tuple[ErrorCode, ...]:
    """Return all entries, sorted by code."""
    return tuple(sorted((entry for _, entries in TOPICS for entry in entries), key=lambda entry: entry.code))


def find_code(code: str) -> ErrorCode | None:
    """Return the entry of a code, None if there is none."""
    return next((entry for _, entries in TOPICS for entry in entries if entry.code == code), None)
