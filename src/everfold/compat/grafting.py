"""Operators that are new beside kept ones or above them: what each begins with."""

from __future__ import annotations

from collections.abc import Collection

from everfold.compat.matching import all_below
from everfold.compat.recounted import has_its_result
from everfold.compat.shape import QueryShape
from everfold.compat.slices import is_ordered


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
