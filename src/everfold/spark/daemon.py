"""Spark's Python worker daemon with all modules that our workers need already loaded.

Workers are forked from it, so they start at once.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pkgutil

os.environ.setdefault("POLARS_MAX_THREADS", "1")
# Polars' allocator asks for huge pages: the memory of large columns is there after fewer faults.
os.environ.setdefault("_RJEM_MALLOC_CONF", "thp:always")

import duckdb  # noqa: F401
import google.protobuf  # noqa: F401
import pandas  # noqa: F401
import polars  # noqa: F401
import pyarrow as pa
import pyarrow.compute
import pyarrow.pandas_compat
import pyspark.sql.pandas.serializers
import pyspark.sql.streaming.map_state_client
import pyspark.sql.streaming.proto.StateMessage_pb2
import pyspark.sql.streaming.stateful_processor_api_client
import pyspark.testing.utils  # PySpark checks there whether NumPy is installed
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import everfold.aggregates
import everfold.operators
import everfold.spark.exchange
import everfold.spark.processor
import everfold.spark.python
import everfold.spark.worker_scan

for module in pkgutil.iter_modules(everfold.operators.__path__, "everfold.operators."):
    importlib.import_module(module.name)

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""


def keep_freed_memory() -> None:
    """Let NumPy and Arrow use freed memory again instead of returning it to the system.

    The temporary columns of a step are some megabytes large. By default glibc maps each of them
    for itself, and the system clears its pages.
    """
    set_parameter = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_parameter is not None:
        set_parameter(_MMAP_THRESHOLD, 32 << 20)
        set_parameter(_TRIM_THRESHOLD, 256 << 20)
        pa.set_memory_pool(pa.system_memory_pool())


keep_freed_memory()

if __name__ == "__main__":
    manager()
