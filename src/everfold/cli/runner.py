"""The engines that run jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from everfold.jobs.spec import JobRunner

EngineName: TypeAlias = Literal["spark", "memory"]


def load_runner(
    engine: EngineName, master: str | None, conf: Mapping[str, str], *, brief: bool, uses_s3: bool
) -> JobRunner:
    """Return an engine.

    master, conf: the master and configuration of Spark. brief: whether its jobs read little
    input. uses_s3: whether any of them has a path in S3.
    """
    if engine == "memory":
        from everfold.cli.memory_jobs import MemoryEngine

        return MemoryEngine()
    from everfold.jobs import get_engine

    spark = {key: value for key, value in conf.items() if key.startswith("spark.")}
    return get_engine(master, spark, brief=brief, uses_s3=uses_s3)
