"""The exchange: packs rows for an operator's buckets before the shuffle.

It runs in Spark's workers before the stateful step; `tail` unpacks the step's output. On the wire
a row is (bucket BIGINT, payload BINARY). The first byte of the payload is its kind: rows as an
Arrow IPC stream, a meta row, a call of a bucket, the statistics of a bucket for the sink,
backfilled rows for new aggregates, a request to re-emit the bucket's rows, or rows that the
previous operator has re-emitted. On the way to an operator, the arrival number of the first row of
the chunk precedes the rows.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from everfold.connectors.file_order import number_by_file
from everfold.error_transport import transport_errors
from everfold.operators.combining import PreparedRows
from everfold.operators.protocol import NO_WATERMARK, TABLE, Meta, Operator
from everfold.operators.reemit import split_reemitted
from everfold.plan.changelog import KIND, ORDER
from everfold.spark.buckets import find_leaders
from everfold.spark.task_input import CALL, HASH, META, ROWS, Chunk, TaskInput

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

BACKFILL, REEMIT_REQUEST, REEMITTED = b"P", b"R", b"G"
Blob: TypeAlias = "bytes | pa.Buffer"
WIRE = "bucket BIGINT, payload BINARY"

TICK, BACKFILL_COMMAND, REEMIT_COMMAND = "tick", "past", "again"
"""Commands in control files, in addition to `flush`.

`past <operator> <bucket> <rows in base64>` has backfilled rows; `again <operator>` makes an
operator re-emit its rows.
"""
TASK_SHIFT = 40
"""Arrival numbers have the task above this bit and the row in the task below it.

No task has that many rows in a batch.
"""
_NUMBERED = struct.Struct("<c7xq")
_CALL = struct.Struct("<cq")
_PARTITIONS = ("spark.sql.streaming.internal.stateStore.partitions", "spark.sql.shuffle.partitions")
"""Local properties of Spark's tasks: the partitions of the checkpoint that a query has started from
(since Spark 4.1), and those of a new query.
"""
_LARGE_BYTES, _LARGE_ROWS = 100_000, 2_000
"""From this size on, Arrow's encoder pays off: it is slower to start than that of Polars, and
copies each value once.
"""


def to_ipc(frame: pl.DataFrame, prefix: bytes = b"") -> pa.Buffer:
    """Encode rows as an uncompressed Arrow IPC stream after a prefix: the kind of the payload."""
    import pyarrow as pa

    if frame.height < _LARGE_ROWS:
        stream = BytesIO()
        stream.write(prefix)
        frame.write_ipc_stream(stream)
        return pa.py_buffer(stream.getvalue())
    return encode_table(frame.to_arrow(), prefix)


def encode_table(rows: pa.Table, prefix: bytes) -> pa.Buffer:
    """Encode rows as an Arrow IPC stream after a prefix; each value is copied once."""
    import pyarrow as pa

    counted = pa.MockOutputStream()
    _write_stream(counted, rows)
    blob = pa.allocate_buffer(len(prefix) + counted.size())
    out = pa.FixedSizeBufferWriter(blob)
    out.write(prefix)
    _write_stream(out, rows)
    return blob


def _write_stream(out: pa.NativeFile, rows: pa.Table) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)


def from_ipc(blob: bytes, prefix: int = 1) -> pl.DataFrame:
    """Decode rows from an Arrow IPC stream after a prefix; large ones are not copied."""
    import polars as pl
    import pyarrow as pa

    if len(blob) < _LARGE_BYTES:
        return pl.read_ipc_stream(blob[prefix:])
    return pl.DataFrame(pl.from_arrow(pa.ipc.open_stream(pa.py_buffer(blob).slice(prefix)).read_all()))


def decode_in_order(blobs: Iterable[bytes], files: Sequence[tuple[str, int]]) -> list[pl.DataFrame]:
    """Decode a bucket's blobs of rows in the order of their files or tasks, not of their arrival,
    those of a chunk in the order of their tables.

    files: see `Meta`.
    """
    import polars as pl

    numbered = []
    number = number_by_file(files, TASK_SHIFT)
    for blob in blobs:
        first, frame = _NUMBERED.unpack_from(blob)[1], from_ipc(blob, _NUMBERED.size)
        if number is not None:
            first = number(pl.Series([first]))[0]
            frame = frame.with_columns_seq(number(frame["seq"]))
        numbered.append((first, frame[TABLE][0] if TABLE in frame.columns else 0, frame))
    numbered.sort(key=itemgetter(0, 1))
    return [frame for _, _, frame in numbered]


@dataclass(frozen=True, slots=True)
class Pack:
    """Before the shuffle: pre-aggregates a task's rows and packs them.

    The output is one blob of rows per bucket, and a meta row for the first bucket of each partition
    (`find_leaders`), which shares it with the others. The first task also calls every bucket.
    """

    operator: Operator
    bucket_ids: tuple[int, ...]
    task_input: TaskInput

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        metas: list[Meta] = []
        files: list[tuple[str, int]] = []
        prepared = PreparedRows(self.operator)
        task = task_number()
        seq = task << TASK_SHIFT
        with transport_errors():
            for chunk in self.task_input.read(batches):
                if chunk.rows.height and (not files or files[-1][0] != (chunk.file or "")):
                    files.append((chunk.file or "", seq))
                    yield from _wire_batches(self._encode_numbered(prepared.release()))
                wire = self._pack(chunk, seq, prepared)
                seq += chunk.rows.height
                if chunk.meta is not None:
                    metas.append(chunk.meta)
                yield from _wire_batches([*wire, *((self.bucket_ids[0], blob) for blob in chunk.reports)])
            yield from _wire_batches(self._encode_numbered(prepared.release()))
        if any(file for file, _ in files):
            metas.append(Meta(NO_WATERMARK, files=files))
        yield from _wire_batches(list(self._call_buckets(metas, is_first=task == 0)))

    def _call_buckets(self, metas: Sequence[Meta], *, is_first: bool) -> Iterator[tuple[int, Blob]]:
        """Yield the meta rows of a task, and the calls of the buckets if it is the first task."""
        leaders = find_leaders(self.bucket_ids, count_partitions())
        if metas:
            blob = META + Meta.merge(metas).encode()
            yield from ((leader, blob) for leader in dict.fromkeys(leaders))
        if is_first:
            for bucket, leader in zip(self.bucket_ids, leaders, strict=True):
                yield bucket, _CALL.pack(CALL, leader)

    def _pack(self, chunk: Chunk, seq: int, prepared: PreparedRows) -> list[tuple[int, Blob]]:
        """Return the blobs of a chunk, without rows that wait in `prepared`.

        seq: the arrival number of its first row.
        """
        import polars as pl

        data = chunk.rows
        if self.operator.ordered:
            arrival = pl.int_range(seq, seq + data.height)
            # The buckets of the operator below arrive one after another: only `__order` tells which
            # row was first.
            ordered = ORDER in data.columns
            data = data.with_columns_seq((pl.coalesce(ORDER, arrival) if ordered else arrival).alias("seq"))
            data = data.sort("seq", maintain_order=True) if ordered else data
        wire = self._read_commands(chunk.controls)
        if self.operator.updating:
            data, given = split_reemitted(data.rename({KIND: "kind"}), "kind")
            wire += [] if given.is_empty() else self._encode(self._prepare(given), REEMITTED)
        if data.is_empty():
            return wire
        return wire + self._encode_numbered(prepared.add(self._prepare(data), data.height, seq))

    def _prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        wanted = [column.name for column in self.operator.inputs]
        wanted += ["seq"] * self.operator.ordered + ["kind"] * self.operator.updating
        return self.operator.prepare(rows.select_seq(HASH, *wanted))

    def _encode_numbered(self, frames: Sequence[tuple[int, pl.DataFrame]]) -> list[tuple[int, Blob]]:
        return [blob for seq, frame in frames for blob in self._encode(frame, _NUMBERED.pack(ROWS, seq))]

    def _encode(self, prepared: pl.DataFrame, what: bytes) -> list[tuple[int, Blob]]:
        """Return a blob for each bucket."""
        return [
            (bucket, to_ipc(part, what))
            for table in split_tables(prepared)
            for bucket, part in split_by_bucket(table, self.bucket_ids)
        ]

    def _read_commands(self, controls: Sequence[str]) -> list[tuple[int, Blob]]:
        """Return the commands of control files for this operator's buckets."""
        found: list[tuple[int, Blob]] = []
        for what, operator, *rest in (line.split(" ") for line in controls if " " in line):
            if operator == self.operator.name and what == BACKFILL_COMMAND:
                bucket, blob = rest
                found.append((int(bucket), BACKFILL + b64decode(blob)))
            elif operator == self.operator.name and what == REEMIT_COMMAND:
                found += [(bucket, REEMIT_REQUEST) for bucket in self.bucket_ids]
        return found


def read_leader(call: bytes) -> int:
    """Return the bucket that shares its meta rows with a bucket. call: the blob that calls it."""
    leader: int = _CALL.unpack(call)[1]
    return leader


def count_partitions() -> int | None:
    """Return the shuffle partitions of the current Spark task's query, None if not known."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found = [] if context is None else [context.getLocalProperty(name) for name in _PARTITIONS]
    return next((int(number) for number in found if number is not None), None)


def task_number() -> int:
    """Return the number of the current Spark task, which is the same when a batch is run again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def split_tables(prepared: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Split prepared rows by `table`, and drop the columns that only other tables need."""
    if TABLE not in prepared.columns:
        yield prepared
        return
    tables = prepared[TABLE]
    for table in range(tables[-1] + 1):
        begin = tables.search_sorted(table, "left")
        part = prepared.slice(begin, tables.search_sorted(table, "right") - begin)
        used = [column.name for column in part.get_columns() if not table or column.null_count() < part.height]
        if part.height:
            yield part[used]


def split_by_bucket(rows: pl.DataFrame, bucket_ids: Sequence[int]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Split rows by bucket, using the hash of their key.

    The number of buckets is a power of two.
    """
    import polars as pl

    index = pl.col(HASH) & (len(bucket_ids) - 1)
    parts = rows.with_columns_seq(index.alias("__bucket")).partition_by("__bucket", as_dict=True, include_key=False)
    yield from ((bucket_ids[at], part) for (at,), part in parts.items())


def _wire_batches(blobs: Sequence[tuple[int, Blob]]) -> Iterator[pa.RecordBatch]:
    """Yield small blobs together, and each large one alone, which does not copy it."""
    import pyarrow as pa

    small = [(bucket, blob) for bucket, blob in blobs if len(blob) < _LARGE_BYTES]
    if small:
        payloads = pa.array([bytes(blob) for _, blob in small], pa.binary())
        yield _wire_batch([bucket for bucket, _ in small], payloads)
    for bucket, blob in blobs:
        if len(blob) >= _LARGE_BYTES:
            ends = pa.py_buffer(struct.pack("<ii", 0, len(blob)))
            yield _wire_batch([bucket], pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(blob)]))


def _wire_batch(buckets: list[int], payloads: pa.Array) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(buckets, pa.int64()), payloads], names=["bucket", "payload"])
