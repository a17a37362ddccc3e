"""Changes: the kinds that rows can have, and which of them a plan's rows have.

A row that changes an earlier one comes as -U (what was) and +U (what is now). A keyed source may leave out -U: then the last row by
primary key has to be remembered before anything can be computed with it (`ChangelogNormalize`).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from everfold.plan.nodes import Plan

KIND = "__kind"
"""Column of rows that may be changes: their `RowKind`, TINYINT. Rows without it are all +I."""
ORDER = "__order"
"""Column of rows that an operator gives, BIGINT: the end of their window or their time, ms, or when their key was first touched in the batch. Rows for
people are shown in this order. NULL for rows that come from no operator."""


class RowKind(IntEnum):
    """What a row does to the result so far."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """As Flink prints it: +I, -U, +U, -D."""
        return ("+I", "-U", "+U", "-D")[self]


AGAIN, GONE = 4, 5
"""Beside the kinds that rows have: one that is given again, as it has been for a while; and one of these that a condition behind leaves out now. Neither is given to a sink as such."""


class ChangelogMode(StrEnum):
    """Which kinds of rows there are. `upsert`: +I, +U and -D by primary key, without the rows before; a -D may have its key only."""

    INSERT_ONLY = "insert-only"
    UPSERT = "upsert"
    ALL = "all"


def changelog_of(plan: Plan) -> ChangelogMode:
    """The changes that a plan gives in a stream."""
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
            # Of rows that stay, the first to arrive stay the first.
            stays = plan.by_arrival and not is_updating(plan.input)
            return ChangelogMode.INSERT_ONLY if stays else ChangelogMode.ALL
        case nodes.Rank():
            return ChangelogMode.INSERT_ONLY
        case nodes.ChangelogNormalize() | nodes.WindowEmit():
            return ChangelogMode.ALL
        case nodes.GroupAggregate():
            # Without calls it is DISTINCT: a row that has come once stays, unless its last copy is taken back.
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
    """Whether rows of a plan may change or leave again."""
    return changelog_of(plan) is not ChangelogMode.INSERT_ONLY
