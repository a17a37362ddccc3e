"""The executors of a cluster: send them the package, and check that they can run a job.

Executors that do not share the job directory with the driver keep state and files on disks of their
own: batches succeed until a partition moves to another machine. With other versions of a library
they compute other results, or fail in the middle of a job.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import time
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.activity import report_activity
from everfold.errors import ConnectorError, Diagnostic, EverfoldError
from everfold.files import cache_folder, use_cache_folder, write_atomically
from everfold.spark.executor_probe import PREFIX, ExecutorProbe, ExpectedFile, Report, SharedPath, find_versions
from everfold.spark.store_check import STORE_HELP, UsedPath, visit_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "everfold.zip"
"""The file that executors receive with this package."""
_KEPT_PACKAGES = 10
"""Number of packages to keep in the cache, those used last. A running driver sends its own."""
_FOLDER_OF_ARCHIVES = ("SPARK_JOB_ARTIFACT_UUID", ".")
"""Makes Spark start Python workers in the folder of its files, to which it unpacks archives.

For a Python with a relative path, such as `./env/bin/python`. Executors start their workers there
anyway. But Spark also starts one on the driver, by default in the current folder.
"""
_MEMORY_METRICS = {
    "heap": "JVMHeapMemory",
    "jvm": "ProcessTreeJVMRSSMemory",
    "python": "ProcessTreePythonRSSMemory",
}
"""Spark's names of what an executor reports, by kind. It reports 0 for what it does not measure."""
_ROUNDS = 10
_FAILED_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor \w+\): ([^\n]*)")
_ON_EXECUTOR = re.compile(r"\(TID \d+\) \((\S+) executor \d+\): ")
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_PYTHON_ERROR = re.compile(
    r"^(?:\w+\.)*(\w*(?:Error|Exception): [^\n]*|\[PYTHON_VERSION_MISMATCH\][^\n]*)", re.MULTILINE
)
_PYTHON_HELP = (
    "install the driver's versions on every machine and name that Python with --conf spark.pyspark.python=…,"
    " or send a packed environment with --conf spark.archives=…"
)
_PATH_HELP = "every machine of the cluster needs the same shared file system at this path"


def is_cluster(spark: SparkSession) -> bool:
    """Return whether tasks run in other processes than the driver."""
    return not spark.sparkContext._jsc.sc().isLocal()


def count_cores(spark: SparkSession) -> int:
    """Return the cores of the executors, when no further one has registered for a second."""
    spark.range(1).collect()  # waits for the first one
    cores = 0
    while (found := sum(each.totalCores() for each in _list_executors(spark))) != cores:
        cores = found
        time.sleep(1)
    return cores


def _list_executors(spark: SparkSession) -> list[Any]:
    """Return the summaries of the executors that have registered."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    every = (found.apply(at) for at in range(found.size()))
    return [each for each in every if each.id() != "driver"]


def read_peak_memory(spark: SparkSession) -> dict[str, dict[str, int]]:
    """Return the greatest memory that each executor has reported, in bytes, by the executor's id.

    By kind: heap, and if Spark measures processes, jvm and python (its workers). An executor
    reports every ten seconds while it runs tasks. Empty without a cluster.
    """
    if not is_cluster(spark):
        return {}
    found: dict[str, dict[str, int]] = {}
    for executor in _list_executors(spark):
        reported = executor.peakMemoryMetrics()
        if reported.isDefined():
            values = {kind: int(reported.get().getMetricValue(name)) for kind, name in _MEMORY_METRICS.items()}
            found[str(executor.id())] = {kind: size for kind, size in values.items() if size > 0}
    return found


def ship_package(spark: SparkSession) -> None:
    """Send this package to the executors, once for each Spark context."""
    context: Any = spark.sparkContext
    if getattr(context, "_has_everfold", False):
        return
    archive = _zip_package()
    context.addPyFile(str(archive))
    if os.sep in context.pythonExec and not Path(context.pythonExec).exists():
        context.environment.setdefault(*_FOLDER_OF_ARCHIVES)
    context._has_everfold = True


def _zip_package() -> Path:
    """Return the package as a file in the cache, which all processes with this version share."""
    package = Path(__file__).parents[1]
    sources = {Path(package.name) / file.relative_to(package): file for file in sorted(package.rglob("*.py"))}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as out:
        for name, file in sources.items():
            out.writestr(zipfile.ZipInfo(str(name)), file.read_bytes(), zipfile.ZIP_DEFLATED)
    digest = hashlib.sha256(content.getvalue()).hexdigest()[:16]
    archive = cache_folder() / "packages" / digest / PACKAGE
    use_cache_folder(archive.parent, keep=_KEPT_PACKAGES)
    if not archive.exists():
        write_atomically(archive, content.getvalue())
    return archive


def find_full_disk(error_text: str) -> ConnectorError | None:
    """Return the error for a full disk of an executor, None if Spark failed for another reason."""
    host = _ON_EXECUTOR.search(error_text)
    if host is None or not _NO_SPACE.search(error_text):
        return None
    return ConnectorError.of(
        "disk-full",
        f"a disk of the executor on {host[1]} is full",
        help="free some space there, where `spark.local.dir` is or the job directory, and run the same command again"
        " to resume after the last finished batch",
    )


@dataclass(slots=True)
class ExecutorCheck:
    """Checks each executor of a cluster once. paths: what the job reads and writes."""

    spark: SparkSession
    paths: Sequence[UsedPath]
    _checked: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Check the executors that have not been checked yet. Does nothing without a cluster.

        Costs a fraction of a millisecond if there are none, so it can be called for each batch.
        Raises EverfoldError `executor-python` for versions that are missing or differ, and
        ConnectorError `executor-path` for paths that an executor does not share with the driver,
        or does not reach.
        """
        if not is_cluster(self.spark) or (self._checked and self._checked >= self._list_names()):
            return
        report_activity("checking the executors")
        with self._create_probe() as probe:
            for _ in range(_ROUNDS):
                tasks = self._count_tasks()
                reports = self._run_tasks(probe, tasks)
                executors = self._find_executors(reports)
                self._check_versions(reports, executors)
                self._check_paths(probe, reports, executors)
                self._checked |= {name for name, _ in executors.values()} & self._visit_stores(tasks)
                if self._checked >= self._list_names():
                    return

    def _list_names(self) -> set[str]:
        """Return the names of the executors that have registered."""
        return set(self.spark.sparkContext._jsc.sc().getExecutorIds().mkString(" ").split())

    def _count_tasks(self) -> int:
        """Return more tasks than there are cores."""
        return 2 * max(self.spark.sparkContext.defaultParallelism, len(self._list_names()))

    def _visit_stores(self, tasks: int) -> set[str]:
        """Return the names of the executors that reach all stores. Raises ConnectorError."""
        reached, wrong = self._list_names(), []
        for path in (each for each in self.paths if each.location.local_path is None):
            visit = visit_store(self.spark, path, tasks)
            if visit is None:
                continue
            reached &= visit.reached
            for host, reason in visit.failed.items():
                message = f"the executor on {host} cannot use {path.what} `{path.location}`: {reason}"
                wrong.append(Diagnostic("executor-path", message, help=STORE_HELP))
        if wrong:
            raise ConnectorError(*wrong)
        return reached

    def _run_tasks(self, probe: ExecutorProbe, tasks: int) -> list[Report]:
        """Run the probe in some tasks. Raises EverfoldError `executor-python` or `disk-full`."""
        context = self.spark.sparkContext
        try:
            return context.parallelize(range(tasks), tasks).mapPartitions(probe).collect()
        except Exception as error:
            failed = _FAILED_TASK.search(str(error))
            if failed is None:
                raise
            full = find_full_disk(str(error))
            if full is not None:
                raise full from error
            reason = next(reversed(_PYTHON_ERROR.findall(str(error))), failed[2])
            raise EverfoldError.of(
                "executor-python", f"Python does not run on the executor on {failed[1]}: {reason}", help=_PYTHON_HELP
            ) from error

    def _find_executors(self, reports: Sequence[Report]) -> dict[int, tuple[str, str]]:
        """Return the name and host of the executor of each task."""
        context = self.spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        found = context.statusStore().taskList(reports[0].stage, 0, len(reports) * 4)
        every = (found.apply(at) for at in range(found.size()))
        return {each.taskId(): (each.executorId(), each.host()) for each in every}

    def _check_versions(self, reports: Sequence[Report], executors: dict[int, tuple[str, str]]) -> None:
        wrong: dict[str, Diagnostic] = {}
        for name, own in find_versions().items():
            for report in reports:
                there, host = report.versions[name], executors[report.task][1]
                if there != own:
                    what = f"has no {name}" if there == "none" else f"has {name} {there}, and the driver {own}"
                    message = f"the executor on {host} {what}"
                    wrong[message] = Diagnostic("executor-python", message, help=_PYTHON_HELP)
        if wrong:
            raise EverfoldError(*wrong.values())

    def _check_paths(
        self, probe: ExecutorProbe, reports: Sequence[Report], executors: dict[int, tuple[str, str]]
    ) -> None:
        wrong: dict[str, Diagnostic] = {}
        for report in reports:
            reasons = dict(report.wrong)
            for number, (shared, _) in enumerate(probe.paths):
                reason = reasons.get(number)
                if reason is None and shared.is_written and not probe.written_file(shared, report.task).exists():
                    reason = "the driver does not see a file that was written there"
                if reason is not None:
                    host = executors[report.task][1]
                    message = f"the executor on {host} cannot use {shared.what} `{shared.path}`: {reason}"
                    wrong[message] = Diagnostic("executor-path", message, help=_PATH_HELP)
        if wrong:
            raise ConnectorError(*wrong.values())

    @contextmanager
    def _create_probe(self) -> Iterator[ExecutorProbe]:
        """Create a file in each folder that is written to, and remove all files of the check."""
        token = uuid.uuid4().hex
        local = [(each.location.local_path, each) for each in self.paths]
        shared = [SharedPath(path, each.what, each.is_written) for path, each in local if path is not None]
        written = [each.path for each in shared if each.is_written]
        try:
            for folder in written:
                (folder / f"{PREFIX}{token}").write_text(token, encoding="utf-8")
            yield ExecutorProbe(token, tuple((each, _expected_file(each, token)) for each in shared))
        finally:
            for folder in written:
                for file in folder.glob(f"{PREFIX}{token}*"):
                    with suppress(OSError):
                        file.unlink()


def _expected_file(shared: SharedPath, token: str) -> ExpectedFile | None:
    """Return a file that executors must see at a path, None if there is none."""
    if shared.is_written:
        return ExpectedFile(f"{PREFIX}{token}", len(token))
    if shared.path.is_file():
        return ExpectedFile("", shared.path.stat().st_size)
    for folder, _, names in os.walk(shared.path):
        for name in names:
            with suppress(OSError):  # it was just deleted
                file = Path(folder, name)
                return ExpectedFile(str(file.relative_to(shared.path)), file.stat().st_size)
    return None
