"""The in-process runner: streams by the operators, batches by DuckDB alone. No JVM."""

from __future__ import annotations

from everfold.memory.batch import run_batch
from everfold.memory.pipeline import MemoryPipeline

__all__ = ["MemoryPipeline", "run_batch"]
