"""What runs a case: an engine takes a bound query and its rows, in batches, and gives back the rows that the query emits.

`memory` runs in this process. `spark` is loaded when it is asked for, and says what to install when it cannot run here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from everfold.errors import UnsupportedFeature, UsageError
from everfold.memory.part import Part, Ran, Rows

if TYPE_CHECKING:
    import pyarrow as pa


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
        tables = []
        for at, part in enumerate(parts):
            if at > 0:
                if part.root != first.root:
                    raise UnsupportedFeature.of(
                        "changed-query",
                        "the query of a step differs from the step before: state cannot be carried over yet",
                    )
                pipeline = pipeline.restarted()
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


def joined(batches: Sequence[Rows]) -> dict[str, pa.Table]:
    """All rows of the batches by table."""
    import pyarrow as pa

    names = dict.fromkeys(name for rows in batches for name in rows)
    return {name: pa.concat_tables([rows[name] for rows in batches if name in rows]) for name in names}


_SPARK_ENGINE = "everfold.jobs.cases"
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
