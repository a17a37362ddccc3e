"""Rewrites: the same meaning with less work.

Each rule is a function in a module of its own. Its name is that of the function, and its docstring
has an example of a plan before and after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TypeAlias

from everfold.plan.nodes import Plan, Root
from everfold.plan.rewrites.merge_filters import merge_filters
from everfold.plan.rewrites.merge_projects import merge_projects
from everfold.plan.rewrites.merge_unions import merge_unions
from everfold.plan.rewrites.prune_columns import prune_columns
from everfold.plan.rewrites.split_python_calls import split_python_calls

PlanRule: TypeAlias = Callable[[Plan], Plan]
JobRule: TypeAlias = Callable[[tuple[Root, ...]], tuple[Root, ...]]


def _to_each_plan(rule: PlanRule) -> JobRule:
    """Return the rule for the plans of a job."""

    @wraps(rule)
    def apply(roots: tuple[Root, ...]) -> tuple[Root, ...]:
        return tuple(replace(root, input=rule(root.input)) for root in roots)

    return apply


RULES: tuple[JobRule, ...] = (
    _to_each_plan(merge_projects),
    _to_each_plan(split_python_calls),
    prune_columns,
    _to_each_plan(merge_projects),
)
"""The rules for the plans that run as one job, in order."""

SHORTENING_RULES: tuple[PlanRule, ...] = (merge_projects, merge_filters, merge_unions)
"""The rules that reduce the height of a plan that is nested deeply, in order."""


def rewrite(roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """Apply all rules to the plans of a job.

    They are rewritten together: a table has the same columns wherever it is read.
    """
    for rule in RULES:
        roots = rule(roots)
    return roots


def shorten(plan: Plan) -> Plan:
    """Reduce the height of a plan by merging consecutive projections, filters and unions."""
    for rule in SHORTENING_RULES:
        plan = rule(plan)
    return plan
