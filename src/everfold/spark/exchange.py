"""The exchange: packs rows for an operator's buckets before the shuffle, and unpacks its output.

It runs in Spark's workers before and after the stateful step. On the wire a row is (bucket BIGINT,
payload BINARY). The first byte of the payload is its kind: rows as an Arrow IPC stream, a meta row
for every bucket, the statistics of a bucket for the sink, backfilled rows for new aggregates, a
request to re-emit the bucket's rows, or rows that the previous operator has re-emitted. On the way
to an operator, the arrival number of the first row of the chunk precedes the rows.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.error_transport import transport_errors
from everfold.operators.protocol import Meta, Operator
from everfold.operators.reemit import split_reemitted
from everfold.plan.changelog import KIND, ORDER

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

ROWS, META, STATS, BACKFILL, REEMIT_REQUEST, REEMITTED = b"D", b"M", b"S", b"P", b"R", b"G"
WIRE = "bucket BIGINT, payload BINARY"

SPLIT, WATERMARK, KEEP, NOW, CONTROL, FORWARDED, HASH = (
    "__split",
    "__watermark",
    "__keep",
    "__now",
    "__control",
    "__meta",
    "hash",
)
"""Hidden columns of a stream of rows, in addition to `__order` of an operator's output.

__split STRING: the split whose watermark the row advances.
__watermark BIGINT: the watermark of the row, ms.
__keep BOOLEAN: FALSE for a row that a WHERE excluded, which only advances time.
__now BIGINT: the batch's processing time, ms. Absent if the runner sets it as BATCH_TIME.
__control STRING: a line of a control file; all other columns are then NULL.
__meta BINARY: a meta or statistics row of the previous operator.
"""
BATCH_TIME = "everfold.batchTime"
"""Local property of Spark's tasks: the number of the batch and its processing time in ms.

A column would make Spark compile the code of every batch again: it contains the time as a constant.
"""
FLUSH, TICK, BACKFILL_COMMAND, REEMIT_COMMAND = "flush", "tick", "past", "again"
"""Commands in control files.

`past <operator> <bucket> <rows in base64>` has backfilled rows; `again <operator>` makes an
operator re-emit its rows.
"""
_CHUNK_ROWS = 2_000_000
TASK_SHIFT = 40
"""Arrival numbers have the task above this bit and the row in the task below it.

No task has that many rows in a batch.
"""
_NUMBERED = struct.Struct("<cq")


def to_ipc(frame: pl.DataFrame, kind: bytes = b"") -> bytes:
    """Encode rows as an uncompressed Arrow IPC stream, preceded by the kind of the payload."""
    from io import BytesIO

    stream = BytesIO()
    stream.write(kind)
    frame.write_ipc_stream(stream)
    return stream.getvalue()


def decode_in_task_order(blobs: Iterable[bytes]) -> list[pl.DataFrame]:
    """Decode a bucket's blobs of rows in the order of their tasks, not of their arrival."""
    return [from_ipc(memoryview(blob)[_NUMBERED.size :]) for blob in sorted(blobs, key=_NUMBERED.unpack_from)]


def from_ipc(blob: memoryview | bytes) -> pl.DataFrame:
    """Decode rows from an Arrow IPC stream."""
    import polars as pl

    return pl.read_ipc_stream(bytes(blob))


@dataclass(frozen=True, slots=True)
class Pack:
    """Before the shuffle: pre-aggregates a task's rows and packs them.

    The output is one blob of rows per bucket, and one meta row for every bucket.

    split: the split of rows without `__split` or with NULL in it, if the source has only one.
    Unneeded hidden columns are absent: `__split` with one split, `__keep` if no row is excluded,
    `__meta` if there is no previous operator.
    """

    operator: Operator
    bucket_ids: tuple[int, ...]
    split: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        metas: list[Meta] = []
        seq = task_number() << TASK_SHIFT
        for chunk in chunks(batches):
            meta, stats, wire = self._pack(chunk, seq)
            seq += chunk.height
            metas.append(meta)
            yield _wire_batch([*wire, *((self.bucket_ids[0], STATS + blob) for blob in stats)])
        if metas:
            blob = META + Meta.merge(metas).encode()
            yield _wire_batch([(bucket, blob) for bucket in self.bucket_ids])

    def _pack(self, rows: pl.DataFrame, seq: int) -> tuple[Meta, list[bytes], list[tuple[int, bytes]]]:
        import polars as pl

        meta, stats = self._meta(rows)
        data = rows
        if self.operator.ordered:
            arrival = pl.int_range(seq, seq + data.height)
            # The buckets of the operator below arrive one after another: only `__order` tells which
            # row was first.
            ordered = ORDER in data.columns
            data = data.with_columns((pl.coalesce(ORDER, arrival) if ordered else arrival).alias("seq"))
            data = data.sort("seq", maintain_order=True) if ordered else data
        if KEEP in rows.columns:
            data = data.filter(pl.col(KEEP))
        elif rows[CONTROL].null_count() < rows.height:
            data = data.filter(pl.col(CONTROL).is_null())
        wire = self._read_commands(rows)
        if self.operator.updating:
            data, given = split_reemitted(data.rename({KIND: "kind"}), "kind")
            wire += self._prepare(given, REEMITTED)
        return meta, stats, wire + self._prepare(data, _NUMBERED.pack(ROWS, seq))

    def _prepare(self, rows: pl.DataFrame, what: bytes) -> list[tuple[int, bytes]]:
        if rows.is_empty():
            return []
        wanted = [column.name for column in self.operator.inputs]
        wanted += ["seq"] * self.operator.ordered + ["kind"] * self.operator.updating
        with transport_errors():
            prepared = self.operator.prepare(rows.select(HASH, *wanted))
        return [(bucket, what + to_ipc(part)) for bucket, part in split_by_bucket(prepared, self.bucket_ids)]

    def _read_commands(self, rows: pl.DataFrame) -> list[tuple[int, bytes]]:
        """Return the commands of control files for this operator's buckets."""
        if rows[CONTROL].null_count() == rows.height:
            return []
        found: list[tuple[int, bytes]] = []
        for what, operator, *rest in (line.split(" ") for line in rows[CONTROL].drop_nulls() if " " in line):
            if operator == self.operator.name and what == BACKFILL_COMMAND:
                bucket, blob = rest
                found.append((int(bucket), BACKFILL + b64decode(blob)))
            elif operator == self.operator.name and what == REEMIT_COMMAND:
                found += [(bucket, REEMIT_REQUEST) for bucket in self.bucket_ids]
        return found

    def _meta(self, rows: pl.DataFrame) -> tuple[Meta, list[bytes]]:
        """Return the time information of the rows, and the statistics of earlier operators."""
        import polars as pl

        from everfold.operators.protocol import NO_WATERMARK

        if SPLIT in rows.columns:
            moves = rows.group_by(SPLIT).agg(pl.col(WATERMARK).max()).drop_nulls(WATERMARK)
            watermarks = {split if split is not None else self.split: at for split, at in moves.iter_rows()}
        else:
            greatest: int | None = rows.select(pl.col(WATERMARK).max()).item()
            watermarks = {} if greatest is None else {self.split: greatest}
        controls = rows[CONTROL].drop_nulls().to_list() if rows[CONTROL].null_count() < rows.height else []
        now: int | None = rows.select(pl.col(NOW).max()).item() if NOW in rows.columns else read_batch_time()
        metas = [Meta(NO_WATERMARK if now is None else now, watermarks, FLUSH in controls)]
        stats: list[bytes] = []
        forwarded = rows[FORWARDED].drop_nulls().to_list() if FORWARDED in rows.columns else []
        for blob in forwarded:
            if blob[:1] == META:
                metas.append(Meta.decode(blob[1:]))
            else:
                stats.append(blob[1:])
        return Meta.merge(metas), stats


@dataclass(frozen=True, slots=True)
class Unpack:
    """After the stateful step: unpacks blobs to typed rows.

    Meta and statistics rows are passed on in `__meta`.

    schema: the Arrow schema of the rows, `__meta` last.
    """

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            forwarded: list[bytes] = []
            for payload in batch.column(0):
                blob = payload.as_buffer()
                if bytes(blob[:1]) == ROWS:
                    yield from self._typed(pa.ipc.open_stream(blob[1:]).read_all())
                else:
                    forwarded.append(blob.to_pybytes())
            if forwarded:
                columns = [pa.nulls(len(forwarded), of.type) for of in self.schema][:-1]
                yield pa.RecordBatch.from_arrays([*columns, pa.array(forwarded, pa.binary())], schema=self.schema)

    def _typed(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = [rows.column(of.name).cast(of.type) for of in list(self.schema)[:-1]]
        columns.append(pa.chunked_array([pa.nulls(rows.num_rows, pa.binary())]))
        yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches()


def task_number() -> int:
    """Return the number of the current Spark task, which is the same when a batch is run again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def read_batch_time() -> int:
    """Return the processing time of the batch that the current Spark task belongs to, ms."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    batch, time_ms = (context.getLocalProperty(BATCH_TIME) or " ").split(" ")
    assert batch == context.getLocalProperty("streaming.sql.batchId"), "the time is that of another batch"
    return int(time_ms)


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    """Combine Arrow batches into frames of bounded size."""
    import polars as pl
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= _CHUNK_ROWS:
            yield pl.DataFrame(pl.from_arrow(pa.Table.from_batches(waiting)))
            waiting, rows = [], 0
    if waiting:
        yield pl.DataFrame(pl.from_arrow(pa.Table.from_batches(waiting)))


def split_by_bucket(rows: pl.DataFrame, bucket_ids: Sequence[int]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Split rows by bucket, using the hash of their key.

    The number of buckets is a power of two.
    """
    import polars as pl

    index = pl.col(HASH) & (len(bucket_ids) - 1)
    parts = rows.with_columns(index.alias("__bucket")).partition_by("__bucket", as_dict=True, include_key=False)
    yield from ((bucket_ids[at], part) for (at,), part in parts.items())


def _wire_batch(rows: list[tuple[int, bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    buckets, payloads = [bucket for bucket, _ in rows], [payload for _, payload in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(buckets, pa.int64()), pa.array(payloads, pa.binary())], names=["bucket", "payload"]
    )
