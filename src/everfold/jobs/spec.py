"""What a job is to do, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from everfold.jobs.change import Decide, refuse
from everfold.jobs.folders import FolderName
from everfold.jobs.rewind import Consent

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.connectors.validate import CheckedTables
    from everfold.jobs.progress import Progress
    from everfold.plan.nodes import Root
    from everfold.sql.settings import Settings

Receive: TypeAlias = Callable[["pa.Table"], None]
"""Receives the rows of a bare SELECT as they become final: `c0…`, and `__kind` if they change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job to run: a query, an INSERT, or the INSERTs of a statement set.

    name: for messages.
    sql: the script, for the manifest.
    base_folder: start of relative paths.
    state_dir: the job directory, None for a temporary one.
    suspend: at the end of bounded input, stop without emitting open results.
    receive: called in the caller's thread with the rows of a bare SELECT.
    progress: called after every batch.
    started: called once, when the job's query runs.
    tables: the checked tables, None to check them before the start.
    stopping: polled while the job runs; True stops it after the running batch.
    decide: what to do when the new query can reuse only part of the state.
    consent: what may happen to the job's tables, and whom to notify.
    """

    roots: Sequence[Root]
    settings: Settings
    base_folder: Path
    name: str = ""
    sql: str = ""
    state_dir: FolderName | None = None
    suspend: bool = False
    receive: Receive | None = None
    progress: Callable[[Progress], None] | None = None
    started: Callable[[], None] = lambda: None
    tables: CheckedTables | None = None
    stopping: Callable[[], bool] = lambda: False
    decide: Decide = refuse
    consent: Consent = field(default_factory=Consent)


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


class JobRunner(Protocol):
    """An engine that runs jobs."""

    def is_bounded(self, spec: JobSpec) -> bool:
        """Whether all input of a job is bounded. Looks only at the options of tables."""

    def run(self, spec: JobSpec) -> Finished:
        """Run a job to its end. Raises EverfoldError."""
