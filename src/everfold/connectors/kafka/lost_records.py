"""Compare the position of a job in topics with the records that the brokers still have.

A topic has an id, which is another one after it was deleted and created again. The records of a
partition begin at its first offset, which retention moves forward, and end before its end offset,
which an unclean election of a leader can move back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from everfold.connectors.kafka.client import Client, Offsets, TopicDescription
from everfold.connectors.lost_input import Gap, LostInput

_ATTEMPTS = 3
_WAIT_S = 1.0
"""A new leader of a partition may report an end that is too low for a moment."""


def parse_ids(identity: str) -> dict[str, str]:
    """Return the ids of topics by name. identity: as `format_ids` returns it, or empty."""
    return dict(json.loads(identity)) if identity else {}


def format_ids(ids: Mapping[str, str]) -> str:
    """Return the ids of topics as a string, empty if none is known."""
    return json.dumps(dict(sorted(ids.items()))) if ids else ""


def find_recreated(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topics that have another id than before, without those whose id is not known."""
    return tuple(sorted(topic for topic in old.keys() & new.keys() if old[topic] != new[topic]))


@dataclass(frozen=True, slots=True)
class JobOffsets:
    """The offsets that a job reads next.

    planned: the ends of a batch that is planned and not finished, None without one. ids: those of
    the topics that the job has read, as far as they are known.
    """

    next: Offsets
    planned: Offsets | None
    ids: Mapping[str, str]

    def find_loss_in_batch(self, client: Client) -> LostInput | None:
        """Return what is gone of the records of the planned batch, None if they are all there.

        Asks the brokers for little. Raises ConnectorError.
        """
        assert self.planned is not None, "no batch is planned"
        starts = {
            topic: {partition: self._start(topic, partition) for partition in of} for topic, of in self.planned.items()
        }
        read = {
            topic: [partition for partition, end in of.items() if end != starts[topic][partition]]
            for topic, of in self.planned.items()
        }
        described = client.describe_topics(topic for topic, partitions in read.items() if partitions)
        is_same = not find_recreated(self.ids, read_ids(described)) and all(
            not partitions or (topic in described and described[topic].partitions.issuperset(partitions))
            for topic, partitions in read.items()
        )
        if is_same:
            first = client.first_offsets(read)
            is_same = all(
                first[topic][partition] <= starts[topic][partition] < self.planned[topic][partition]
                for topic, partitions in read.items()
                for partition in partitions
            )
        return None if is_same else self.find_loss(client)

    def find_loss(self, client: Client) -> LostInput | None:
        """Return what the brokers no longer have of what the job reads next, None if they have all.

        Raises ConnectorError.
        """
        described = client.describe_topics(dict.fromkeys([*client.partitions(), *self.next]))
        recreated = find_recreated(self.ids, read_ids(described))
        partitions = {topic: sorted(found.partitions) for topic, found in described.items()}
        for attempt in range(_ATTEMPTS):
            first, end = client.first_offsets(partitions), client.end_offsets(partitions)
            gaps = list(self._find_gaps(first, end, recreated))
            is_behind = any(gap.resumed is not None and gap.resumed <= gap.position for _, _, gap in gaps)
            if recreated or not is_behind or attempt == _ATTEMPTS - 1:
                break
            time.sleep(_WAIT_S)
        if not gaps and not recreated:
            return None
        resumed = {topic: dict(offsets) for topic, offsets in self.next.items()}
        for topic, partition, gap in gaps:
            if gap.resumed is None:
                del resumed[topic][partition]
            else:
                resumed.setdefault(topic, {})[partition] = gap.resumed
        line = {topic: {str(number): offset for number, offset in of.items()} for topic, of in resumed.items() if of}
        found = tuple(gap for _, _, gap in gaps)
        return LostInput(client.table, found, json.dumps(line, separators=(",", ":")), recreated)

    def _find_gaps(self, first: Offsets, end: Offsets, recreated: Collection[str]) -> Iterator[tuple[str, int, Gap]]:
        for topic, partition in _list_partitions(self.next, first):
            split = f"topic `{topic}` partition {partition}"
            offset = self._start(topic, partition)
            if partition not in first.get(topic, {}):
                yield topic, partition, Gap(split, offset, None)
                continue
            available, last = first[topic][partition], end[topic][partition]
            if topic in recreated:
                if available != offset:
                    yield topic, partition, Gap(split, offset, available)
            elif offset < available:
                yield topic, partition, Gap(split, offset, available)
            elif max(offset, self._planned_end(topic, partition)) > last:
                yield topic, partition, Gap(split, offset, min(offset, last))

    def _start(self, topic: str, partition: int) -> int:
        """Return the next offset of a partition. One that was added is read from its beginning."""
        return self.next.get(topic, {}).get(partition, 0)

    def _planned_end(self, topic: str, partition: int) -> int:
        return -1 if self.planned is None else self.planned.get(topic, {}).get(partition, -1)


def read_ids(described: Mapping[str, TopicDescription]) -> dict[str, str]:
    """Return the ids of topics, without those that are not known."""
    return {topic: found.topic_id for topic, found in described.items() if found.topic_id}


def _list_partitions(*by_topic: Offsets) -> list[tuple[str, int]]:
    return sorted({(topic, partition) for offsets in by_topic for topic, of in offsets.items() for partition in of})
