"""Aggregates that keep the same of the same values: what one of them has kept, another can go on with.

SUM and AVG keep the sum and how many values there are; the variances and standard deviations how many there are and their moments. COUNT of an
argument is how many there are, which all of them keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

_MOMENTS = frozenset({"VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"})
_SUMS = frozenset({"SUM", "AVG"})
_NONNULL, _COUNT = "nonnull", "count"
"""The slot of how many values there are, and what COUNT calls it."""


def derivable_from(function: str) -> frozenset[str]:
    """The functions out of whose state, over the same values, this one's follows as a whole."""
    for family in (_SUMS, _MOMENTS):
        if function in family:
            return family - {function}
    return _SUMS | _MOMENTS if function == "COUNT" else frozenset()


def relatives(text: str, function: str) -> list[str]:
    """Canonical texts of the calls out of whose state that of a call follows: of other functions over the same values. COUNT(*) has no values, and DISTINCT is kept otherwise."""
    rest = text.removeprefix(function)
    if rest.startswith(("()", "(DISTINCT ")):
        return []
    return [other + rest for other in sorted(derivable_from(function))]


@cache
def synonyms(column: str) -> tuple[str, ...]:
    """What else a page may call the slot that it calls `<canonical text>|<slot>[ since <version>]`: the same thing, kept by a relative."""
    text, _, rest = column.rpartition("|")
    slot, _, since = rest.partition(" ")
    function = text.partition("(")[0]
    return tuple(f"{other}|{named}{since and f' {since}'}" for other, named in _kept(text, function, slot))


def stored_as(column: str, there: Collection[str]) -> list[str]:
    """Which columns of a page have a slot, by the name that the page would call it: its own, then synonyms."""
    return [each for each in (column, *synonyms(column)) if each in there]


def _kept(text: str, function: str, slot: str) -> Iterator[tuple[str, str]]:
    for other in relatives(text, function):
        yield other, _NONNULL if function == "COUNT" else slot
