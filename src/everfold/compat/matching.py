"""Match the operators of a new query with those of the old one.

Queries are paired by the tables that they write and by their likeness. Operators are matched by
kind, keys and the tables below, from the sink down. The order decides nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from everfold.compat.shape import OperatorShape, QueryShape

NO_QUERY = QueryShape("", (), ())
"""The shape of a query that does not exist."""
_NOT_RENAMED: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class QueryPair:
    """An old query and the new one that takes its place; either may be `NO_QUERY`.

    matching: the position of the same operator in the old query, by that in the new one. Operators
        without a match are left out.
    offset: the number of operators in the old queries before the old one.
    is_redirected: whether the new query writes the result of the old one to another table.
    is_copy: whether another new query continues the old one, and this one starts with a copy of its
        state.
    """

    old: QueryShape
    new: QueryShape
    matching: Mapping[int, int]
    offset: int = 0
    is_redirected: bool = False
    is_copy: bool = False

    @property
    def old_positions(self) -> list[int | None]:
        """The position in the old job of the operator at each position of the new query, None for
        an operator that is new or of another kind: each kind stores its state in its own format.
        """
        old = [self.matching.get(at) for at in range(len(self.new.operators))]
        return [
            None if at is None or self.old.operators[at].kind != operator.kind else self.offset + at
            for at, operator in zip(old, self.new.operators, strict=True)
        ]

    def discard_old(self) -> QueryPair:
        """Return the new query alone: none of its operators uses the state of another one."""
        return QueryPair(NO_QUERY, self.new, {})


def pair_queries(
    old: Sequence[QueryShape], new: Sequence[QueryShape], renamed_sinks: Mapping[str, str] = _NOT_RENAMED
) -> list[QueryPair]:
    """Pair the queries of two jobs, and match their operators.

    Each new query is paired with the old one that writes the same table. Of several, the two that
    are most alike are paired first. A new query without an old one continues one that computes the
    same for another table, or starts with a copy of its state. Old queries that are left come last.
    renamed_sinks: the old name of each table of the new queries that was renamed.
    """
    offsets = list(accumulate((len(query.operators) for query in old), initial=0))
    same_table = [
        (a, b)
        for b, query in enumerate(new)
        for a in range(len(old))
        if old[a].sink == renamed_sinks.get(query.sink, query.sink)
    ]
    sources = _choose_alike(old, new, same_table)
    left = [a for a in range(len(old)) if a not in sources.values()]
    candidates = [
        (a, b) for b in range(len(new)) if b not in sources for a in range(len(old)) if _continues(old[a], new[b])
    ]
    redirected = _choose_alike(old, new, [(a, b) for a, b in candidates if a in left])
    copied: dict[int, int] = {}
    for b in dict.fromkeys(b for _, b in candidates if b not in redirected):
        copied |= _choose_alike(old, new, [candidate for candidate in candidates if candidate[1] == b])
    pairs = []
    for b, query in enumerate(new):
        a = sources.get(b, redirected.get(b, copied.get(b)))
        if a is None:
            pairs.append(QueryPair(NO_QUERY, query, {}))
        else:
            matching = match_operators(old[a], query)
            is_redirected, is_copy = b not in sources, b in copied
            pairs.append(QueryPair(old[a], query, matching, offsets[a], is_redirected, is_copy))
    dropped = [a for a in left if a not in redirected.values()]
    return [*pairs, *(QueryPair(old[a], NO_QUERY, {}, offsets[a]) for a in dropped)]


def _choose_alike(
    old: Sequence[QueryShape], new: Sequence[QueryShape], candidates: Sequence[tuple[int, int]]
) -> dict[int, int]:
    """Return the position of an old query by that of the new one, the most alike ones first.

    candidates: the positions of an old and a new query. Equally alike ones are chosen in this
    order.
    """
    return pair_alike(candidates, lambda a, b: _compare_queries(old[a], new[b]))


def pair_alike(
    candidates: Collection[tuple[int, int]], compare: Callable[[int, int], tuple[float, ...]]
) -> dict[int, int]:
    """Return the position of an old one by that of the new one, the most alike ones first.

    candidates: the positions of an old and a new one. Equally alike ones are chosen in this order.
    compare: returns how much two have in common. It is not asked about two that have no rival.
    """
    rivals = [Counter(positions) for positions in zip(*candidates, strict=True)]
    likeness = {(a, b): () if rivals[0][a] == rivals[1][b] == 1 else compare(a, b) for a, b in candidates}
    chosen: dict[int, int] = {}
    for a, b in sorted(candidates, key=likeness.__getitem__, reverse=True):
        if b not in chosen and a not in chosen.values():
            chosen[b] = a
    return chosen


def _compare_queries(old: QueryShape, new: QueryShape) -> tuple[float, ...]:
    """Return how much two queries have in common: operators over the same rows, calls, columns."""
    old_rows, new_rows = identify_rows(old), identify_rows(new)
    matching = match_operators(old, new)
    count = max(len(old.operators), len(new.operators), 1)
    same_rows = sum(old_rows[old_position] == new_rows[position] for position, old_position in matching.items())
    calls = sum(
        _common(old.operators[old_position], new.operators[position]) for position, old_position in matching.items()
    )
    texts = [Counter(column.text for column in query.columns) for query in (old, new)]
    columns = (texts[0] & texts[1]).total() / max(texts[0].total(), texts[1].total(), 1)
    conditions = [{condition.text for condition in query.conditions} for query in (old, new)]
    return same_rows / count, calls / count, float(conditions[0] == conditions[1]), columns


def compare_jobs(old: Sequence[QueryShape], new: Sequence[QueryShape]) -> tuple[float, ...]:
    """Return how much the queries of two jobs have in common, part by part in the order of weight.

    Each new query is compared with the old one that is most like it.
    """
    closest = (max(_compare_queries(query, other) for query in old) for other in new)
    return tuple(sum(parts) / len(new) for parts in zip(*closest, strict=True))


def continues_job(old: Sequence[QueryShape], new: Sequence[QueryShape]) -> bool:
    """Return whether each query of a new job computes what one of an old job does."""
    return all(any(_continues(query, other) for query in old) for other in new)


def _continues(old: QueryShape, new: QueryShape) -> bool:
    """Return whether a new query for another table computes what an old one does: each of its
    operators is over the same rows as one of the old query, and shares a call with it.
    """
    matching = match_operators(old, new)
    if not new.operators or len(matching) < max(len(new.operators), len(old.operators)):
        return False
    old_rows, new_rows = identify_rows(old), identify_rows(new)
    return all(
        old_rows[old_position] == new_rows[position]
        and _shares_calls(old.operators[old_position], new.operators[position])
        for position, old_position in matching.items()
    )


def _shares_calls(old: OperatorShape, new: OperatorShape) -> bool:
    return not (old.calls or new.calls) or not {*old.calls}.isdisjoint(new.calls)


def match_operators(old: QueryShape, new: QueryShape) -> dict[int, int]:
    """Match the operators of two queries.

    Return the position of the same operator in the old query, by that in the new one.
    """
    matcher = _Matcher(old, new)
    matcher.match(old.tops, new.tops)
    return matcher.matching


class _Matcher:
    def __init__(self, old: QueryShape, new: QueryShape) -> None:
        self._old, self._new = old, new
        self._old_rows, self._new_rows = identify_rows(old), identify_rows(new)
        self.matching: dict[int, int] = {}

    def match(self, olds: Sequence[int], news: Sequence[int]) -> None:
        """Match operators of one level, and what is below each pair."""
        left, right = list(olds), list(news)
        while left and right:
            likeness, one, other = max((self._compare(a, b), -a, -b) for a in left for b in right)
            one, other = -one, -other
            if not likeness.same or (len(left), len(right)) == (1, 1):
                one, other = self._find_deeper(left, right, likeness) or (one, other)
            self.matching[other] = one
            left = [each for each in left if each != one and one not in all_below(self._old, each)]
            right = [each for each in right if each != other and other not in all_below(self._new, each)]
            self.match(self._old.operators[one].below, self._new.operators[other].below)
            if left and right and max(self._compare(a, b) for a in left for b in right).hopeless:
                return

    def _compare(self, one: int, other: int) -> _Likeness:
        a, b = self._old.operators[one], self._new.operators[other]
        return _Likeness(
            kind=a.kind == b.kind,
            scans=a.scans == b.scans,
            keys=sorted(a.keys) == sorted(b.keys),
            rows=self._old_rows[one] == self._new_rows[other],
            calls=_common(a, b),
        )

    def _find_deeper(self, olds: Sequence[int], news: Sequence[int], likeness: _Likeness) -> tuple[int, int] | None:
        """Return a pair of which one operator is below this level, since an operator was added or
        removed on top of it.

        The pair is certainly the same operator, and more alike than the best pair of this level.
        None if there is none.
        """
        pairs = [(one, below) for one in olds for other in news for below in all_below(self._new, other)]
        pairs += [(below, other) for other in news for one in olds for below in all_below(self._old, one)]
        candidates = [(deeper, -a, -b) for a, b in pairs if (deeper := self._compare(a, b)).same and deeper > likeness]
        if not candidates:
            return None
        _, one, other = max(candidates)
        return -one, -other


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class _Likeness:
    """How much two operators have in common; compared field by field, in order."""

    kind: bool
    scans: bool
    keys: bool
    rows: bool
    calls: float

    @property
    def same(self) -> bool:
        """Whether they are certainly the same operator."""
        return self.kind and self.scans and self.keys

    @property
    def hopeless(self) -> bool:
        """Whether they have nothing in common."""
        return not self.kind and not self.scans


def identify_rows(shape: QueryShape) -> list[str]:
    """Return a digest of the rows of each operator of a query, whatever is computed for them.

    Equal digests mean the same groups or partitions over the same input, down to the tables.
    """
    digests: dict[int, str] = {}

    def identify(position: int) -> str:
        if position not in digests:
            operator = shape.operators[position]
            branches = [
                (
                    branch.table if branch.operator is None else identify(branch.operator),
                    branch.filters,
                    branch.windows,
                    branch.joins,
                )
                for branch in operator.input.branches
            ]
            of_operator = (operator.kind, operator.keys, operator.order, operator.window, operator.time)
            rows = repr((of_operator, operator.emission, operator.counted, branches))
            digests[position] = hashlib.sha256(rows.encode()).hexdigest()
        return digests[position]

    return [identify(position) for position in range(len(shape.operators))]


def _common(a: OperatorShape, b: OperatorShape) -> float:
    """Return the share of the calls that both have."""
    together = {*a.calls, *b.calls}
    return len({*a.calls} & {*b.calls}) / len(together) if together else 1.0


def all_below(shape: QueryShape, at: int) -> Iterator[int]:
    """Yield the positions of the operators below one."""
    for each in shape.operators[at].below:
        yield each
        yield from all_below(shape, each)
