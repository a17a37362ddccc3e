"""The log of Spark: what it contains, its size, and standard error instead of a file.

A file has the lines of log4j and the output of the JVM and its Python workers, which all append to
it. So it is rotated by copying it and cutting it to nothing: a line that is written in between may
be lost. Messages about expected events are left out.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.files import make_private_file, make_private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STDERR = Path("/dev/stderr")
"""The log is standard error. The path is for messages: it cannot always be opened."""
MAX_BYTES = 10 << 20
"""A larger log is rotated."""
KEPT_LOGS = 2
"""Number of rotated logs to keep, `job.log.1` and so on."""
_CHECK_S = 1.0
_EXPECTED = (
    "Your hostname, ",
    "Set SPARK_LOCAL_IP ",
    "Unable to load native-hadoop library ",
    "Disabling AQE since AQE is not supported ",
    "Current batch is falling behind",
    "Failed to cancel job group ",  # of a query that is stopped between two batches
)
"""Starts of messages about what is as intended, or as it should be at a stop."""
_LOG4J = """\
status = error
{appender}
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.out.filter.expected.type = RegexFilter
appender.out.filter.expected.regex = (?s)({expected}).*
appender.out.filter.expected.onMatch = DENY
appender.out.filter.expected.onMismatch = NEUTRAL
logger.state.name = org.apache.spark.sql.execution.python.streaming
logger.state.level = error
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""
_FILE = """\
appender.out.type = File
appender.out.fileName = {file}"""
_CONSOLE = """\
appender.out.type = Console
appender.out.target = SYSTEM_ERR"""
_OWN_LOG = "everfold.log"
"""A property of a JVM whose log is configured here."""
_watched: set[Path] = set()


def prepare_log(log_file: Path) -> None:
    """Create the folder and the file of a log so that only their owner can read them.

    A log that is too large is rotated.
    """
    if log_file != STDERR:
        make_private_folder(log_file.parent)
        make_private_file(log_file)
        rotate_log(log_file)


def write_jvm_options(log_file: Path) -> list[str]:
    """Write the configuration of log4j, and return the options of a JVM that logs to the file."""
    if log_file == STDERR:
        folder = tempfile.mkdtemp(prefix="everfold-log-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        config = Path(folder, "log4j2.properties")
        appender, crash = _CONSOLE, "-XX:+ErrorFileToStderr"
    else:
        config = log_file.with_suffix(".log4j2.properties")
        appender, crash = _FILE.format(file=log_file), f"-XX:ErrorFile={log_file.with_suffix('.crash.log')}"
    make_private_file(config)
    config.write_text(_LOG4J.format(appender=appender, expected="|".join(_EXPECTED)), encoding="utf-8")
    return [f"-Dlog4j2.configurationFile=file:{config}", f"-D{_OWN_LOG}=true", crash]


@contextmanager
def redirect_output(log_file: Path) -> Iterator[None]:
    """Redirect the output of this process and of its new children to the log, in the block."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    try:
        if log_file == STDERR:
            os.dup2(2, 1)
        else:
            with open(log_file, "ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        os.close(saved[0])
        os.close(saved[1])


def watch_size(log_file: Path) -> None:
    """Rotate a log whenever it becomes too large, until this process ends."""
    if log_file == STDERR or log_file in _watched:
        return
    _watched.add(log_file)
    threading.Thread(target=_watch, args=(log_file,), name="everfold-log", daemon=True).start()


def _watch(log_file: Path) -> None:
    while True:
        time.sleep(_CHECK_S)
        rotate_log(log_file)


def rotate_log(log_file: Path, max_bytes: int = MAX_BYTES) -> None:
    """Rotate a log that is too large. File errors are ignored: the log is less important."""
    with suppress(OSError):
        if log_file.stat().st_size <= max_bytes:
            return
        for number in range(KEPT_LOGS, 1, -1):
            with suppress(FileNotFoundError):
                os.replace(_rotated(log_file, number - 1), _rotated(log_file, number))
        make_private_file(_rotated(log_file, 1))
        shutil.copyfile(log_file, _rotated(log_file, 1))
        os.truncate(log_file, 0)


def _rotated(log_file: Path, number: int) -> Path:
    return log_file.with_name(f"{log_file.name}.{number}")


class _Py4jMessages(logging.Filter):
    """Passes what py4j logs to the log of Spark instead, with its traceback."""

    log_file = STDERR

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is not of py4j."""
        if self.log_file == STDERR or Path(record.pathname).parent.name != "py4j":
            return True
        append_line(self.log_file, logging.Formatter().format(record))
        return False


_py4j_messages = _Py4jMessages()


def divert_py4j_messages(log_file: Path) -> None:
    """Keep in the log what py4j reports about a JVM that exits. By default, it would be printed."""
    _py4j_messages.log_file = log_file
    logging.getLogger().addFilter(_py4j_messages)


def has_own_log(spark: SparkSession) -> bool:
    """Return whether everfold has started the JVM, and so configured its log."""
    jvm: Any = spark._jvm
    return jvm.java.lang.System.getProperty(_OWN_LOG) is not None


def silence_log(spark: SparkSession) -> None:
    """Let the JVM log nothing, because something is about to be interrupted as intended.

    Does nothing in a JVM that everfold has not started.
    """
    if has_own_log(spark):
        jvm: Any = spark._jvm
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setAllLevels("", log4j.Level.OFF)


def restore_log(spark: SparkSession) -> None:
    """Let the JVM log again after `silence_log`."""
    if has_own_log(spark):
        jvm: Any = spark._jvm
        jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure()


def append_line(log_file: Path, line: str) -> None:
    """Append a line to a log in a file. File errors are ignored."""
    if log_file != STDERR:
        with suppress(OSError):
            prepare_log(log_file)
            with open(log_file, "a", encoding="utf-8") as log:
                log.write(f"{line}\n")
