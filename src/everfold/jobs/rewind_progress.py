"""Progress of a job after a rewind.

Finds out when the job has reached its old position in the input, and which keys of its tables were
not replayed by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from everfold.checkpoint.logs import Position, last_planned_batch
from everfold.jobs.foreach_batch import Target
from everfold.jobs.sources import OpenedSource, read_position
from everfold.storage import Location

_UNREADABLE = (OSError, ValueError, KeyError, TypeError)
"""Errors of reading a damaged checkpoint, which may be the very reason for a rebuild."""


@dataclass(slots=True)
class RewindProgress:
    """Watch a job after a rewind until it reaches its old position in the input.

    checkpoint: the job's own. earlier: those of the versions that it left, oldest first.
    prune: delete the rows of keys that were not replayed. note: called with what was found.
    """

    checkpoint: Location
    earlier: Sequence[Location]
    targets: Sequence[Target]
    prune: bool
    note: Callable[[str], None]
    done: bool = False
    _positions: dict[str, list[Position]] = field(default_factory=dict)

    def report_lost_input(self, sources: Sequence[OpenedSource]) -> None:
        """Report which part of the input no longer exists. Call it before the first batch."""
        if last_planned_batch(self.checkpoint) >= 0:
            return
        for each in sources:
            old = self._old_positions(each.name)
            gone = None
            if each.source is not None and old:
                with suppress(*_UNREADABLE):
                    gone = each.source.describe_lost(old[-1])
            if each.source is not None and gone is not None:
                self.note(
                    f"table `{each.source.table.name}`: {gone} no longer exist; the job is rebuilt from the others"
                )

    def check_position(self, sources: Sequence[OpenedSource], offsets: Mapping[str, str]) -> None:
        """Check after a batch whether the job has reached its old position.

        offsets: the lines of the offset log by source. The check never succeeds if the old position
        is unknown.
        """
        known = any(self._old_positions(each.name) for each in sources)
        if known and not self.done and all(self._has_passed(each, offsets) for each in sources):
            self.finish()

    def finish(self) -> None:
        """Report the keys that were not replayed, once.

        Call it when the job has reached its old position.
        """
        if self.done:
            return
        self.done = True
        reports = [target.sink.report_leftovers(prune=self.prune) for target in self.targets]
        for each in dict.fromkeys(reports):  # several sinks may write one table
            if each is not None:
                self.note(each)

    def _has_passed(self, source: OpenedSource, offsets: Mapping[str, str]) -> bool:
        old = self._old_positions(source.name)
        if source.source is None or not old:
            return True
        if source.name not in offsets:
            return False
        now = Position(offsets[source.name], self.checkpoint / "sources" / source.name)
        with suppress(*_UNREADABLE):
            return all(source.source.has_passed(now, each) for each in old)
        return False

    def _old_positions(self, source: str) -> list[Position]:
        if source not in self._positions:
            self._positions[source] = []
            for checkpoint in self.earlier:
                with suppress(*_UNREADABLE):
                    found = read_position(checkpoint, source)
                    self._positions[source] += [] if found is None else [found]
        return self._positions[source]
