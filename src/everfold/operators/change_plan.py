"""Plan what happens to the operators of a job when its query changes.

A pure function of the old shapes and the new plans. Jobs on Spark (`jobs.change_plan`) and the
in-process engine (`memory.pipeline`) carry the same plan out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from everfold.compat.carry import carry_state
from everfold.compat.matching import QueryPair
from everfold.compat.operator_ids import fresh_names
from everfold.compat.reuse import starts_complete
from everfold.compat.rules import CompatOptions
from everfold.operators.backfill import NEW_OPERATOR, list_calls, no_backfill_error, restrict_to_new_calls
from everfold.operators.reemit import operators_to_reemit
from everfold.plan.naming import name_operators
from everfold.plan.nodes import Root
from everfold.plan.walk import operators_of


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """What happens to an operator of the new query.

    label: for people.
    old_position: the position of the old operator whose state it continues with, None if it starts
        without state.
    backfill: the calls whose past is computed, for people; None if there are none.
    reemits: whether it re-emits its current rows in the first batch.
    copied_from: the name of the operator with whose state it starts, if that operator continues,
        too; empty otherwise.
    """

    operator_id: str
    label: str
    old_position: int | None
    backfill: tuple[str, ...] | None
    reemits: bool
    copied_from: str = ""


@dataclass(frozen=True, slots=True)
class QueryChange:
    """The new plans, whose operators and aggregates are linked to their state, and what happens to
    each operator, by position.
    """

    roots: tuple[Root, ...]
    operators: tuple[OperatorChange, ...]


def plan_operators(
    pairs: Sequence[QueryPair],
    old_names: Sequence[str],
    roots: Sequence[Root],
    version: int,
    terms: CompatOptions,
    *,
    taken: Collection[str],
    backfill: bool = False,
    refresh: Collection[int] = (),
    reset: bool = False,
) -> QueryChange:
    """Plan a change of a job's queries.

    pairs: the old and new queries, the new ones in the order of `roots`. old_names: the names of
    the old operators, by position. version: the number of the new version. taken: the names of all
    operators that the job has ever had. backfill: new aggregates are computed from past input.
    refresh: the positions of the queries whose operators re-emit the result. reset: all operators
    start without state.

    Raises StateError `no-backfill` if a new aggregate or operator cannot be backfilled.
    """
    pairs = pairs[: len(roots)]
    old_positions = [position for pair in pairs for position in pair.old_positions]
    copies = [pair.is_copy for pair in pairs for _ in pair.old_positions]
    fresh = fresh_names(taken)
    names = [
        next(fresh) if position is None or is_copy else old_names[position]
        for position, is_copy in zip(old_positions, copies, strict=True)
    ]
    carried = name_operators(
        [
            carry_state(pair.discard_old() if reset else pair, root, version, terms)
            for pair, root in zip(pairs, roots, strict=True)
        ],
        names,
    )
    new = {name for name, position in zip(names, old_positions, strict=True) if position is None}
    reemitting = (
        operators_to_reemit(root, version, refresh=number in refresh, fresh=new)
        for number, root in enumerate([] if reset else carried)
    )
    reemitting_names = {node.operator_id for node in chain.from_iterable(reemitting)}
    changes = []
    for pair, root in zip(pairs, carried, strict=True):
        for at, (node, shape) in enumerate(zip(operators_of([root]), pair.new.operators, strict=True)):
            new_calls = None
            if backfill and pair.old_positions[at] is not None:
                new_calls = restrict_to_new_calls(node, version)
            elif backfill and at not in pair.matching and not starts_complete(pair.new, at, pair.matching.keys()):
                raise no_backfill_error(NEW_OPERATOR, node.span)
            changes.append(
                OperatorChange(
                    node.operator_id,
                    shape.label,
                    pair.old_positions[at],
                    None if new_calls is None else list_calls(new_calls),
                    node.operator_id in reemitting_names,
                    old_names[position] if pair.is_copy and (position := pair.old_positions[at]) is not None else "",
                )
            )
    return QueryChange(carried, tuple(changes))
