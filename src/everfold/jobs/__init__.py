"""Jobs on Spark: what the command line and the Python API start, each in a folder of its own.

One JVM serves all jobs of a process; it is started by the first of them and ends with the process.
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

    name: for people and logs. sql: its text, for the manifest. state_dir: the job's folder, None for a temporary one. base_folder: what relative paths start from.
    suspend: at the end of bounded input, stop without emitting what is open. conf: options of Spark's. stopping: asked again and
    again, True when the job is to stop after its running batch. brief: whether this job and those after it have only little to read. decide: what becomes of a job
    whose query has changed so that not all of its state is of use. consent: what may happen to its tables when it begins anew.
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
    """How a job ended. rows: taken in this run. rows_out: given to its sinks. late_rows: dropped as late since the job began.
    dropped_rows: by why, as options allow. log_file: where Spark's words are, if they are kept."""

    rows: int = 0
    rows_out: int = 0
    late_rows: int = 0
    state_rows: int = 0
    dropped_rows: Mapping[str, int] = field(default_factory=dict)
    log_file: Path | None = None


_ENGINES: dict[tuple[str | None, tuple[tuple[str, str], ...]], Engine] = {}


def engine_of(master: str | None, conf: Mapping[str, str], *, brief: bool = False) -> Engine:
    """The process's engine for a master and options of Spark's; `brief` counts for the one that starts."""
    from everfold.jobs.engine import Engine

    key = (master, tuple(sorted(conf.items())))
    if key not in _ENGINES:
        _ENGINES[key] = Engine(master=master, conf=conf, brief=brief)
        atexit.register(_ENGINES[key].close)
    return _ENGINES[key]


def bounded(request: Request) -> bool:
    """Whether all of the job's input ends by itself. Looks at the options of its tables only."""
    return engine_of(request.master, request.conf, brief=request.brief).bounded(request.roots, request.settings)


def submit(
    request: Request, *, rows: Callable[[pa.Table], None], progress: Callable[[Progress], None] | None = None
) -> Finished:
    """Runs a job to its end. `rows` takes what a bare SELECT emits (`c0`, …, `__kind`). Raises EverfoldError."""
    return engine_of(request.master, request.conf, brief=request.brief).run(
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
