"""Rows that workers decode, as a typed frame: for what Catalyst computes, and for batches.

The rows are those of a `WorkerReader`, the same that tasks of operators read without Catalyst.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from everfold.connectors.contract import KIND, SPLIT, as_spark_function
from everfold.connectors.file_order import FILE
from everfold.connectors.null_rowtime import LOCATION
from everfold.connectors.skipped_rows import EXAMPLE, SKIPPED, observe_decoded_rows, write_example
from everfold.connectors.worker_reader import AT_OFFSET, Piece, WorkerInput, WorkerReader
from everfold.engine_literals import spark_string
from everfold.error_transport import transport_errors
from everfold.types import DataType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ORIGIN, _OFFSET = "__origin", "__offset"
_BATCH_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows of a table that workers decode.

    input: the handles, and how they are decoded. types: of the columns of the table. table: its
    name. metric: an identifier for the counts of the rows, unique among the streams. split: of
    rows whose reader names none. has_changes: whether rows have a row kind. has_files: whether they
    are from files.
    """

    input: WorkerInput
    types: Sequence[DataType]
    table: str
    metric: str
    split: str
    has_changes: bool = False
    has_files: bool = False

    def to_frame(self) -> DataFrame:
        """Return the columns of the table, and the hidden ones of a source's frame."""
        decode: Any = as_spark_function(_Decode(self.input.reader, tuple(self.types), self.table, self.has_changes))
        columns = [f"{physical_name(place)} {data_type.spark}" for place, data_type in enumerate(self.types)]
        columns += [f"{name} STRING" for name in (SPLIT, _ORIGIN, FILE)] + [f"{_OFFSET} BIGINT"]
        columns += [f"{SKIPPED} BIGINT", f"{EXAMPLE} STRING", *[f"{KIND} TINYINT"] * self.has_changes]
        # A batch may read a table several times; a stream's reports are found by the name.
        metric = self.metric if self.input.frame.isStreaming else f"{self.metric}_{uuid4().hex}"
        rows = observe_decoded_rows(self.input.frame.mapInArrow(decode, ", ".join(columns)), metric)
        place = f"concat({_ORIGIN}, coalesce(concat({spark_string(AT_OFFSET)}, {_OFFSET}), ''))"
        return rows.selectExpr(
            *map(physical_name, range(len(self.types))),
            f"coalesce({SPLIT}, {spark_string(self.split)}) AS {SPLIT}",
            f"{place} AS {LOCATION}",
            *[FILE] * self.has_files,
            *[KIND] * self.has_changes,
        )


@dataclass(frozen=True, slots=True)
class _Decode:
    """The worker function that decodes handles to typed rows."""

    reader: WorkerReader
    types: tuple[DataType, ...]
    table: str
    has_changes: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with transport_errors():
            for batch in batches:
                handles = batch.column(0).drop_null()
                for piece in self.reader.read(handles) if len(handles) else ():
                    yield from self._add_hidden(piece).to_batches(max_chunksize=_BATCH_ROWS)
                    if piece.skipped:
                        yield from self._report(piece).to_batches()

    def _add_hidden(self, piece: Piece) -> pa.Table:
        import pyarrow as pa

        rows, count = piece.rows, piece.rows.num_rows
        columns = [
            rows.column(physical_name(place)).cast(data_type.arrow) for place, data_type in enumerate(self.types)
        ]
        columns += [_repeat(text, count) for text in (piece.split, piece.origin, piece.file)]
        columns.append(pa.nulls(count, pa.int64()) if piece.offsets is None else piece.offsets)
        columns += [pa.nulls(count, pa.int64()), pa.nulls(count, pa.string())]
        if self.has_changes:
            columns.append(rows.column(KIND))
        return pa.table(columns, self._schema)

    def _report(self, piece: Piece) -> pa.Table:
        """Return a row with the number of skipped records, and an example, and without values."""
        import pyarrow as pa

        counts = {SKIPPED: piece.skipped, EXAMPLE: write_example(self.table, *piece.example)}
        return pa.Table.from_pylist([dict.fromkeys(self._schema.names) | counts], self._schema)

    @property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        fields = [(physical_name(place), data_type.arrow) for place, data_type in enumerate(self.types)]
        fields += [(name, pa.string()) for name in (SPLIT, _ORIGIN, FILE)] + [(_OFFSET, pa.int64())]
        return pa.schema(
            [*fields, (SKIPPED, pa.int64()), (EXAMPLE, pa.string()), *[(KIND, pa.int8())] * self.has_changes]
        )


def _repeat(text: str | None, count: int) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(count, pa.string()) if text is None else pa.repeat(text, count)
