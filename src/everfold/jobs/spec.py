"""What a job is to do, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from everfold.activity import Printing
from everfold.jobs.change import Decide, refuse
from everfold.jobs.folders import FolderName
from everfold.jobs.rewind import Consent

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.connectors.skipped_rows import SkippedRow
    from everfold.connectors.validate import CheckedTables
    from everfold.jobs.progress import Progress, RunInfo
    from everfold.plan.nodes import Root
    from everfold.sql.settings import Settings

Receive: TypeAlias = Callable[["pa.Table"], None]
"""Receives the rows of a bare SELECT as they become final: `c0…`, and `__kind` if they change."""

EngineName: TypeAlias = Literal["spark", "memory"]
STOP_TIMEOUT_S = 120.0


def ignore(_: object) -> None:
    """Do nothing with a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job to run: a query, an INSERT, or the INSERTs of a statement set.

    name: for messages and metrics.
    sql, script: the statement and the script that it is in, for the manifest.
    bind: binds another statement with the declarations of the script.
    base_folder: start of relative paths.
    state_dir: the job directory, None for a temporary one.
    suspend: at the end of bounded input, stop without emitting open results.
    receive: called in the caller's thread with the rows of a bare SELECT.
    progress: called after every batch.
    printing: returns a context in which a sink prints rows to the output of this process.
    started: called once, when the job's query runs.
    idle: called with the time in ms when Spark has looked for new input and has not found any.
    tables: the checked tables, None to check them before the start.
    stopping: polled while the job runs; True stops it after the running batch.
    stop_timeout_s: how long a stop waits for the running batch before it interrupts the batch.
    decide: what to do when the new query can reuse only part of the state.
    consent: what may happen to the job's tables, and whom to notify.
    """

    roots: Sequence[Root]
    settings: Settings
    base_folder: Path
    name: str = ""
    sql: str = ""
    script: str = ""
    bind: Callable[[str], Sequence[Root]] | None = None
    state_dir: FolderName | None = None
    suspend: bool = False
    receive: Receive | None = None
    progress: Callable[[Progress], None] | None = None
    printing: Printing = nullcontext
    started: Callable[[RunInfo], None] = ignore
    idle: Callable[[int], None] = ignore
    tables: CheckedTables | None = None
    stopping: Callable[[], bool] = lambda: False
    stop_timeout_s: float = STOP_TIMEOUT_S
    decide: Decide = refuse
    consent: Consent = field(default_factory=Consent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Statistics of a job that has ended.

    rows: input rows of this run. rows_out: rows passed to its sinks in this run.
    late_rows: rows dropped as late since the job began. state_rows: rows in its state.
    dropped_rows: rows that options allow to drop, by reason. dropped_examples: some of them, if no
        job directory has them. log_file: Spark's log, if it is kept.
    is_stopped: whether the job was stopped before the end of its input. unfinished_batch: the batch
        that the next start replays because the stop has interrupted it, None if there is none.
    """

    rows: int = 0
    rows_out: int = 0
    late_rows: int = 0
    state_rows: int = 0
    dropped_rows: Mapping[str, int] = field(default_factory=dict)
    dropped_examples: Sequence[SkippedRow] = ()
    log_file: Path | None = None
    is_stopped: bool = False
    unfinished_batch: int | None = None


class JobRunner(Protocol):
    """An engine that runs jobs."""

    def is_bounded(self, spec: JobSpec) -> bool:
        """Whether all input of a job is bounded. Looks only at the options of tables."""

    def run(self, spec: JobSpec) -> Finished:
        """Run a job to its end. Raises EverfoldError."""
