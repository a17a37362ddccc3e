"""The engines that run jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.cli.progress import show_activities
from everfold.jobs.spec import EngineName, JobRunner
from everfold.storage import Location, local

if TYPE_CHECKING:
    from everfold.jobs.engine import Engine
    from everfold.jobs.folders import FolderName

LogName: TypeAlias = Literal["file", "stderr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runners:
    """The engines of a script.

    master, conf: the master and configuration of Spark. brief: whether its jobs read little
    input. uses_s3: whether any of them has a path in S3. log: where Spark logs.
    """

    master: str | None
    conf: Mapping[str, str]
    brief: bool
    uses_s3: bool
    log: LogName

    def load(self, engine: EngineName) -> JobRunner:
        """Return an engine."""
        if engine == "memory":
            from everfold.cli.memory_jobs import MemoryEngine

            return MemoryEngine()
        return self._load_spark()

    def open_folder(self, folder: FolderName) -> Location:
        """Return the location of a folder; another store than the local disk needs Spark."""
        return local(folder) if isinstance(folder, Path) else self._load_spark().open_job_dir(folder)

    def _load_spark(self) -> Engine:
        from everfold.jobs import get_engine
        from everfold.spark.spark_log import STDERR

        spark = {key: value for key, value in self.conf.items() if key.startswith("spark.")}
        log_file = STDERR if self.log == "stderr" else None
        return get_engine(self.master, spark, brief=self.brief, uses_s3=self.uses_s3, log_file=log_file)


def open_job(folder: FolderName, conf: Mapping[str, str]) -> Location:
    """Return the location of a job directory, for a command that needs no Spark.

    conf: of Spark, for the store. Raises UsageError, ConnectorError.
    """
    from everfold.jobs.folders import open_folder_alone

    with show_activities():
        return open_folder_alone(folder, conf)
