"""Check that the executors of a cluster reach the stores of a job.

Executors use a store through Hadoop's `FileSystem` in their JVM: there Spark reads and writes
tables and state. So the check lets Spark read and write, too. Spark repeats a failed task on
another executor, so what counts are the attempts that failed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.errors import ConnectorError
from everfold.spark.executor_probe import HOLD_S, PREFIX
from everfold.storage import Location
from everfold.storage.hadoop_store import explain_java_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE_HELP = (
    "every machine of the cluster needs the classes (--conf spark.executor.extraClassPath=…), the network and the"
    " credentials for this store"
)
_THROWN = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[\w$]+(?:Exception|Error)\b.*)$", re.MULTILINE)
_OF_SPARK = "org.apache.spark."
_ATTEMPTS = 8
"""Attempts of each task that are looked at; Spark makes at most 4 by default."""
_HOLD = f"coalesce(reflect('java.lang.Thread', 'sleep', {int(1000 * HOLD_S)}L), '') AS value"
"""Spark SQL: an empty string, for which a task keeps its core: other tasks run elsewhere."""
_ONE_FILE_PER_TASK = {"spark.sql.files.maxPartitionBytes": "1", "spark.sql.files.openCostInBytes": "1"}


@dataclass(frozen=True, slots=True)
class UsedPath:
    """A path that executors use. what: for messages. is_written: they write to it."""

    location: Location
    what: str
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """What executors did with a path.

    reached: the names of those whose tasks succeeded. failed: the reasons of the others, by host.
    """

    reached: frozenset[str]
    failed: Mapping[str, str]


def visit_store(spark: SparkSession, path: UsedPath, tasks: int) -> Visit | None:
    """Let the executors use a path in some tasks.

    Returns None for a folder that is only read and has no file yet. Raises ConnectorError
    `executor-path` if Spark fails without a failed task.
    """
    context: Any = spark.sparkContext
    tag = f"everfold-check-{uuid.uuid4().hex}"
    file = None
    if not path.is_written:
        with suppress(OSError):  # its source reports that
            file = _find_file(path.location)
        if file is None:
            return None
    context.addJobTag(tag)
    try:
        if file is None:
            _write(spark, path.location / f"{PREFIX}{tag}", tasks)
        else:
            _read(spark, file, tasks)
    except Exception as error:
        visit = _find_attempts(context, tag, path, tasks)
        if not visit.failed:
            reason = _find_reason(str(error), path) or "the check has failed"
            message = f"the executors cannot use {path.what} `{path.location}`: {reason}"
            raise ConnectorError.of("executor-path", message, help=STORE_HELP) from error
        return visit
    finally:
        context.removeJobTag(tag)
    return _find_attempts(context, tag, path, tasks)


def _write(spark: SparkSession, folder: Location, tasks: int) -> None:
    """Write a file in each of some tasks, and delete the files."""
    try:
        spark.range(0, tasks, 1, tasks).selectExpr(_HOLD).write.text(folder.uri)
    finally:
        with suppress(OSError):
            folder.delete()


def _read(spark: SparkSession, file: Location, tasks: int) -> None:
    """Find a file in each of some tasks. Its content is not read: it may be large."""
    session = spark.newSession()
    for key, value in _ONE_FILE_PER_TASK.items():
        session.conf.set(key, value)
    frame = session.read.format("binaryFile").load([file.pattern] * tasks)
    frame.selectExpr("length", _HOLD).write.format("noop").mode("overwrite").save()


def _find_file(location: Location) -> Location | None:
    """Return a visible file of a table, None if it has none yet."""
    found = location.find()
    if found is None or not found.is_folder:
        return None if found is None else location
    entries = [each for each in location.entries() if not each.name.startswith((".", "_"))]
    for each in sorted(entries, key=lambda each: each.is_folder):
        file = _find_file(location / each.name) if each.is_folder else location / each.name
        if file is not None:
            return file
    return None


def _find_attempts(context: Any, tag: str, path: UsedPath, tasks: int) -> Visit:
    """Return what the tasks of the jobs with a tag did, also those that Spark repeated."""
    spark = context._jsc.sc()
    spark.listenerBus().waitUntilEmpty()
    reached: set[str] = set()
    failed: dict[str, str] = {}
    for job in spark.statusTracker().getJobIdsForTag(tag):
        for stage in spark.statusTracker().getJobInfo(job).get().stageIds():
            found = spark.statusStore().taskList(stage, 0, tasks * _ATTEMPTS)
            for task in (found.apply(at) for at in range(found.size())):
                if task.status() == "SUCCESS":
                    reached.add(str(task.executorId()))
                elif task.status() == "FAILED" and task.errorMessage().isDefined():
                    reason = _find_reason(str(task.errorMessage().get()), path)
                    if reason is not None:
                        failed[str(task.host())] = reason
    return Visit(frozenset(reached), failed)


def _find_reason(error_text: str, path: UsedPath) -> str | None:
    """Return the first exception that is not Spark's, None without any: the executor was lost."""
    thrown = [each for each in _THROWN.findall(error_text) if not each.startswith(_OF_SPARK)]
    return explain_java_error(thrown[0], path.location.path) if thrown else None
