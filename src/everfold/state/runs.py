"""A keyed table stored as a log of runs.

A batch appends one run to each position it touches and reads none of the old ones. A position is a
slice's end or a window's start. A run is one or more pages of rows whose keys may also occur in
other runs of the position; the reader folds the runs of a position together. Positions with many
runs are folded in tiers, so that each row is rewritten only a few times. The index (numbers, rows
and pages by position) is part of the operator's head page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from everfold.errors import StateError
from everfold.state.pages import MAX_PAGE_BYTES, decode, encode_pages
from everfold.state.store import PageKey, Store

MAX_RUNS = 8
"""More runs than this at one position are folded together."""
_PAGE_ROOM = MAX_PAGE_BYTES - (64 << 10)


@dataclass(slots=True)
class Run:
    """A run: the number of its first page, its page count and its row count."""

    first: int
    pages: int
    rows: int


@dataclass(slots=True)
class Runs:
    """The runs of one table of a bucket.

    index: the runs of each position, oldest first. next: the number of the next page.
    """

    store: Store
    epoch: int
    table: str
    index: dict[int, list[Run]] = field(default_factory=dict)
    next: int = 0

    @classmethod
    def decode(cls, store: Store, epoch: int, table: str, state: dict[str, Any] | None) -> Runs:
        """Decode the table from its head page entry; an empty table if there is none."""
        if state is None:
            return cls(store, epoch, table)
        index = {int(at): [Run(*run) for run in runs] for at, runs in state["runs"].items()}
        return cls(store, epoch, table, index, state["next"])

    def encode(self) -> dict[str, Any]:
        """Encode the table for the head page."""
        runs = {str(at): [[run.first, run.pages, run.rows] for run in runs] for at, runs in sorted(self.index.items())}
        return {"runs": runs, "next": self.next}

    @property
    def rows(self) -> int:
        """The number of rows in all runs."""
        return sum(run.rows for runs in self.index.values() for run in runs)

    def append(self, at: int, rows: pl.DataFrame) -> None:
        """Append a run to a position."""
        if rows.is_empty():
            return
        parts = max(1, -(-int(rows.estimated_size()) // _PAGE_ROOM))
        pages = encode_pages(rows, -(-rows.height // parts))
        for number, (blob, _) in enumerate(pages, self.next):
            self.store.put(PageKey(self.epoch, self.table, at, number), blob)
        self.index.setdefault(at, []).append(Run(self.next, len(pages), rows.height))
        self.next += len(pages)

    def read(self, at: int) -> list[pl.DataFrame]:
        """Return the pages of a position."""
        return [page for run in self.index.get(at, ()) for page in self._read(at, run)]

    def drop(self, at: int) -> None:
        """Remove a position without reading it."""
        for run in self.index.pop(at, ()):
            self._delete(at, run)

    def compact(self, at: int, fold: Callable[[list[pl.DataFrame]], pl.DataFrame]) -> None:
        """Fold the newest runs of a position into one if it has many.

        Older runs are included as long as the next one is not much larger.
        """
        runs = self.index.get(at, [])
        if len(runs) <= MAX_RUNS:
            return
        taken = rows = 0
        for run in reversed(runs):
            if taken >= MAX_RUNS // 2 and run.rows > 2 * rows:
                break
            taken, rows = taken + 1, rows + run.rows
        old = runs[-taken:]
        folded = fold([page for run in old for page in self._read(at, run)])
        for run in old:
            self._delete(at, run)
        del runs[-taken:]
        self.append(at, folded)

    def _read(self, at: int, run: Run) -> list[pl.DataFrame]:
        found = []
        for number in range(run.first, run.first + run.pages):
            blob = self.store.get(PageKey(self.epoch, self.table, at, number))
            if blob is None:
                raise StateError.of(
                    "damaged-page", f"page {number} of the state table `{self.table}` at {at} is missing"
                )
            found.append(decode(blob))
        return found

    def _delete(self, at: int, run: Run) -> None:
        for number in range(run.first, run.first + run.pages):
            self.store.delete(PageKey(self.epoch, self.table, at, number))
