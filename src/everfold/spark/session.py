"""The Spark session that everfold's queries run in: our own, whatever the caller's is set to.

A JVM that we start is quiet: its output, log4j's and the Python workers' go to the job's log. Sockets are on loopback and the UI is
off unless the caller's conf asks for them.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.errors import UsageError
from everfold.files import make_private_file, make_private_folder
from everfold.secrets import NAME_PATTERN, TEXT_PATTERN
from everfold.spark.archive import archive_options
from everfold.spark.java import require_java
from everfold.spark.pyspark_path import without_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STREAMING = "spark.sql.streaming."
QUERY_CONF: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    _STREAMING + "stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    _STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _STREAMING + "stateStore.rocksdb.trackTotalNumberOfRows": "false",
    _STREAMING + "stateStore.rocksdb.boundedMemoryUsage": "true",
    _STREAMING + "stateStore.checkpointFormatVersion": "2",
    _STREAMING + "queryEvolution.enableSourceEvolution": "true",
    _STREAMING + "offsetLog.formatVersion": "2",
    _STREAMING + "noDataMicroBatches.enabled": "false",
    _STREAMING + "stopTimeout": "60s",
}
"""What our queries rely on, from the first batch of a job for ever (docs/design/checkpoints.md)."""

REDACTION_CONF: Mapping[str, str] = {
    "spark.sql.redaction.options.regex": f"{NAME_PATTERN}|url",
    "spark.sql.redaction.string.regex": TEXT_PATTERN,
}
"""What Spark hides in its plans, unless the conf of the JVM has a choice of its own."""

LAUNCH_CONF: Mapping[str, str] = {
    **REDACTION_CONF,
    "spark.redaction.regex": NAME_PATTERN,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    # Such a message holds the whole conf, secrets included.
    "spark.scheduler.listenerbus.logSlowEvent": "false",
    # Spark sets it for some kinds of functions only, and then starts a daemon for those and another one for the rest.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.warehouse.dir": "",
}
LOOPBACK_CONF: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    # The optimizing compiler comes in later, for code that has run ten times as often as by default. A start runs little of its code so
    # often, but enough to keep a core busy with compiling; a job of some size does within its first seconds.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_BRIEF = ("-XX:TieredStopAtLevel=1",)
"""For a process that has only little to do, and is done before what the optimizing compiler makes, and measures for it, would pay."""
_FORK_S = 0.2
"""When the process of the JVM has surely been forked: imports in another thread have to wait for that."""

_LOG4J = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.state.name = org.apache.spark.sql.execution.python.streaming
logger.state.level = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def own_session(spark: SparkSession, partitions: int) -> SparkSession:
    """A session beside the caller's, on the same context, with what our queries rely on; the caller's conf stays as it is."""
    session = spark.newSession()
    for key, value in QUERY_CONF.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    given = spark.sparkContext.getConf()
    for key, value in REDACTION_CONF.items():
        if not given.contains(key):
            session.conf.set(key, value)
    return session


def start_spark(*, master: str | None, conf: Mapping[str, str], log_file: Path, brief: bool = False) -> SparkSession:
    """Starts a JVM and a session; all that Spark and its workers say goes to `log_file`. brief: whether it will have only little to do.

    Raises UsageError `no-java`, or `spark-start` when Spark does not come up.
    """
    java = require_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    from pyspark.sql import SparkSession

    where = master or "local[*]"
    builder = SparkSession.builder.master(where).appName("everfold")
    log4j = log_file.with_suffix(".log4j2.properties")
    make_private_folder(log_file.parent)
    for file in (log_file, log4j):
        make_private_file(file)
    log4j.write_text(_LOG4J.format(file=log_file))
    given = conf.get("spark.driver.extraJavaOptions", "")
    own = [
        f"-Dlog4j2.configurationFile=file:{log4j}",
        f"-Dderby.system.home={tempfile.gettempdir()}",
        f"-XX:ErrorFile={log_file.with_suffix('.crash.log')}",
        *_JAVA_OPTIONS,
        *(_BRIEF if brief else ()),
        *archive_options(java, given),
    ]
    in_process = re.fullmatch(r"local(\[.*\])?", where) is not None
    settings = {**LAUNCH_CONF, **(LOOPBACK_CONF if where.startswith("local") else {})}
    if in_process:
        settings["spark.python.daemon.module"] = "everfold.spark.daemon"
    settings["spark.sql.warehouse.dir"] = str(Path(tempfile.gettempdir()) / "everfold-warehouse")
    settings["spark.driver.extraJavaOptions"] = " ".join([*map(quoted, own), given])
    settings.update({key: value for key, value in conf.items() if key != "spark.driver.extraJavaOptions"})
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _own_interrupts(), _output_to(log_file), without_zip() if in_process else nullcontext():
            _import_meanwhile()
            session = builder.getOrCreate()
            if not in_process:
                _ship_package(session)
            return session
    except Exception as error:
        raise UsageError.of(
            "spark-start", f"Spark did not start: {str(error).splitlines()[0]}", help=f"its own words are in {log_file}"
        ) from error


def _import_meanwhile() -> None:
    """Imports what PySpark imports as soon as it first speaks to the JVM, while that is still starting: its test tools, and so pandas."""
    importing = threading.Timer(_FORK_S, importlib.import_module, ("pyspark.testing.utils",))
    importing.daemon = True
    importing.start()


def end_jvm() -> None:
    """Ends the JVM that this process started, after its sessions, and waits until it is gone: until it has written what it writes at its exit."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def quoted(option: str) -> str:
    """An option as Spark's launcher reads it out of a list."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _ship_package(session: SparkSession) -> None:
    """Gives the executors this very package; what it depends on has to be installed in their Python."""
    package = Path(__file__).parents[1]
    folder = Path(tempfile.mkdtemp(prefix="everfold-package-"))
    archive = folder / "everfold.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(package.rglob("*.py")):
            out.write(file, Path(package.name) / file.relative_to(package))
    session.sparkContext.addPyFile(str(archive))


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Ctrl-C stays this process's business: Spark would make it cancel jobs in mid-batch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """Standard output and error of this process, and so of those it starts, go to the log meanwhile."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with open(log_file, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            os.close(kept[0])
            os.close(kept[1])
