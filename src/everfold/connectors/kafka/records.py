"""Encode rows as the records of a topic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from everfold.connectors.contract import KIND, OptionValues, Role, columns_of
from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.kafka.table_options import key_columns, key_format, value_columns, value_format
from everfold.connectors.kafka.transaction import OutgoingRecord
from everfold.connectors.sink_changelog import last_by_key
from everfold.plan.changelog import RETRACTIONS
from everfold.plan.nodes import Table
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")
_NO_HEADERS: Sequence[tuple[str, bytes | None]] = ()
_CHUNK_ROWS = 50_000
"""Rows that are encoded at once."""


@dataclass(frozen=True)
class RecordEncoder:
    """Encodes the rows of a table.

    upsert: write only the last row of each key, as a tombstone if it is a retraction.
    """

    table: Table
    options: OptionValues
    upsert: bool

    def convert(self, rows: pa.Table) -> pa.Table:
        """Return rows of the query as rows of the table. Raises ConnectorError."""
        return rows

    def locate(self, column: int) -> int:
        """Return the position in the query of a column of the table."""
        return column

    @property
    def keys(self) -> tuple[RecordColumn, ...]:
        """The columns in the key."""
        return key_columns(self.table, self.options, Role.SINK)

    def encode(self, rows: pa.Table, partitions: Sequence[int]) -> Iterator[OutgoingRecord]:
        """Yield the records of ordered rows. partitions: those of the topic."""
        rows = self.convert(rows)
        if self.upsert:
            rows = last_by_key(rows, [physical_name(column.position) for column in self.keys])
        targets = self._partitions(partitions)
        for start in range(0, rows.num_rows, _CHUNK_ROWS):
            yield from self._encode_chunk(rows.slice(start, _CHUNK_ROWS), targets)

    def _encode_chunk(self, rows: pa.Table, partitions: Iterator[int | None]) -> Iterator[OutgoingRecord]:
        form = key_format(self.table, self.options)
        written = _encode(
            rows, value_format(self.table, self.options), value_columns(self.table, self.options, Role.SINK)
        )
        if self.upsert:
            kinds = rows.column(KIND).to_pylist()
            written = [None if kind in RETRACTIONS else value for kind, value in zip(kinds, written, strict=True)]
        return map(
            OutgoingRecord,
            itertools.repeat(None) if form is None else _encode(rows, form, self.keys),
            written,
            partitions,
            self._metadata(rows, "timestamp", _millis, None),
            self._metadata(rows, "headers", _headers, _NO_HEADERS),
        )

    def _partitions(self, partitions: Sequence[int]) -> Iterator[int | None]:
        match self.options.string("sink.partitioner"):
            case "fixed":
                return itertools.repeat(partitions[0])
            case "round-robin":
                return itertools.cycle(partitions)
            case _:
                return itertools.repeat(None)

    def _metadata(self, rows: pa.Table, key: str, convert: Callable[[Any], _T], missing: _T) -> Iterable[_T]:
        """Yield the METADATA of each record, `missing` if the table or the row has none."""
        columns = columns_of(self.table, Role.SINK)
        at = next((at for at, column in enumerate(columns) if column.metadata_key == key), None)
        if at is None:
            return itertools.repeat(missing)
        values = rows.column(physical_name(at)).to_pylist()
        return (missing if value is None else convert(value) for value in values)


def _encode(rows: pa.Table, form: Format, columns: Sequence[RecordColumn]) -> list[bytes | None]:
    import pyarrow as pa

    records: list[bytes | None] = form.encode(rows, columns).cast(pa.large_binary()).to_pylist()
    return records


def _millis(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


def _headers(entries: Sequence[tuple[str, bytes | None]]) -> Sequence[tuple[str, bytes | None]]:
    return [(str(key), value) for key, value in entries]
