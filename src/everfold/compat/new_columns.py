"""New columns in rows that an earlier version of the query has emitted.

An aggregate that was added to a running job is NULL for a group until the group gets a row. A
column that is computed from it need not be (`COALESCE(COUNT(*), 0)`), but the emitted row of the
group lacks that column. So the column is NULL until then, too, and a retraction repeats the row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from everfold.plan.expressions import Call, Expr, InputRef, Literal, column_references, conjunction, inputs_of
from everfold.plan.nodes import (
    HAS_ROW,
    AggCall,
    Filter,
    GroupAggregate,
    OverAggregate,
    Plan,
    Project,
    Root,
    WindowAggregate,
)
from everfold.plan.parts import map_streamed_inputs
from everfold.types import BOOLEAN

_Aggregating: TypeAlias = GroupAggregate | WindowAggregate | OverAggregate


def hide_new_columns(root: Root) -> Root:
    """Return the plan in which columns that are computed from added aggregates are NULL for groups
    that have not got a row since.

    root: with the versions since which aggregates count (`carry_state`).
    """
    return replace(root, input=_hide(root.input))


def _hide(plan: Plan) -> Plan:
    plan = map_streamed_inputs(plan, _hide)
    if not isinstance(plan, Project):
        return plan
    below = plan.input
    while isinstance(below, Filter):
        below = below.input
    if not isinstance(below, _Aggregating):
        return plan
    first = len(below.input.schema if isinstance(below, OverAggregate) else below.keys)
    since = {first + position: call.since for position, call in enumerate(below.calls) if call.since}
    needed = {
        position: {since[column] for column in inputs_of(expression) & since.keys()}
        for position, expression in enumerate(plan.expressions)
        if not isinstance(expression, InputRef)
    }
    versions = sorted(set().union(*needed.values()))
    if not versions:
        return plan
    width = len(below.schema)
    flags = {
        version: InputRef(type=BOOLEAN.as_nullable(False), position=width + number)
        for number, version in enumerate(versions)
    }

    def hide(expression: Expr, added_in: set[int]) -> Expr:
        if not added_in:
            return expression
        condition = conjunction([flags[version] for version in sorted(added_in)])
        nothing = Literal(type=expression.type.as_nullable(), value=None)
        return Call(type=expression.type, function="CASE", args=(condition, expression, nothing), span=expression.span)

    expressions = (
        hide(expression, needed.get(position, set())) for position, expression in enumerate(plan.expressions)
    )
    return replace(plan, input=_replace_below(plan.input, _add_flags(below, versions)), expressions=tuple(expressions))


def _replace_below(plan: Plan, below: Plan) -> Plan:
    return replace(plan, input=_replace_below(plan.input, below)) if isinstance(plan, Filter) else below


def _add_flags(node: _Aggregating, versions: list[int]) -> Plan:
    """Return a node with a last column for each version: whether the group has got a row since."""
    calls = [AggCall(function=HAS_ROW, args=(), type=BOOLEAN.as_nullable(False), since=version) for version in versions]
    if not isinstance(node, WindowAggregate):
        return replace(node, calls=(*node.calls, *calls))
    flagged = replace(node, calls=(*node.calls, *calls))
    # The columns of the window come after the calls.
    columns = column_references(flagged.schema)
    first = len(node.keys) + len(node.calls)
    end = first + len(calls)
    ordered = [*columns[:first], *columns[end:], *columns[first:end]]
    return Project(input=flagged, expressions=tuple(ordered), names=tuple(each.name for each in ordered))
