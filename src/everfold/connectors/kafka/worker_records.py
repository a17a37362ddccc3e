"""Decode records of topics in a worker: the JVM hands over their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from everfold.connectors.contract import KIND
from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.formats.record_decoder import BadRecord, Decoded, RecordDecoder, show_record
from everfold.connectors.kafka.handles import HandleLayout, Records
from everfold.connectors.metadata import convert_metadata
from everfold.connectors.worker_reader import AT_OFFSET, Piece, WorkerReader
from everfold.errors import ConnectorError
from everfold.plan.changelog import RowKind
from everfold.types import DataType, physical_name

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_NO_KEY = "it has no key, but rows are identified by their keys"


@dataclass(frozen=True, slots=True)
class RecordPart:
    """Keys or values of records. columns: all that they have."""

    form: Format
    columns: Sequence[RecordColumn]


@dataclass(frozen=True)
class RecordReader(WorkerReader):
    """Decodes records.

    values, keys: None if they have no columns. wanted: the positions of the columns that are
    needed. metadata: the key and the type of each other column, by position. table: its name.
    zone: of the session. upsert: whether a record without a value deletes the row of its key.
    has_changes: whether rows have a row kind.
    """

    values: RecordPart | None
    keys: RecordPart | None
    wanted: Sequence[int]
    metadata: Mapping[int, tuple[str, DataType]]
    table: str
    layout: HandleLayout
    zone: str = "UTC"
    upsert: bool = False
    has_changes: bool = False

    def read(self, handles: pa.BinaryArray) -> Iterator[Piece]:
        """Yield the rows partition by partition. Raises ConnectorError `bad-record`."""
        for records in self.layout.split(handles):
            yield _Partition(self, records).decode()

    @cached_property
    def value_decoder(self) -> RecordDecoder | None:
        """The decoder of values, None if they are not read."""
        return None if self.values is None else RecordDecoder(self.values.form, self.values.columns, self.wanted)

    @cached_property
    def key_decoder(self) -> RecordDecoder | None:
        """The decoder of keys, None if they are not read."""
        return None if self.keys is None else RecordDecoder(self.keys.form, self.keys.columns, self.wanted)


class _Partition:
    """Records of a partition while they are decoded."""

    def __init__(self, reader: RecordReader, records: Records) -> None:
        self._reader, self._records = reader, records
        self._flawed: set[int] = set()
        self._lost: set[int] = set()

    @property
    def _origin(self) -> str:
        return f"topic `{self._records.topic}` partition {self._records.partition}"

    def decode(self) -> Piece:
        """Return the rows. Raises ConnectorError `bad-record`."""
        import pyarrow as pa

        reader, records = self._reader, self._records
        keys, key_places = self._decode_keys()
        rows, owners = self._decode_values()
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        if keys is not None:
            rows_of_keys, picked = self._match_keys(owners, key_places)
            if picked is not None:
                columns = {name: values.take(pa.array(picked)) for name, values in columns.items()}
                owners = owners[picked]
            of_keys = keys.take(pa.array(rows_of_keys, mask=rows_of_keys < 0))
            for name, values in zip(of_keys.column_names, of_keys.columns, strict=True):
                columns[name] = self._choose(values, columns.get(name), owners)
        for position, (key, data_type) in reader.metadata.items():
            columns[physical_name(position)] = self._read_metadata(key, data_type, columns, owners)
        names = [physical_name(position) for position in reader.wanted]
        if reader.has_changes:
            names.append(KIND)
        topic = "" if reader.layout.only_topic else f"{records.topic}/"
        example = ("", "")
        if self._flawed:
            first = min(self._flawed)
            example = (f"{self._origin}{AT_OFFSET}{records.offsets[first]}", show_record(records.values[first].as_py()))
        return Piece(
            pa.table([columns[name] for name in names], names=names),
            f"{reader.table}/{topic}{records.partition}",
            self._origin,
            records.offsets.take(pa.array(owners)),
            skipped=len(self._flawed),
            example=example,
        )

    def _decode_values(self) -> tuple[pa.Table, np.ndarray]:
        """Return the rows of values with the row kinds, and the record of each.

        A record without a value is a row of NULL: a deleted row, or that of the format raw.
        """
        import numpy as np
        import pyarrow as pa

        reader, values = self._reader, self._records.values
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        decoder = reader.value_decoder
        if decoder is None:
            rows, owners = pa.table({"__none": pa.nulls(len(present))}), present
        else:
            chosen = values if len(present) == len(values) else values.drop_null()
            decoded = self._decode(decoder, chosen, present, "")
            rows, owners = decoded.rows, present[decoded.row_records]
        if reader.upsert and reader.has_changes:
            rows = rows.append_column(KIND, pa.repeat(pa.scalar(RowKind.UPDATE_AFTER.value, pa.int8()), len(owners)))
        if len(present) < len(values):
            absent = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
            nulls = {field.name: pa.nulls(len(absent), field.type) for field in rows.schema}
            if reader.has_changes and reader.upsert:
                nulls[KIND] = pa.repeat(pa.scalar(RowKind.DELETE.value, pa.int8()), len(absent))
            owners = np.concatenate([owners, absent])
            order = np.argsort(owners, kind="stable")
            rows = pa.concat_tables([rows, pa.table(nulls)]).combine_chunks().take(pa.array(order))
            owners = owners[order]
        if self._lost:
            kept = ~np.isin(owners, list(self._lost))
            rows, owners = rows.filter(pa.array(kept)), owners[kept]
        return rows, owners

    def _decode_keys(self) -> tuple[pa.Table | None, np.ndarray]:
        """Return the rows of keys, and the record of each."""
        import numpy as np

        decoder, keys = self._reader.key_decoder, self._records.keys
        if decoder is None or keys is None:
            return None, np.arange(0)
        are_null = keys.is_null().to_numpy(zero_copy_only=False)
        if self._reader.upsert and are_null.any():
            for index in np.flatnonzero(are_null).tolist():
                self._refuse(BadRecord(index, _NO_KEY, b""), ", key")
                self._lost.add(index)
        present = np.flatnonzero(~are_null)
        decoded = self._decode(decoder, keys.drop_null(), present, ", key")
        return decoded.rows, present[decoded.row_records]

    def _decode(self, decoder: RecordDecoder, parts: Any, places: np.ndarray, what: str) -> Decoded:
        """Decode keys or values. places: the indexes of their records. what: names keys."""
        try:
            decoded = decoder.decode(parts)
        except BadRecord as bad:
            raise self._bad_record_error(bad, int(places[bad.index]), what) from None
        self._flawed.update(places[list(decoded.flawed)].tolist() if len(decoded.flawed) else ())
        if what:
            self._lost.update(places[list(decoded.lost)].tolist() if len(decoded.lost) else ())
        return decoded

    def _refuse(self, bad: BadRecord, what: str) -> None:
        assert self._reader.keys is not None
        if not self._reader.keys.form.ignore_errors:
            raise self._bad_record_error(bad, bad.index, what)
        self._flawed.add(bad.index)

    def _bad_record_error(self, bad: BadRecord, index: int, what: str) -> ConnectorError:
        part = self._reader.keys if what else self._reader.values
        assert part is not None
        where = f"{self._origin}{AT_OFFSET}{self._records.offsets[index]}{what}"
        return part.form.bad_record_error(where, bad.reason, show_record(bad.record), lasting=True)

    def _match_keys(self, owners: np.ndarray, key_places: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the row of keys for each row, -1 for none, and the rows of values that they go
        with, None for all in their order.

        A key with several rows goes with each row of its value.
        """
        import numpy as np

        firsts = np.searchsorted(key_places, owners, side="left")
        counts = np.searchsorted(key_places, owners, side="right") - firsts
        if (counts <= 1).all():
            return np.where(counts == 1, firsts, -1), None
        repeats = np.maximum(counts, 1)
        picked = np.repeat(np.arange(len(owners)), repeats)
        within = np.arange(len(picked)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return np.where(counts[picked] > 0, firsts[picked] + within, -1), picked

    def _choose(self, of_keys: Any, of_values: Any, owners: np.ndarray) -> Any:
        """Return a column that may be in keys and values.

        The value counts, that of the key in a deleted row.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if of_values is None:
            return of_keys
        if not self._reader.upsert or not self._records.values.null_count:
            return of_values
        deleted = self._records.values.is_null().take(pa.array(owners))
        return pc.if_else(deleted, of_keys, of_values)

    def _read_metadata(self, key: str, data_type: DataType, columns: Mapping[str, Any], owners: np.ndarray) -> Any:
        import pyarrow as pa

        part = self._reader.values
        added = None if part is None else part.form.metadata(key)
        if added is not None:
            return convert_metadata(columns[added], data_type, self._reader.zone)
        values = self._records.read_metadata(key).take(pa.array(owners))
        return convert_metadata(values, data_type, self._reader.zone)
