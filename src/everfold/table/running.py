"""A job that runs in the background of this process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.errors import EverfoldError
from everfold.jobs.folders import FolderName
from everfold.jobs.spec import JobSpec
from everfold.table.result import TableResult, string_result

if TYPE_CHECKING:
    from everfold.jobs.engine import Engine
    from everfold.jobs.progress import Progress
    from everfold.jobs.spec import Finished

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
    _engine: Engine = field(repr=False)
    _notes: list[str] = field(default_factory=list, repr=False)
    _started: threading.Event = field(default_factory=threading.Event, repr=False)
    _stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)
    _progress: Progress | None = field(default=None, repr=False)
    _finished: Finished | None = field(default=None, repr=False)
    _error: BaseException | None = field(default=None, repr=False)

    def start(self, spec: JobSpec) -> None:
        """Start the job, and return when its query runs. Raises what the job raises until then."""
        consent = replace(spec.consent, note=self._notes.append)
        spec = replace(
            spec,
            consent=consent,
            progress=self._take_progress,
            started=lambda _: self._started.set(),
            stopping=self._stopping.is_set,
        )
        self._thread = threading.Thread(target=self._run, args=(spec,), name=f"everfold-{self.name}", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self.wait()

    def _run(self, spec: JobSpec) -> None:
        try:
            self._finished = self._engine.run(spec)
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    def _take_progress(self, progress: Progress) -> None:
        self._progress = progress

    def status(self) -> JobStatus:
        """Return the state of the job; does not wait."""
        error = self._error if isinstance(self._error, EverfoldError) else None
        return JobStatus(state=self._state, progress=self._progress, error=error, notes=tuple(self._notes))

    @property
    def _state(self) -> State:
        if self._error is not None:
            return "failed"
        if self._finished is None:
            return "stopping" if self._stopping.is_set() else "running"
        return "stopped" if self._stopping.is_set() or self._finished.is_stopped else "finished"

    def stop(self, timeout_s: float | None = None) -> TableResult:
        """Stop the job after the running batch and wait for it, as `wait` does."""
        self._stopping.set()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> TableResult:
        """Wait until the job has ended, and return the number of its rows in this run.

        Raises EverfoldError if it has failed, TimeoutError if it still runs after `timeout_s`
        seconds.
        """
        assert self._thread is not None
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._finished is None:
            raise TimeoutError(f"job `{self.name}` still runs after {timeout_s} s")
        return summarize(self._finished, self._notes)


def summarize(finished: Finished, notes: list[str]) -> TableResult:
    """Return the result of an INSERT."""
    return string_result((), (), "\n".join([f"{finished.rows:,} rows in, {finished.rows_out:,} rows out", *notes]))
