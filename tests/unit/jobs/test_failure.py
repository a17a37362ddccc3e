"""The errors that a user sees when Spark fails.

The texts are Spark's own, shortened.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from everfold.errors import ConnectorError, EverfoldError
from everfold.jobs.failure import explain_failure, spark_may_be_gone
from everfold.storage import local

LOG = Path("/jobs/j/job.log")
PLAN = """
=== Streaming Query ===
Identifier: [id = 1]
Logical Plan:
Project [CASE WHEN isnull(c0#1) THEN cast(raise_error(USER_RAISED_EXCEPTION, map(errorMessage,
 concat(everfold[null-rowtime]: {"table": "t", "column": "ts", "place": , to_json(…)))), everfold[bad-record]: , /jobs/j/x
"""


def wrap_in_stream_failure(text: str) -> str:
    """Return the text as Spark wraps it in the failure of a stream."""
    return f"[STREAM_FAILED] Query [id = 1] terminated with exception: {text} SQLSTATE: XXKST{PLAN}"


def explain(text: str) -> EverfoldError:
    return explain_failure(RuntimeError(text), (), LOG, local(LOG.parent))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("Job aborted: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] everfold[cast-failed]: `x` is not a valid INT SQLSTATE: P0001", "cast-failed", "`x` is not a valid INT"),
        ('[USER_RAISED_EXCEPTION] everfold[null-rowtime]: {"table": "t", "column": "ts", "place": "in/1.json"} SQLSTATE: P0001', "null-rowtime", "in/1.json: the time attribute `ts` is NULL"),
        ("java.io.IOException: No space left on device", "disk-full", "the disk is full"),
        ("java.io.FileNotFoundException: /jobs/j/x.tmp (Permission denied)", "no-permission", "no permission to read or write `/jobs/j/x.tmp`"),
        ("java.nio.file.AccessDeniedException: /data/x", "no-permission", "no permission to read or write a file"),
        ("java.nio.file.FileSystemException: /jobs/j/y: Read-only file system", "no-permission", "or write `/jobs/j/y`"),
        ("[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] Error reading streaming state file of /jobs/j/checkpoints/0/state/0/1/3.changelog does not exist.", "damaged-checkpoint", "`/jobs/j/checkpoints/0/state/0/1/3.changelog` is damaged or missing"),
        ("java.io.FileNotFoundException: File file:/jobs/j/checkpoints/0/metadata does not exist", "damaged-checkpoint", "`/jobs/j/checkpoints/0/metadata` is damaged or missing"),
        ("java.lang.OutOfMemoryError: Java heap space", "out-of-memory", "Spark is out of memory"),
        ("An error occurred while calling o1.start. Answer from Java side is empty", "spark-died", "the Spark JVM exited unexpectedly"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled'", "spark-died", "a Python worker of Spark exited unexpectedly"),
        ("Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 4) (localhost executor driver): java.io.EOFException", "spark-died", "a Python worker of Spark exited unexpectedly"),
        ("org.apache.spark.SparkException: Python worker failed to connect back.", "no-worker", "limit of ten seconds"),
        ("org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent call last):\n  ModuleNotFoundError: No module named 'pyarrow.compute'\nPYTHONPATH was:\n  /x\norg.apache.spark.SparkException: Python worker failed to connect back.", "missing-worker-package", "the Python of Spark's workers has no package `pyarrow`"),
        ("pyspark.errors.exceptions.base.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.", "missing-worker-package", "workers has no package `pyarrow`"),
        ("java.lang.IllegalStateException: something new", "job-failed", "the job failed: something new"),
        ('[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n  File "worker.py", line 7, in step\n    fail()\nRuntimeError: something new', "job-failed", "the job failed: RuntimeError: something new"),
    ],
)  # fmt: skip
def test_each_failure_is_one_sentence(text: str, code: str, words: str) -> None:
    for wrapped in (text, wrap_in_stream_failure(text), f"at x\nCaused by: {text}\n\tat y"):
        error = explain(wrapped)
        assert error.code == code
        message = error.diagnostics[0].message
        assert words in message or code == "job-failed"
        assert not any(each in message for each in ("java.", "org.apache", "SQLSTATE", "\n"))


def test_codes_in_a_printed_plan_are_ignored() -> None:
    error = explain(wrap_in_stream_failure("java.lang.IllegalStateException: something new"))
    assert error.code == "job-failed"
    assert "something new" in error.diagnostics[0].message
    error = explain("[UNRESOLVED_COLUMN] `x`" + PLAN.replace("=== Streaming Query ===", "'Project"))
    assert error.code == "job-failed"


def test_an_everfold_error_is_returned_unchanged() -> None:
    inner = ConnectorError.of("kafka-unreachable", "nobody answers")
    outer = RuntimeError("wrapped")
    outer.__cause__ = inner
    assert explain_failure(outer, (), LOG) is inner


def test_cleanup_ignores_a_jvm_that_is_gone() -> None:
    for gone in (
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        RuntimeError("Answer from Java side is empty"),
    ):
        with spark_may_be_gone():
            raise gone
    with pytest.raises(RuntimeError, match="something else"), spark_may_be_gone():
        raise RuntimeError("something else")


def test_errors_of_the_operating_system_are_explained() -> None:
    for error, code, words in (
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "disk-full", "the disk is full"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/x/y"), "file-system-error", "`/x/y` cannot be read or written: Is a directory"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "spark-died", "JVM exited"),
    ):  # fmt: skip
        found = explain_failure(error, (), LOG, local(LOG.parent))
        assert found.code == code
        assert words in found.diagnostics[0].message


@pytest.mark.parametrize("name", ["offsets/1", "commits/1", "offsets/2"])
def test_a_missing_checkpoint_file_is_reported_by_name(name: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "my job" / "checkpoints" / "0"
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
        for number in range(3):
            (checkpoint / log / str(number)).write_text("v1\n{}")
    (checkpoint / "metadata").write_text('{"id":"6a0a9e4e-7b1b-4d0f-9a3c-3a6a3d6a1b11"}')
    (checkpoint / name).unlink()
    found = explain_failure(RuntimeError("batch 1 doesn't exist"), (), LOG, local(tmp_path / "my job"))
    assert found.diagnostics[0].message == f"`{checkpoint / name}` is damaged or missing"


def test_a_file_that_spark_names_as_a_uri_is_reported_as_a_path(tmp_path: Path) -> None:
    gone = tmp_path / "my job" / "checkpoints" / "0" / "state" / "0" / "1" / "3.changelog"
    text = f"CANNOT_READ_STREAMING_STATE_FILE of file:{gone.as_uri().removeprefix('file://')} does not exist."
    found = explain_failure(RuntimeError(text), (), LOG, local(tmp_path / "my job"))
    assert found.diagnostics[0].message == f"`{gone}` is damaged or missing"


@pytest.mark.parametrize("name", ["1.zip", ".1.zip.crc"])
def test_of_several_files_the_missing_one_is_reported(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "0" / "state" / "0" / "1"
    folder.mkdir(parents=True)
    (folder / "2.changelog").write_text("")
    text = f"CANNOT_LOAD_STATE_STORE of {folder / '2.changelog'}: FileNotFoundException: {folder / name}"
    found = explain_failure(RuntimeError(text), (), LOG, local(tmp_path))
    assert found.diagnostics[0].message == f"`{folder / '1.zip'}` is damaged or missing"


def test_a_temporary_file_of_spark_is_reported_by_its_final_name() -> None:
    folder = "/jobs/j/checkpoints/0/commits"
    text = f"java.io.FileNotFoundException: file:{folder}/.1.0f466e5a-7ff1-4dda-af01-1b065faa3e48.tmp does not exist"
    assert explain(wrap_in_stream_failure(text)).diagnostics[0].message == f"`{folder}/1` is damaged or missing"
