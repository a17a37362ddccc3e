"""Merge projections."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from everfold.limits import MAX_MERGED
from everfold.plan.expressions import Expr, InputRef, PythonCall, calls_python, depth, inputs_of, substitute, walk
from everfold.plan.nodes import Plan, Project
from everfold.plan.parts import map_inputs


def merge_projects(plan: Plan) -> Plan:
    """Merge consecutive projections, and drop those that change nothing.

    A column that is used more than once is not duplicated, unless it is a reference or a constant.

    Before: Project(y + 1 AS z)
            └─ Project(x * 2 AS y, b)
               └─ Project(a AS x, b)
    After:  Project(a * 2 + 1 AS z)
    """
    node = map_inputs(plan, merge_projects)
    while isinstance(node, Project):
        below = node.input
        if isinstance(below, Project) and _is_merge_cheap(node, below):
            expressions = tuple(substitute(each, below.expressions) for each in node.expressions)
            node = replace(node, input=below.input, expressions=expressions)
        elif node.names == below.schema.names and all(
            isinstance(each, InputRef) and each.position == at for at, each in enumerate(node.expressions)
        ):
            return below
        else:
            break
    return node


def _is_merge_cheap(above: Project, below: Project) -> bool:
    for expression in above.expressions:
        # A Python call must remain a whole expression.
        if not isinstance(expression, InputRef) and any(
            calls_python(below.expressions[at]) for at in inputs_of(expression)
        ):
            return False
    parts = (part for expression in above.expressions for part in walk(expression))
    uses = Counter(part.position for part in parts if isinstance(part, InputRef))
    if not all(count == 1 or _costs_nothing(below.expressions[at]) for at, count in uses.items()):
        return False
    return (
        max(map(depth, above.expressions), default=0) + max((depth(below.expressions[at]) for at in uses), default=0)
        <= MAX_MERGED
    )


def _costs_nothing(expression: Expr) -> bool:
    return not isinstance(expression, PythonCall) and not getattr(expression, "args", ())
