"""Changelogs: the kinds of rows, and which of them occur.

A change of an earlier row is emitted as -U (the old row) and +U (the new row). A keyed source may
omit -U. Then the last row by primary key must be kept before anything can be computed from it
(`ChangelogNormalize`).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

KIND = "__kind"
"""Column of rows that may be changes: their `RowKind`, TINYINT. Rows without it are all +I."""
ORDER = "__order"
"""Column of an operator's output rows, BIGINT: the end of their window or their time in ms, or the
order in which their key was first touched in the batch. Rows that are displayed are sorted by it.
NULL for rows that do not come from an operator, unless their source knows an order."""


class RowKind(IntEnum):
    """The effect of a row on the result so far."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """The kind as Flink prints it: +I, -U, +U, -D."""
        return ("+I", "-U", "+U", "-D")[self]


RETRACTIONS = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)
"""The kinds of rows that retract an earlier one."""
REEMIT, REEMIT_DELETE = 4, 5
"""Kinds besides `RowKind`: a re-emitted row whose value has not changed, and a re-emitted row that
a later condition now excludes. Sinks get neither as such."""


class ChangelogMode(StrEnum):
    """Which kinds of rows occur.

    `upsert`: +I, +U and -D by primary key, without the old rows; a -D may contain only the key.
    """

    INSERT_ONLY = "insert-only"
    UPSERT = "upsert"
    ALL = "all"
