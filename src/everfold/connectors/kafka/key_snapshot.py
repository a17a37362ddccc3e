"""Key snapshots: find the keys of a topic that a job does not write again after a rewind.

When an epoch of the job begins, the topic is read to its end, and the hashes of its keys are stored
in the job directory, with the end offsets of its partitions. They could not be found later:
compaction removes the record of a key that a later version has overwritten.

When a job that has rewound has caught up, the topic is read again. A key is pending if the topic
had it at the rewind and no record has had it since. Keys in the snapshot of the first discarded
epoch are excluded: the discarded epochs have not added them.

A topic does not tell whose records it has: records that somebody else has written since count too.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from everfold.connectors.kafka.client import log
from everfold.connectors.replay import JobLineage
from everfold.storage import Location

_FETCH_RECORDS = 10_000
_WAIT_S = 0.1
"""How long the client waits for that many records."""
_TIMEOUT_S = 60.0
_SUFFIX = ".arrow"


class KeyedRecord(NamedTuple):
    """The part of a record that decides which keys a topic has. live: whether it has a value."""

    partition: int
    offset: int
    key: bytes
    live: bool


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """What a topic had when an epoch began.

    ends: end offsets by partition. keys: the hashes of its keys.
    """

    ends: dict[int, int]
    keys: frozenset[int]

    def write(self, path: Location) -> None:
        """Write it to a file atomically. Raises OSError."""
        schema = pa.schema([pa.field("key", pa.int64())], {"format": "1", "ends": json.dumps(self.ends)})
        page = pa.BufferOutputStream()
        with pa.ipc.new_file(page, schema) as out:
            out.write_table(pa.table([pa.array(sorted(self.keys), pa.int64())], schema))
        path.write(page.getvalue().to_pybytes())

    @classmethod
    def read(cls, path: Location) -> TopicKeys:
        """Read it from a file. Raises OSError."""
        with pa.ipc.open_file(path.read_bytes()) as file:
            found = file.read_all()
        ends = json.loads(found.schema.metadata[b"ends"])
        return cls({int(at): end for at, end in ends.items()}, frozenset(found["key"].to_pylist()))


@dataclass(frozen=True, slots=True)
class KeySnapshot:
    """The key snapshots of one topic that a job writes, with one or several sinks.

    settings: of a consumer. folder: the folder of the snapshots, one file per epoch.
    """

    topic: str
    partitions: tuple[int, ...]
    settings: dict[str, str]
    folder: Location
    past: JobLineage

    def begin(self) -> None:
        """Store the snapshot of the epoch, unless it exists.

        Called before the epoch has written anything. Raises KafkaException, TimeoutError, OSError.
        """
        path = self._path(self.past.epoch)
        if path.exists():
            return
        ends = dict.fromkeys(self.partitions, 0)
        keys: set[int] = set()
        for record in self._records():
            ends[record.partition] = record.offset + 1
            (keys.add if record.live else keys.discard)(_hash(record.key))
        TopicKeys(ends, frozenset(keys)).write(path)

    def find_pending(self) -> list[KeyedRecord]:
        """Return the last records of the pending keys.

        Raises KafkaException, TimeoutError, OSError.
        """
        if self.past.rewind_epoch is None or not self._path(self.past.rewind_epoch).exists():
            return []
        ends, older = TopicKeys.read(self._path(self.past.rewind_epoch)).ends, self._older_keys()
        if older is None:
            return []
        found: dict[bytes, KeyedRecord] = {}
        for record in self._records():
            if record.live and record.offset < ends.get(record.partition, 0):
                found[record.key] = record
            else:
                found.pop(record.key, None)
        return [record for key, record in sorted(found.items()) if _hash(key) not in older]

    def _older_keys(self) -> frozenset[int] | None:
        """Return the keys that are older than the discarded epochs.

        None if there is no snapshot of them.
        """
        if self.past.first_discarded_epoch is None:
            return frozenset()
        epochs = sorted(int(each.stem) for each in self.folder.glob(f"*{_SUFFIX}"))
        since = next((epoch for epoch in epochs if epoch >= self.past.first_discarded_epoch), self.past.rewind_epoch)
        return None if since is None or since == self.past.rewind_epoch else TopicKeys.read(self._path(since)).keys

    def _path(self, epoch: int) -> Location:
        return self.folder / f"{epoch}{_SUFFIX}"

    def _records(self) -> Iterator[KeyedRecord]:
        """Yield the records of the topic up to its end, in order within each partition."""
        options = {"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed"}
        consumer = Consumer({**self.settings, **options}, logger=log)
        try:
            consumer.assign([TopicPartition(self.topic, at, OFFSET_BEGINNING) for at in self.partitions])
            unread = set(self.partitions)
            deadline = time.monotonic() + _TIMEOUT_S
            while unread:
                messages = consumer.consume(_FETCH_RECORDS, _WAIT_S)
                if messages:
                    deadline = time.monotonic() + _TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise TimeoutError(f"the records of `{self.topic}` did not arrive within {_TIMEOUT_S:g} s")
                for message in messages:
                    wrong, at, offset, key = message.error(), message.partition(), message.offset(), message.key()
                    if wrong is not None and wrong.code() == KafkaError._PARTITION_EOF:
                        unread.discard(at)
                    elif wrong is not None:
                        raise KafkaException(wrong)
                    elif at in unread and offset is not None and key is not None:
                        yield KeyedRecord(at, offset, key, message.value() is not None)
        finally:
            consumer.close()


def _hash(key: bytes) -> int:
    """Return a 64-bit hash of a key. Of two keys with the same hash both are kept."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)
