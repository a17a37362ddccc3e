"""The progress of a running job: a live line on a terminal, log lines at intervals elsewhere.

Progress goes to stderr; stdout is for results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.live import Live

    from everfold.jobs.progress import Progress

LOG_INTERVAL_S = 10.0


class ProgressView(Protocol):
    """Shows progress."""

    def update(self, progress: Progress) -> None:
        """Show the progress of the job after a batch."""

    def hidden(self) -> AbstractContextManager[None]:
        """Return a context in which other output may be printed."""

    def close(self) -> None:
        """End the view: the job has ended."""


def describe_progress(progress: Progress, now_ms: int) -> str:
    """Return the progress as one line.

    `batch 12 · 1,200,000 rows · 98,000 rows/s · watermark … (lag 2.1 s) · 3,120 state rows · 0 late
    rows`
    """
    parts = [f"batch {progress.batch}", format_count(progress.rows), f"{progress.rows_per_second:,.0f} rows/s"]
    if progress.watermark_ms is not None:
        parts.append(f"watermark {_instant(progress.watermark_ms)} (lag {_span(now_ms - progress.watermark_ms)})")
    parts += [format_count(progress.state_rows, "state row"), format_count(progress.late_rows, "late row")]
    return " · ".join(parts)


def format_count(number: int, what: str = "row") -> str:
    """Return a count with its noun: 1 row, 2,000 rows."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _instant(ms: int) -> str:
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return "at the end"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def _span(ms: int) -> str:
    """Return a duration in a readable unit."""
    for unit, size, digits in (("d", 86_400_000, 0), ("h", 3_600_000, 1), ("min", 60_000, 1)):
        if abs(ms) >= 2 * size:
            return f"{ms / size:,.{digits}f} {unit}"
    return f"{ms / 1000:.1f} s"


class LiveLine:
    """A progress line that stays at the bottom of the terminal.

    out: the terminal; default: stderr.
    """

    def __init__(self, out: IO[str] | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live: Live = Live(
            console=Console(file=out, stderr=out is None),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def update(self, progress: Progress) -> None:
        from rich.text import Text

        line = Text(
            describe_progress(progress, int(time.time() * 1000)), no_wrap=True, overflow="ellipsis", style="dim"
        )
        if progress.late_rows:
            line.highlight_words([format_count(progress.late_rows, "late row")], "yellow")
        self._live.update(line, refresh=True)

    @contextmanager
    def _hide(self) -> Iterator[None]:
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def hidden(self) -> AbstractContextManager[None]:
        return self._hide()

    def close(self) -> None:
        self._live.stop()


class LogLines:
    """A log line at intervals."""

    def __init__(self, out: IO[str], interval_s: float = LOG_INTERVAL_S) -> None:
        self._out, self._interval_s = out, interval_s
        self._last = time.monotonic()

    def update(self, progress: Progress) -> None:
        if time.monotonic() - self._last < self._interval_s:
            return
        self._last = time.monotonic()
        now = datetime.now(UTC)
        self._out.write(f"{now:%H:%M:%S} {describe_progress(progress, int(now.timestamp() * 1000))}\n")
        self._out.flush()

    def hidden(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        pass


def view() -> ProgressView:
    """Return a live line if stderr is a terminal, log lines otherwise."""
    return LiveLine() if sys.stderr.isatty() else LogLines(sys.stderr)
