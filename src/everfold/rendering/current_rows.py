"""The current rows of a changing result: what its changes add up to."""

from __future__ import annotations

from typing import Generic, TypeVar

from everfold.plan.changelog import RowKind

_ADDED_KINDS = frozenset({RowKind.INSERT.short, RowKind.UPDATE_AFTER.short})
Cells = tuple[str | None, ...]
_Row = TypeVar("_Row")


class CurrentRows(Generic[_Row]):
    """The current rows, which are equal if their cells are. An updated row keeps its position."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._positions: dict[Cells, list[int]] = {}
        self._next = 0
        self._vacated: int | None = None

    def apply(self, kind: str, cells: Cells, row: _Row) -> None:
        """Apply a change. Retracting a row that does not exist has no effect."""
        if kind in _ADDED_KINDS:
            position = self._next if self._vacated is None or kind == RowKind.INSERT.short else self._vacated
            self._next += position == self._next
            self._rows[position] = row
            self._positions.setdefault(cells, []).append(position)
            self._vacated = None
            return
        positions = self._positions.get(cells)
        if not positions:
            return
        position = positions.pop(0)
        if not positions:
            del self._positions[cells]
        del self._rows[position]
        self._vacated = position if kind == RowKind.UPDATE_BEFORE.short else None

    def rows(self) -> list[_Row]:
        """Return all rows, in order of position."""
        return [self._rows[position] for position in sorted(self._rows)]
