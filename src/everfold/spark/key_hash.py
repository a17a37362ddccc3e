"""Spark's `xxhash64` over columns in a worker, for all rows at once.

A key's bucket is part of the state of a job, so a worker must compute the hash that Spark SQL
computes. It is XXH64 with the seed 42; the hash of a column is the seed of the next one, and a NULL
leaves it unchanged. Source: the specification of XXH64, and Spark's results in
`tests/spark/test_worker_scan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    StringType,
    TimestampType,
    TimeType,
)

if TYPE_CHECKING:
    import pyarrow as pa

Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(each)
    for each in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_BLOCK_ROWS = 1 << 14
"""Rows that are hashed together: their intermediate results stay in the cache of the processor."""
_LONG_DIGITS = 18
"""Digits of a DECIMAL that Spark hashes as a BIGINT."""
_STRIPE = 32
"""Bytes that XXH64 takes at once from a long value, in four lanes."""


def can_hash(of: DataType) -> bool:
    """Return whether `hash_columns` can hash values of a type."""
    if isinstance(of, DecimalType):
        return of.precision <= _LONG_DIGITS
    return isinstance(of, IntegerType | BooleanType | DateType | TimeType | TimestampType | StringType | BytesType)


def hash_columns(columns: Sequence[pa.Array]) -> Hashes:
    """Return the hashes of rows as signed 64-bit integers.

    columns: at least one, of equal length, in the Arrow types of types that `can_hash` accepts.
    """
    rows = len(columns[0])
    parts = [np.empty(0, np.int64)]
    with np.errstate(over="ignore"):
        for start in range(0, rows, _BLOCK_ROWS):
            seeds: Hashes = np.full(min(_BLOCK_ROWS, rows - start), _SEED, np.uint64)
            for column in columns:
                seeds = _hash_column(column.slice(start, len(seeds)), seeds)
            parts.append(seeds.view(np.int64))
    return np.concatenate(parts)


def _hash_column(values: pa.Array, seeds: Hashes) -> Hashes:
    import pyarrow as pa

    of = values.type
    if pa.types.is_string(of) or pa.types.is_binary(of) or pa.types.is_large_string(of) or pa.types.is_large_binary(of):
        hashes = _hash_bytes(values, seeds)
    elif pa.types.is_decimal(of):
        words = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset :: 2][: len(values)]
        hashes = _hash_longs(words.copy(), seeds)
    else:
        narrow = pa.types.is_boolean(of) or of.bit_width <= 32  # Spark hashes them as 4 bytes
        number = pa.int32() if narrow else pa.int64()
        plain = values.fill_null(False) if pa.types.is_boolean(of) else values
        numbers = (plain if pa.types.is_boolean(of) or pa.types.is_integer(of) else plain.view(number)).cast(number)
        words = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        hashes = _hash_ints(words, seeds) if narrow else _hash_longs(words, seeds)
    if values.null_count:
        return np.where(np.asarray(values.is_null()), seeds, hashes)
    return hashes


def _hash_longs(values: Any, seeds: Hashes) -> Hashes:
    return _avalanche(_mix_word(seeds + _P5 + np.uint64(8), values.view(np.uint64)))


def _hash_ints(values: Any, seeds: Hashes) -> Hashes:
    return _avalanche(_mix_half(seeds + _P5 + np.uint64(4), values.view(np.uint32).astype(np.uint64)))


def _hash_bytes(values: pa.Array, seeds: Hashes) -> Hashes:
    import pyarrow as pa

    starts, lengths, data = _byte_layout(values.cast(pa.large_binary()))
    hashes = seeds + _P5
    long = lengths >= _STRIPE
    if long.any():
        hashes[long] = _hash_stripes(data, starts[long], lengths[long], seeds[long])
    hashes += lengths.view(np.uint64)
    at, left = starts + lengths // _STRIPE * _STRIPE, lengths % _STRIPE
    words, halves = _view_at_any_byte(data, np.uint64), _view_at_any_byte(data, np.uint32)

    def take(size: int, mix: Callable[[Hashes, Hashes], Hashes], read: Callable[[Any], Hashes]) -> None:
        taken = left >= size
        hashes[taken] = mix(hashes[taken], read(at[taken]))
        at[taken] += size
        left[taken] -= size

    for _ in range(_STRIPE // 8 - 1):
        take(8, _mix_word, lambda where: words[where])
    take(4, _mix_half, lambda where: halves[where].astype(np.uint64))
    for _ in range(3):
        take(1, _mix_byte, lambda where: data[where].astype(np.uint64))
    return _avalanche(hashes)


def _byte_layout(values: pa.Array) -> tuple[Any, Any, Any]:
    """Return where each value starts, its length, and all bytes with a few more behind them.

    A NULL has the length 0.
    """
    _, offsets, buffer = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    first, last = int(ends[0]), int(ends[-1])
    data = np.zeros(last - first + 8, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(buffer, np.uint8)[first:last]
    lengths = np.diff(ends)
    if values.null_count:
        lengths = np.where(np.asarray(values.is_null()), 0, lengths)
    return ends[:-1] - first, lengths, data


def _view_at_any_byte(data: Any, of: type) -> Any:
    """Return an array whose element at i is the little-endian number that starts at byte i."""
    size = np.dtype(of).itemsize
    return np.ndarray((len(data) - size + 1,), np.dtype(of).newbyteorder("<"), data, strides=(1,))


def _hash_stripes(data: Any, starts: Any, lengths: Any, seeds: Hashes) -> Hashes:
    """Return the state of XXH64 after all whole stripes of values that have at least one."""
    words = _view_at_any_byte(data, np.uint64)
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    stripes = lengths // _STRIPE
    for number in range(int(stripes.max())):
        active = stripes > number
        at = starts[active] + number * _STRIPE
        for lane, state in enumerate(lanes):
            state[active] = _rotate(state[active] + words[at + 8 * lane] * _P2, 31) * _P1
    hashes = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    for state in lanes:
        hashes = (hashes ^ _rotate(state * _P2, 31) * _P1) * _P1 + _P4
    return hashes


def _mix_word(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ (_rotate(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _mix_half(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ (words * _P1), 23) * _P2 + _P3


def _mix_byte(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ (words * _P5), 11) * _P1


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
