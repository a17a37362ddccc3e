"""Jobs on Spark, as the command line and the Python API start them, each in its own directory.

One JVM serves all jobs of a process; the first job starts it, and it ends with the process.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.compat import Judgement
    from everfold.jobs.change import OnChange
    from everfold.jobs.engine import Engine
    from everfold.jobs.progress import Progress
    from everfold.jobs.rewind import Consent
    from everfold.plan.nodes import Root
    from everfold.sql.settings import Settings


class Request(Protocol):
    """A job to run: a query, an INSERT, or the INSERTs of a statement set.

    sql: the script, for the manifest.
    state_dir: the job directory, None for a temporary one.
    base_folder: start of relative paths.
    suspend: at the end of bounded input, stop without emitting open results.
    master, conf: the master and configuration of Spark.
    stopping: polled while the job runs; True stops it after the running batch.
    brief: whether this job and later ones read only little input.
    decide: what to do when the new query can reuse only part of the state.
    consent: what may happen to the job's tables.
    """

    @property
    def roots(self) -> Sequence[Root]: ...
    @property
    def sql(self) -> str: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def state_dir(self) -> Path | None: ...
    @property
    def base_folder(self) -> Path: ...
    @property
    def suspend(self) -> bool: ...
    @property
    def master(self) -> str | None: ...
    @property
    def conf(self) -> Mapping[str, str]: ...
    @property
    def stopping(self) -> Callable[[], bool]: ...
    @property
    def brief(self) -> bool: ...
    @property
    def decide(self) -> Callable[[Judgement], OnChange]: ...
    @property
    def consent(self) -> Consent: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Statistics of a job that has ended.

    rows: input rows of this run. rows_out: rows passed to its sinks in this run.
    late_rows: rows dropped as late since the job began. state_rows: rows in its state.
    dropped_rows: rows that options allow to drop, by reason. log_file: Spark's log, if it is kept.
    """

    rows: int = 0
    rows_out: int = 0
    late_rows: int = 0
    state_rows: int = 0
    dropped_rows: Mapping[str, int] = field(default_factory=dict)
    log_file: Path | None = None


_ENGINES: dict[tuple[str | None, tuple[tuple[str, str], ...]], Engine] = {}


def get_engine(master: str | None, conf: Mapping[str, str], *, brief: bool = False) -> Engine:
    """Return this process's engine for a master and a Spark configuration, creating it if needed.

    brief: applies only to a new engine.
    """
    from everfold.jobs.engine import Engine

    key = (master, tuple(sorted(conf.items())))
    if key not in _ENGINES:
        _ENGINES[key] = Engine(master=master, conf=conf, brief=brief)
        atexit.register(_ENGINES[key].close)
    return _ENGINES[key]


def is_bounded(request: Request) -> bool:
    """Whether all input of the job is bounded, judged by the options of its tables alone."""
    return get_engine(request.master, request.conf, brief=request.brief).is_bounded(request.roots, request.settings)


def submit(
    request: Request, *, rows: Callable[[pa.Table], None], progress: Callable[[Progress], None] | None = None
) -> Finished:
    """Run a job to its end. Raises EverfoldError.

    rows: called with the rows that a bare SELECT emits (`c0`, …, `__kind`).
    """
    return get_engine(request.master, request.conf, brief=request.brief).run(
        request.roots,
        settings=request.settings,
        base_folder=request.base_folder,
        state_dir=request.state_dir,
        suspend=request.suspend,
        receive=rows,
        progress=progress,
        stopping=request.stopping,
        sql=request.sql,
        decide=request.decide,
        consent=request.consent,
    )
