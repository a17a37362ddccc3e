"""The jobs of a shell: those that it runs, and those that its job folder holds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.errors import EverfoldError, SqlError, UnsupportedFeature, suggest_or_list_names
from everfold.sql.planner import Done, Show
from everfold.sql.statements import DescribeJob, StopJob

if TYPE_CHECKING:
    from everfold.jobs.changed_tables import ChangedTable
    from everfold.jobs.job_dir import JobDir
    from everfold.jobs.manifest import Manifest
    from everfold.jobs.spec import JobRunner, JobSpec
    from everfold.jobs.status import JobDirStatus
    from everfold.table.running import RunningJob

_COLUMNS = ("job id", "job name", "status", "start time")
_POLL_S = 0.1
_STATES = {"starting": "INITIALIZING", "not running": "STOPPED", "suspended": "STOPPED"}
"""The status shown for states of a job directory; the others are shown as they are, in capitals."""


@dataclass(slots=True)
class ShellJob:
    """A job that this shell has started.

    waits: whether it has to wait for Spark. seen_notes: how many of its notes the user has seen.
    is_over: whether the user knows that it has ended.
    """

    running: RunningJob
    folder: Path
    started: datetime
    waits: bool
    seen_notes: int = 0
    is_over: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the job has not ended."""
        return self.running.status().state in ("running", "stopping")


class ShellJobs:
    """The jobs in a job folder. Implements SHOW JOBS, DESCRIBE JOB and STOP JOB.

    canceled: whether the user wants to stop waiting.
    """

    def __init__(self, folder: Path, canceled: Callable[[], bool] = lambda: False) -> None:
        self.folder = folder
        self._canceled = canceled
        self._started: dict[str, ShellJob] = {}

    # --- running ----------------------------------------------------------------------------------

    def directory(self, name: str) -> Path:
        """Return the job directory of a name."""
        plain = re.sub(r"[/\\\0]", "_", name)
        return self.folder / (f"_{plain}" if plain.startswith(".") else plain)

    def find_running(self, name: str) -> ShellJob | None:
        """Return the job of a name if this shell runs it."""
        job = self._started.get(name)
        return job if job is not None and job.is_running else None

    def find_behind(self, name: str) -> Sequence[ChangedTable]:
        """Return the tables because of which this shell could not start a job: they lack rows."""
        from everfold.jobs.behind_sinks import BehindSinkError

        job = self._started.get(name)
        failure = None if job is None else job.running.failure
        return failure.behind if isinstance(failure, BehindSinkError) else ()

    def count_running(self) -> int:
        """Return how many jobs this shell runs."""
        return sum(each.is_running for each in self._started.values())

    def start(self, name: str, spec: JobSpec, engine: JobRunner) -> ShellJob:
        """Start a job in the background. Its job directory is that of the name."""
        from everfold.shell.engines import BackgroundSpark
        from everfold.table.running import RunningJob

        folder = self.directory(name)
        job = ShellJob(RunningJob(name, folder, engine), folder, datetime.now(UTC), isinstance(engine, BackgroundSpark))
        self._started[name] = job
        job.running.launch(replace(spec, name=name, state_dir=folder))
        return job

    def wait(self, job: ShellJob) -> bool:
        """Wait for the end of a job; return False if the user has stopped waiting."""
        while job.is_running:
            if self._canceled():
                return False
            time.sleep(_POLL_S)
        return True

    def stop_all(self) -> None:
        """Stop all jobs of this shell, and wait until their running batches are done."""
        for job in self._started.values():
            if job.is_running:
                job.running.request_stop()
        for job in self._started.values():
            self.wait(job)

    def news(self) -> Iterator[str | Exception]:
        """Yield what the jobs have reported since the last call: notes, errors, and their ends."""
        for name, job in self._started.items():
            status = job.running.status()
            for note in status.notes[job.seen_notes :]:
                yield f"job `{name}`: {note}"
            job.seen_notes = len(status.notes)
            if job.is_over or job.is_running:
                continue
            job.is_over = True
            try:
                yield f"job `{name}` has {status.state}: {job.running.wait().message.splitlines()[0]}"
            except Exception as error:
                yield error

    # --- statements -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all jobs: of this shell, and in the job folder."""
        from everfold.jobs.job_list import find_jobs
        from everfold.storage import local

        found = {each.name for each in find_jobs(local(self.folder), depth=1)} if self.folder.is_dir() else set()
        own = {self.directory(name).name for name in self._started}
        return sorted((found - own) | self._started.keys())

    def show(self) -> Show:
        """Return the result of SHOW JOBS."""
        return Show(columns=_COLUMNS, rows=tuple(self._row(name) for name in self.names()))

    def describe(self, statement: DescribeJob) -> Show:
        """Return the result of DESCRIBE JOB. Raises SqlError `unknown-job`."""
        name = self._find(statement)
        return Show(columns=(*_COLUMNS, "duration"), rows=((*self._row(name), self._duration(name)),))

    def stop(self, statement: StopJob) -> Show | Done:
        """Stop a job of this shell or of another process, and wait until its batch is done.

        Its state is kept in any case: WITH SAVEPOINT returns the job directory. WITH DRAIN is
        refused, because a job has only one state, which must fit the next start. Raises SqlError
        `unknown-job`, UnsupportedFeature `unsupported-clause`, EverfoldError if it has failed.
        """
        name = self._find(statement)
        if statement.drain:
            raise UnsupportedFeature.of(
                "unsupported-clause",
                "WITH DRAIN is not supported: after it, the job could not resume. All windows would have been"
                " emitted, with the rows so far, and all later rows would be late",
                statement.drain_span,
                "leave it out; open windows stay in the state, and running the INSERT again resumes them",
            )
        job = self.find_running(name)
        message = self._stop_own(job) if job is not None else self._stop_other(name, statement)
        if message is None:
            return Done(message=f"Job `{name}` stops after its running batch.")
        if statement.savepoint:
            return Show(columns=("savepoint path",), rows=((str(self.directory(name)),),))
        return Done(message=f"Job `{name}` has stopped{message}. Run its INSERT again to resume it.")

    def _stop_own(self, job: ShellJob) -> str | None:
        """Stop a job of this shell; return its counts, None if the user has stopped waiting."""
        job.running.request_stop()
        if not self.wait(job):
            return None
        job.is_over = True
        return f": {job.running.wait().message.splitlines()[0]}"

    def _stop_other(self, name: str, statement: StopJob) -> str | None:
        """Stop a job of another process; return None if the user has stopped waiting.

        Raises SqlError `unknown-job` if the job does not run.
        """
        from everfold.jobs.stop import request_stop
        from everfold.storage import local

        status = self._status(name)
        if status is None or not status.is_running:
            raise SqlError.of(
                "unknown-job",
                f"job `{name}` does not run",
                statement.job_span,
                f"its status is {self._row(name)[2]}; SHOW JOBS lists the jobs",
            )
        while True:
            try:
                request_stop(local(self.directory(name)), _POLL_S)
            except EverfoldError as error:
                if error.code != "stop-timeout":
                    raise
                if self._canceled():
                    return None
            else:
                return ""

    def details(self) -> list[tuple[str, ...]]:
        """Return the progress of each job, and its directory.

        A row has name, status, rows in, rows out, rows in the state, watermark and directory.
        """
        return [self._details(name) for name in self.names()]

    def _details(self, name: str) -> tuple[str, ...]:
        job, status = self._started.get(name), self._status(name)
        progress = None if status is None else status.progress
        if job is not None:
            progress = job.running.status().progress
        counts, watermark = ("", "", ""), ""
        if progress is not None:
            counts = (f"{progress.rows:,}", f"{progress.rows_out:,}", f"{progress.state_rows:,}")
            if progress.watermark_ms is not None and progress.watermark_ms < _END_OF_TIME_MS:
                watermark = _format_time(datetime.fromtimestamp(progress.watermark_ms / 1000, UTC))
        return (name, self._row(name)[2], *counts, watermark, str(self.directory(name)))

    def _row(self, name: str) -> tuple[str, str, str, str]:
        job, manifest = self._started.get(name), self.manifest(name)
        identifier = "" if manifest is None else manifest.job
        if job is not None:
            state = job.running.status().state
            starting = state == "running" and job.waits and job.running.is_starting
            return identifier, name, "INITIALIZING" if starting else state.upper(), _format_time(job.started)
        status = self._status(name)
        if status is None:
            return identifier, name, "", ""
        started = "" if status.run is None else _format_time(_at(status.run.started_ms))
        return identifier, name, _STATES.get(status.state, status.state.upper()), started

    def _duration(self, name: str) -> str:
        """Return how long the last run of a job has lasted, as in Flink: `1h 2m 3s`."""
        status = self._status(name)
        if status is None or status.run is None:
            return ""
        end = datetime.now(UTC) if status.end is None else _at(status.end.ended_ms)
        seconds = int((end - _at(status.run.started_ms)).total_seconds())
        return f"{seconds // 3600}h {seconds // 60 % 60}m {seconds % 60}s"

    def _status(self, name: str) -> JobDirStatus | None:
        """Return the status in the job directory; None without one, or if it cannot be read."""
        from everfold.jobs.status import read_status
        from everfold.storage import local

        try:
            return read_status(local(self.directory(name)), batches=1)
        except (EverfoldError, OSError):
            return None

    def open_dir(self, name: str) -> JobDir:
        """Return the job directory of a job, which may not exist yet."""
        from everfold.jobs.job_dir import JobDir
        from everfold.storage import local

        return JobDir(local(self.directory(name)))

    def manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a job; None for a new job, or if it cannot be read."""
        try:
            return self.open_dir(name).read_manifest()
        except EverfoldError:
            return None

    def _find(self, statement: DescribeJob | StopJob) -> str:
        """Return the name of the job of a statement, which has its ID or its name."""
        names = self.names()
        if statement.job in names:
            return statement.job
        for name in names:
            manifest = self.manifest(name)
            if manifest is not None and manifest.job == statement.job:
                return name
        message = f"no job has the ID or name `{statement.job}`"
        raise SqlError.of(
            "unknown-job", message, statement.job_span, suggest_or_list_names(statement.job, names) or "see SHOW JOBS"
        )


_END_OF_TIME_MS = 253_402_300_800_000


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
