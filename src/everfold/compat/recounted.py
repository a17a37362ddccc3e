"""Calls that are new over rows that change, and are computed of these rows as they are: the operators below have them in their state."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates.registry import lookup
from everfold.compat.shape import CallShape, OperatorShape


def recountable(call: CallShape, operator: OperatorShape, below: Sequence[OperatorShape]) -> bool:
    """Whether a call of an operator has, computed of the rows that the operators below it have now, what it would have if it had always been there.

    So each of them must have its whole result in its state, and forget nothing; the operator must read nothing else; and the order in which rows came must not matter.
    """
    entry = None if call.python else lookup(call.function)
    if entry is None or entry.ordered or operator.kind != "GroupAggregate" or operator.emission or operator.kept.ttl_ms:
        return False
    return operator.input.updating and not operator.input.tables and all(map(_has_its_result, below))


def _has_its_result(operator: OperatorShape) -> bool:
    of_windows = bool(operator.emission or operator.window)
    return (
        operator.kind in ("GroupAggregate", "Rank", "ChangelogNormalize")
        and not of_windows
        and not operator.kept.ttl_ms
    )
