"""Jobs in this process, without a JVM: for small bounded files.

They keep no state between runs: each run starts from scratch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from everfold.cli.runner import JobRequest
from everfold.connectors.contract import KIND, BatchId, LocalSink, SinkContext, Source
from everfold.connectors.registry import connector_of
from everfold.errors import UnsupportedFeature, UsageError
from everfold.jobs import Finished
from everfold.jobs.progress import Progress
from everfold.plan.nodes import Collect, Root, Sink, batch_inputs, tables_of, walk_plan, walk_streamed

if TYPE_CHECKING:
    from everfold.memory.pipeline import MemoryPipeline


def is_bounded(request: JobRequest) -> bool:
    """Return whether all inputs of the job are bounded."""
    return all(source.is_bounded() for root in request.roots for source in _sources(root).values())


def submit(request: JobRequest, *, rows: Callable[[pa.Table], None], progress: Callable[[Progress], None]) -> Finished:
    """Run a job to its end, one root after the other.

    Raises UnsupportedFeature or UsageError `not-in-memory`.
    """
    for source in (source for root in request.roots for source in _sources(root).values()):
        if not source.is_bounded():
            message = f"the memory engine reads bounded input only, and table `{source.table.name}` is unbounded"
            raise UnsupportedFeature.of("not-in-memory", message, source.table.span, "leave out --engine memory")
    if request.suspend:
        raise UsageError.of("not-in-memory", "the memory engine keeps no state: a suspended job could not resume")
    rows_in, rows_out, late_rows, state_rows = 0, 0, 0, 0
    for root in request.roots:
        run = _Run(root, request, progress, rows_in)
        with _Target(root, request, rows) as target:
            for batch in run.run_batches():
                rows_out += batch.num_rows
                target.write(batch)
        rows_in, late_rows, state_rows = run.rows, late_rows + run.late_rows, state_rows + run.state_rows
    return Finished(rows=rows_in, rows_out=rows_out, late_rows=late_rows, state_rows=state_rows)


def _sources(root: Root) -> dict[str, Source]:
    """Return the sources of the tables that a root reads, by table name."""
    return {table.name: connector_of(table).source(table) for table in tables_of(walk_plan(root.input))}


class _Run:
    """The run of one root over its input."""

    def __init__(self, root: Root, request: JobRequest, progress: Callable[[Progress], None], rows_before: int) -> None:
        self._root, self._request, self._progress = root, request, progress
        self.rows = rows_before
        self.late_rows = 0
        self.state_rows = 0

    def run_batches(self) -> Iterator[pa.Table]:
        """Yield the rows that the query emits, batch by batch."""
        from everfold.memory.batch import run_batch
        from everfold.memory.pipeline import MemoryPipeline

        settings = self._request.settings
        streamed_names = {table.name for table in tables_of(walk_streamed(self._root.input))}
        lookup_names = {table.name for each in batch_inputs(self._root.input) for table in tables_of(walk_plan(each))}
        sources, folder = _sources(self._root), self._request.base_folder
        pieces = {
            name: source.read_local(folder)
            for name, source in sources.items()
            if name in streamed_names or not settings.streaming
        }
        if not settings.streaming:
            tables = {name: _concat(each) for name, each in pieces.items()}
            self.rows += sum(table.num_rows for table in tables.values())
            yield run_batch(self._root, tables, settings)
            return
        pipeline = MemoryPipeline(
            self._root,
            settings,
            lookup_tables={name: _concat(sources[name].read_local(folder)) for name in lookup_names},
        )
        for number, batch in enumerate(_batches(pieces)):
            if self._request.stopping():
                return
            started = time.perf_counter()
            yield pipeline.feed(batch)
            self._report(
                pipeline, number, sum(table.num_rows for table in batch.values()), time.perf_counter() - started
            )
        yield pipeline.flush()
        self._report(pipeline, -1, 0, 0.0)

    def _report(self, pipeline: MemoryPipeline, batch: int, rows: int, seconds: float) -> None:
        self.rows += rows
        self.late_rows, self.state_rows = pipeline.late_rows, pipeline.state_rows
        if batch >= 0:
            self._progress(
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


def _concat(pieces: Iterator[pa.Table]) -> pa.Table:
    return pa.concat_tables(list(pieces))


class _Target:
    """The receiver of the rows of a root: the caller, or a table."""

    def __init__(self, root: Root, request: JobRequest, rows: Callable[[pa.Table], None]) -> None:
        self._rows = rows
        self._batch = 0
        self._sink: LocalSink | None = None
        self._name = ""
        if isinstance(root, Sink):
            self._name = root.table.name
            context = SinkContext(
                name=self._name, base_folder=Path(request.base_folder), table=root.table, settings=request.settings
            )
            sink = connector_of(root.table).sink(context)
            if not isinstance(sink, LocalSink):
                raise UnsupportedFeature.of(
                    "not-in-memory",
                    f"table `{self._name}`: the memory engine does not write to `{root.table.connector}`",
                    root.span,
                    help="leave out --engine memory",
                )
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
            self._rows(rows)
            return
        if KIND not in rows.column_names:
            rows = rows.append_column(KIND, pa.array([0] * rows.num_rows, pa.int8()))
        self._sink.write(rows, BatchId("memory", self._name, 0, self._batch))
        self._batch += 1
