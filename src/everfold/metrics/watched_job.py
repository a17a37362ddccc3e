"""A running job as the metrics see it: what its callbacks have reported so far."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field

from everfold.jobs.progress import WHOLE_BATCH, Progress, RunInfo

BATCH_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram of batch durations."""


@dataclass(slots=True)
class WatchedJob:
    """The state of a job.

    name: distinguishes it from the other jobs of the process. run: None until its query runs.
    progress: after the newest batch. batches: of this run. phase_ms: the total of each phase of its
    batches. slower: batches that took at most each of `BATCH_SECONDS`, and no less than the bound
    before; the last number is that of longer ones. sign_ms: when a batch was last committed, or
    Spark last found that there is no new input.
    """

    name: str
    run: RunInfo | None = None
    progress: Progress | None = None
    batches: int = 0
    phase_ms: dict[str, int] = field(default_factory=dict)
    slower: list[int] = field(default_factory=lambda: [0] * (len(BATCH_SECONDS) + 1))
    sign_ms: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def start(self, run: RunInfo, now_ms: int) -> None:
        """Take that the query of the job runs."""
        with self._lock:
            self.run, self.sign_ms = run, max(self.sign_ms, now_ms)

    def add(self, progress: Progress) -> None:
        """Take a batch."""
        with self._lock:
            self.progress = progress
            self.batches += 1
            for phase, ms in progress.phases_ms.items():
                self.phase_ms[phase] = self.phase_ms.get(phase, 0) + ms
            self.slower[bisect_left(BATCH_SECONDS, progress.phases_ms.get(WHOLE_BATCH, 0) / 1000)] += 1
            self.sign_ms = max(self.sign_ms, progress.ended_ms)

    def look(self, at_ms: int) -> None:
        """Take that Spark has found no new input at a time."""
        with self._lock:
            self.sign_ms = max(self.sign_ms, at_ms)

    def seconds_since_sign(self, now_ms: int) -> float:
        """Return for how long the job has neither committed a batch nor found that it has none."""
        return max(0.0, (now_ms - self.sign_ms) / 1000)

    def copy(self) -> WatchedJob:
        """Return the state at one moment."""
        with self._lock:
            return WatchedJob(
                name=self.name,
                run=self.run,
                progress=self.progress,
                batches=self.batches,
                phase_ms=dict(self.phase_ms),
                slower=list(self.slower),
                sign_ms=self.sign_ms,
            )
