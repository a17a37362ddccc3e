"""Spark's Python worker daemon with all modules that our workers need already loaded.

Workers are forked from it, so they start at once.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import pkgutil
from contextlib import suppress

_MODULES = (
    "duckdb",
    "google.protobuf",
    "pandas",
    "polars",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.map_state_client",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.testing.utils",  # PySpark checks there whether NumPy is installed
    "pyspark.worker",
    "everfold.aggregates",
    "everfold.operators",
    "everfold.spark.exchange",
    "everfold.spark.processor",
    "everfold.spark.python",
    "everfold.spark.worker_scan",
)
_ALLOCATOR_VARIABLE = "_RJEM_MALLOC_CONF"
_ALLOCATOR_OPTIONS = "thp:always,dirty_decay_ms:10000,muzzy_decay_ms:0"
"""Of Polars' allocator: huge pages, as the memory of large columns is there after fewer faults; and
freed memory is kept for ten seconds instead of half a second, for the next columns.
"""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""


def load_modules() -> None:
    """Import what our workers need, with settings that must be made before."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    # The driver may have imported Polars, which sets the variable for itself: the last value of an
    # option counts.
    given = os.environ.get(_ALLOCATOR_VARIABLE)
    os.environ[_ALLOCATOR_VARIABLE] = ",".join(filter(None, (given, _ALLOCATOR_OPTIONS)))
    for name in _MODULES:
        importlib.import_module(name)
    import everfold.operators

    for module in pkgutil.iter_modules(everfold.operators.__path__, "everfold.operators."):
        importlib.import_module(module.name)
    keep_freed_memory()
    leave_out_of_collections()


def leave_out_of_collections() -> None:
    """Leave the loaded modules out of garbage collections.

    Spark collects garbage after each task; searching all modules took 55 ms.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)  # DuckDB reports what is left at the end


def keep_freed_memory() -> None:
    """Let NumPy and Arrow use freed memory again instead of returning it to the system.

    The temporary columns of a step are some megabytes large. By default glibc maps each of them
    for itself, and the system clears its pages.
    """
    import pyarrow as pa

    set_parameter = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_parameter is not None:
        set_parameter(_MMAP_THRESHOLD, 32 << 20)
        set_parameter(_TRIM_THRESHOLD, 256 << 20)
        pa.set_memory_pool(pa.system_memory_pool())


if __name__ == "__main__":
    with suppress(Exception):  # an executor may lack a library, which `ExecutorCheck` reports
        load_modules()
    from pyspark.daemon import manager

    manager()
