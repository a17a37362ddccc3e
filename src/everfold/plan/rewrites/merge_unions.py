"""Merge unions."""

from __future__ import annotations

from dataclasses import replace

from everfold.plan.nodes import Plan, Union
from everfold.plan.parts import map_inputs


def merge_unions(plan: Plan) -> Plan:
    """Merge unions into the union that reads them. The order of the inputs stays the same.

    Before: UnionAll(inputs=[2])
            ├─ UnionAll(inputs=[2])
            │  ├─ Scan(table=[a])
            │  └─ Scan(table=[b])
            └─ Scan(table=[c])
    After:  UnionAll(inputs=[3])
            ├─ Scan(table=[a])
            ├─ Scan(table=[b])
            └─ Scan(table=[c])
    """
    node = map_inputs(plan, merge_unions)
    if not isinstance(node, Union) or not any(isinstance(each, Union) for each in node.inputs):
        return node
    inputs = (each.inputs if isinstance(each, Union) else (each,) for each in node.inputs)
    return replace(node, inputs=tuple(part for parts in inputs for part in parts))
