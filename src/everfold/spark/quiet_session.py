"""Keep what Spark prints because of everfold's queries out of the user's own process.

A JVM that everfold starts writes to the job's log. In a JVM of the user, Spark writes to standard
error of the user's process: several lines at the start of a query, and one for each page that a
bucket does not have yet.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.spark.spark_log import has_own_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXPECTED = {
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution": (
        "Disabling AQE since AQE is not supported in stateful .*"
    ),
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer": (
        r"Map state pages_\S+ doesn't contain key .*|No more data to read from the socket"
    ),
    "org.apache.spark.scheduler.DAGScheduler": "Failed to cancel job group .* Cannot find active jobs for it.*",
}
"""Regular expressions of messages about what is as intended, by the name of their logger."""
_WORKER_START = Path(__file__).parent / "worker_start"
_PYTHON_PATH = "PYTHONPATH"


def quiet_session(spark: SparkSession) -> None:
    """Let a JVM that everfold has not started omit expected messages of everfold's queries.

    The user's log levels and appenders stay as they are. The driver's worker prints nothing.
    """
    context: Any = spark.sparkContext
    if getattr(context, "_is_quiet_for_everfold", False) or has_own_log(spark):
        return
    context._is_quiet_for_everfold = True
    paths = [str(_WORKER_START), *filter(None, [context.environment.get(_PYTHON_PATH)])]
    context.environment[_PYTHON_PATH] = os.pathsep.join(paths)
    from py4j.protocol import Py4JError

    with suppress(Py4JError):  # the user's JVM logs with another library than log4j
        _deny_expected(spark)


def _deny_expected(spark: SparkSession) -> None:
    """Add filters to the user's configuration of log4j, where the messages are logged.

    New configurations of their loggers would change the level: Spark's shells decide by them.
    """
    jvm: Any = spark._jvm
    core = jvm.org.apache.logging.log4j.core
    results = core.Filter.Result
    configuration = jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration()
    for logger, expected in _EXPECTED.items():
        regex = f"(?s)({expected})"
        denying = core.filter.RegexFilter.createFilter(regex, None, False, results.DENY, results.NEUTRAL)
        configuration.getLoggerConfig(logger).addFilter(denying)
