"""Decode the records of a table into columns.

Many records at once, if the format can read a block of them without a doubt about its meaning. A
block that it cannot read is halved until the other records are alone. Those are decoded one by one,
by the function that also says what is wrong with a bad record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.formats.text_decode import BadValue
from everfold.types import STRING

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING = RecordColumn("", -1, STRING)
_MAX_SHOWN_BYTES = 4_000
_FEW_RECORDS = 16
"""A block with fewer records is not halved any further."""


class BadRecord(Exception):
    """A record that cannot be read. index: its position among the records."""

    def __init__(self, index: int, reason: str, record: bytes) -> None:
        super().__init__(reason)
        self.index, self.reason, self.record = index, reason, record


def show_record(record: bytes | None) -> str:
    """Return the beginning of a record as text, for errors and examples."""
    return (record or b"")[:_MAX_SHOWN_BYTES].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows decoded from records.

    rows: the wanted columns by position in the table, `c<position>`, and the columns that the
        format adds. records: the index of the record of each row, as an array of NumPy; None if
        record and row have the same index. flawed: the indexes of records that are not readable in
        full, in order. lost: those of them that are not readable at all.
    """

    rows: pa.Table
    records: Any
    flawed: Sequence[int] = ()
    lost: Sequence[int] = ()

    @property
    def row_records(self) -> Any:
        """The index of the record of each row, always as an array of NumPy."""
        import numpy as np

        return np.arange(self.rows.num_rows) if self.records is None else self.records


@dataclass(slots=True)
class _Parts:
    """What was decoded so far.

    blocks: rows, the index of the first of their records, the number of these, and the index of the
    record of each row within them, None if it is that of the row.
    """

    blocks: list[tuple[pa.Table, int, int, Any]] = field(default_factory=list)
    flawed: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    rows: list[list[object]] = field(default_factory=list)
    records: list[int] = field(default_factory=list)


class RecordDecoder:
    """Decodes the records of a table in a format.

    columns: all that a record has. wanted: the positions in the table of those that are needed,
    None for all.
    """

    def __init__(self, form: Format, columns: Sequence[RecordColumn], wanted: Sequence[int] | None = None) -> None:
        needed = columns if wanted is None else [column for column in columns if column.position in wanted]
        needed = needed or columns[:1] or [_NOTHING]  # rows without a column cannot be counted
        # A flaw in any column counts, and the position of a field depends on all of them.
        self._columns = columns or needed if form.ignore_errors or not form.names_fields else needed
        self._schema = form.row_schema(self._columns)
        self._result = form.row_schema(needed)
        self._decode_block = form.block_decoder(self._columns, needed)
        self._form = form
        self._flaws: list[BadValue] = []
        self._decode_one: Callable[[bytes], Iterator[list[object]]] | None = None

    def decode(self, records: pa.Array) -> Decoded:
        """Decode records, a BINARY array without NULL.

        Raises BadRecord for one that cannot be read, unless the format ignores errors.
        """
        import numpy as np
        import pyarrow as pa

        parts = _Parts()
        self._decode_parts(records, 0, parts)
        self._end_rows(parts)
        if not parts.blocks:
            return Decoded(self._result.empty_table(), np.arange(0), parts.flawed, parts.lost)
        rows = pa.concat_tables([rows.select(self._result.names) for rows, *_ in parts.blocks])
        if all(within is None for *_, within in parts.blocks) and rows.num_rows == len(records):
            return Decoded(rows, None, parts.flawed, parts.lost)
        indexes = [
            first + (np.arange(count) if within is None else np.asarray(within, np.int64))
            for _, first, count, within in parts.blocks
        ]
        return Decoded(rows, np.concatenate(indexes), parts.flawed, parts.lost)

    def _decode_parts(self, records: pa.Array, first: int, parts: _Parts) -> None:
        block = None if self._decode_block is None or not len(records) else self._decode_block(records)
        if block is not None:
            self._end_rows(parts)
            parts.blocks.append((block.rows, first, len(records), block.records))
        elif len(records) >= _FEW_RECORDS and self._decode_block is not None:
            half = len(records) // 2
            self._decode_parts(records.slice(0, half), first, parts)
            self._decode_parts(records.slice(half), first + half, parts)
        else:
            for index, record in enumerate(records.to_pylist(), first):
                self._decode_alone(record, index, parts)

    def _decode_alone(self, record: bytes, index: int, parts: _Parts) -> None:
        if self._decode_one is None:
            self._decode_one = self._form.decoder(self._columns, self._flaws.append)
        self._flaws.clear()
        try:
            rows = list(self._decode_one(record))
        except BadValue as wrong:
            if not self._form.ignore_errors:
                raise BadRecord(index, wrong.reason, record) from None
            rows = []
            self._flaws.append(wrong)
            parts.lost.append(index)
        parts.rows += rows
        parts.records += [index] * len(rows)
        if self._flaws:
            parts.flawed.append(index)

    def _end_rows(self, parts: _Parts) -> None:
        """Make a table of the rows that were decoded one by one."""
        if not parts.rows:
            return
        import pyarrow as pa

        columns = zip(*parts.rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        first = parts.records[0]
        is_plain = parts.records == list(range(first, first + len(parts.records)))
        records = None if is_plain else [index - first for index in parts.records]
        parts.blocks.append((pa.table(arrays, self._schema), first, len(parts.rows), records))
        parts.rows, parts.records = [], []
