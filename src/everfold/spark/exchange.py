"""The way of rows to an operator's buckets and back: what runs in Spark's workers before and after the stateful step.

On the wire a row is (bucket BIGINT, payload BINARY); the payload's first byte says what it is: rows as an Arrow IPC stream, a meta
row for every bucket, a bucket's report on its way to the sink, the past that its new aggregates are given, the word that it gives its rows again, or
rows that the operator before has given again. On the way in, rows stand behind the arrival number of the first of their chunk.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.operators.protocol import Meta, Operator
from everfold.operators.reemit import parted
from everfold.plan.changelog import KIND, ORDER
from everfold.spark.error_transport import crossing

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

ROWS, META, STATS, PAST, REPEAT, GIVEN = b"D", b"M", b"S", b"P", b"R", b"G"
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
"""Hidden columns of a stream of rows, beside `__order` of what an operator gave.

__split STRING: what the row's watermark is kept by. __watermark BIGINT: the watermark that the row speaks for, ms. __keep BOOLEAN:
FALSE for a row that a WHERE excluded, which only moves time. __now BIGINT: the batch's processing time, ms. __control STRING: what a
control file says; then all else is NULL. __meta BINARY: a meta or stats row of the operator before.
"""
FLUSH, TICK, RECALL, GIVE_AGAIN = "flush", "tick", "past", "again"
"""What control files say. A past is a line `past <operator> <bucket> <rows, in base64>`; `again <operator>` has an operator give its rows again."""
_CHUNK_ROWS = 2_000_000
TASK_SHIFT = 40
"""Arrival numbers: the task, then the row within it. No task has so many rows in a batch."""
_PLACED = struct.Struct("<cq")


def to_ipc(frame: pl.DataFrame) -> bytes:
    """Rows as an uncompressed Arrow IPC stream."""
    from io import BytesIO

    stream = BytesIO()
    frame.write_ipc_stream(stream)
    return stream.getvalue()


def in_order_of_tasks(blobs: Iterable[bytes]) -> list[pl.DataFrame]:
    """The frames of a bucket's blobs of rows: one task's after another's, whichever came first."""
    return [from_ipc(memoryview(blob)[_PLACED.size :]) for blob in sorted(blobs, key=_PLACED.unpack_from)]


def from_ipc(blob: memoryview | bytes) -> pl.DataFrame:
    """Rows out of an Arrow IPC stream."""
    import polars as pl

    return pl.read_ipc_stream(bytes(blob))


@dataclass(frozen=True, slots=True)
class Pack:
    """Before the shuffle: makes a task's rows fewer and packs them, one blob a bucket, with one meta row for every bucket.

    `split` names the split of rows without `__split`, or with NULL there: of a source that has but one. Hidden columns that say
    nothing are left out: `__split` with one split, `__keep` where no row is excluded, `__meta` where no operator came before.
    """

    operator: Operator
    bucket_ids: tuple[int, ...]
    split: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        metas: list[Meta] = []
        seq = task() << TASK_SHIFT
        for chunk in chunks(batches):
            meta, stats, wire = self._pack(chunk, seq)
            seq += chunk.height
            metas.append(meta)
            yield _wire_batch([*wire, *((self.bucket_ids[0], STATS + blob) for blob in stats)])
        if metas:
            blob = META + Meta.joined(metas).encode()
            yield _wire_batch([(bucket, blob) for bucket in self.bucket_ids])

    def _pack(self, rows: pl.DataFrame, seq: int) -> tuple[Meta, list[bytes], list[tuple[int, bytes]]]:
        import polars as pl

        meta, stats = self._meta(rows)
        data = rows
        if self.operator.ordered:
            arrival = pl.int_range(seq, seq + data.height)
            # The buckets of the operator below come one after another: only what they say tells which row was first.
            ordered = ORDER in data.columns
            data = data.with_columns((pl.coalesce(ORDER, arrival) if ordered else arrival).alias("seq"))
            data = data.sort("seq", maintain_order=True) if ordered else data
        if KEEP in rows.columns:
            data = data.filter(pl.col(KEEP))
        elif rows[CONTROL].null_count() < rows.height:
            data = data.filter(pl.col(CONTROL).is_null())
        wire = self._said(rows)
        if self.operator.updating:
            data, given = parted(data.rename({KIND: "kind"}), "kind")
            wire += self._prepared(given, GIVEN)
        return meta, stats, wire + self._prepared(data, _PLACED.pack(ROWS, seq))

    def _prepared(self, rows: pl.DataFrame, what: bytes) -> list[tuple[int, bytes]]:
        if rows.is_empty():
            return []
        wanted = [column.name for column in self.operator.inputs]
        wanted += ["seq"] * self.operator.ordered + ["kind"] * self.operator.updating
        with crossing():
            prepared = self.operator.prepare(rows.select(HASH, *wanted))
        return [(bucket, what + to_ipc(part)) for bucket, part in dealt(prepared, self.bucket_ids)]

    def _said(self, rows: pl.DataFrame) -> list[tuple[int, bytes]]:
        """What control files say to this operator's buckets."""
        if rows[CONTROL].null_count() == rows.height:
            return []
        found: list[tuple[int, bytes]] = []
        for what, operator, *rest in (line.split(" ") for line in rows[CONTROL].drop_nulls() if " " in line):
            if operator == self.operator.name and what == RECALL:
                bucket, blob = rest
                found.append((int(bucket), PAST + b64decode(blob)))
            elif operator == self.operator.name and what == GIVE_AGAIN:
                found += [(bucket, REPEAT) for bucket in self.bucket_ids]
        return found

    def _meta(self, rows: pl.DataFrame) -> tuple[Meta, list[bytes]]:
        """What the rows say about time, and the reports of earlier operators among them."""
        import polars as pl

        from everfold.operators.protocol import NO_WATERMARK

        if SPLIT in rows.columns:
            moves = rows.group_by(SPLIT).agg(pl.col(WATERMARK).max()).drop_nulls(WATERMARK)
            watermarks = {split if split is not None else self.split: at for split, at in moves.iter_rows()}
        else:
            greatest: int | None = rows.select(pl.col(WATERMARK).max()).item()
            watermarks = {} if greatest is None else {self.split: greatest}
        controls = rows[CONTROL].drop_nulls().to_list() if rows[CONTROL].null_count() < rows.height else []
        now: int | None = rows.select(pl.col(NOW).max()).item()
        metas = [Meta(NO_WATERMARK if now is None else now, watermarks, FLUSH in controls)]
        stats: list[bytes] = []
        forwarded = rows[FORWARDED].drop_nulls().to_list() if FORWARDED in rows.columns else []
        for blob in forwarded:
            if blob[:1] == META:
                metas.append(Meta.decode(blob[1:]))
            else:
                stats.append(blob[1:])
        return Meta.joined(metas), stats


@dataclass(frozen=True, slots=True)
class Unpack:
    """After the stateful step: blobs become typed rows again; meta and stats rows go on in `__meta`.

    `schema` is the Arrow schema of the rows, `__meta` last.
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


def task() -> int:
    """The number of the Spark task that this runs in: the same when a batch is run again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    """Arrow batches put together into frames of bounded size."""
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


def dealt(rows: pl.DataFrame, bucket_ids: Sequence[int]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Rows by the bucket that the hash of their key says; there are as many buckets as a power of two."""
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
