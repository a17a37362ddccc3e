"""Windows that are others, and yet are made of the slices that are kept."""

from __future__ import annotations

from everfold.aggregates.registry import lookup
from everfold.compat.shape import OperatorShape
from everfold.plan.explain import duration


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
