"""The effect of replayed rows on a sink after a job is rewound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class ReplayEffect(StrEnum):
    """The effect of replayed rows on a sink. The values are persisted in manifests."""

    KEEPS_NOTHING = "forgotten"
    """The sink keeps no rows."""
    OVERWRITES = "overwritten"
    """Replayed rows overwrite the rows of their keys. Also in older manifests of upsert-kafka."""
    OVERWRITES_AND_COMPARES = "compared"
    """As OVERWRITES, and the sink finds the keys that do not reappear."""
    WITHDRAWS = "withdrawn"
    """The sink withdraws the rows it has written before they are replayed."""
    DUPLICATES = "twice"
    """Replayed rows are duplicates."""

    @property
    def on_rollback(self) -> str:
        """The effect of a rollback, as a message."""
        return _WHEN_BACK[self]

    @property
    def on_rebuild(self) -> str:
        """The effect of a rebuild, as a message."""
        return _FROM_SCRATCH[self]


_OVERWRITTEN = "replayed rows overwrite existing rows by PRIMARY KEY"
_COUNTED = "are counted when the job has caught up, and deleted with --prune"
_WHEN_BACK = {
    ReplayEffect.KEEPS_NOTHING: "nothing, it keeps no rows",
    ReplayEffect.OVERWRITES: f"{_OVERWRITTEN}; keys that only later versions wrote stay",
    ReplayEffect.OVERWRITES_AND_COMPARES: f"{_OVERWRITTEN}; keys that only later versions wrote {_COUNTED}",
    ReplayEffect.WITHDRAWS: "the job's files of later batches are withdrawn when it starts",
    ReplayEffect.DUPLICATES: "replayed rows are duplicated",
}
_FROM_SCRATCH = {
    ReplayEffect.KEEPS_NOTHING: "nothing, it keeps no rows",
    ReplayEffect.OVERWRITES: f"{_OVERWRITTEN}; keys that do not reappear stay",
    ReplayEffect.OVERWRITES_AND_COMPARES: f"{_OVERWRITTEN}; keys that do not reappear {_COUNTED}",
    ReplayEffect.WITHDRAWS: "the job's files are withdrawn when it starts",
    ReplayEffect.DUPLICATES: "replayed rows are duplicated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLineage:
    """The epochs and batches whose output belongs to the current state of a job.

    job: its name. epoch: its current epoch. last_batches: by epoch, the last batch that belongs to
    the lineage, None for all batches; batches of other epochs do not belong to it. rewind_epoch:
    the epoch of the last rewind, None if there was none. first_discarded_epoch: the first epoch
    that this rewind discarded, None if the job restarted from scratch and discarded all. sinks: by
    table, the names that the job's sinks have had, as a name contains the number of the INSERTs
    before it. oldest_epoch: of the oldest version that is not expired. left_epochs: epochs whose
    batches will never belong to the lineage again.
    """

    job: str
    epoch: int
    last_batches: Mapping[int, int | None]
    rewind_epoch: int | None
    first_discarded_epoch: int | None
    sinks: Mapping[str, frozenset[str]]
    oldest_epoch: int = 0
    left_epochs: frozenset[int] = frozenset()

    def includes(self, epoch: int, batch: int) -> bool:
        """Return whether a batch belongs to the lineage."""
        if epoch not in self.last_batches:
            return False
        last = self.last_batches[epoch]
        return last is None or batch <= last

    def find_expired_snapshots(self, epochs: Iterable[int]) -> list[int]:
        """Return the epochs whose key snapshots are not needed, of those that have one.

        A rewind to a version that is not expired needs the snapshots since that version. The last
        rewind needs that of the first epoch that it has discarded, as long as its own is kept.
        """
        there, first = sorted(epochs), None
        if self.first_discarded_epoch is not None and (self.rewind_epoch or 0) >= self.oldest_epoch:
            since = self.first_discarded_epoch
            first = next((epoch for epoch in there if epoch >= since), None)
        return [epoch for epoch in there if epoch < self.oldest_epoch and epoch != first]

    def report_leftovers(self, table: str, count: int, first: Sequence[str], *, pruned: bool) -> str | None:
        """Return the message about a table's keys that did not reappear.

        count: the number of such keys; None is returned for 0. first: some of them.
        """
        if not count:
            return None
        later = "" if self.first_discarded_epoch is None else "only later versions wrote and that "
        what = f"table `{table}`: keys that {later}did not reappear"
        if pruned:
            return f"{what}, now deleted: {count:,}"
        return f"{what}: {count:,} ({', '.join(first)}{', …' * (count > len(first))}); --prune deletes their rows"
