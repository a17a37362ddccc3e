"""The jobs of a shell: those that it runs, and those that its job folder holds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.errors import EverfoldError, SqlError, UnsupportedFeature, suggest_or_list_names
from everfold.sql.planner import Done, Show
from everfold.sql.statements import DescribeJob, StopJob

if TYPE_CHECKING:
    from everfold.jobs.manifest import Manifest
    from everfold.jobs.spec import JobRunner, JobSpec
    from everfold.table.running import RunningJob

_COLUMNS = ("job id", "job name", "status", "start time")

_POLL_S = 0.1


@dataclass(slots=True)
class ShellJob:
    """A job that this shell has started. seen: what it had reported when the user last saw it."""

    running: RunningJob
    folder: Path
    started: datetime
    seen_notes: int = 0
    is_over: bool = False

    def status(self) -> str:
        """Return its status."""
        state = self.running.status().state
        return "INITIALIZING" if state == "running" and self.running.is_starting else state.upper()

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

    def count_running(self) -> int:
        """Return how many jobs this shell runs."""
        return sum(each.is_running for each in self._started.values())

    def start(self, name: str, spec: JobSpec, engine: JobRunner) -> ShellJob:
        """Start a job in the background. Its job directory is that of the name."""
        from everfold.table.running import RunningJob

        folder = self.directory(name)
        job = ShellJob(RunningJob(name, folder, engine), folder, datetime.now(UTC))
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
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        found = {each.name for each in folders if (each / "manifest").is_dir()}
        return sorted(found | self._started.keys())

    def show(self) -> Show:
        """Return the result of SHOW JOBS."""
        return Show(columns=_COLUMNS, rows=tuple(self._row(name) for name in self.names()))

    def describe(self, statement: DescribeJob) -> Show:
        """Return the result of DESCRIBE JOB. Raises SqlError `unknown-job`."""
        name = self._find(statement)
        job = self._started.get(name)
        seconds = (datetime.now(UTC) - job.started).total_seconds() if job is not None and job.is_running else None
        duration = "" if seconds is None else f"{int(seconds) // 3600}h {int(seconds) // 60 % 60}m {int(seconds) % 60}s"
        return Show(columns=(*_COLUMNS, "duration"), rows=((*self._row(name), duration),))

    def stop(self, statement: StopJob) -> Show | Done:
        """Stop a job of this shell, and wait until its running batch is done.

        Its state is kept in any case: WITH SAVEPOINT returns the job directory. Raises SqlError
        `unknown-job`, UnsupportedFeature `unsupported-clause`, EverfoldError if it has failed.
        """
        name = self._find(statement)
        if statement.drain:
            raise UnsupportedFeature.of(
                "unsupported-clause",
                "STOP JOB … WITH DRAIN is not supported",
                statement.span,
                "leave it out: windows that are open stay in the state, and the job resumes with them",
            )
        job = self.find_running(name)
        if job is None:
            raise SqlError.of(
                "unknown-job",
                f"job `{name}` is not run by this shell",
                statement.job_span,
                f"its status is {self._row(name)[2]}; SHOW JOBS lists the jobs",
            )
        job.running.request_stop()
        if not self.wait(job):
            return Done(message=f"Job `{name}` stops after its running batch.")
        job.is_over = True
        message = job.running.wait().message.splitlines()[0]
        if statement.savepoint:
            return Show(columns=("savepoint path",), rows=((str(job.folder),),))
        return Done(message=f"Job `{name}` has stopped: {message}. Run its INSERT again to resume it.")

    def details(self) -> list[tuple[str, ...]]:
        """Return what each job has done in this shell, and its directory.

        A row has name, status, rows in, rows out, rows in the state, watermark and directory.
        """
        return [self._details(name) for name in self.names()]

    def _details(self, name: str) -> tuple[str, ...]:
        job = self._started.get(name)
        progress = job.running.status().progress if job is not None else None
        folder = str(self.directory(name))
        if progress is None:
            return (name, self._row(name)[2], "", "", "", "", folder)
        watermark = ""
        if progress.watermark_ms is not None and progress.watermark_ms < _END_OF_TIME_MS:
            watermark = _format_time(datetime.fromtimestamp(progress.watermark_ms / 1000, UTC))
        counts = (progress.rows, progress.rows_out, progress.state_rows)
        return (name, self._row(name)[2], *(f"{each:,}" for each in counts), watermark, folder)

    def _row(self, name: str) -> tuple[str, str, str, str]:
        job = self._started.get(name)
        manifest = self.manifest(name)
        identifier = "" if manifest is None else manifest.job
        if job is not None:
            return identifier, name, job.status(), _format_time(job.started)
        from everfold.jobs.ownership import is_owned
        from everfold.storage import local

        status = "RUNNING" if is_owned(local(self.directory(name))) else "STOPPED"
        return identifier, name, status, ""

    def manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a job; None for a new job, or if it cannot be read."""
        from everfold.jobs.job_dir import JobDir
        from everfold.storage import local

        try:
            return JobDir(local(self.directory(name))).read_manifest()
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


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
