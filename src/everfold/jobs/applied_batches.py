"""Record of the last batches that the sinks of a job have applied.

It is written after the sinks have applied a batch, and before Spark commits the batch. So a sink
that holds less than the record says has lost rows, as a database that was restored from an older
dump. A batch without rows leaves no trace in most sinks, and is not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from everfold.checkpoint.damage import damaged_checkpoint_error
from everfold.connectors.contract import AppliedBatch
from everfold.jobs.foreach_batch import Target
from everfold.jobs.manifest import Version
from everfold.jobs.sink_tables import sink_name
from everfold.storage import Location

APPLIED = "applied_batches.json"
_KEPT_EPOCHS = 20

Number: TypeAlias = tuple[int, int]
"""The epoch and the number of a batch."""


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """The batches that one sink has applied.

    location: of its table. batches: the last one of each epoch, and the last two of the newest
    epoch, of which the checkpoint may have to run the last one again.
    """

    location: str
    batches: tuple[Number, ...]

    def add(self, number: Number) -> SinkRecord:
        """Return the record with another batch."""
        epochs = sorted({epoch for epoch, _ in self.batches} - {number[0]})[-_KEPT_EPOCHS:]
        earlier = [max(other for other in self.batches if other[0] == epoch) for epoch in epochs]
        same = [other for other in self.batches if other[0] == number[0] and other != number]
        return SinkRecord(self.location, (*earlier, *same[-1:], number))


@dataclass(slots=True)
class AppliedBatches:
    """The records of all sinks of a job, by the name of the sink.

    folder: the job directory. locations: where the tables of the sinks are now. A record of another
    location does not count.
    """

    folder: Location
    locations: Mapping[str, str]
    _records: dict[str, SinkRecord] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Location, version: Version) -> AppliedBatches:
        """Read the records of a job. Raises StateError `damaged-checkpoint`."""
        locations = {
            sink_name(position, note["table"]): note.get("location", "")
            for position, note in enumerate(version.sinks or ())
        }
        return cls(folder, locations, _read_records(folder / APPLIED))

    def find_last(self, sink: str, location: str, counts: Callable[[Number], bool]) -> Number | None:
        """Return the last batch that a sink has applied, of those that count.

        location: of its table now.
        """
        record = self._records.get(sink)
        if record is None or record.location != location:
            return None
        return max(filter(counts, record.batches), default=None)

    def add(self, targets: Sequence[Target], epoch: int, batch: int) -> None:
        """Record a batch for the sinks that have applied it. Raises OSError."""
        applied = [target.name for target in targets if target.sink.applied == (epoch, batch)]
        for sink in applied:
            location = self.locations.get(sink, "")
            record = self._records.get(sink)
            if record is None or record.location != location:
                record = SinkRecord(location, ())
            self._records[sink] = record.add((epoch, batch))
        if applied:
            self._write()

    def replace(self, held: Mapping[str, AppliedBatch | None]) -> None:
        """Record what sinks hold now. held: the last batch of each sink, None for none."""
        for sink, last in held.items():
            record = self._records.pop(sink, None)
            if record is not None and last is not None:
                self._records[sink] = SinkRecord(record.location, ((last.epoch, last.batch),))
        self._write()

    def _write(self) -> None:
        members = {
            sink: {"location": record.location, "batches": record.batches} for sink, record in self._records.items()
        }
        (self.folder / APPLIED).write(json.dumps(members))


def _read_records(path: Location) -> dict[str, SinkRecord]:
    try:
        members = json.loads(path.read_bytes())
        return {name: _parse(member) for name, member in members.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_checkpoint_error(path) from error


def _parse(member: Mapping[str, Any]) -> SinkRecord:
    batches: Collection[Any] = member["batches"]
    numbers = tuple((epoch, batch) for epoch, batch in batches)
    if type(member["location"]) is not str or any(type(part) is not int for number in numbers for part in number):
        raise ValueError
    return SinkRecord(member["location"], numbers)
