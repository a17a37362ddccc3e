"""Walks over plans: the inputs of nodes, and the expressions over these inputs.

Which fields of a node hold them follows from the annotations of its class, so a new node needs no
code here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

from everfold.plan.expressions import Expr
from everfold.plan.nodes import AggCall, Join, Plan, Root, Scan, SortKey, StatefulNode, Table, is_stateful

N = TypeVar("N", bound=Plan)

_NODES = get_args(Plan)
_INPUTS = {node: tuple(of.name for of in fields(node) if of.type in ("Plan", "tuple[Plan, ...]")) for node in _NODES}
_EXPRESSIONS = {
    node: tuple(of.name for of in fields(node) if any(part in of.type for part in ("Expr", "AggCall", "SortKey")))
    for node in _NODES
}
"""The fields with inputs and with expressions, by class."""


# --- inputs ---------------------------------------------------------------------------------------


def children(node: Plan) -> tuple[Plan, ...]:
    """Return the inputs of a node."""
    found: list[Plan] = []
    for name in _INPUTS[type(node)]:
        value = getattr(node, name)
        found += value if isinstance(value, tuple) else (value,)
    return tuple(found)


def streamed_children(node: Plan) -> tuple[Plan, ...]:
    """Return the inputs that a stream reads as streams, which come first among the children.

    The right side of a join is left out: it is read as a batch.
    """
    return (node.left,) if isinstance(node, Join) else children(node)


def with_children(node: N, inputs: Sequence[Plan]) -> N:
    """Return the node with other inputs, the node itself if they are the same objects."""
    if all(new is old for new, old in zip(inputs, children(node), strict=True)):
        return node
    names = _INPUTS[type(node)]
    return replace(node, **{"inputs": tuple(inputs)} if names == ("inputs",) else dict(zip(names, inputs, strict=True)))


def map_inputs(node: N, change: Callable[[Plan], Plan]) -> N:
    """Return the node with each input replaced by what `change` returns for it."""
    return with_children(node, tuple(map(change, children(node))))


def map_streamed_inputs(node: N, change: Callable[[Plan], Plan]) -> N:
    """Return the node with each streamed input replaced by what `change` returns for it."""
    streamed = streamed_children(node)
    return with_children(node, (*map(change, streamed), *children(node)[len(streamed) :]))


# --- expressions ----------------------------------------------------------------------------------


def expressions_of(node: Plan) -> Iterator[Expr]:
    """Yield the expressions of a node, those within calls and sort keys included."""
    return _find_expressions(getattr(node, name) for name in _EXPRESSIONS[type(node)])


def _find_expressions(values: Iterable[Any]) -> Iterator[Expr]:
    for value in values:
        match value:
            case None:
                pass
            case tuple():
                yield from _find_expressions(value)
            case AggCall():
                yield from _find_expressions((value.args, value.filter))
            case SortKey():
                yield value.expression
            case _:
                yield value


def map_expressions(node: N, change: Callable[[Expr], Expr]) -> N:
    """Return the node with each expression replaced by what `change` returns for it."""

    def changed(value: Any) -> Any:
        match value:
            case None:
                return None
            case tuple():
                return tuple(map(changed, value))
            case AggCall():
                return replace(value, args=changed(value.args), filter=changed(value.filter))
            case SortKey():
                return replace(value, expression=change(value.expression))
            case _:
                return change(value)

    return replace(node, **{name: changed(getattr(node, name)) for name in _EXPRESSIONS[type(node)]})


# --- whole plans ----------------------------------------------------------------------------------


def walk_plan(node: Plan) -> Iterator[Plan]:
    """Yield the node and all nodes below it, topmost first."""
    return _walk(node, children)


def walk_streamed(node: Plan) -> Iterator[Plan]:
    """Yield the node and all streamed nodes below it, topmost first.

    The side of a join that is read as a batch is left out.
    """
    return _walk(node, streamed_children)


def _walk(node: Plan, below: Callable[[Plan], tuple[Plan, ...]]) -> Iterator[Plan]:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += reversed(below(each))


def batch_inputs(node: Plan) -> Iterator[Plan]:
    """Yield the sides of the joins below a node that are read as a batch."""
    return (each.right for each in walk_streamed(node) if isinstance(each, Join))


def last_operators(plan: Plan) -> Iterator[StatefulNode]:
    """Yield the topmost operators of a plan: the plan itself if it is one."""
    if is_stateful(plan):
        yield plan
        return
    for child in streamed_children(plan):
        yield from last_operators(child)


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
