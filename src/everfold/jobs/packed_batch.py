"""A batch whose rows stay packed until a sink needs them.

If workers evaluate everything above the operators (`spark.tail`), the batch's frame has the
payloads of the operators, and no row passes through Catalyst. A sink that runs in tasks takes the
rows in the worker that unpacks them, and only its report returns to the driver. A sink of the
driver gets the rows as Arrow blobs.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everfold.connectors.contract import KIND, ClusterSink, LocalSink, RowWriter, WorkerTask, as_spark_function
from everfold.plan.changelog import ORDER, REEMIT, REEMIT_DELETE, RowKind
from everfold.spark.exchange import ROWS
from everfold.spark.stream import Stream
from everfold.spark.tail import OutputRows, decode_rows, read_payloads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TARGET = "__target"
"""Column of a batch: the index of the sink that a row or payload is for."""
_PACKED = f"{TARGET} INT, payload BINARY"
_REPORT = b"W"
"""Kind of a payload: the report of a sink's task."""
_FAILED = "sink {}: "
_FAILURE = re.compile(r"RuntimeError: sink (\d+): ")


@dataclass(slots=True)
class PackedBatch:
    """The parts of a batch on the driver.

    forwarded: meta and statistics rows. rows: of each sink of the driver, with `__order` and
    `__kind`. reports: of the tasks of each other sink.
    """

    forwarded: list[bytes]
    rows: list[list[pa.Table]]
    reports: list[list[bytes]]


def packed_rows(streams: Sequence[Stream], sinks: Sequence[LocalSink | ClusterSink]) -> list[OutputRows] | None:
    """Return how to unpack the rows of each sink, None if Catalyst is needed for one of them."""
    if not all(isinstance(sink, LocalSink) or sink.takes_packed_rows for sink in sinks):
        return None
    tails = [stream.tail.rows for stream in streams if stream.tail is not None]
    return tails if len(tails) == len(streams) else None


def combine_payloads(streams: Sequence[Stream]) -> DataFrame:
    """Return the payloads of all branches in one frame; `__target` is the branch of a payload."""
    first: DataFrame | None = None
    for at, stream in enumerate(streams):
        assert stream.tail is not None
        frame = stream.tail.stepped.selectExpr(f"{at} AS {TARGET}", "payload")
        first = frame if first is None else first.union(frame)
    assert first is not None
    return first


def run_packed_batch(frame: DataFrame, tails: Sequence[OutputRows], tasks: Sequence[WorkerTask | None]) -> PackedBatch:
    """Run a batch once: the tasks of its sinks, and the transfer of rows to the driver.

    tasks: of each sink, None for a sink of the driver. If no worker has anything to do for it, the
    driver unpacks the rows.
    """
    is_raw = all(task is None and rows.is_plain for task, rows in zip(tasks, tails, strict=True))
    if not is_raw:
        frame = frame.mapInArrow(as_spark_function(_Deliver(tuple(tails), tuple(tasks))), _PACKED)
    table = frame.toArrow()
    batch = PackedBatch([], [[] for _ in tails], [[] for _ in tails])
    targets = table.column(0).to_pylist()
    payloads = (each for chunk in table.column(1).chunks for each in read_payloads(chunk))
    for at, (kind, payload) in zip(targets, payloads, strict=True):
        if kind == ROWS:
            batch.rows[at].append(_read(tails[at], payload) if is_raw else decode_rows(payload))
        elif kind == _REPORT:
            batch.reports[at].append(payload[1:].to_pybytes())
        else:
            batch.forwarded.append(payload.to_pybytes())
    return batch


def find_failed_sink(error_text: str) -> int | None:
    """Return the position of the sink whose task failed, None if the text of the error has none."""
    found = _FAILURE.search(error_text)
    return None if found is None else int(found[1])


def empty_rows(rows: OutputRows) -> pa.Table:
    """Return no rows, with the columns of those of a sink of the driver."""
    return _set_kinds(rows.null_row(_hidden(rows)).slice(0, 0))


@dataclass(frozen=True, slots=True)
class _Rows:
    """A payload with rows, in a worker."""

    tail: OutputRows
    payload: pa.Buffer

    def count(self) -> int:
        return self.tail.count(self.payload)

    def read(self) -> pa.Table:
        kind = (KIND,) if self.tail.has_row_kinds else ()
        return _set_kinds(self.tail.read(self.payload, kind))


@dataclass(frozen=True, slots=True)
class _Deliver:
    """The worker function that runs the tasks of the sinks, and passes on everything else."""

    tails: tuple[OutputRows, ...]
    tasks: tuple[WorkerTask | None, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = _TaskRun(self.tasks)
        try:
            for batch in batches:
                payloads = zip(batch.column(0).to_pylist(), read_payloads(batch.column(1)), strict=True)
                for at, (kind, payload) in payloads:
                    if kind != ROWS:
                        yield _packed_row(at, payload)
                    elif self.tasks[at] is None:
                        yield _packed_row(at, _encode(_read(self.tails[at], payload)))
                    else:
                        run.write(at, _Rows(self.tails[at], payload))
            yield from run.close()
        except BaseException:
            run.abort()
            raise


@dataclass(slots=True)
class _TaskRun:
    """The writers of one Spark task, by sink."""

    tasks: Sequence[WorkerTask | None]
    writers: dict[int, RowWriter] = field(default_factory=dict)

    def write(self, at: int, rows: _Rows) -> None:
        with _name_sink(at):
            if at not in self.writers:
                task = self.tasks[at]
                assert task is not None
                self.writers[at] = task.open()
            self.writers[at].write(rows)

    def close(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for at, writer in self.writers.items():
            with _name_sink(at):
                report = writer.close()
            yield _packed_row(at, pa.py_buffer(_REPORT + report))

    def abort(self) -> None:
        for writer in self.writers.values():
            writer.abort()


@contextmanager
def _name_sink(at: int) -> Iterator[None]:
    """Return a context that adds the position of the sink to an error."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{_FAILED.format(at)}{error}") from error


def _hidden(rows: OutputRows) -> tuple[str, ...]:
    return (ORDER, KIND) if rows.has_row_kinds else (ORDER,)


def _read(rows: OutputRows, payload: pa.Buffer) -> pa.Table:
    return _set_kinds(rows.read(payload, _hidden(rows)))


def _set_kinds(rows: pa.Table) -> pa.Table:
    """Return the rows with kinds for sinks: re-emitted rows are +U, re-emitted deletes are -D."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if KIND not in rows.column_names:
        inserts = pa.repeat(pa.scalar(RowKind.INSERT.value, pa.int8()), rows.num_rows)
        return rows.append_column(KIND, inserts)
    kinds = rows[KIND]
    for internal, shown in ((REEMIT, RowKind.UPDATE_AFTER), (REEMIT_DELETE, RowKind.DELETE)):
        kinds = pc.if_else(pc.equal(kinds, internal), pa.scalar(shown.value, pa.int8()), kinds)
    return rows.set_column(rows.column_names.index(KIND), KIND, kinds)


def _encode(rows: pa.Table) -> pa.Buffer:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    sink.write(ROWS)
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue()


def _packed_row(at: int, payload: pa.Buffer) -> pa.RecordBatch:
    """Return a payload as a batch of one row, without a copy."""
    import pyarrow as pa

    offsets = pa.py_buffer(struct.pack("<ii", 0, payload.size))
    blob = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])
    return pa.RecordBatch.from_arrays([pa.array([at], pa.int32()), blob], names=[TARGET, "payload"])
