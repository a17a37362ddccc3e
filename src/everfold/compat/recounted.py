"""Calls that are new over rows that change, and are computed of these rows as they are: the operators below have them in their state."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.compat.shape import NO_CLOCK, CallShape, OperatorShape
from everfold.compat.slices import is_ordered


def recountable(call: CallShape, operator: OperatorShape, below: Sequence[OperatorShape]) -> bool:
    """Whether a call of an operator has, computed of the rows that the operators below it have now, what it would have if it had always been there.

    So each of them must have its whole result in its state, and forget nothing; the operator must read nothing else; and the order in which rows came must not matter.
    """
    if call.python or is_ordered(call.function):
        return False
    if operator.kind != "GroupAggregate" or operator.emission or operator.kept.ttl_ms:
        return False
    return operator.input.updating and not operator.input.tables and all(map(has_its_result, below))


def has_its_result(operator: OperatorShape) -> bool:
    """Whether an operator has all rows of its result in its state and can give them again (`operators.again`)."""
    if operator.kind == "OverAggregate":
        return operator.time == NO_CLOCK and not operator.kept.ttl_ms
    if operator.emission or operator.window or operator.kept.ttl_ms:
        return False
    if operator.kind == "GroupAggregate":
        return bool(operator.calls) or operator.input.updating
    return operator.kind == "ChangelogNormalize" or (operator.kind == "Rank" and not operator.by_arrival)
