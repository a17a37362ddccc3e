"""Connections to Spark's file systems, from a session or from a JVM without one."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.spark.session import start_gateway
from everfold.storage.hadoop_store import HadoopStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HADOOP = "spark.hadoop."


def connect(spark: SparkSession) -> HadoopStore:
    """Return the file systems of a session, with its settings and credentials."""
    context: Any = spark.sparkContext
    return HadoopStore(context._jvm, context._jsc.hadoopConfiguration())


def connect_without_spark(
    conf: Mapping[str, str], *, log_file: Path | None = None, brief: bool = True, uses_s3: bool = True
) -> HadoopStore:
    """Return the file systems that a session with this conf would have, from a JVM without Spark.

    A session that starts later in this process runs in this JVM: pass the arguments that it would
    be started with (`start_spark`). log_file: receives the output of the JVM; by default, a file
    in the folder for temporary files. Raises UsageError `no-java` or `spark-start`.
    """
    if log_file is None:
        log_file = Path(tempfile.mkdtemp(prefix="everfold-jvm-")) / "spark.log"
    jvm = start_gateway(conf=conf, log_file=log_file, brief=brief, uses_s3=uses_s3).jvm
    settings = jvm.org.apache.spark.SparkConf()
    for key, value in conf.items():
        if key.startswith(_HADOOP):
            settings.set(key, value)
    # As in a session: it adds credentials of the environment, too.
    return HadoopStore(jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(settings))
