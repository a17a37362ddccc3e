"""What a running command does: a live line on a terminal, log lines at intervals elsewhere.

It goes to stderr; stdout is for results. Activities that end within half a second are not shown.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

from everfold.activity import listen_to_activities
from everfold.rendering.quantities import format_count, format_instant, format_span

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from everfold.jobs.progress import Progress

LOG_INTERVAL_S = 10.0
_PATIENCE_S = 0.5
"""How long an activity lasts before it is shown."""
_TICK_S = 0.25
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class ProgressView(ABC):
    """Shows the newest progress of a job, and the activity that has begun since.

    A thread draws it while time passes. Methods may be called by any thread.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._lock = threading.RLock()
        self._progress: Progress | None = None
        self._activity = ""
        self._began = time.monotonic()
        self._closed = threading.Event()
        self._ticker: threading.Thread | None = None

    def say(self, activity: str) -> None:
        """Show an activity, see `report_activity`. The same one again does not begin again."""
        with self._lock:
            if activity != self._activity:
                self._activity, self._began = activity, time.monotonic()
            if self._ticker is None and not self._closed.is_set():
                self._ticker = threading.Thread(target=self._tick, name="everfold-progress", daemon=True)
                self._ticker.start()

    def update(self, progress: Progress) -> None:
        """Show the progress of the job after a batch."""
        with self._lock:
            self._progress = progress
            self.say("")
            self._draw()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the view in the block, so that other output may be printed."""
        with self._lock:
            self._erase()
            yield

    def close(self) -> None:
        """End the view: the command has ended."""
        with self._lock:
            self._closed.set()
            self._erase()
            if self._out is not sys.stderr:
                self._out.close()
        if self._ticker is not None:
            self._ticker.join(4 * _TICK_S)  # the process may end next

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_S):
            with self._lock, suppress(OSError, ValueError):  # stderr may be closed at the end of the process
                if not self._closed.is_set():
                    self._draw()

    @property
    def _lasted_s(self) -> float:
        """For how long the activity has lasted; 0 without one or while it is not shown yet."""
        lasted_s = time.monotonic() - self._began
        return lasted_s if self._activity and lasted_s >= _PATIENCE_S else 0.0

    @abstractmethod
    def _draw(self) -> None:
        """Show what is new. The caller holds the lock."""

    @abstractmethod
    def _erase(self) -> None:
        """Remove what is shown. The caller holds the lock."""


def describe_progress(progress: Progress, now_ms: int) -> str:
    """Return the progress as one line.

    `batch 12 · 1,200,000 rows · 98,000 rows/s · watermark … (lag 2.1 s) · 3,120 state rows · 0 late
    rows`
    """
    parts = [f"batch {progress.batch}", format_count(progress.rows), f"{progress.rows_per_second:,.0f} rows/s"]
    if progress.watermark_ms is not None:
        lag = format_span(now_ms - progress.watermark_ms)
        parts.append(f"watermark {format_instant(progress.watermark_ms)} (lag {lag})")
    parts += [format_count(progress.state_rows, "state row"), format_count(progress.late_rows, "late row")]
    return " · ".join(parts)


class LiveLine(ProgressView):
    """A progress line that stays at the bottom of the terminal. A long one is wrapped."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(out)
        self._live: Live | None = None
        self._frame = 0

    def _draw(self) -> None:
        if self._progress is None and not self._lasted_s:
            self._erase()
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(file=self._out),
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(self._line(), refresh=True)

    def _line(self) -> Text:
        from rich.text import Text

        parts = [] if self._progress is None else [describe_progress(self._progress, int(time.time() * 1000))]
        if self._lasted_s:
            self._frame += 1
            parts.append(f"{_FRAMES[self._frame % len(_FRAMES)]} {self._activity} ({self._lasted_s:.0f} s)")
        line = Text(" · ".join(parts), style="dim")
        if self._progress is not None and self._progress.late_rows:
            line.highlight_words([format_count(self._progress.late_rows, "late row")], "yellow")
        return line

    def _erase(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class LogLines(ProgressView):
    """Log lines: each activity before the first batch, and then the progress at intervals."""

    def __init__(self, out: IO[str], interval_s: float = LOG_INTERVAL_S) -> None:
        super().__init__(out)
        self._interval_s = interval_s
        self._last = time.monotonic()
        self._shown: tuple[Progress | None, str] = (None, "")

    def _draw(self) -> None:
        is_long = self._lasted_s >= (0.0 if self._progress is None else self._interval_s)
        shown = self._progress, self._activity if self._lasted_s and is_long else ""
        due = self._progress is None or time.monotonic() - self._last >= self._interval_s
        if shown == self._shown or not due:
            return
        self._last, self._shown = time.monotonic(), shown
        now = datetime.now(UTC)
        progress = () if self._progress is None else (describe_progress(self._progress, int(now.timestamp() * 1000)),)
        if text := " · ".join(filter(None, (*progress, shown[1]))):
            self._out.write(f"{now:%H:%M:%S} {text}\n")
            self._out.flush()

    def _erase(self) -> None:
        pass


def create_view() -> ProgressView:
    """Return a live line if stderr is a terminal, log lines otherwise."""
    return LiveLine(_own_stderr()) if sys.stderr.isatty() else LogLines(_own_stderr())


@contextmanager
def show_activities() -> Iterator[ProgressView]:
    """Show what a command does in the block. It may print only while the view is hidden."""
    view = create_view()
    try:
        with listen_to_activities(view.say):
            yield view
    finally:
        view.close()


def _own_stderr() -> IO[str]:
    """Return stderr as it is now: while Spark starts, file descriptor 2 is Spark's log."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace")
    except OSError:  # stderr is not a file
        return sys.stderr
