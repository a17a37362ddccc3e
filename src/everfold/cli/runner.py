"""What the command line wants of whatever runs jobs: the only seam between it and the engines.

`everfold.jobs` offers these two functions for Spark; `cli/memory_jobs.py` offers them for the in-process runner. Nothing else of either is
used by the command line. `everfold.jobs` itself is light; it loads Spark when a job is submitted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from everfold.jobs import Finished
from everfold.jobs.change import OnChange, refuse
from everfold.jobs.rewind import Consent

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.compat import Judgement
    from everfold.jobs.progress import Progress
    from everfold.plan.nodes import Root
    from everfold.sql.settings import Settings

EngineName = Literal["spark", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job: a query, an INSERT, or the INSERTs of a statement set.

    name: for people and logs. sql: its text, for the manifest. state_dir: the job's folder, None for a temporary one. base_folder: what
    relative paths start from. suspend: at the end of bounded input, stop without emitting what is open. conf: options of Spark's.
    stopping: asked after every batch, True when the user wants the job to stop. brief: whether this job and those after it have only little to read.
    decide: what becomes of a job whose query has changed so that not all of its state is of use. consent: what may happen to its tables when it begins anew.
    """

    roots: Sequence[Root]
    name: str
    sql: str
    settings: Settings
    state_dir: Path | None
    base_folder: Path
    suspend: bool = False
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    stopping: Callable[[], bool] = lambda: False
    brief: bool = False
    decide: Callable[[Judgement], OnChange] = refuse
    consent: Consent = field(default_factory=Consent)


class Jobs(Protocol):
    """Runs jobs."""

    def bounded(self, request: JobRequest) -> bool:
        """Whether all of the job's input ends by itself. Looks at tables' options only."""

    def submit(
        self, request: JobRequest, *, rows: Callable[[pa.Table], None], progress: Callable[[Progress], None]
    ) -> Finished:
        """Runs a job to its end. `rows` takes what a Collect emits (`c0`, …, maybe `__kind`), in the thread of the caller."""


__all__ = ["EngineName", "Finished", "JobRequest", "Jobs", "jobs"]

_MODULES: Mapping[EngineName, str] = {"spark": "everfold.jobs", "memory": "everfold.cli.memory_jobs"}


def jobs(engine: EngineName) -> Jobs:
    """What runs jobs on an engine."""
    return cast(Jobs, importlib.import_module(_MODULES[engine]))
