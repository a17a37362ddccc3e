"""Walks over plans: their nodes, operators, scans and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from everfold.plan.nodes import Join, Plan, Root, Scan, StatefulNode, Table, is_stateful
from everfold.plan.parts import children, streamed_children


def walk_plan(node: Plan) -> Iterator[Plan]:
    """Yield the node and all nodes below it, topmost first."""
    return _walk(node, children)


def walk_without(fact: str, node: Plan) -> Iterator[Plan]:
    """Yield the node and all nodes below it that do not remember a fact yet, topmost first.

    Computed in the reverse order, the fact of each node needs no deep recursion.
    """
    return _walk(node, lambda parent: [child for child in children(parent) if not child.remembers(fact)])


def walk_streamed(node: Plan) -> Iterator[Plan]:
    """Yield the node and all streamed nodes below it, topmost first.

    The side of a join that is read as a batch is left out.
    """
    return _walk(node, streamed_children)


def _walk(node: Plan, below: Callable[[Plan], Sequence[Plan]]) -> Iterator[Plan]:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += reversed(below(each))


def batch_inputs(node: Plan) -> Iterator[Plan]:
    """Yield the sides of the joins below a node that are read as a batch."""
    return (each.right for each in walk_streamed(node) if isinstance(each, Join))


def walk_to_operators(plan: Plan) -> Iterator[Plan]:
    """Yield the streamed nodes of a plan down to its topmost operators, these included."""
    return _walk(plan, lambda each: () if is_stateful(each) else streamed_children(each))


def last_operators(plan: Plan) -> Iterator[StatefulNode]:
    """Yield the topmost operators of a plan: the plan itself if it is one."""
    return (each for each in walk_to_operators(plan) if is_stateful(each))


def operators_of(roots: Iterable[Root]) -> list[StatefulNode]:
    """Return the operators of plans, topmost first, in the order of their positions in a job."""
    return [node for root in roots for node in walk_streamed(root.input) if is_stateful(node)]


def scans_of(roots: Iterable[Root]) -> list[Scan]:
    """Return the scans that plans read as streams, in the order in which they are lowered."""
    return [node for root in roots for node in walk_streamed(root.input) if isinstance(node, Scan)]


def tables_of(nodes: Iterable[Plan]) -> list[Table]:
    """Return the tables read by the given nodes (`walk_plan`, `walk_streamed`), once per scan."""
    return [node.table for node in nodes if isinstance(node, Scan)]


def tables_read(roots: Iterable[Root]) -> tuple[Table, ...]:
    """Return the tables that plans read, each once, in the order of first use."""
    return tuple(dict.fromkeys(table for root in roots for table in tables_of(walk_plan(root.input))))


def is_constant(node: Plan) -> bool:
    """Return whether a plan streams no table: it runs as a batch in either mode."""
    return not tables_of(walk_streamed(node))
