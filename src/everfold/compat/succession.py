"""What a new query takes over of an old one's state: the plan in which every aggregate knows since when it counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from everfold.compat.matching import Matching, matched
from everfold.compat.shape import OperatorShape, QueryShape, shape_of
from everfold.plan.canonical import call_text
from everfold.plan.nodes import (
    AggCall,
    GroupAggregate,
    Join,
    OverAggregate,
    Plan,
    Root,
    WindowAggregate,
    children,
    is_stateful,
    with_children,
)


@dataclass(frozen=True, slots=True)
class Succession:
    """root: the new plan, its kept aggregates counting since when they did, the others since this version. matching: its operators, by their
    places among those that flow (`QueryShape.operators`)."""

    root: Root
    matching: Matching


def succeeding(old: QueryShape, root: Root, version: int) -> Succession:
    """The new plan as the version of that number. An aggregate that was dropped and comes back begins anew: its number tells it from what is left of
    the old one on disk."""
    new = shape_of(root)
    matching = matched(old, new)
    twins = matching.old
    known = [old.operators[twins[at]] if at in twins else None for at in range(len(new.operators))]
    return Succession(replace(root, input=_counting(root.input, iter(known), version)), matching)


def _counting(node: Plan, known: Iterator[OperatorShape | None], version: int) -> Plan:
    """The plan, operators taken in the order in which they stand among those that flow."""
    old = next(known) if is_stateful(node) else None
    made = tuple(
        child if isinstance(node, Join) and at == 1 else _counting(child, known, version)
        for at, child in enumerate(children(node))
    )
    if isinstance(node, GroupAggregate | WindowAggregate | OverAggregate):
        since = {} if old is None else {call.text: call.since for call in old.calls}
        calls = tuple(_since(call, since.get(call_text(call, node.input), version)) for call in node.calls)
        node = replace(node, calls=calls)
    return with_children(node, made)


def _since(call: AggCall, version: int) -> AggCall:
    return replace(call, since=version)
