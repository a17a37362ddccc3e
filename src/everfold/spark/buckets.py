"""Buckets: the fixed hash partitions of an operator's keys.

Their number does not depend on the number of Spark partitions. A key's bucket is
`hash(key) & (count - 1)`. The ids of buckets on the wire are chosen so that Spark's own hash
distributes the buckets evenly to the shuffle partitions. They never change, because state is keyed
by them.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import count
from math import lcm

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


def choose_modulus(buckets: int, partitions: int) -> int:
    """Return the modulus for the buckets of a new job, see `bucket_ids`.

    With it, the given number of partitions and every power of two up to the number of buckets get
    equal shares of the buckets.
    """
    return lcm(buckets, partitions)


def bucket_ids(buckets: int, modulus: int) -> tuple[int, ...]:
    """Return the ids of buckets: the hash of the n-th one is n, modulo the modulus.

    A shuffle by id to a divisor of the modulus, if it is not greater than the number of buckets,
    therefore puts the buckets into partitions 0, 1, 2, … in turn.
    """
    assert buckets & (buckets - 1) == 0, "the number of buckets is a power of two"
    wanted: dict[int, list[int]] = {}
    for bucket in reversed(range(buckets)):
        wanted.setdefault(bucket % modulus, []).append(bucket)
    found: dict[int, int] = {}
    for candidate in count():
        waiting = wanted.get(spark_hash(candidate) % modulus)
        if waiting:
            found[waiting.pop()] = candidate
            if len(found) == buckets:
                break
    return tuple(found[bucket] for bucket in range(buckets))


def find_partition(bucket: int, partitions: int) -> int:
    """Return the shuffle partition of a bucket. bucket: its id."""
    return spark_hash(bucket) % partitions


@cache
def find_leaders(ids: tuple[int, ...], partitions: int | None) -> tuple[int, ...]:
    """Return for each bucket the bucket that its partition steps first, which is the one with the
    least id.

    ids: those of `bucket_ids`. partitions: if not known, every bucket is its own leader.
    """
    if partitions is None:
        return ids
    placed = [find_partition(bucket, partitions) for bucket in ids]
    leaders: dict[int, int] = {}
    for bucket, partition in zip(ids, placed, strict=True):
        leaders[partition] = min(bucket, leaders.get(partition, bucket))
    return tuple(leaders[partition] for partition in placed)


@cache
def count_buckets(ids: tuple[int, ...], partitions: int) -> tuple[int, ...]:
    """Return the number of buckets of each shuffle partition. ids: those of `bucket_ids`."""
    counted = Counter(find_partition(bucket, partitions) for bucket in ids)
    return tuple(counted[partition] for partition in range(partitions))
