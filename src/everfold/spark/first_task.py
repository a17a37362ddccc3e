"""A first task in a Python worker, which makes the first batch of a job faster."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LONGEST_EXIT_S = 10.0
"""How long a process waits at its end for the task, which fails at once when Spark is stopped."""


def start_workers(spark: SparkSession) -> None:
    """Start the daemon of Python workers while the job is planned, in another thread.

    It loads libraries for a second. A failure is left to the job, which would fail in the same way.
    """
    task = threading.Thread(target=_run_task, args=(spark,), name="everfold-first-task", daemon=True)
    task.start()
    # Python aborts if it exits while a thread is in Arrow.
    atexit.register(task.join, _LONGEST_EXIT_S)


def _run_task(spark: SparkSession) -> None:
    with suppress(Exception):
        spark.range(0, 2, 1, 2).mapInArrow(_pass, "id BIGINT").toArrow()
        spark._jvm.org.rocksdb.RocksDB.loadLibrary()  # type: ignore[union-attr]


def _pass(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
