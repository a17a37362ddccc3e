"""The engines that run jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.cli.progress import show_activities
from everfold.jobs.spec import EngineName, JobRunner

if TYPE_CHECKING:
    from everfold.jobs.folders import FolderName
    from everfold.storage import Location

LogName: TypeAlias = Literal["file", "stderr"]


def load_runner(
    engine: EngineName, master: str | None, conf: Mapping[str, str], *, brief: bool, uses_s3: bool, log: LogName
) -> JobRunner:
    """Return an engine.

    master, conf: the master and configuration of Spark. brief: whether its jobs read little
    input. uses_s3: whether any of them has a path in S3. log: where Spark logs.
    """
    if engine == "memory":
        from everfold.cli.memory_jobs import MemoryEngine

        return MemoryEngine()
    from everfold.jobs import get_engine
    from everfold.spark.spark_log import STDERR

    spark = {key: value for key, value in conf.items() if key.startswith("spark.")}
    return get_engine(master, spark, brief=brief, uses_s3=uses_s3, log_file=STDERR if log == "stderr" else None)


def open_job(folder: FolderName, conf: Mapping[str, str]) -> Location:
    """Return the location of a job directory, for a command that needs no Spark.

    conf: of Spark, for the store. Raises UsageError, ConnectorError.
    """
    from everfold.jobs.folders import open_folder_alone

    with show_activities():
        return open_folder_alone(folder, conf)
