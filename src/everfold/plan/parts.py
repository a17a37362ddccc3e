"""The parts of plan nodes: inputs, expressions over the columns of these, positions of columns.

The annotations of a node's class tell which fields hold them, so a new node needs no code here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

from everfold.plan.expressions import Expr, inputs_of, move_references
from everfold.plan.nodes import AggCall, Join, Plan, Rank, SortKey, WindowEmit

N = TypeVar("N", bound=Plan)


def _fields_of(*types: str) -> dict[type, tuple[str, ...]]:
    """Return the fields of each class whose annotation mentions one of the types."""
    return {
        node: tuple(each.name for each in fields(node) if {*types} & {*re.findall(r"\w+", str(each.type))})
        for node in get_args(Plan)
    }


_INPUTS = _fields_of("Plan")
_EXPRESSIONS = _fields_of("Expr", "AggCall", "SortKey")
_COLUMNS = _fields_of("Column")


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
    return replace(node, **_name_inputs(node, inputs))


def _name_inputs(node: Plan, inputs: Sequence[Plan]) -> dict[str, Any]:
    """Return the fields of a node for its inputs."""
    names = _INPUTS[type(node)]
    return {"inputs": tuple(inputs)} if names == ("inputs",) else dict(zip(names, inputs, strict=True))


def map_inputs(node: N, change: Callable[[Plan], Plan]) -> N:
    """Return the node with each input replaced by what `change` returns for it."""
    return with_children(node, tuple(map(change, children(node))))


def map_streamed_inputs(node: N, change: Callable[[Plan], Plan]) -> N:
    """Return the node with each streamed input replaced by what `change` returns for it."""
    streamed = streamed_children(node)
    return with_children(node, (*map(change, streamed), *children(node)[len(streamed) :]))


# --- expressions and columns ----------------------------------------------------------------------


def expressions_of(node: Plan) -> Iterator[Expr]:
    """Yield the expressions of a node, including those in calls and sort keys."""
    return _find_expressions(getattr(node, name) for name in _EXPRESSIONS[type(node)])


def calls_of(node: Plan) -> tuple[AggCall, ...]:
    """Return the aggregate calls of a node."""
    calls: tuple[AggCall, ...] = getattr(node, "calls", ())
    return calls


def _find_expressions(values: Iterable[Any]) -> Iterator[Expr]:
    for value in values:
        match value:
            case None:
                pass
            case tuple():
                yield from _find_expressions(value)
            case AggCall():
                yield from value.expressions
            case SortKey():
                yield value.expression
            case _:
                yield value


def map_expressions(node: N, change: Callable[[Expr], Expr], inputs: Sequence[Plan]) -> N:
    """Return the node with each expression replaced by what `change` returns for it.

    inputs: the inputs over which the returned expressions are.
    """
    return replace(node, **_name_inputs(node, inputs), **_change_expressions(node, change))


def _change_expressions(node: Plan, change: Callable[[Expr], Expr]) -> dict[str, Any]:
    def changed(value: Any) -> Any:
        match value:
            case None:
                return None
            case tuple():
                return tuple(map(changed, value))
            case AggCall():
                return value.map_expressions(change)
            case SortKey():
                return replace(value, expression=change(value.expression))
            case _:
                return change(value)

    return {name: changed(getattr(node, name)) for name in _EXPRESSIONS[type(node)]}


def columns_read(node: Plan) -> frozenset[int]:
    """Return the positions of the input columns that a node reads, without those it only passes on.

    Those of a join are over both sides, left first.
    """
    found = set().union(*map(inputs_of, expressions_of(node)))
    for name in _COLUMNS[type(node)]:
        value = getattr(node, name)
        found |= set(value) if isinstance(value, tuple) else {value}
    if isinstance(node, Rank | WindowEmit) and node.window is not None:
        found.add(node.window.end)
    return frozenset(found)


def move_columns(node: N, positions: Mapping[int, int], inputs: Sequence[Plan]) -> N:
    """Return the node over inputs that have the columns it reads at other positions.

    positions: the new position of each column in `columns_read`.
    """
    moved: dict[str, Any] = {}
    for name in _COLUMNS[type(node)]:
        value = getattr(node, name)
        moved[name] = tuple(positions[at] for at in value) if isinstance(value, tuple) else positions[value]
    if isinstance(node, Rank | WindowEmit) and node.window is not None:
        moved["window"] = replace(node.window, end=positions[node.window.end])
    moved |= _change_expressions(node, lambda each: move_references(each, positions))
    return replace(node, **_name_inputs(node, inputs), **moved)
