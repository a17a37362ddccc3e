"""Connections to Spark's file systems, from a session or from a JVM without one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.spark.session import HADOOP_CONF, start_gateway
from everfold.storage.hadoop_store import HadoopStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HADOOP = "spark.hadoop."


def connect(spark: SparkSession) -> HadoopStore:
    """Return the file systems of a session, with its settings and credentials."""
    context: Any = spark.sparkContext
    return HadoopStore(context._jvm, context._jsc.hadoopConfiguration())


def connect_without_spark(
    conf: Mapping[str, str],
    *,
    master: str | None = None,
    log_file: Path | None = None,
    brief: bool = True,
    uses_s3: bool = True,
) -> HadoopStore:
    """Return the file systems that a session with this conf would have, from a JVM without Spark.

    A session that starts later in this process runs in this JVM: pass the arguments that it would
    be started with (`start_spark`). log_file: receives the output of the JVM; by default, it is
    dropped. Raises UsageError `no-java` or `spark-start`.
    """
    folder = Path(tempfile.mkdtemp(prefix="everfold-jvm-")) if log_file is None else None
    file = log_file or Path(folder or "", "spark.log")
    gateway = start_gateway(master=master, conf=conf, log_file=file, brief=brief, uses_s3=uses_s3)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    jvm = gateway.jvm
    settings = jvm.org.apache.spark.SparkConf()
    for key, value in {**HADOOP_CONF, **conf}.items():
        if key.startswith(_HADOOP):
            settings.set(key, value)
    # As in a session: it adds credentials of the environment, too.
    return HadoopStore(jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(settings))
