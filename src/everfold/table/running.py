"""A job that runs in the background of this process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.errors import EverfoldError
from everfold.jobs.folders import FolderName
from everfold.jobs.spec import JobSpec
from everfold.rendering.html import format_facts
from everfold.table.arguments import name_arguments, translate_error
from everfold.table.result import TableResult, string_result

if TYPE_CHECKING:
    from everfold.jobs.progress import Progress
    from everfold.jobs.spec import Finished, JobRunner

State: TypeAlias = Literal["running", "stopping", "finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The state of a job. progress: after its last batch in this run, None before the first one.

    error: why it failed. notes: what it has reported to the user.
    """

    state: State
    progress: Progress | None = None
    error: EverfoldError | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class RunningJob:
    """A job that `execute_sql(…, wait=False)` has started.

    It ends with its input, a failure, `stop`, or this process; it is safe to end the process at any
    time. The same statement resumes it. name: of its tables. folder: the job directory.
    """

    name: str
    folder: FolderName
    _engine: JobRunner = field(repr=False)
    _notes: list[str] = field(default_factory=list, repr=False)
    _started: threading.Event = field(default_factory=threading.Event, repr=False)
    _stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)
    _progress: Progress | None = field(default=None, repr=False)
    _finished: Finished | None = field(default=None, repr=False)
    _error: BaseException | None = field(default=None, repr=False)

    def start(self, spec: JobSpec) -> None:
        """Start the job, and return when its query runs. Raises what the job raises until then."""
        self.launch(spec)
        self._started.wait()
        if self._error is not None:
            self.wait()

    def launch(self, spec: JobSpec) -> None:
        """Start the job, and return at once."""
        consent = replace(spec.consent, note=lambda text: self._notes.append(name_arguments(text)))
        spec = replace(
            spec,
            consent=consent,
            progress=self._take_progress,
            started=lambda _: self._started.set(),
            stopping=self._stopping.is_set,
        )
        self._thread = threading.Thread(target=self._run, args=(spec,), name=f"everfold-{self.name}", daemon=True)
        self._thread.start()

    def _run(self, spec: JobSpec) -> None:
        try:
            self._finished = self._engine.run(spec)
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    def _take_progress(self, progress: Progress) -> None:
        self._progress = progress

    @property
    def is_starting(self) -> bool:
        """Whether the query of the job does not run yet."""
        return not self._started.is_set()

    def status(self) -> JobStatus:
        """Return the state of the job; does not wait."""
        error = translate_error(self._error) if isinstance(self._error, EverfoldError) else None
        return JobStatus(state=self._state, progress=self._progress, error=error, notes=tuple(self._notes))

    @property
    def _state(self) -> State:
        if self._error is not None:
            return "failed"
        if self._finished is None:
            return "stopping" if self._stopping.is_set() else "running"
        return "stopped" if self._stopping.is_set() or self._finished.is_stopped else "finished"

    @property
    def failure(self) -> BaseException | None:
        """Why the job has failed, with the options of the command line in its messages."""
        return self._error

    def request_stop(self) -> None:
        """Let the job stop after the running batch; does not wait."""
        if self._finished is None:
            self._stopping.set()

    def stop(self, timeout_s: float | None = None) -> TableResult:
        """Stop the job after the running batch and wait for it, as `wait` does."""
        self.request_stop()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> TableResult:
        """Wait until the job has ended, and return the number of its rows in this run.

        Raises EverfoldError if it has failed, TimeoutError if it still runs after `timeout_s`
        seconds.
        """
        assert self._thread is not None
        self._thread.join(timeout_s)
        if isinstance(self._error, EverfoldError):
            raise translate_error(self._error) from self._error
        if self._error is not None:
            raise self._error
        if self._finished is None:
            raise TimeoutError(f"job `{self.name}` still runs after {timeout_s} s")
        return summarize(self._finished, self._notes)

    def _repr_html_(self) -> str:
        """The state of the job and its progress, for notebooks."""
        status = self.status()
        facts = [("job", self.name), ("state", status.state), ("folder", str(self.folder))]
        if status.progress is not None:
            progress = status.progress
            facts += [
                ("rows in", f"{progress.rows:,}"),
                ("rows out", f"{progress.rows_out:,}"),
                ("late rows", f"{progress.late_rows:,}"),
                ("rows of state", f"{progress.state_rows:,}"),
            ]
        if status.error is not None:
            facts.append(("error", str(status.error)))
        return format_facts([*facts, *(("note", each) for each in status.notes)])


def summarize(finished: Finished, notes: list[str]) -> TableResult:
    """Return the result of an INSERT."""
    return string_result((), (), "\n".join([f"{finished.rows:,} rows in, {finished.rows_out:,} rows out", *notes]))
