"""The bytes in which the JVM hands over the records of topics to workers.

A record is one BINARY value (`connectors/worker_reader.py`): its partition, then the offset and
what else is needed of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.connectors.arrow_arrays import cut_bytes, view_bytes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_INT, _LONG = 4, 8
"""Sizes of numbers, in bytes. They are big-endian, as Spark casts them to BINARY."""
_NULL = -1
"""The size of what is NULL."""
_TIME_TYPES = ("CreateTime", "LogAppendTime")
_NO_TIME_TYPE = "NoTimestampType"


@dataclass(frozen=True, slots=True)
class HandleLayout:
    """What a handle contains.

    only_topic: the topic of all records, "" if a handle has it. has_time: the timestamp in µs.
    has_time_type, has_headers, has_key: these parts of a record. keeps_nulls: whether a record
    without a value has a handle, and each handle the size of the value.
    """

    only_topic: str
    has_time: bool = False
    has_time_type: bool = False
    has_headers: bool = False
    has_key: bool = False
    keeps_nulls: bool = False

    def to_sql(self) -> str:
        """Return the handle of a record in Spark SQL; NULL for a record without a handle."""
        parts = ["CAST(partition AS BINARY)"]
        if not self.only_topic:
            parts += ["CAST(octet_length(topic) AS BINARY)", "CAST(topic AS BINARY)"]
        parts.append("CAST(offset AS BINARY)")
        if self.has_time:
            parts.append("CAST(unix_micros(timestamp) AS BINARY)")
        if self.has_time_type:
            parts.append("CAST(timestampType AS BINARY)")
        if self.has_headers:
            pairs = "transform(headers, h -> array(h.key, base64(h.value)))"
            parts.append(_sized(f"CAST(to_json({pairs}) AS BINARY)"))
        if self.has_key:
            parts.append(_sized("key"))
        parts.append(_sized("value") if self.keeps_nulls else "value")
        return f"concat({', '.join(parts)})"

    def split(self, handles: pa.BinaryArray) -> Iterator[Records]:
        """Yield the records partition by partition. A task of Spark reads a single one."""
        import pyarrow.compute as pc

        while len(handles):
            first: bytes = handles[0].as_py()
            size = _INT
            if not self.only_topic:
                size += _INT + int.from_bytes(first[_INT : 2 * _INT], "big")
            are_same = pc.starts_with(handles, pattern=first[:size])
            topic = self.only_topic or first[2 * _INT : size].decode()
            own = handles if pc.all(are_same).as_py() else handles.filter(are_same)
            yield self._read(topic, int.from_bytes(first[:_INT], "big"), own, size)
            handles = handles.filter(pc.invert(are_same))

    def _read(self, topic: str, partition: int, handles: pa.BinaryArray, start: int) -> Records:
        reader = _PartReader(handles, start)
        parts: dict[str, Any] = {"offset": reader.read_numbers(_LONG)}
        if self.has_time:
            parts["timestamp"] = reader.read_numbers(_LONG)
        if self.has_time_type:
            parts["timestamp-type"] = reader.read_numbers(_INT)
        if self.has_headers:
            parts["headers"] = reader.read_sized()
        keys = reader.read_sized() if self.has_key else None
        values = reader.read_sized() if self.keeps_nulls else reader.read_rest()
        return Records(topic, partition, parts, keys, values)


def _sized(part: str) -> str:
    """Return Spark SQL of bytes after their size."""
    size = f"CAST(coalesce(octet_length({part}), {_NULL}) AS BINARY)"
    return f"{size}, coalesce({part}, X'')"


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a partition. keys, values: BINARY arrays; keys are None if they are not read."""

    topic: str
    partition: int
    parts: dict[str, Any]
    keys: pa.BinaryArray | None
    values: pa.BinaryArray

    @property
    def offsets(self) -> pa.Array:
        """The offset of each record."""
        return self.parts["offset"]

    def read_metadata(self, key: str) -> pa.Array:
        """Return the metadata with a key."""
        import pyarrow as pa

        match key:
            case "topic":
                return pa.repeat(self.topic, len(self.values))
            case "partition":
                return pa.repeat(pa.scalar(self.partition, pa.int32()), len(self.values))
            case "timestamp-type":
                return pa.array([_name_time_type(number) for number in self.parts[key].to_pylist()], pa.string())
            case "headers":
                return pa.array(map(_read_headers, self.parts[key].to_pylist()), pa.map_(pa.string(), pa.binary()))
            case "timestamp":
                return self.parts[key].cast(pa.timestamp("us", "UTC"))
        return self.parts[key]


def _name_time_type(number: int) -> str:
    return _TIME_TYPES[number] if 0 <= number < len(_TIME_TYPES) else _NO_TIME_TYPE


def _read_headers(pairs: bytes | None) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record. Of a repeated one the last value counts."""
    headers = {key: None if value is None else base64.b64decode(value) for key, value in json.loads(pairs or b"[]")}
    return list(headers.items())


class _PartReader:
    """Reads the parts of handles, one after the other."""

    def __init__(self, handles: pa.BinaryArray, start: int) -> None:
        import numpy as np

        edges, self._bytes = view_bytes(handles)
        self._handles = handles
        self._places, self._ends = edges[:-1] + np.int32(start), edges[1:]

    def read_numbers(self, size: int) -> pa.Array:
        """Return the numbers of a size that follow."""
        import pyarrow as pa

        return pa.array(self._take_numbers(size))

    def read_sized(self) -> pa.BinaryArray:
        """Return the bytes that follow after their size."""
        import numpy as np

        sizes = self._take_numbers(_INT).astype(np.int32)
        starts = self._places
        self._places = starts + np.maximum(sizes, 0)
        return self._cut(starts, self._places, sizes == _NULL)

    def read_rest(self) -> pa.BinaryArray:
        """Return the bytes up to the end."""
        return self._cut(self._places, self._ends)

    def _take_numbers(self, size: int) -> np.ndarray:
        import numpy as np

        places: np.ndarray = self._places[:, None] + np.arange(size, dtype=np.int32)
        self._places = self._places + np.int32(size)
        numbers: np.ndarray = self._bytes.take(places).view(f">i{size}").ravel().astype(f"i{size}")
        return numbers

    def _cut(self, starts: np.ndarray, ends: np.ndarray, are_null: np.ndarray | None = None) -> pa.BinaryArray:
        return cut_bytes(self._handles.buffers()[2], starts, ends, self._handles.type, are_null)
