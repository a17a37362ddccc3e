"""What becomes of the rows in a sink when a job goes back in its input, and they come again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Again(StrEnum):
    """A sink's way with rows that come again: it keeps none, they take the place of those of their keys (COMPARED: and the sink finds the keys that do not
    come again; OVERWRITTEN: it does not, as stands in older manifests of upsert-kafka), what it has is withdrawn first, or they are there twice."""

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
_COUNTED = "are counted when the job has caught up, and deleted with --prune"
_WHEN_BACK = {
    Again.FORGOTTEN: "nothing, it keeps no rows",
    Again.OVERWRITTEN: f"{_OVERWRITTEN}; keys that only later versions wrote stay",
    Again.COMPARED: f"{_OVERWRITTEN}; keys that only later versions wrote {_COUNTED}",
    Again.WITHDRAWN: "the job's files of later batches are withdrawn when it starts",
    Again.TWICE: "rows that come again are there twice",
}
_WHEN_ANEW = {
    Again.FORGOTTEN: "nothing, it keeps no rows",
    Again.OVERWRITTEN: f"{_OVERWRITTEN}; keys that do not come again stay",
    Again.COMPARED: f"{_OVERWRITTEN}; keys that do not come again {_COUNTED}",
    Again.WITHDRAWN: "the job's files are withdrawn when it starts",
    Again.TWICE: "rows that come again are there twice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a job has been before it was what it is: which of its batches count.

    job: its name. epoch: that of the job now. last: by epoch the last batch that counts, None for all; those of other epochs do not count.
    back: the epoch in which it last went back in its input, None if it never has. left: the first of the epochs that it then left, None if it began anew and left all.
    sinks: by table the names that its sinks have had: a name counts the INSERTs before it.
    """

    job: str
    epoch: int
    last: Mapping[int, int | None]
    back: int | None
    left: int | None
    sinks: Mapping[str, frozenset[str]]

    def counts(self, epoch: int, batch: int) -> bool:
        """Whether a batch does."""
        if epoch not in self.last:
            return False
        last = self.last[epoch]
        return last is None or batch <= last

    def left_over(self, table: str, count: int, first: Sequence[str], *, pruned: bool) -> str | None:
        """What is said of the keys of a table that are left over of what does not count; None without any. first: some of them."""
        if not count:
            return None
        what = f"table `{table}`: keys that {'' if self.left is None else 'only later versions wrote and that '}did not come again"
        if pruned:
            return f"{what}, now deleted: {count:,}"
        return f"{what}: {count:,} ({', '.join(first)}{', …' * (count > len(first))}); --prune deletes their rows"
