"""The engines that run cases: each runs a bound query on batches of rows and returns its output.

`memory` runs in this process. `spark` is loaded on demand, and reports what to install if it cannot
run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from everfold.compat import CompatOptions, Verdict, judge, shape_of
from everfold.compat.report import as_text
from everfold.errors import StateError
from everfold.testing.part import Part, Rows, StreamResult

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.memory.pipeline import MemoryPipeline


EngineName = Literal["memory", "spark"]
ENGINES: tuple[EngineName, ...] = ("memory", "spark")


class Engine(Protocol):
    """Runs bound queries over rows in memory."""

    @property
    def name(self) -> EngineName:
        """The name in reports."""

    def stream(self, parts: Sequence[Part]) -> StreamResult:
        """Run a stream.

        After each part the job is suspended and restarted from its state; after the last one the
        input ends.
        """

    def batch(self, part: Part) -> pa.Table:
        """Run the query once over all rows of the part's batches."""

    def close(self) -> None:
        """Release the resources of the engine."""


_BUCKETS = 2
"""More than one bucket, to reveal code that is only right within a bucket."""


class MemoryEngine:
    """The in-process runner: DuckDB for scalar work, our operators over Polars, state in a dict."""

    name: EngineName = "memory"

    def stream(self, parts: Sequence[Part]) -> StreamResult:
        import pyarrow as pa

        from everfold.memory.pipeline import MemoryPipeline

        first = parts[0]
        pipeline = MemoryPipeline(first.root, first.settings, buckets=_BUCKETS, lookup_tables=first.lookup_tables)
        tables, version = [], 1
        for at, part in enumerate(parts):
            if at > 0 and part.root == parts[at - 1].root:
                pipeline = pipeline.restart()
            elif at > 0:
                version += 1
                pipeline = _change_query(pipeline, version, parts[: at + 1])
            emitted = [pipeline.feed(rows) for rows in part.batches]
            if part is parts[-1]:
                emitted.append(pipeline.flush())
            tables.append(pa.concat_tables(emitted) if emitted else None)
        return StreamResult(tuple(tables), pipeline.late_rows)

    def batch(self, part: Part) -> pa.Table:
        from everfold.memory.batch import run_batch

        return run_batch(part.root, {**concat_batches(part.batches), **part.lookup_tables}, part.settings)

    def close(self) -> None:
        pass


def _change_query(pipeline: MemoryPipeline, version: int, parts: Sequence[Part]) -> MemoryPipeline:
    """Return the pipeline of the last part, which continues with the state of another query.

    parts: all parts so far. Raises the StateErrors of a job.
    """
    before, part = parts[-2:]
    judgement = judge([shape_of(before.root)], [shape_of(part.root)], CompatOptions.of(part.settings))
    if judgement.verdict is Verdict.PARTIALLY and part.on_change == "refuse":
        message = "the query has changed: the new query can reuse only part of the state"
        help_ = "set `on_change: accept` or `on_change: backfill` in the step"
        raise StateError.of("partial-change", f"{message}\n\n{as_text(judgement)}\n", help=help_)
    history = (
        concat_batches([rows for each in parts[:-1] for rows in each.batches]) if part.on_change == "backfill" else None
    )
    return pipeline.change_query(part.root, version, part.settings, history)


def concat_batches(batches: Sequence[Rows]) -> dict[str, pa.Table]:
    """Return all rows of the batches by table."""
    import pyarrow as pa

    names = dict.fromkeys(name for rows in batches for name in rows)
    return {name: pa.concat_tables([rows[name] for rows in batches if name in rows]) for name in names}


def create_engine(name: EngineName, scan: str = "auto") -> Engine:
    """Create an engine by name. scan: how Spark decodes rows, see `SparkEngine`.

    Raises UsageError `engine-missing` if it cannot run here.
    """
    if name == "memory":
        return MemoryEngine()
    from everfold.spark.pyspark_path import require_pyspark

    require_pyspark()
    from everfold.testing.spark_engine import SparkEngine

    return SparkEngine(scan=scan)
