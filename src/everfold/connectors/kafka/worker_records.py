"""Decode records of topics in a worker: the JVM hands over their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.formats.json_columns import BadRecord, DecodedRecords, JsonDecoder
from everfold.connectors.worker_reader import Piece, WorkerReader
from everfold.types import DataType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa

HANDLES = {
    "__value": "BINARY",
    "__topic": "STRING",
    "__partition": "INT",
    "__offset": "BIGINT",
    "__timestamp": "TIMESTAMP",
}
"""Columns of the handles, with their types in Spark SQL."""


@dataclass(frozen=True, slots=True)
class RecordReader(WorkerReader):
    """Decodes the values of records.

    columns: those that are needed of a record. metadata: the handle and the type of each other
        column that is needed, by position. table: its name. has_one_topic: whether splits are named
        by the partition alone.
    """

    form: JsonFormat
    columns: Sequence[RecordColumn]
    metadata: dict[int, tuple[str, DataType]]
    table: str
    has_one_topic: bool

    def read(self, handles: pa.RecordBatch) -> Iterator[Piece]:
        """Yield the rows partition by partition. Raises ConnectorError `bad-record`."""
        import pyarrow as pa

        decoder = JsonDecoder(self.form, self.columns)
        for records in _split_by_partition(pa.table(handles)):
            topic, partition = records["__topic"][0].as_py(), records["__partition"][0].as_py()
            offsets = records["__offset"]
            place = f"topic `{topic}` partition {partition} offset "
            try:
                decoded = decoder.decode(records["__value"].combine_chunks())
            except BadRecord as bad:
                text = bad.record.decode("utf-8", "replace")
                where = f"{place}{offsets[bad.index]}"
                raise self.form.bad_record_error(where, bad.reason, text, lasting=True) from None
            split = f"{self.table}/{partition}" if self.has_one_topic else f"{self.table}/{topic}/{partition}"
            yield Piece(self._add_metadata(decoded, records), split, _Locator(place, offsets, decoded.records))

    def _add_metadata(self, decoded: DecodedRecords, records: pa.Table) -> pa.Table:
        rows = decoded.rows
        for at, (handle, of) in self.metadata.items():
            values = records[handle] if decoded.records is None else records[handle].take(decoded.records)
            rows = rows.append_column(physical_name(at), values.cast(of.arrow))
        return rows


@dataclass(frozen=True, slots=True)
class _Locator:
    """Returns where a row of a partition came from."""

    place: str
    offsets: Any
    records: Sequence[int] | None

    def __call__(self, row: int) -> str:
        return f"{self.place}{self.offsets[row if self.records is None else self.records[row]]}"


def _split_by_partition(records: pa.Table) -> Iterator[pa.Table]:
    """Yield the records that have a value, partition by partition."""
    import pyarrow.compute as pc

    records = records.filter(pc.is_valid(records["__value"]))
    found = records.select(["__topic", "__partition"]).group_by(["__topic", "__partition"], use_threads=False)
    partitions = found.aggregate([]).to_pylist()
    for each in partitions:
        if len(partitions) == 1:
            yield records
            continue
        of_topic = pc.equal(records["__topic"], each["__topic"])
        yield records.filter(pc.and_(of_topic, pc.equal(records["__partition"], each["__partition"])))
