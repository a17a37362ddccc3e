"""State that a changed query can reuse although its operators or calls are new."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from everfold.aggregates.registry import lookup
from everfold.aggregates.shared_state import related_calls
from everfold.compat.matching import all_below
from everfold.compat.shape import CallShape, OperatorShape, QueryShape
from everfold.plan.canonical import NO_CLOCK
from everfold.plan.windows import duration


def find_source_call(call: CallShape, old: Mapping[str, CallShape]) -> CallShape | None:
    """Return the old call whose state a new call can use; if there are several, the one with the
    longest history. None if there is none. old: by their texts.
    """
    if call.python:
        return None
    texts = related_calls(call.text, call.function)
    return min((old[text] for text in texts if text in old), key=lambda call: call.since, default=None)


def can_recount(call: CallShape, operator: OperatorShape, below: Sequence[OperatorShape]) -> bool:
    """Whether the current rows of the operators below are enough to compute a new call as if it had
    always existed.

    This requires that each operator below has its whole result in its state and never expires it,
    that the operator reads nothing else, and that row order does not matter.
    """
    if call.python or depends_on_row_order(call.function):
        return False
    if operator.kind != "GroupAggregate" or operator.emission or operator.kept.ttl_ms:
        return False
    return operator.input.updating and not operator.input.tables and all(map(holds_full_result, below))


def holds_full_result(operator: OperatorShape) -> bool:
    """Whether an operator has its whole result in its state and can re-emit it
    (`operators.reemit`).
    """
    if operator.kind == "OverAggregate":
        return operator.time == NO_CLOCK and not operator.kept.ttl_ms
    if operator.emission or operator.window or operator.kept.ttl_ms:
        return False
    if operator.kind == "GroupAggregate":
        return bool(operator.calls) or operator.input.updating
    return operator.kind == "ChangelogNormalize" or (operator.kind == "Rank" and not operator.by_arrival)


def can_reuse_slices(old: OperatorShape, new: OperatorShape) -> bool:
    """Whether each future window of the new operator consists of whole slices of the old one that
    are still stored.

    HOP keeps its slices as long as a window of its size needs them, so the new windows may be
    shorter, or hop by several slices. CUMULATE keeps the current total of its longest window.
    Aggregates that depend on row order cannot be carried over: within a window rows are in arrival
    order, across slices in the order of the slices.
    """
    old_kind, new_kind = _kind(old), _kind(new)
    if _offset(old) != _offset(new) or any(depends_on_row_order(call.function) for call in new.calls):
        return False
    if old_kind == "HOP" and new_kind in ("TUMBLE", "HOP"):
        # Slices narrower than the slide are removed with the last window that contains them, which
        # may be before another window needs them.
        if not old.window.startswith(f"HOP(slide={duration(old.kept.slice_ms)},"):
            return False
        return new.kept.slice_ms % old.kept.slice_ms == 0 and new.kept.size_ms <= old.kept.size_ms
    return old_kind == "CUMULATE" and new_kind == "TUMBLE" and new.kept.size_ms == old.kept.size_ms


def _kind(operator: OperatorShape) -> str:
    return operator.window.partition("(")[0]


def _offset(operator: OperatorShape) -> str:
    return operator.window.partition("offset=")[2]


def depends_on_row_order(function: str) -> bool:
    """Whether the result of an aggregate function may depend on row order."""
    entry = lookup(function)
    return entry is None or entry.is_ordered


def is_below_kept(shape: QueryShape, at: int, kept: Collection[int]) -> bool:
    """Whether a kept operator would receive rows from a new one.

    kept: the positions of operators that the old query had.
    """
    return any(at in all_below(shape, other) for other in kept)


def starts_complete(shape: QueryShape, at: int, kept: Collection[int]) -> bool:
    """Whether a new operator starts with all rows that it would have seen: the operators below
    re-emit their rows, and row order does not matter.
    """
    new = shape.operators[at]
    if (
        not new.below
        or new.input.tables
        or new.kept.ttl_ms
        or any(depends_on_row_order(call.function) for call in new.calls)
    ):
        return False
    return all(
        holds_full_result(shape.operators[one]) if one in kept else starts_complete(shape, one, kept)
        for one in new.below
    )


def may_retract_unseen_rows(shape: QueryShape, at: int, kept: Collection[int]) -> bool:
    """Whether rows may be retracted from a new operator that it has never seen.

    This does not affect the last rows by key.
    """
    new = shape.operators[at]
    over_changes = new.input.updating and new.kind != "ChangelogNormalize"
    return over_changes and (bool(new.input.tables) or any(one in kept for one in new.below))
