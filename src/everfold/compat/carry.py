"""Carry state from an old query to a new plan.

Each aggregate gets the version in which its state begins, and each operator the types of its
existing state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from everfold.compat.kept_types import keep_types
from everfold.compat.matching import QueryPair
from everfold.compat.reuse import starts_complete
from everfold.compat.rules import REFERENCE, Change, CompatOptions
from everfold.compat.shape import QueryShape
from everfold.plan.canonical import call_text
from everfold.plan.nodes import GroupAggregate, OverAggregate, Plan, Root, WindowAggregate, is_stateful
from everfold.plan.parts import map_streamed_inputs


def carry_state(pair: QueryPair, root: Root, version: int, terms: CompatOptions = REFERENCE) -> Root:
    """Return the new plan as the version with that number, which uses the state of the old query.

    Aggregates with state keep the version in which they started, the others start with this one.
    Operators keep the names that an earlier release gave to their state. An
    aggregate that was dropped and is added again starts from scratch: its version number
    distinguishes it from what is left of the old one on disk. terms: the options by which the
    change was judged.
    """
    old, twins = pair.old.operators, pair.matching
    changes = [
        Change(old[twins[at]], each, terms) if at in twins else None for at, each in enumerate(pair.new.operators)
    ]
    return replace(root, input=_carry(root.input, iter(changes), version))


def record_coverage(
    pair: QueryPair, shape: QueryShape, version: int, options: CompatOptions, *, is_backfilled: bool
) -> QueryShape:
    """Return the shape of the new query of a pair, whose calls know since when they cover rows.

    shape: of the new query, as the version with that number. is_backfilled: whether what its new
    calls have missed is computed from past input.
    """
    start = 0 if is_backfilled else version
    operators = []
    for position, operator in enumerate(shape.operators):
        if position in pair.matching:
            change = Change(pair.old.operators[pair.matching[position]], operator, options, shape.below(operator))
            since = dict.fromkeys(change.added_calls, start)
            since |= {call: source.counts_since for call, source in change.derived_calls.items()}
            kept = ((call, change.find_old(call)) for call in operator.calls)
            since |= {call: old.counts_since for call, old in kept if old is not None}
        else:
            is_complete = starts_complete(shape, position, frozenset(pair.matching))
            since = dict.fromkeys(operator.calls, 0 if is_complete else version)
        calls = tuple(replace(call, counts_since=since.get(call, 0)) for call in operator.calls)
        operators.append(replace(operator, calls=calls))
    return replace(shape, operators=tuple(operators))


def _since(change: Change) -> dict[str, int]:
    """Return the versions in which the state of calls begins, for calls that have state."""
    derived = {call.text: source.since for call, source in change.derived_calls.items()}
    return {call.text: call.since for call in change.old.calls} | derived


def _carry(node: Plan, changes: Iterator[Change | None], version: int) -> Plan:
    """Return the plan with its state assigned.

    `changes` has the operators in their order among the streaming ones.
    """
    change = next(changes) if is_stateful(node) else None
    if isinstance(node, GroupAggregate | WindowAggregate | OverAggregate):
        since = {} if change is None else _since(change)
        calls = tuple(replace(call, since=since.get(call_text(node, call), version)) for call in node.calls)
        node = replace(node, calls=calls)
    if is_stateful(node) and change is not None and change.old.state_names:
        node = replace(node, state_names=change.old.state_names)
    node = map_streamed_inputs(node, lambda child: _carry(child, changes, version))
    return keep_types(node, change.old, change.new) if change is not None and is_stateful(node) else node
