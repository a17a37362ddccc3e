"""The input of an operator's exchange in a task: rows that Catalyst has computed.

The other input is `worker_scan`, in which the task decodes and computes the rows itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from everfold.connectors.file_order import FILE
from everfold.operators.protocol import NO_WATERMARK, Meta

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

ROWS, META, CALL, STATS, READ, TABLE, COMMAND = b"D", b"M", b"B", b"S", b"I", b"T", b"C"
"""Kinds of blobs: rows, a meta row, a call of a bucket, the statistics of a bucket, what a task has
read, a handle of a table, a line of a control file.
"""

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
FLUSH = "flush"
"""The command of a control file that ends the input."""
CHUNK_ROWS = 2_000_000
"""Rows that a task prepares at once."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of a task's rows.

    rows: `hash`, the operator's inputs, `__order` if they come from an operator, `__kind` if they
        are changes. meta: what they say about time; None if an operator below says it in another
        task. reports: blobs for the sink, passed on as they are. controls: lines of control files.
        file: the file of all rows, as the column `__file`, if the operator follows their order;
        None for rows that are from none.
    """

    rows: pl.DataFrame
    meta: Meta | None
    reports: list[bytes]
    controls: list[str]
    file: str | None = None


def split_commands(batch: pa.RecordBatch) -> tuple[list[str], pa.BinaryArray]:
    """Return the lines of control files in a batch of blobs, and the other blobs without NULL."""
    import pyarrow.compute as pc

    blobs = batch.column("payload")
    if blobs.null_count:
        blobs = blobs.drop_null()
    are_commands = pc.starts_with(blobs, pattern=COMMAND)
    if not pc.any(are_commands).as_py():
        return [], blobs
    lines = [line[1:].decode() for line in blobs.filter(are_commands).to_pylist()]
    return lines, blobs.filter(pc.invert(are_commands))


class TaskInput(Protocol):
    """Reads the rows of a task."""

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield the rows in chunks of bounded size."""


@dataclass(frozen=True, slots=True)
class TaskReads:
    """What a task has read without Catalyst, for the progress of the job.

    table: whose rows. handles: the rows of the JVM that it decoded. rows: the rows that they stand
    for. skipped: what options allow to skip, by reason. examples: location and text of one of them,
    by reason; empty if they are not known.
    """

    table: str
    handles: int = 0
    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode as a blob."""
        return READ + json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, blob: bytes) -> TaskReads:
        """Decode a blob."""
        return cls(**json.loads(blob[1:]))


@dataclass(frozen=True, slots=True)
class CatalystRows:
    """Rows that Catalyst has computed, with hidden columns.

    split: the split of rows without `__split` or with NULL in it, if the source has only one.
    Unneeded hidden columns are absent: `__split` with one split, `__keep` if no row is excluded,
    `__meta` if there is no previous operator, `__file` if the operator does not follow the order of
    files.
    """

    split: str

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield the rows in chunks of bounded size, those of a file in their own."""
        for rows in combine_batches(batches):
            chunk = self._make_chunk(rows)
            yield from _split_by_file(chunk) if FILE in rows.columns else [chunk]

    def _make_chunk(self, rows: pl.DataFrame) -> Chunk:
        import polars as pl

        has_controls = rows[CONTROL].null_count() < rows.height
        controls = rows[CONTROL].drop_nulls().to_list() if has_controls else []
        forwarded = rows[FORWARDED].drop_nulls().to_list() if FORWARDED in rows.columns else []
        now: int | None = rows.select_seq(pl.col(NOW).max()).item() if NOW in rows.columns else read_batch_time()
        own = Meta(NO_WATERMARK if now is None else now, self._find_watermarks(rows), FLUSH in controls)
        metas = [own, *(Meta.decode(blob[1:]) for blob in forwarded if blob[:1] == META)]
        data = rows
        if KEEP in rows.columns:
            data = data.filter(pl.col(KEEP))
        elif has_controls:
            data = data.filter(pl.col(CONTROL).is_null())
        reports = [blob for blob in forwarded if blob[:1] != META]
        said_elsewhere = bool(reports) and len(metas) == 1 and not own.watermarks and not has_controls
        return Chunk(data, None if said_elsewhere else Meta.merge(metas), reports, controls)

    def _find_watermarks(self, rows: pl.DataFrame) -> dict[str, int]:
        import polars as pl

        if SPLIT not in rows.columns:
            greatest: int | None = rows.select_seq(pl.col(WATERMARK).max()).item()
            return {} if greatest is None else {self.split: greatest}
        moves = rows.group_by(SPLIT).agg(pl.col(WATERMARK).max()).drop_nulls(WATERMARK)
        return {split if split is not None else self.split: at for split, at in moves.iter_rows()}


def _split_by_file(chunk: Chunk) -> Iterator[Chunk]:
    """Split rows by their file, the oldest file first. What comes with them is in the first
    chunk.
    """
    parts = chunk.rows.partition_by(FILE, as_dict=True, include_key=False)
    if not parts:
        yield replace(chunk, rows=chunk.rows.drop(FILE))
    for index, (file,) in enumerate(sorted(parts, key=lambda key: str(key[0] or ""))):
        rows = parts[file,]
        yield Chunk(rows, None, [], [], file) if index else replace(chunk, rows=rows, file=file)


def read_time(batch: pa.RecordBatch) -> int:
    """Return the processing time of the rows of a task, ms; NO_WATERMARK without rows."""
    if NOW not in batch.schema.names:
        return read_batch_time()
    return max(batch.column(NOW).to_pylist(), default=NO_WATERMARK)


def read_batch_time() -> int:
    """Return the processing time of the batch that the current Spark task belongs to, ms."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    batch, time_ms = (context.getLocalProperty(BATCH_TIME) or " ").split(" ")
    assert batch == context.getLocalProperty("streaming.sql.batchId"), "the time is that of another batch"
    return int(time_ms)


def combine_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    """Combine Arrow batches into frames of bounded size."""
    import polars as pl
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield pl.DataFrame(pl.from_arrow(pa.Table.from_batches(waiting)))
            waiting, rows = [], 0
    if waiting:
        yield pl.DataFrame(pl.from_arrow(pa.Table.from_batches(waiting)))
