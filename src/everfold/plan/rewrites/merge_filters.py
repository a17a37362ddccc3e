"""Merge filters."""

from __future__ import annotations

from dataclasses import replace

from everfold.plan.expressions import conjunction, conjuncts
from everfold.plan.nodes import Filter, Plan
from everfold.plan.parts import map_inputs


def merge_filters(plan: Plan) -> Plan:
    """Merge consecutive filters. The conditions of the lower one come first.

    Before: Filter(b > 0)
            └─ Filter(a > 0)
               └─ Scan(table=[t])
    After:  Filter(a > 0 AND b > 0)
            └─ Scan(table=[t])
    """
    node = map_inputs(plan, merge_filters)
    if not isinstance(node, Filter) or not isinstance(node.input, Filter):
        return node
    conditions = [*conjuncts(node.input.condition), *conjuncts(node.condition)]
    return replace(node, input=node.input.input, condition=conjunction(conditions))
