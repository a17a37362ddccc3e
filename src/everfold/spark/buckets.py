"""Buckets: the fixed hash partitions of an operator's keys.

Their number does not depend on the number of Spark partitions. A key's bucket is
`hash(key) & (count - 1)`. The ids of buckets on the wire are chosen so that Spark's own hash
distributes the buckets evenly to the shuffle partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _mix(hashed: int, word: int) -> int:
    word = _rotate(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotate(hashed ^ word, 13) * 5 + 0xE6546B64) & _MASK


def spark_hash(value: int) -> int:
    """Compute Spark's `hash(BIGINT)`: Murmur3, 32 bits, seed 42, as a signed integer.

    Golden-tested against Spark.
    """
    low, high = value & _MASK, (value >> 32) & _MASK
    hashed = _mix(_mix(42, low), high) ^ 8
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _ids_in(partition: int, partitions: int) -> Iterator[int]:
    return (at for at in count() if spark_hash(at) % partitions == partition)


def count_buckets_with(bucket: int, ids: Sequence[int], partitions: int) -> int:
    """Return the number of buckets in the partition of a bucket. ids: those of `bucket_ids`."""
    return len(ids[ids.index(bucket) % partitions :: partitions])


def bucket_ids(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return the ids of buckets, which a shuffle by id puts into partitions 0, 1, 2, … in turn."""
    assert buckets & (buckets - 1) == 0, "the number of buckets is a power of two"
    candidates = [_ids_in(partition, partitions) for partition in range(partitions)]
    return tuple(next(candidates[bucket % partitions]) for bucket in range(buckets))
