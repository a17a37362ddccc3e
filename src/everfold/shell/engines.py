"""The engines of the shell: memory at once, and Spark, which starts once and stays warm."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.files import cache_folder

if TYPE_CHECKING:
    from everfold.cli.memory_jobs import MemoryEngine
    from everfold.jobs.engine import Engine
    from everfold.jobs.spec import Finished, JobSpec

SparkState: TypeAlias = Literal["off", "starting", "ready", "failed"]
_POLL_S = 0.05


class QueryCanceledError(Exception):
    """The user has canceled the query."""


class Engines:
    """The engines of one shell.

    master, conf: of Spark.
    """

    def __init__(self, master: str | None = None, conf: Mapping[str, str] | None = None) -> None:
        self._master, self._conf = master, dict(conf or {})
        self._spark: Engine | None = None
        self._starting: threading.Thread | None = None
        self._failure: Exception | None = None

    def memory(self) -> MemoryEngine:
        """Return the memory engine."""
        from everfold.cli.memory_jobs import MemoryEngine

        return MemoryEngine()

    @property
    def spark_state(self) -> SparkState:
        """Whether Spark runs."""
        if self._starting is None:
            return "off"
        if self._starting.is_alive():
            return "starting"
        return "ready" if self._failure is None else "failed"

    @property
    def is_spark_ready(self) -> bool:
        """Whether the next query on Spark need not wait for it."""
        return self.spark_state == "ready"

    def start_spark(self) -> None:
        """Start Spark in the background, unless it runs or starts already."""
        if self.spark_state in ("off", "failed"):
            self._failure = None
            self._starting = threading.Thread(target=self._start, name="everfold-spark-start", daemon=True)
            self._starting.start()

    def _start(self) -> None:
        try:
            self.spark.warm_up(cache_folder() / "shell" / "spark.log")
        except Exception as error:
            self._failure = error

    @property
    def spark(self) -> Engine:
        """The engine of Spark, which may not run yet."""
        if self._spark is None:
            from everfold.jobs import get_engine

            self._spark = get_engine(self._master, self._conf)
        return self._spark

    def run_on_spark(self, spec: JobSpec) -> Finished:
        """Run a job on Spark, starting it if needed.

        Raises EverfoldError, QueryCanceledError.
        """
        self.wait_for_spark(spec.stopping)
        return self.spark.run(spec)

    def wait_for_spark(self, canceled: Callable[[], bool]) -> None:
        """Start Spark if needed, and wait until it runs.

        Raises EverfoldError if it does not start, QueryCanceledError.
        """
        self.start_spark()
        assert self._starting is not None
        while self._starting.is_alive():
            self._starting.join(_POLL_S)
            if canceled():
                raise QueryCanceledError
        if self._failure is not None:
            raise self._failure


class BackgroundSpark:
    """Runs jobs on Spark, which it starts if needed, as a JobRunner."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def is_bounded(self, spec: JobSpec) -> bool:
        """Whether all input of a job is bounded."""
        return self._engines.spark.is_bounded(spec)

    def run(self, spec: JobSpec) -> Finished:
        """Run a job to its end. Raises EverfoldError."""
        from everfold.jobs.spec import Finished

        try:
            return self._engines.run_on_spark(spec)
        except QueryCanceledError:
            return Finished()
