"""The Spark session that everfold's queries run in: our own, independent of the caller's settings.

A JVM that we start is quiet: its output and that of log4j and the Python workers go to the job's
log. Sockets are on loopback and the UI is off unless the caller's conf sets them.
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
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.connectors.options import parse_memory
from everfold.errors import UsageError
from everfold.local_paths import spark_path
from everfold.secrets import NAME_PATTERN, TEXT_PATTERN
from everfold.spark.archive import archive_options
from everfold.spark.executors import PACKAGE
from everfold.spark.java import Java, require_java
from everfold.spark.local_folders import private_local_folders, remove_at_exit
from everfold.spark.pyspark_path import spark_home_without_zip
from everfold.spark.quiet_session import quiet_session
from everfold.spark.s3_jars import add_s3_to_executors, s3_on_class_path
from everfold.spark.spark_log import (
    divert_py4j_messages,
    prepare_log,
    redirect_output,
    watch_size,
    write_jvm_options,
)
from everfold.spark.submit import MASTER, check_contradictions, is_submitted, read_submitted_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
_STREAMING = "spark.sql.streaming."
QUERY_CONF: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    # By default, the files of a shuffle are removed when the JVM of the driver collects garbage, at
    # the latest after 30 minutes. OVER fills 100 to 200 MB a second.
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    _STREAMING + "stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    _STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _STREAMING + "stateStore.rocksdb.trackTotalNumberOfRows": "false",
    _STREAMING + "stateStore.rocksdb.boundedMemoryUsage": "true",
    _STREAMING + "stateStore.checkpointFormatVersion": "2",
    _STREAMING + "queryEvolution.enableSourceEvolution": "true",
    _STREAMING + "offsetLog.formatVersion": "2",
    _STREAMING + "noDataMicroBatches.enabled": "false",
    _STREAMING + "stopTimeout": "60s",
    # The default one starts processes to rename a file: that was 150 to 220 ms of a small batch.
    _STREAMING + "checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings that queries rely on, fixed for the lifetime of a job (docs/design/checkpoints.md)."""

REDACTION_CONF: Mapping[str, str] = {
    "spark.sql.redaction.options.regex": f"{NAME_PATTERN}|url",
    "spark.sql.redaction.string.regex": TEXT_PATTERN,
}
"""What Spark redacts in its plans, unless the conf of the JVM sets it."""

HADOOP_CONF: Mapping[str, str] = {
    # After a file's last byte, the client of HDFS asks whether its block is known. It is, a few
    # milliseconds later; by default, the client asks again only after 400 ms.
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.retries": "11",
}
"""Settings of file systems, unless the conf of the user sets them."""

LAUNCH_CONF: Mapping[str, str] = {
    **REDACTION_CONF,
    **HADOOP_CONF,
    "spark.redaction.regex": NAME_PATTERN,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps about the past for its UI. With the default, 1000, the JVM grows for that
    # many batches.
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    # A batch of files has one task per core. With the default, 128 MB, a batch of 256 MB had three
    # tasks, so one of two cores waited.
    "spark.sql.files.maxPartitionBytes": "512m",
    "spark.driver.memory": "2g",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    # Such a message contains the whole conf, secrets included.
    "spark.scheduler.listenerbus.logSlowEvent": "false",
    # Spark sets it for some kinds of functions only, and would start a second daemon for the
    # others.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.python.daemon.module": "everfold.spark.daemon",
    "spark.sql.warehouse.dir": "",
}
LOOPBACK_CONF: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
IN_PROCESS_CONF: Mapping[str, str] = {
    # Rows cross no network: compressing them took a fifth of the processor time of OVER.
    "spark.shuffle.compress": "false",
}
_MEMORY_KEY = "spark.driver.memory"
_LEFT_TO_SPARK_SUBMIT = ("spark.ui.enabled", _MEMORY_KEY)
_JAVA_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_DEFAULT_MASTER = "local[*]"
_EXECUTOR_PATHS = "spark.executorEnv.PYTHONPATH"
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    # The optimizing compiler starts later than by default, for code that has run ten times as
    # often. Little code runs that often at a start, but enough to keep a core busy with compiling;
    # a larger job reaches it within its first seconds.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_YOUNG_MB = 400
"""The initial size of the young generation of the JVM's heap."""
_BRIEF = ("-XX:TieredStopAtLevel=1",)
"""For a process with little work, which ends before the optimizing compiler would pay off."""
_FORK_S = 0.2
"""Delay after which the JVM process has been forked.

Imports in another thread must wait for that.
"""


def _choose_python(spark: SparkSession) -> None:
    """Let the workers of a local master run this Python, unless the caller names another.

    PySpark runs the first `python3` in PATH, which is another one if a virtual environment is not
    activated.
    """
    context = spark.sparkContext
    is_named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if _is_in_process(context.master) and not is_named:
        context.pythonExec = sys.executable


def create_session(spark: SparkSession, partitions: int) -> SparkSession:
    """Return a new session on the caller's context with our settings.

    The caller's conf is unchanged. A caller's JVM omits expected messages (`quiet_session`).
    """
    quiet_session(spark)
    _choose_python(spark)
    session = spark.newSession()
    for key, value in QUERY_CONF.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    given = spark.sparkContext.getConf()
    for key, value in REDACTION_CONF.items():
        if not given.contains(key):
            session.conf.set(key, value)
    return session


def start_spark(
    *, master: str | None, conf: Mapping[str, str], log_file: Path, brief: bool = False, uses_s3: bool = False
) -> SparkSession:
    """Start a JVM and a session; all output of Spark and its workers goes to `log_file`.

    A process that `spark-submit` has started uses the JVM of that command, which writes its own
    log.

    brief: whether the process has little work. uses_s3: whether a path with scheme `s3a` is used;
    under `spark-submit`, that command names the jars. Raises UsageError `no-java`, `spark-start` if
    Spark does not start, and `spark-submit` if `master` or `conf` contradict that command.
    """
    prepare_log(log_file)
    divert_py4j_messages(log_file)
    settings = dict(LAUNCH_CONF)
    if is_submitted():
        submitted = read_submitted_conf()
        check_contradictions(submitted, master, conf)
        where = submitted[MASTER]
        conf = {**submitted, **conf}
        for key in _LEFT_TO_SPARK_SUBMIT:
            del settings[key]
    else:
        where = master or _DEFAULT_MASTER
        if uses_s3:
            conf = add_s3_to_executors(conf)
        settings[_JAVA_OPTIONS_KEY] = _java_options(require_java(), conf, log_file, brief)
        conf = {key: value for key, value in conf.items() if key != _JAVA_OPTIONS_KEY}
    in_process = _is_in_process(where)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = sys.executable if in_process else _executor_python(conf)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(where).appName("everfold")
    if where.startswith("local"):
        settings.update(LOOPBACK_CONF)
    if in_process:
        settings.update(IN_PROCESS_CONF)
    else:
        # The daemon of an executor starts in the folder that has received the package.
        paths = [PACKAGE, *filter(None, [conf.get(_EXECUTOR_PATHS)])]
        conf = {**conf, _EXECUTOR_PATHS: os.pathsep.join(paths)}
    settings["spark.sql.warehouse.dir"] = spark_path(Path(tempfile.gettempdir()) / "everfold-warehouse")
    for key, value in {**settings, **conf}.items():
        builder = builder.config(key, value)
    try:
        with (
            _keep_interrupt_handler(),
            redirect_output(log_file),
            spark_home_without_zip() if in_process else nullcontext(),
            s3_on_class_path() if uses_s3 else nullcontext(),
            _private_folders(conf, in_process=in_process) as folders,
        ):
            _import_early()
            session = builder.getOrCreate()
            remove_at_exit(session.sparkContext._jvm, folders)
            watch_size(log_file)
            session.sparkContext._accumulatorServer.handle_error = _log_lost_connection  # type: ignore[assignment]
            return session
    except Exception as error:
        raise _start_error(error, log_file) from error


def start_gateway(
    *, master: str | None, conf: Mapping[str, str], log_file: Path, brief: bool = False, uses_s3: bool = False
) -> Any:
    """Start only the JVM, without a Spark context, and return the gateway to it.

    Does nothing if this process has a JVM already. A session that starts later uses it, so
    arguments must be those of `start_spark`. Only settings of the driver are read from conf:
    arguments of a process are visible to other users. Raises UsageError `no-java`, or
    `spark-start` if the JVM does not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return SparkContext._gateway
    java = require_java()
    settings = {_MEMORY_KEY: LAUNCH_CONF[_MEMORY_KEY]}
    settings.update({key: value for key, value in conf.items() if key.startswith("spark.driver.")})
    prepare_log(log_file)
    divert_py4j_messages(log_file)
    settings[_JAVA_OPTIONS_KEY] = _java_options(java, conf, log_file, brief)
    launch = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    in_process = _is_in_process(master)
    home = spark_home_without_zip() if in_process else nullcontext()
    jars = s3_on_class_path() if uses_s3 else nullcontext()
    private = _private_folders(conf, in_process=in_process)
    try:
        with _keep_interrupt_handler(), redirect_output(log_file), home, jars, private as folders:
            gateway = launch_gateway(launch)  # type: ignore[no-untyped-call]
            remove_at_exit(gateway.jvm, folders)
    except Exception as error:
        raise _start_error(error, log_file) from error
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    return gateway


def _private_folders(conf: Mapping[str, str], *, in_process: bool) -> AbstractContextManager[list[Path]]:
    """Return a block whose JVM, if it is started there, uses private folders.

    Those of the executors of a cluster, and of a process that `spark-submit` has started, are not
    ours.
    """
    from pyspark import SparkContext

    starts = in_process and not is_submitted() and SparkContext._gateway is None
    return private_local_folders(conf) if starts else nullcontext([])


def _is_in_process(master: str | None) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master or _DEFAULT_MASTER) is not None


def _java_options(java: Java, conf: Mapping[str, str], log_file: Path, brief: bool) -> str:
    """Return the options of the JVM. Those of the caller take precedence."""
    given = conf.get(_JAVA_OPTIONS_KEY, "")
    own = [
        *write_jvm_options(log_file),
        f"-Dderby.system.home={tempfile.gettempdir()}",
        *_JAVA_OPTIONS,
        *(_BRIEF if brief else _size_young_objects(conf.get(_MEMORY_KEY, LAUNCH_CONF[_MEMORY_KEY]))),
        *archive_options(java, given),
    ]
    return " ".join([*map(quote_option, own), given])


def _size_young_objects(memory: str) -> tuple[str, ...]:
    """Return the option that sets the size of the young generation. memory: of the driver.

    By default it begins with a 192nd of the machine's memory, which records of Kafka fill ten times
    a second; each collection stops all tasks for some milliseconds.
    """
    try:
        size = parse_memory(memory)
    except ValueError:  # reported by Spark
        return ()
    return (f"-XX:NewSize={_YOUNG_MB}m",) if size >= 4 * _YOUNG_MB << 20 else ()


def _start_error(error: Exception, log_file: Path) -> UsageError:
    return UsageError.of("spark-start", f"Spark did not start: {str(error).splitlines()[0]}", help=f"see {log_file}")


def _executor_python(conf: Mapping[str, str]) -> str:
    """Return the Python of the executors of a cluster: as configured, else the path of this one."""
    return conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _import_early() -> None:
    """Import PySpark's test tools, and so pandas, while the JVM starts.

    PySpark would import them at its first call to the JVM.
    """
    importing = threading.Timer(_FORK_S, importlib.import_module, ("pyspark.testing.utils",))
    importing.daemon = True
    importing.start()


def _log_lost_connection(*of: object) -> None:
    """Log that the JVM is gone; by default, a traceback would be printed."""
    log.debug("the JVM closed its connection", exc_info=True)


def stop_jvm() -> None:
    """Stop the JVM that this process started, after its sessions, and wait for its exit.

    Until then it may write files.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def quote_option(option: str) -> str:
    """Quote an option for Spark's launcher, which parses a list of options."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep the Ctrl-C handler: that of Spark would cancel jobs in the middle of a batch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
