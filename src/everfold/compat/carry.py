"""The plan of a new query over the state of an old one: each aggregate has the version in which its state begins, each operator the types of its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from everfold.compat.kept_types import keep_types
from everfold.compat.matching import Matching, matched
from everfold.compat.rules import REFERENCE, Change, Terms
from everfold.compat.shape import QueryShape, shape_of
from everfold.plan.canonical import call_text
from everfold.plan.nodes import (
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


def succeeding(old: QueryShape, root: Root, version: int, terms: Terms = REFERENCE) -> Succession:
    """The new plan as the version of that number. An aggregate that was dropped and comes back begins anew: its number tells it from what is left of
    the old one on disk. terms: by which the change was judged."""
    new = shape_of(root)
    matching = matched(old, new)
    twins = matching.old
    changes = [
        Change(old.operators[twins[at]], each, terms) if at in twins else None for at, each in enumerate(new.operators)
    ]
    return Succession(replace(root, input=_succeed(root.input, iter(changes), version)), matching)


def _since(change: Change) -> dict[str, int]:
    """The versions in which the state of calls begins, for which there is some."""
    derived = {call.text: source.since for call, source in change.derived.items()}
    return {call.text: call.since for call in change.old.calls} | derived


def _succeed(node: Plan, changes: Iterator[Change | None], version: int) -> Plan:
    """The plan, operators taken in the order in which they stand among those that flow."""
    change = next(changes) if is_stateful(node) else None
    made = tuple(
        child if isinstance(node, Join) and at == 1 else _succeed(child, changes, version)
        for at, child in enumerate(children(node))
    )
    if isinstance(node, GroupAggregate | WindowAggregate | OverAggregate):
        since = {} if change is None else _since(change)
        calls = tuple(replace(call, since=since.get(call_text(call, node.input), version)) for call in node.calls)
        node = replace(node, calls=calls)
    node = with_children(node, made)
    return keep_types(node, change.old, change.new) if change is not None and is_stateful(node) else node
