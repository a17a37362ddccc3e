"""Which operator of a new query is which of the old one: by kind, keys and the tables below, from the sink downwards, never by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from everfold.compat.shape import OperatorShape, QueryShape


@dataclass(slots=True)
class Matching:
    """pairs: places of operators that are the same one, old and new. Others have no twin."""

    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def old(self) -> dict[int, int]:
        """The old operator of each new one."""
        return {new: old for old, new in self.pairs}


NOTHING = QueryShape("", (), ())
"""The shape of a query that is not there."""


def twins(old: Sequence[QueryShape], new: Sequence[QueryShape]) -> list[tuple[QueryShape, QueryShape]]:
    """The queries of two jobs: each new one with the old one that writes the same table, bare ones by their order; then the old ones that are left."""
    left = list(old)
    found = []
    for each in new:
        twin = next((one for one in left if one.sink == each.sink), None)
        if twin is not None:
            left.remove(twin)
        found.append((twin or NOTHING, each))
    return [*found, *((each, NOTHING) for each in left)]


def matched(old: QueryShape, new: QueryShape) -> Matching:
    """The operators of two queries, one by one."""
    found = Matching()
    _match(old, new, old.tops, new.tops, found)
    return found


def _match(old: QueryShape, new: QueryShape, olds: Sequence[int], news: Sequence[int], found: Matching) -> None:
    """Matches operators side by side, and what lies below each pair."""
    left, right = list(olds), list(news)
    while left and right:
        score, one, other = max((_likeness(old, a, new, b), -a, -b) for a in left for b in right)
        one, other = -one, -other
        if not score.same or (len(left), len(right)) == (1, 1):
            one, other = _deeper(old, left, new, right, score) or (one, other)
        found.pairs.append((one, other))
        left = [each for each in left if each != one and one not in all_below(old, each)]
        right = [each for each in right if each != other and other not in all_below(new, each)]
        _match(old, new, old.operators[one].below, new.operators[other].below, found)
        if left and right and max(_likeness(old, a, new, b) for a in left for b in right).hopeless:
            return


@dataclass(frozen=True, slots=True, order=True)
class _Likeness:
    """How much two operators have in common; compares from the first to the last."""

    kind: bool
    scans: bool
    keys: bool
    calls: float

    @property
    def same(self) -> bool:
        """Whether they are one operator beyond doubt."""
        return self.kind and self.scans and self.keys

    @property
    def hopeless(self) -> bool:
        """Whether they have nothing in common."""
        return not self.kind and not self.scans


def _likeness(old: QueryShape, one: int, new: QueryShape, other: int) -> _Likeness:
    a, b = old.operators[one], new.operators[other]
    return _Likeness(a.kind == b.kind, a.scans == b.scans, sorted(a.keys) == sorted(b.keys), _common(a, b))


def _common(a: OperatorShape, b: OperatorShape) -> float:
    """The part of the calls that both have."""
    together = {*a.calls, *b.calls}
    return len({*a.calls} & {*b.calls}) / len(together) if together else 1.0


def _deeper(
    old: QueryShape, olds: Sequence[int], new: QueryShape, news: Sequence[int], score: _Likeness
) -> tuple[int, int] | None:
    """A pair of operators of which one is below those that stand side by side, since something has come on top of it or has gone from there: they are the same beyond
    doubt, and more alike than those are."""
    pairs = [(one, below) for one in olds for other in news for below in all_below(new, other)]
    pairs += [(below, other) for other in news for one in olds for below in all_below(old, one)]
    found = [(likeness, -a, -b) for a, b in pairs if (likeness := _likeness(old, a, new, b)).same and likeness > score]
    if not found:
        return None
    _, one, other = max(found)
    return -one, -other


def all_below(shape: QueryShape, at: int) -> Iterator[int]:
    """The operators below one, by their places."""
    for each in shape.operators[at].below:
        yield each
        yield from all_below(shape, each)
