"""What becomes of the rows in a sink when a job goes back in its input, and they come again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Again(StrEnum):
    """A sink's way with rows that come again: it keeps none, they take the place of those of their keys (and in the last case it also finds the keys
    that do not come again), what it has is withdrawn first, or they are there twice."""

    FORGOTTEN = "forgotten"
    OVERWRITTEN = "overwritten"
    COMPARED = "compared"
    WITHDRAWN = "withdrawn"
    TWICE = "twice"

    @property
    def when_back(self) -> str:
        """What a rollback means, for people."""
        return _WHEN_BACK[self]

    @property
    def when_anew(self) -> str:
        """What a rebuild means, for people."""
        return _WHEN_ANEW[self]


_OVERWRITTEN = "rows are overwritten by their PRIMARY KEY as they come again"
_WHEN_BACK = {
    Again.FORGOTTEN: "nothing, it keeps no rows",
    Again.OVERWRITTEN: f"{_OVERWRITTEN}; keys that only later versions wrote stay",
    Again.COMPARED: f"{_OVERWRITTEN}; keys that only later versions wrote stay",
    Again.WITHDRAWN: "the job's files of later batches are withdrawn when it starts",
    Again.TWICE: "rows that come again are there twice",
}
_WHEN_ANEW = {
    Again.FORGOTTEN: "nothing, it keeps no rows",
    Again.OVERWRITTEN: f"{_OVERWRITTEN}; keys that do not come again stay",
    Again.COMPARED: f"{_OVERWRITTEN}; keys that do not come again are counted when the job has caught up, and deleted with --prune",
    Again.WITHDRAWN: "the job's files are withdrawn when it starts",
    Again.TWICE: "rows that come again are there twice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Which of a job's batches count, now that it has gone back in its input.

    job: its name. epoch: that of the job now. last: by epoch the last batch that counts, None for all; those of other epochs do not count.
    origin: the epoch in which it last began at the beginning of its input, 0 for the first. sinks: by table the names that its sinks have had: a name counts
    the INSERTs before it.
    """

    job: str
    epoch: int
    last: Mapping[int, int | None]
    origin: int
    sinks: Mapping[str, frozenset[str]]

    def counts(self, epoch: int, batch: int) -> bool:
        """Whether a batch does."""
        if epoch not in self.last:
            return False
        last = self.last[epoch]
        return last is None or batch <= last
