"""The keys that a topic had before: what a job that went back in its input writes no more is found by them.

When a version of the job begins, the topic is read to its end, and the keys that it has are noted in the job's folder, as hashes, with the ends of its
partitions. Later it would not tell them: compaction removes the record of a key that a later version has overwritten.

When a job that went back has caught up, the topic is read again. A key that it had when the job went back, and that no record has had since, did not come again.
Those that were noted when the first version began that the job left are not what that version brought.

Whether records are the job's own, a topic does not say: those that somebody else has written into it since count too.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from everfold.connectors.kafka.client import log
from everfold.connectors.replay import Past
from everfold.files import write_atomically

_AT_ONCE = 10_000
_WAIT_S = 0.1
"""So long the client waits for as many records."""
_TIMEOUT_S = 60.0
_SUFFIX = ".arrow"


class KeyedRecord(NamedTuple):
    """What of a record says which keys a topic has. live: whether it has a value."""

    partition: int
    offset: int
    key: bytes
    live: bool


@dataclass(frozen=True, slots=True)
class Note:
    """What a topic had when an epoch began. ends: of its partitions. keys: the hashes of its keys."""

    ends: dict[int, int]
    keys: frozenset[int]

    def write(self, path: Path) -> None:
        """Puts it in a file, in one step. OSError."""
        schema = pa.schema([pa.field("key", pa.int64())], {"format": "1", "ends": json.dumps(self.ends)})
        page = pa.BufferOutputStream()
        with pa.ipc.new_file(page, schema) as out:
            out.write_table(pa.table([pa.array(sorted(self.keys), pa.int64())], schema))
        write_atomically(path, page.getvalue().to_pybytes())

    @classmethod
    def read(cls, path: Path) -> Note:
        """It, from a file. OSError."""
        with pa.ipc.open_file(path.read_bytes()) as file:
            found = file.read_all()
        ends = json.loads(found.schema.metadata[b"ends"])
        return cls({int(at): end for at, end in ends.items()}, frozenset(found["key"].to_pylist()))


@dataclass(frozen=True, slots=True)
class Before:
    """The keys of before of one topic that a job writes, by one sink or by several. settings: of a consumer. folder: where notes are, a file an epoch."""

    topic: str
    partitions: tuple[int, ...]
    settings: dict[str, str]
    folder: Path
    past: Past

    def begin(self) -> None:
        """Notes what the topic has, before the epoch has written anything; once. KafkaException, TimeoutError, OSError."""
        path = self._path(self.past.epoch)
        if path.exists():
            return
        ends = dict.fromkeys(self.partitions, 0)
        keys: set[int] = set()
        for record in self._records():
            ends[record.partition] = record.offset + 1
            (keys.add if record.live else keys.discard)(_hashed(record.key))
        Note(ends, frozenset(keys)).write(path)

    def left(self) -> list[KeyedRecord]:
        """The last records of the keys that did not come again. KafkaException, TimeoutError, OSError."""
        if self.past.back is None or not self._path(self.past.back).exists():
            return []
        ends, known = Note.read(self._path(self.past.back)).ends, self._known()
        if known is None:
            return []
        found: dict[bytes, KeyedRecord] = {}
        for record in self._records():
            if record.live and record.offset < ends.get(record.partition, 0):
                found[record.key] = record
            else:
                found.pop(record.key, None)
        return [record for key, record in sorted(found.items()) if _hashed(key) not in known]

    def _known(self) -> frozenset[int] | None:
        """The keys that are not of what the job left; None if they were not noted."""
        if self.past.left is None:
            return frozenset()
        noted = sorted(int(each.stem) for each in self.folder.glob(f"*{_SUFFIX}"))
        since = next((epoch for epoch in noted if epoch >= self.past.left), self.past.back)
        return None if since is None or since == self.past.back else Note.read(self._path(since)).keys

    def _path(self, epoch: int) -> Path:
        return self.folder / f"{epoch}{_SUFFIX}"

    def _records(self) -> Iterator[KeyedRecord]:
        """The records of the topic up to its end, each partition's in their order."""
        said = {"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed"}
        consumer = Consumer({**self.settings, **said}, logger=log)
        try:
            consumer.assign([TopicPartition(self.topic, at, OFFSET_BEGINNING) for at in self.partitions])
            left = set(self.partitions)
            deadline = time.monotonic() + _TIMEOUT_S
            while left:
                messages = consumer.consume(_AT_ONCE, _WAIT_S)
                if messages:
                    deadline = time.monotonic() + _TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise TimeoutError(f"the records of `{self.topic}` did not come in {_TIMEOUT_S:g} s")
                for message in messages:
                    wrong, at, offset, key = message.error(), message.partition(), message.offset(), message.key()
                    if wrong is not None and wrong.code() == KafkaError._PARTITION_EOF:
                        left.discard(at)
                    elif wrong is not None:
                        raise KafkaException(wrong)
                    elif at in left and offset is not None and key is not None:
                        yield KeyedRecord(at, offset, key, message.value() is not None)
        finally:
            consumer.close()


def _hashed(key: bytes) -> int:
    """64 bits that stand for a key. Of two keys with one hash both are kept."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)
