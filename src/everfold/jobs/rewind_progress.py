"""A job that went back in its input, on its way to where it stood before: when it is there, and what is then left over in its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from everfold.connectors.contract import Position
from everfold.jobs.foreach_batch import Target
from everfold.jobs.sources import OpenedSource, position_of
from everfold.jobs.spark_checkpoint import newest_batch

_UNREADABLE = (OSError, ValueError, KeyError, TypeError)
"""What a checkpoint that is damaged makes of reading it: a job may have begun anew for that very reason."""


@dataclass(slots=True)
class CatchingUp:
    """checkpoint: the job's own. earlier: those of the versions that it left, oldest first. prune: whether what is left over is deleted. note: told what is."""

    checkpoint: Path
    earlier: Sequence[Path]
    targets: Sequence[Target]
    prune: bool
    note: Callable[[str], None]
    done: bool = False
    _stood: dict[str, list[Position]] = field(default_factory=dict)

    def begin(self, sources: Sequence[OpenedSource]) -> None:
        """Before the first batch: says what of the input is gone."""
        if newest_batch(self.checkpoint / "offsets") >= 0:
            return
        for each in sources:
            then = self._then(each.name)
            gone = None
            if each.source is not None and then:
                with suppress(*_UNREADABLE):
                    gone = each.source.lost(then[-1])
            if each.source is not None and gone is not None:
                self.note(
                    f"table `{each.source.table.name}`: {gone} are gone; the job is rebuilt from those that are there"
                )

    def look(self, sources: Sequence[OpenedSource], offsets: Mapping[str, str]) -> None:
        """After a batch, by the source's lines of the offset log: whether the job is there. It never is if nobody knows where that was."""
        known = any(self._then(each.name) for each in sources)
        if known and not self.done and all(self._passed(each, offsets) for each in sources):
            self.arrive()

    def arrive(self) -> None:
        """The job is there: what is left over is told, once."""
        if self.done:
            return
        self.done = True
        said = [target.sink.left_over(prune=self.prune) for target in self.targets]
        for each in dict.fromkeys(said):  # several may write one table
            if each is not None:
                self.note(each)

    def _passed(self, source: OpenedSource, offsets: Mapping[str, str]) -> bool:
        then = self._then(source.name)
        if source.source is None or not then:
            return True
        if source.name not in offsets:
            return False
        now = Position(offsets[source.name], self.checkpoint / "sources" / source.name)
        with suppress(*_UNREADABLE):
            return all(source.source.has_passed(now, each) for each in then)
        return False

    def _then(self, source: str) -> list[Position]:
        if source not in self._stood:
            self._stood[source] = []
            for checkpoint in self.earlier:
                with suppress(*_UNREADABLE):
                    found = position_of(checkpoint, source)
                    self._stood[source] += [] if found is None else [found]
        return self._stood[source]
