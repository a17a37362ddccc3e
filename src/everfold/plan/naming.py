"""Name the operators and the sources of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from everfold.plan.nodes import Plan, Root, Scan, is_stateful
from everfold.plan.parts import map_streamed_inputs
from everfold.plan.walk import operators_of, scans_of


def number_operators(roots: Sequence[Root]) -> tuple[Root, ...]:
    """Return the plans of a new job, whose operators are named w1, w2, …, as rows reach them."""
    names = map("w{}".format, count(1))

    def name_bottom_up(node: Plan) -> Plan:
        node = map_streamed_inputs(node, name_bottom_up)
        return replace(node, operator_id=next(names)) if is_stateful(node) else node

    return tuple(replace(root, input=name_bottom_up(root.input)) for root in roots)


def name_operators(roots: Sequence[Root], names: Sequence[str]) -> tuple[Root, ...]:
    """Return the plans with named operators.

    names: in the order of `operators_of`.
    """
    assert len(names) == len(operators_of(roots)), names
    left = iter(names)
    return _rename(roots, lambda node: replace(node, operator_id=next(left)) if is_stateful(node) else node)


def name_sources(roots: Sequence[Root], names: Sequence[str]) -> tuple[Root, ...]:
    """Return the plans with named sources.

    names: in the order of `scans_of`.
    """
    assert len(names) == len(scans_of(roots)), names
    left = iter(names)
    return _rename(roots, lambda node: replace(node, source_name=next(left)) if isinstance(node, Scan) else node)


def _rename(roots: Sequence[Root], change: Callable[[Plan], Plan]) -> tuple[Root, ...]:
    """Change the streamed nodes of the plans, topmost first."""

    def top_down(node: Plan) -> Plan:
        return map_streamed_inputs(change(node), top_down)

    return tuple(replace(root, input=top_down(root.input)) for root in roots)
