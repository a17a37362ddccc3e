"""Jobs in this process, without a JVM: for small bounded files.

They keep no state between runs: each run starts from scratch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

import pyarrow as pa

from everfold.connectors.contract import KIND, BatchId, LocalSink, SinkContext
from everfold.connectors.skipped_rows import NO_TIME, SkippedRows
from everfold.connectors.validate import CheckedTables, check_tables
from everfold.errors import UsageError
from everfold.jobs.preflight import check_memory_sink, check_memory_sources
from everfold.jobs.progress import Progress
from everfold.jobs.spec import Finished, JobSpec
from everfold.plan.nodes import Collect, Root, Sink, Table
from everfold.plan.walk import batch_inputs, tables_of, walk_plan, walk_streamed

if TYPE_CHECKING:
    from everfold.memory.pipeline import MemoryPipeline


class MemoryEngine:
    """Runs jobs in this process."""

    def is_bounded(self, spec: JobSpec) -> bool:
        """Whether all input of a job is bounded."""
        return all(each.source().is_bounded() for each in _check(spec).sources.values())

    def check_readable(self, spec: JobSpec) -> None:
        """Raise UnsupportedFeature `not-in-memory` for a table that this engine cannot read."""
        check_memory_sources(_check(spec), spec.base_folder)

    def run(self, spec: JobSpec) -> Finished:
        """Run a job to its end, one root after the other.

        Raises UnsupportedFeature or UsageError `not-in-memory`.
        """
        tables = _check(spec)
        self.check_readable(spec)
        if spec.suspend:
            raise UsageError.of("not-in-memory", "the memory engine keeps no state: a suspended job could not resume")
        rows_in, rows_out, late_rows, state_rows = 0, 0, 0, 0
        skipped = SkippedRows()
        for root in spec.roots:
            run = _Run(root, spec, tables, rows_in, skipped)
            with _Target(root, spec, tables) as target:
                for batch in run.run_batches():
                    rows_out += batch.num_rows
                    target.write(batch)
            rows_in, late_rows, state_rows = run.rows, late_rows + run.late_rows, state_rows + run.state_rows
        return Finished(
            rows=rows_in,
            rows_out=rows_out,
            late_rows=late_rows,
            state_rows=state_rows,
            dropped_rows=skipped.counts,
            dropped_examples=tuple(skipped.examples.values()),
        )


def _check(spec: JobSpec) -> CheckedTables:
    return spec.tables or check_tables(spec.roots, streaming=spec.settings.streaming)


class _Run:
    """The run of one root over its input."""

    def __init__(
        self, root: Root, spec: JobSpec, tables: CheckedTables, rows_before: int, skipped: SkippedRows
    ) -> None:
        self._root, self._spec, self._tables, self._skipped = root, spec, tables, skipped
        self.rows = rows_before
        self.late_rows = 0
        self.state_rows = 0

    def run_batches(self) -> Iterator[pa.Table]:
        """Yield the rows that the query emits, batch by batch."""
        from everfold.memory.batch import run_batch
        from everfold.memory.pipeline import MemoryPipeline

        settings = self._spec.settings
        streamed_names = {table.name for table in tables_of(walk_streamed(self._root.input))}
        lookup_names = {table.name for each in batch_inputs(self._root.input) for table in tables_of(walk_plan(each))}
        folder = self._spec.base_folder
        read = {table.name: table for table in tables_of(walk_plan(self._root.input))}
        sources = {name: self._tables.sources[table].source() for name, table in read.items()}
        pieces = {
            name: source.read_local(folder, self._skipped)
            for name, source in sources.items()
            if name in streamed_names or not settings.streaming
        }
        if not settings.streaming:
            tables = {name: _concat(read[name], parts) for name, parts in pieces.items()}
            self.rows += sum(table.num_rows for table in tables.values())
            yield run_batch(self._root, tables, settings)
            return
        pipeline = MemoryPipeline(
            self._root,
            settings,
            lookup_tables={
                name: _concat(read[name], sources[name].read_local(folder, self._skipped)) for name in lookup_names
            },
        )
        # The input is read when it is asked for, so a batch begins before its rows are.
        started = time.perf_counter()
        for number, batch in enumerate(_batches(pieces)):
            if self._spec.stopping():
                return
            yield pipeline.feed(batch)
            now = time.perf_counter()
            self._report(pipeline, number, sum(table.num_rows for table in batch.values()), now - started)
            started = now
        yield pipeline.flush()
        self._report(pipeline, -1, 0, 0.0)
        if pipeline.dropped_rows:
            counts = self._skipped.counts
            counts[NO_TIME] = counts.get(NO_TIME, 0) + pipeline.dropped_rows

    def _report(self, pipeline: MemoryPipeline, batch: int, rows: int, seconds: float) -> None:
        self.rows += rows
        self.late_rows, self.state_rows = pipeline.late_rows, pipeline.state_rows
        if batch >= 0 and self._spec.progress is not None:
            self._spec.progress(
                Progress(
                    batch=batch,
                    rows=self.rows,
                    rows_per_second=rows / seconds if seconds > 0 else 0.0,
                    watermark_ms=pipeline.watermark_ms,
                    late_rows=self.late_rows,
                    state_rows=self.state_rows,
                    rows_out=0,
                )
            )


def _batches(pieces: Mapping[str, Iterator[pa.Table]]) -> Iterator[dict[str, pa.Table]]:
    """Yield one piece of each table at a time; a query without tables has one empty batch."""
    if not pieces:
        yield {}
    for batch in zip_longest(*pieces.values()):
        yield {name: piece for name, piece in zip(pieces, batch, strict=True) if piece is not None}


def _concat(table: Table, pieces: Iterator[pa.Table]) -> pa.Table:
    return pa.concat_tables(list(pieces) or [table.schema.arrow.empty_table()])


class _Target:
    """The receiver of the rows of a root: the caller, or a table."""

    def __init__(self, root: Root, spec: JobSpec, tables: CheckedTables) -> None:
        self._receive = spec.receive
        self._batch = 0
        self._sink: LocalSink | None = None
        self._name = ""
        if isinstance(root, Sink):
            self._name = root.table.name
            checked = tables.sinks[root.table]
            check_memory_sink(checked, root)
            context = SinkContext(
                name=self._name,
                base_folder=spec.base_folder,
                table=root.table,
                settings=spec.settings,
                printing=spec.printing,
            )
            sink = checked.sink(context)
            assert isinstance(sink, LocalSink), "checked"
            self._sink = sink
        else:
            assert isinstance(root, Collect)

    def __enter__(self) -> _Target:
        if self._sink is not None:
            self._sink.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        if self._sink is not None:
            self._sink.close()

    def write(self, rows: pa.Table) -> None:
        """Write the rows that a batch emitted."""
        if self._sink is None:
            assert self._receive is not None, "a bare SELECT needs `receive`"
            self._receive(rows)
            return
        if KIND not in rows.column_names:
            rows = rows.append_column(KIND, pa.array([0] * rows.num_rows, pa.int8()))
        self._sink.write(rows, BatchId("memory", self._name, 0, self._batch))
        self._batch += 1
