"""Merge what a task has prepared from several chunks of its rows, before the shuffle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeGuard

from everfold.operators.protocol import Operator

if TYPE_CHECKING:
    import polars as pl

_HELD_ROWS = 500_000
"""Prepared rows that wait for more of them."""
_FOLDED = 4
"""Prepared rows wait if there were at least this many times as many rows: then groups are likely to
occur in the next chunks too.
"""


class CombiningOperator(Operator, Protocol):
    """An operator whose prepared rows can be merged."""

    def combine(self, prepared: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Merge the results of `prepare` for successive chunks of rows."""


def is_combining(operator: Operator) -> TypeGuard[CombiningOperator]:
    """Return whether an operator can merge prepared rows."""
    return hasattr(operator, "combine")


@dataclass(slots=True)
class PreparedRows:
    """The prepared rows of a task, of which those wait that later ones are likely to change.

    A frame comes with the arrival number of its first row.
    """

    operator: Operator
    _waiting: list[pl.DataFrame] = field(default_factory=list)
    _seq: int = 0

    def add(self, prepared: pl.DataFrame, rows: int, seq: int) -> list[tuple[int, pl.DataFrame]]:
        """Add what was prepared from some rows, and return what need not wait any longer, in the
        order of arrival.
        """
        repeats = prepared.height * _FOLDED <= rows and not any(of.is_nested() for of in prepared.dtypes)
        if not is_combining(self.operator) or not repeats:
            return [*self.release(), (seq, prepared)]
        self._seq = self._seq if self._waiting else seq
        self._waiting.append(prepared)
        if sum(frame.height for frame in self._waiting) < _HELD_ROWS:
            return []
        self._waiting = [self.operator.combine(self._waiting)]
        return self.release() if self._waiting[0].height * 2 > _HELD_ROWS else []

    def release(self) -> list[tuple[int, pl.DataFrame]]:
        """Return the waiting rows."""
        waiting, self._waiting = self._waiting, []
        if not is_combining(self.operator) or not waiting:
            return []
        return [(self._seq, waiting[0] if len(waiting) == 1 else self.operator.combine(waiting))]
