"""Aggregates that keep the same state over the same values, so that one can use another's.

SUM and AVG keep the sum and the number of values; the variances and standard deviations keep the
number of values and their moments. COUNT of an argument is the number of values, which all of them
keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

_MOMENTS = frozenset({"VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"})
_SUMS = frozenset({"SUM", "AVG"})
_NONNULL, _COUNT = "nonnull", "count"
"""The slot with the number of values, and its name in COUNT."""


def source_functions(function: str) -> frozenset[str]:
    """Return the functions whose state over the same values contains this function's state."""
    for family in (_SUMS, _MOMENTS):
        if function in family:
            return family - {function}
    return _SUMS | _MOMENTS if function == "COUNT" else frozenset()


def related_calls(text: str, function: str) -> list[str]:
    """Return the canonical texts of the calls from whose state that of a call can be derived.

    They are other functions over the same values. COUNT(*) has no values, and DISTINCT has another
    state, so both have none.
    """
    rest = text.removeprefix(function)
    if rest.startswith(("()", "(DISTINCT ")):
        return []
    return [other + rest for other in sorted(source_functions(function))]


@cache
def slot_synonyms(column: str) -> tuple[str, ...]:
    """Return other names of a slot `<canonical text>|<slot>[ since <version>]` in a page.

    They hold the same values, kept by a related function.
    """
    text, _, rest = column.rpartition("|")
    slot, _, since = rest.partition(" ")
    function = text.partition("(")[0]
    return tuple(f"{other}|{name}{since and f' {since}'}" for other, name in _related_slots(text, function, slot))


def matching_columns(column: str, there: Collection[str]) -> list[str]:
    """Return the columns of a page that hold a slot: its own name first, then the synonyms."""
    return [each for each in (column, *slot_synonyms(column)) if each in there]


def _related_slots(text: str, function: str, slot: str) -> Iterator[tuple[str, str]]:
    for other in related_calls(text, function):
        yield other, _NONNULL if function == "COUNT" else slot
