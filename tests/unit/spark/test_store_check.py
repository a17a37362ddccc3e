"""What the failed tasks of a check say about executors, by the messages of Spark."""

from __future__ import annotations

import pytest

from everfold.spark.executors import find_full_disk
from everfold.spark.store_check import UsedPath, _find_reason
from everfold.storage import Location, local

NO_CLASS = """java.lang.RuntimeException: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found
\tat org.apache.hadoop.conf.Configuration.getClass(Configuration.java:2737)
Caused by: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found
\t... 33 more
"""
NO_HOST = """org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to hdfs://store/a. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:776)
Caused by: java.lang.IllegalArgumentException: java.net.UnknownHostException: store
\tat org.apache.hadoop.security.SecurityUtil.buildTokenService(SecurityUtil.java:475)
Caused by: java.net.UnknownHostException: store
\t... 29 more
"""
LOST = "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: worker lost"
NO_SPACE = (
    "Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent failure: Lost task 1.3 in stage"
    " 0.0 (TID 7) (10.0.0.12 executor 1): java.io.IOException: No space left on device"
)


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("s3a://bucket/job", NO_CLASS, "paths of `s3a` need hadoop-aws and the AWS SDK, which Spark does not include"),
        ("hdfs://store/job", NO_HOST, "IllegalArgumentException: UnknownHostException: store"),
        ("s3a://bucket/job", LOST, None),
    ],
)
def test_the_reason_of_a_failed_task(path: str, text: str, reason: str | None) -> None:
    assert _find_reason(text, UsedPath(Location(path, local("/").store), "the job directory")) == reason


def test_the_disk_of_an_executor_is_full() -> None:
    error = find_full_disk(NO_SPACE)
    assert error is not None
    assert error.code == "disk-full"
    assert "a disk of the executor on 10.0.0.12 is full" in str(error)
    assert find_full_disk(NO_SPACE.replace("executor 1)", "executor driver)")) is None
    assert find_full_disk(LOST) is None
