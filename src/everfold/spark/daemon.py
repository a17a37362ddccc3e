"""Spark's Python worker daemon with all modules that our workers need already loaded.

Workers are forked from it, so they start at once.
"""

from __future__ import annotations

import importlib
import os
import pkgutil

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import duckdb  # noqa: F401
import google.protobuf  # noqa: F401
import pandas  # noqa: F401
import polars  # noqa: F401
import pyarrow.compute
import pyarrow.pandas_compat  # noqa: F401
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

if __name__ == "__main__":
    manager()
