"""A branch of a plan: one way by which its rows come from a table or an operator.

A branch is a table or an operator with the conditions, joins and windows that its rows pass; UNION
ALL has those of all its inputs. A column has a text in every branch, which refers to the columns of
what the branch reads.

The conditions and the joins of a branch may be written in any order. A table or a collection that
occurs more than once in a branch is numbered, `dim.v#2`: by the text of its join, not by its
position. Windows are numbered from the innermost one, `window_start#2`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from everfold.plan.nodes import StatefulNode

_NUMBER = re.compile("\x01(\\d+)\x02")
"""Stands for the number of a joined table after the text of a column: the join's position."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One way by which rows come from a table or an operator.

    source: the name of the table, or the text of the operator or of constant rows.
    operator: the operator, None for a table and for constant rows.
    filters, windows, joins: the canonical texts of the conditions, of window functions without
        state, and of joins and UNNESTs on the way, sorted.
    columns: the canonical text of each column.
    used: how often each table or collection occurs below, by its name.
    window_count: how many windows are nested below.
    """

    source: str
    operator: StatefulNode | None
    filters: tuple[str, ...]
    windows: tuple[str, ...]
    joins: tuple[str, ...]
    columns: tuple[str, ...]
    used: Mapping[str, int]
    window_count: int

    @property
    def rows(self) -> tuple[str, ...]:
        """What identifies the rows of the branch, besides its conditions."""
        return (self.source, *self.windows, *self.joins)

    @property
    def text(self) -> str:
        """The canonical text of its rows."""
        return " ".join([*self.rows, *(f"WHERE {condition}" for condition in self.filters)])


@dataclass(frozen=True, slots=True)
class Joined:
    """A join or an UNNEST of a path.

    used: how often it reads each table or collection, by its name.
    is_test: whether it only keeps or drops rows, so that no other text refers to its columns.
    """

    text: str
    used: Mapping[str, int]
    is_test: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """A branch whose joins have no numbers yet."""

    source: str
    columns: tuple[str, ...]
    operator: StatefulNode | None = None
    filters: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    joins: tuple[Joined, ...] = ()
    used: Mapping[str, int] | None = None
    window_count: int = 0

    @property
    def mark(self) -> str:
        """What follows the texts of the columns of the next join."""
        return f"\x01{len(self.joins)}\x02"

    def join(self, joined: Joined, columns: Sequence[str] = ()) -> Path:
        """Return the path with a join. columns: those that it appends."""
        return replace(self, joins=(*self.joins, joined), columns=(*self.columns, *columns))


def join_alternatives(texts: Sequence[str]) -> str:
    """Return the text of a value with the given texts in the branches."""
    return texts[0] if all(text == texts[0] for text in texts) else f"({' | '.join(texts)})"


def name_window_columns(number: int) -> tuple[str, str, str]:
    """Return the texts of the columns that a window adds. number: 1 for the innermost window."""
    start, end, time = (f"window_{name}{_suffix(number)}" for name in ("start", "end", "time"))
    return start, end, time


def number_joins(path: Path) -> Branch:
    """Return a path as a branch whose joins are numbered."""
    used = Counter(path.used)
    suffixes = [""] * len(path.joins)
    identities = _identify_joins(path.joins)
    ordered = sorted((joined.is_test, identities[position], position) for position, joined in enumerate(path.joins))
    for *_, position in ordered:
        of_join = path.joins[position].used
        number = 1 + max((used[name] for name in of_join), default=0)
        used |= Counter({name: number - 1 + count for name, count in of_join.items()})
        suffixes[position] = _suffix(number)

    def render(text: str) -> str:
        return _NUMBER.sub(lambda mark: suffixes[int(mark[1])], text)

    return Branch(
        source=path.source,
        operator=path.operator,
        filters=tuple(sorted(map(render, dict.fromkeys(path.filters)))),
        windows=tuple(sorted(map(render, path.windows))),
        joins=tuple(sorted(render(joined.text) for joined in path.joins)),
        columns=tuple(map(render, path.columns)),
        used=used,
        window_count=path.window_count,
    )


def without_numbers(text: str) -> str:
    """Return a text without the numbers of joins."""
    return _NUMBER.sub("", text)


def _identify_joins(joins: Sequence[Joined]) -> list[str]:
    """Return texts by which joins are ordered, without the numbers of the joins before them."""
    identities: list[str] = []
    for joined in joins:
        digests = [hashlib.sha256(identity.encode()).hexdigest() for identity in identities]
        identities.append(_NUMBER.sub(lambda mark: [*digests, ""][int(mark[1])], joined.text))  # noqa: B023
    return identities


def _suffix(number: int) -> str:
    return "" if number == 1 else f"#{number}"
