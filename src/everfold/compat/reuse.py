"""State that a changed query can reuse although its operators or calls are new."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from everfold.aggregates.registry import lookup
from everfold.aggregates.shared_state import relatives
from everfold.compat.matching import all_below
from everfold.compat.shape import NO_CLOCK, CallShape, OperatorShape, QueryShape
from everfold.plan.explain import duration


def derived(call: CallShape, old: Sequence[CallShape]) -> CallShape | None:
    """The old call out of whose state that of a new one follows; of several the one that counts for longest. None if there is none."""
    if call.python:
        return None
    texts = relatives(call.text, call.function)
    return min((each for each in old if each.text in texts), key=lambda each: each.since, default=None)


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
    """Whether an operator has all rows of its result in its state and can give them again (`operators.reemit`)."""
    if operator.kind == "OverAggregate":
        return operator.time == NO_CLOCK and not operator.kept.ttl_ms
    if operator.emission or operator.window or operator.kept.ttl_ms:
        return False
    if operator.kind == "GroupAggregate":
        return bool(operator.calls) or operator.input.updating
    return operator.kind == "ChangelogNormalize" or (operator.kind == "Rank" and not operator.by_arrival)


def made_of_kept_slices(old: OperatorShape, new: OperatorShape) -> bool:
    """Whether each window that is still to come of the new ones is whole slices of the old ones, which are all there.

    HOP keeps its slices as long as a window of its size needs them: so the windows may be shorter, and hop by several slices. CUMULATE keeps what its longest
    window has so far. What depends on the order of rows does not follow: within a window it is that of their arrival, over slices that of the slices.
    """
    was, to_be = _kind(old), _kind(new)
    if _offset(old) != _offset(new) or any(is_ordered(call.function) for call in new.calls):
        return False
    if was == "HOP" and to_be in ("TUMBLE", "HOP"):
        # Slices narrower than the slide go with the last window that holds them: earlier than another window may need them.
        if not old.window.startswith(f"HOP(slide={duration(old.kept.slice_ms)},"):
            return False
        return new.kept.slice_ms % old.kept.slice_ms == 0 and new.kept.size_ms <= old.kept.size_ms
    return was == "CUMULATE" and to_be == "TUMBLE" and new.kept.size_ms == old.kept.size_ms


def _kind(operator: OperatorShape) -> str:
    return operator.window.partition("(")[0]


def _offset(operator: OperatorShape) -> str:
    return operator.window.partition("offset=")[2]


def is_ordered(function: str) -> bool:
    """Whether what an aggregate function gives depends on the order of rows, as far as is known."""
    entry = lookup(function)
    return entry is None or entry.ordered


def is_below_kept(shape: QueryShape, at: int, kept: Collection[int]) -> bool:
    """Whether a kept operator would take in rows of a new one. kept: places of operators that the old query had."""
    return any(at in all_below(shape, other) for other in kept)


def is_complete(shape: QueryShape, at: int, kept: Collection[int]) -> bool:
    """Whether a new operator begins with all that it would have seen: the operators below it give their rows again, and their order does not matter."""
    new = shape.operators[at]
    if not new.below or new.input.tables or new.kept.ttl_ms or any(is_ordered(call.function) for call in new.calls):
        return False
    return all(
        has_its_result(shape.operators[one]) if one in kept else is_complete(shape, one, kept) for one in new.below
    )


def is_blind(shape: QueryShape, at: int, kept: Collection[int]) -> bool:
    """Whether rows may be taken back from a new operator that it has never seen. The last rows by key do not mind."""
    new = shape.operators[at]
    over_changes = new.input.updating and new.kind != "ChangelogNormalize"
    return over_changes and (bool(new.input.tables) or any(one in kept for one in new.below))
