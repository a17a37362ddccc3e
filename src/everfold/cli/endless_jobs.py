"""Jobs of a script that have no end, and so run while the statements after them do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from everfold.jobs.spec import Finished, JobRunner, JobSpec

if TYPE_CHECKING:
    from everfold.cli.progress import ProgressView

_POLL_S = 0.05


@dataclass(slots=True)
class _EndlessJob:
    """A job in a thread. error: why it failed."""

    spec: JobSpec
    thread: threading.Thread = field(init=False)
    started: threading.Event = field(default_factory=threading.Event)
    finished: Finished | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class EndlessJobs:
    """The jobs of a script that run in the background of its last one.

    They stop together with it: on a signal, or when one of them fails. note: called with their
    notes for the user. view: shows the progress of the job in the foreground, and is hidden while
    something is printed. is_stopping: whether all jobs of the script are to stop.
    """

    note: Callable[[str], None]
    view: ProgressView | None = None
    is_stopping: bool = False
    _jobs: list[_EndlessJob] = field(default_factory=list)

    @property
    def are_running(self) -> bool:
        """Whether any of them runs."""
        return any(job.thread.is_alive() for job in self._jobs)

    @property
    def names(self) -> str:
        """The names of those that run, for people."""
        return ", ".join(job.spec.name for job in self._jobs if job.thread.is_alive())

    def should_stop(self) -> bool:
        """Return whether the job in the foreground has to stop, too."""
        return self.is_stopping or any(job.error is not None for job in self._jobs)

    def start(
        self,
        runner: JobRunner,
        spec: JobSpec,
        watch: Callable[[JobSpec], AbstractContextManager[JobSpec]],
    ) -> None:
        """Start a job, and wait until its query runs or it has ended.

        watch: returns a context with how to run it.
        """
        job = _EndlessJob(spec)
        spec = replace(
            spec,
            started=lambda _: job.started.set(),
            stopping=lambda: self.is_stopping,
            printing=self.hidden,
            consent=replace(spec.consent, note=self._print_note),
        )
        job.thread = threading.Thread(target=_run, args=(job, runner, spec, watch), name=spec.name, daemon=True)
        self._jobs.append(job)
        job.thread.start()
        job.started.wait()

    def wait(self, should_stop: Callable[[], bool] = lambda: False) -> list[tuple[JobSpec, Finished]]:
        """Wait until all have ended, and return how. Raises the error of the first that has failed.

        should_stop: called meanwhile; True stops them all.
        """
        while self.are_running:
            if should_stop() or self.should_stop():
                self.is_stopping = True
            time.sleep(_POLL_S)
        for job in self._jobs:
            if job.error is not None:
                raise job.error
        return [(job.spec, job.finished) for job in self._jobs if job.finished is not None]

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the progress in the block, so that other output may be printed."""
        view = self.view
        if view is None:
            yield
            return
        with view.hidden():
            yield

    def _print_note(self, text: str) -> None:
        with self.hidden():
            self.note(text)


def _run(
    job: _EndlessJob, runner: JobRunner, spec: JobSpec, watch: Callable[[JobSpec], AbstractContextManager[JobSpec]]
) -> None:
    try:
        with watch(spec) as watched:
            job.finished = runner.run(watched)
    except BaseException as error:
        job.error = error
    finally:
        job.started.set()
