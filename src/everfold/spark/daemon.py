"""Spark's Python worker daemon with our modules already loaded: workers are forked from it and start at once."""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import google.protobuf  # noqa: F401
import polars  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.sql.streaming.map_state_client
import pyspark.sql.streaming.proto.StateMessage_pb2
import pyspark.sql.streaming.stateful_processor_api_client
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import everfold.operators.build
import everfold.spark.exchange  # noqa: F401

if __name__ == "__main__":
    manager()
