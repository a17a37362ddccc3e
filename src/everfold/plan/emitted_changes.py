"""Which kinds of changes a plan emits in a stream."""

from __future__ import annotations

from typing import assert_never

from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import (
    ChangelogNormalize,
    Filter,
    GroupAggregate,
    Join,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Scan,
    SetOperation,
    Sort,
    TimeKind,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.walk import walk_plan


def changelog_of(plan: Plan) -> ChangelogMode:
    """Return the kinds of changes that a plan emits in a stream."""
    return plan.remember("changelog", _changelog_of)


def _changelog_of(plan: Plan) -> ChangelogMode:
    match plan:
        case Scan():
            return plan.table.changelog
        case WindowAggregate(lateness_ms=int()):
            return ChangelogMode.ALL
        case Values() | WindowAggregate():
            return ChangelogMode.INSERT_ONLY
        case Rank(window=None):
            # If no input row is retracted, the first rows to arrive remain the first.
            stays = plan.is_by_arrival and not is_updating(plan.input)
            return ChangelogMode.INSERT_ONLY if stays else ChangelogMode.ALL
        case Rank():
            return ChangelogMode.INSERT_ONLY
        case ChangelogNormalize() | WindowEmit() | OverAggregate(time=TimeKind.BOUNDED):
            return ChangelogMode.ALL
        case GroupAggregate():
            # Without calls it is DISTINCT: a row stays until its last copy is retracted.
            return ChangelogMode.ALL if plan.calls else changelog_of(plan.input)
        case (
            WatermarkAssigner()
            | Project()
            | Filter()
            | Unnest()
            | WindowTableFunction()
            | OverAggregate()
            | Sort()
            | Limit()
        ):
            return changelog_of(plan.input)
        case Union():
            modes = {changelog_of(each) for each in plan.inputs}
            return modes.pop() if len(modes) == 1 else ChangelogMode.ALL
        case Join() | SetOperation():
            return changelog_of(plan.left)
        case _:
            assert_never(plan)


def is_updating(plan: Plan) -> bool:
    """Return whether rows of a plan may be changed or retracted later."""
    return changelog_of(plan) is not ChangelogMode.INSERT_ONLY


def check_batch_input(plan: Plan, *, streaming: bool) -> None:
    """Check that no table that a batch reads contains changes.

    Upserts are none: a batch reads the last row of each key. Raises UnsupportedFeature
    `changes-in-batch`.

    streaming: the batch is one side of a stream's join.
    """
    for node in walk_plan(plan):
        if isinstance(node, Scan) and node.table.changelog is ChangelogMode.ALL:
            raise UnsupportedFeature.of(
                "changes-in-batch",
                f"table `{node.table.name}` contains changes, but a batch reads only rows",
                node.span or node.table.span,
                "write the changes to an `upsert-kafka` or `jdbc` table, and join with that"
                if streaming
                else "run the query as a stream",
            )
