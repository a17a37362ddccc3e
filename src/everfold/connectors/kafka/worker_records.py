"""Decode records of topics in a worker: the JVM hands over their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.formats.json_columns import BadRecord, DecodedRecords, JsonDecoder
from everfold.connectors.worker_reader import Piece, WorkerReader, drop_front
from everfold.types import DataType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa

IN_WORKERS = ("topic", "partition", "offset", "timestamp")
"""The metadata that a handle carries."""
_INT, _LONG = 4, 8
"""Sizes of numbers, in bytes. They are big-endian, as Spark casts them to BINARY."""


@dataclass(frozen=True, slots=True)
class HandleLayout:
    """What the bytes of a handle are: the partition, the offset, and the value of a record.

    only_topic: the topic of all records. If it is "", the length of the topic and the topic follow
        the partition. has_time: whether the timestamp in µs follows the offset.
    """

    only_topic: str
    has_time: bool

    def to_sql(self) -> str:
        """Return the handle of a record in Spark SQL. It is NULL for a record without a value."""
        parts = ["CAST(partition AS BINARY)"]
        if not self.only_topic:
            parts += ["CAST(octet_length(topic) AS BINARY)", "CAST(topic AS BINARY)"]
        parts.append("CAST(offset AS BINARY)")
        if self.has_time:
            parts.append("CAST(unix_micros(timestamp) AS BINARY)")
        return f"concat({', '.join(parts)}, value)"

    def split(self, handles: pa.BinaryArray) -> Iterator[_Records]:
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
            yield _Records(topic, int.from_bytes(first[:_INT], "big"), own, size, self.has_time)
            handles = handles.filter(pc.invert(are_same))


@dataclass(frozen=True, slots=True)
class _Records:
    """Records of a partition; `start` is the position of the offset in their handles."""

    topic: str
    partition: int
    handles: pa.BinaryArray
    start: int
    has_time: bool

    @property
    def values(self) -> pa.BinaryArray:
        return drop_front(self.handles, self.start + _LONG * (2 if self.has_time else 1))

    @property
    def offsets(self) -> pa.Array:
        return self._read_longs(self.start)

    def read_metadata(self, key: str) -> pa.Array:
        """Return the metadata with a key; of a timestamp the µs."""
        import pyarrow as pa

        match key:
            case "topic":
                return pa.repeat(self.topic, len(self.handles))
            case "partition":
                return pa.repeat(pa.scalar(self.partition, pa.int32()), len(self.handles))
            case "offset":
                return self.offsets
        return self._read_longs(self.start + _LONG)

    def _read_longs(self, at: int) -> pa.Array:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = pc.binary_slice(self.handles, at, at + _LONG).cast(pa.binary(_LONG))
        return pa.array(np.frombuffer(numbers.buffers()[1], ">i8", len(numbers)).astype("i8"))


@dataclass(frozen=True, slots=True)
class RecordReader(WorkerReader):
    """Decodes the values of records.

    columns: those that are needed of a record. metadata: the key and the type of each other column
        that is needed, by position. table: its name.
    """

    form: JsonFormat
    columns: Sequence[RecordColumn]
    metadata: dict[int, tuple[str, DataType]]
    table: str
    layout: HandleLayout

    def read(self, handles: pa.BinaryArray) -> Iterator[Piece]:
        """Yield the rows partition by partition. Raises ConnectorError `bad-record`."""
        decoder = JsonDecoder(self.form, self.columns)
        for records in self.layout.split(handles):
            place = f"topic `{records.topic}` partition {records.partition} offset "
            try:
                decoded = decoder.decode(records.values)
            except BadRecord as bad:
                text = bad.record.decode("utf-8", "replace")
                where = f"{place}{records.offsets[bad.index]}"
                raise self.form.bad_record_error(where, bad.reason, text, lasting=True) from None
            topic = "" if self.layout.only_topic else f"{records.topic}/"
            split = f"{self.table}/{topic}{records.partition}"
            yield Piece(self._add_metadata(decoded, records), split, _Locator(place, records, decoded.records))

    def _add_metadata(self, decoded: DecodedRecords, records: _Records) -> pa.Table:
        import pyarrow as pa

        rows = decoded.rows
        for at, (key, of) in self.metadata.items():
            values = records.read_metadata(key)
            if decoded.records is not None:
                values = values.take(pa.array(decoded.records, pa.int64()))
            if key == "timestamp":
                values = values.cast(pa.timestamp("us"))
            rows = rows.append_column(physical_name(at), values.cast(of.arrow))
        return rows


@dataclass(frozen=True, slots=True)
class _Locator:
    """Returns where a row of a partition came from."""

    place: str
    records: _Records
    rows: Sequence[int] | None

    def __call__(self, row: int) -> str:
        return f"{self.place}{self.records.offsets[row if self.rows is None else self.rows[row]]}"
