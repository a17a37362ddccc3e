"""The interface between the command line and the engines that run jobs.

`everfold.jobs` implements it for Spark, `cli/memory_jobs.py` for the in-process engine. The command
line runs jobs only through it. Importing `everfold.jobs` is cheap: it loads Spark when a job is
submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from everfold.jobs.change import OnChange, refuse
from everfold.jobs.rewind import Consent

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.compat import Judgement
    from everfold.jobs import Finished
    from everfold.jobs.progress import Progress
    from everfold.plan.nodes import Root
    from everfold.sql.settings import Settings

EngineName = Literal["spark", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job: a query, an INSERT, or the INSERTs of a statement set.

    name: for messages and logs. sql: the query, for the manifest. state_dir: the job directory;
    None for a temporary one. base_folder: the folder that relative paths start from. suspend: at
    the end of bounded input, stop without emitting open windows. conf: Spark options. stopping:
    called after every batch; returns True when the user wants the job to stop. brief: whether this
    job and those after it have little to read. decide: decides what to do when the new query can
    reuse only part of the state. consent: what the user allows to happen to tables when the job
    rewinds.
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


class JobRunner(Protocol):
    """An engine that runs jobs: the module `everfold.jobs` or `everfold.cli.memory_jobs`."""

    def is_bounded(self, request: JobRequest) -> bool:
        """Return whether all inputs of the job are bounded. Looks only at the options of tables."""

    def submit(
        self, request: JobRequest, *, rows: Callable[[pa.Table], None], progress: Callable[[Progress], None]
    ) -> Finished:
        """Run a job to its end.

        rows: called in the thread of the caller with the rows that a Collect emits (`c0`, …, and
        `__kind` if it is updating). progress: called after every batch.
        """
