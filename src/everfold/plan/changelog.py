"""Changes: the kinds of rows, and which of them a plan emits.

A change of an earlier row is emitted as -U (the old row) and +U (the new row). A keyed source may
omit -U. Then the last row by primary key must be kept before anything can be computed from it
(`ChangelogNormalize`).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from everfold.plan.nodes import Plan

KIND = "__kind"
"""Column of rows that may be changes: their `RowKind`, TINYINT. Rows without it are all +I."""
ORDER = "__order"
"""Column of an operator's output rows, BIGINT: the end of their window or their time in ms, or the
order in which their key was first touched in the batch. Rows that are displayed are sorted by it.
NULL for rows that do not come from an operator."""


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


def changelog_of(plan: Plan) -> ChangelogMode:
    """Return the kinds of changes that a plan emits in a stream."""
    return plan.remember("changelog", _changelog_of)


def _changelog_of(plan: Plan) -> ChangelogMode:
    from everfold.plan import nodes

    match plan:
        case nodes.Scan():
            return plan.table.changelog
        case nodes.WindowAggregate(lateness_ms=int()):
            return ChangelogMode.ALL
        case nodes.Values() | nodes.WindowAggregate():
            return ChangelogMode.INSERT_ONLY
        case nodes.Rank(window=None):
            # If no input row is retracted, the first rows to arrive remain the first.
            stays = plan.is_by_arrival and not is_updating(plan.input)
            return ChangelogMode.INSERT_ONLY if stays else ChangelogMode.ALL
        case nodes.Rank():
            return ChangelogMode.INSERT_ONLY
        case nodes.ChangelogNormalize() | nodes.WindowEmit() | nodes.OverAggregate(time=nodes.TimeKind.BOUNDED):
            return ChangelogMode.ALL
        case nodes.GroupAggregate():
            # Without calls it is DISTINCT: a row stays until its last copy is retracted.
            return ChangelogMode.ALL if plan.calls else changelog_of(plan.input)
        case (
            nodes.WatermarkAssigner()
            | nodes.Project()
            | nodes.Filter()
            | nodes.Unnest()
            | nodes.WindowTableFunction()
            | nodes.OverAggregate()
            | nodes.Sort()
            | nodes.Limit()
        ):
            return changelog_of(plan.input)
        case nodes.Union():
            modes = {changelog_of(each) for each in plan.inputs}
            return modes.pop() if len(modes) == 1 else ChangelogMode.ALL
        case nodes.Join() | nodes.SetOperation():
            return changelog_of(plan.left)
        case _:
            assert_never(plan)


def is_updating(plan: Plan) -> bool:
    """Return whether rows of a plan may be changed or retracted later."""
    return changelog_of(plan) is not ChangelogMode.INSERT_ONLY
