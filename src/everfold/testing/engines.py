"""What runs a case: an engine takes a bound query and its rows, in batches, and gives back the rows that the query emits.

`memory` runs in this process. `spark` is loaded when it is asked for, and says what to install when it cannot run here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from everfold.compat import Terms, Verdict, judge, shape_of
from everfold.compat.report import as_text
from everfold.errors import StateError, UsageError
from everfold.testing.part import Part, Ran, Rows

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.memory.pipeline import MemoryPipeline


EngineName = Literal["memory", "spark"]
ENGINES: tuple[EngineName, ...] = ("memory", "spark")


class Engine(Protocol):
    """Runs bound queries on rows that are given as data."""

    @property
    def name(self) -> EngineName:
        """What reports call it."""

    def stream(self, parts: Sequence[Part]) -> Ran:
        """Runs a stream. After each part the job is suspended and started again from its state; after the last the input ends."""

    def batch(self, part: Part) -> pa.Table:
        """Runs the query once over all rows of the part's batches."""

    def close(self) -> None:
        """Lets go of what the engine holds."""


_BUCKETS = 2
"""Shares of the keys: more than one, so that what only holds within a bucket shows."""


class MemoryEngine:
    """The in-process runner: DuckDB for scalars, our operators over Polars, state in a dict."""

    name: EngineName = "memory"

    def stream(self, parts: Sequence[Part]) -> Ran:
        import pyarrow as pa

        from everfold.memory.pipeline import MemoryPipeline

        first = parts[0]
        pipeline = MemoryPipeline(first.root, first.settings, buckets=_BUCKETS, beside=first.beside)
        tables, version = [], 1
        for at, part in enumerate(parts):
            if at > 0 and part.root == parts[at - 1].root:
                pipeline = pipeline.restarted()
            elif at > 0:
                version += 1
                pipeline = _changed(pipeline, version, parts[: at + 1])
            emitted = [pipeline.feed(rows) for rows in part.batches]
            if part is parts[-1]:
                emitted.append(pipeline.flush())
            tables.append(pa.concat_tables(emitted) if emitted else None)
        return Ran(tuple(tables), pipeline.late_rows)

    def batch(self, part: Part) -> pa.Table:
        from everfold.memory.batch import run_batch

        return run_batch(part.root, {**joined(part.batches), **part.beside}, part.settings)

    def close(self) -> None:
        pass


def _changed(pipeline: MemoryPipeline, version: int, parts: Sequence[Part]) -> MemoryPipeline:
    """The pipeline of the last part, which goes on with the state of another query. parts: all so far. StateError as of a job."""
    before, part = parts[-2:]
    judgement = judge([shape_of(before.root)], [shape_of(part.root)], Terms.of(part.settings))
    if judgement.verdict is Verdict.PARTIALLY and part.on_change == "refuse":
        message = "the query has changed, and the state is of use to a part of the new one only"
        help_ = "say `on_change: accept` or `on_change: backfill` in the step"
        raise StateError.of("partial-change", f"{message}\n\n{as_text(judgement)}\n", help=help_)
    history = joined([rows for each in parts[:-1] for rows in each.batches]) if part.on_change == "backfill" else None
    return pipeline.changed(part.root, version, part.settings, history)


def joined(batches: Sequence[Rows]) -> dict[str, pa.Table]:
    """All rows of the batches by table."""
    import pyarrow as pa

    names = dict.fromkeys(name for rows in batches for name in rows)
    return {name: pa.concat_tables([rows[name] for rows in batches if name in rows]) for name in names}


_SPARK_ENGINE = "everfold.testing.spark_engine"
"""The module whose `SparkEngine()` is the engine `spark`: only loaded when asked for, since it imports pyspark."""


def engine(name: EngineName) -> Engine:
    """The engine of that name, ready to run."""
    if name == "memory":
        return MemoryEngine()
    try:
        module = importlib.import_module(_SPARK_ENGINE)
    except ModuleNotFoundError as error:
        raise UsageError.of(
            "engine-missing", f"the engine `spark` cannot run here: {error}", help="run `everfold check-setup`"
        ) from error
    made: Engine = module.SparkEngine()
    return made
