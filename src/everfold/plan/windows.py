"""The bounds of windows in event or processing time.

All units are milliseconds; `end` is exclusive. Sources: Flink's windowing table functions, and
Flink 2.3 through `tests/cases/window`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Tumble:
    """Consecutive windows of one size."""

    size_ms: int
    offset_ms: int = 0

    @property
    def slice_ms(self) -> int:
        """The width of a slice: every window consists of whole slices."""
        return self.size_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """Windows of one size that start every `slide_ms`.

    If the size is smaller than the slide, some rows are in no window.
    """

    slide_ms: int
    size_ms: int
    offset_ms: int = 0

    @property
    def slice_ms(self) -> int:
        """The width of a slice: every window consists of whole slices."""
        return gcd(self.slide_ms, self.size_ms)

    @property
    def is_whole_slides(self) -> bool:
        """Whether the size is a multiple of the slide."""
        return self.slice_ms == self.slide_ms

    @property
    def has_gaps(self) -> bool:
        """Whether there is a gap between one window and the next."""
        return self.size_ms < self.slide_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Cumulate:
    """Windows that share their start and grow by `step_ms` up to `size_ms`, then start again."""

    step_ms: int
    size_ms: int
    offset_ms: int = 0

    @property
    def slice_ms(self) -> int:
        """The width of a slice: every window consists of whole slices."""
        return self.step_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A window of each key that ends after `gap_ms` without a row.

    Windows that touch are merged.
    """

    gap_ms: int


SlicedWindow: TypeAlias = Tumble | Hop | Cumulate
Window: TypeAlias = SlicedWindow | Session


_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def window_text(window: Window) -> str:
    """Return a window in short form: `HOP(slide=5 min, size=10 min)`."""
    match window:
        case Tumble():
            text = f"TUMBLE(size={duration(window.size_ms)}"
        case Hop():
            text = f"HOP(slide={duration(window.slide_ms)}, size={duration(window.size_ms)}"
        case Cumulate():
            text = f"CUMULATE(step={duration(window.step_ms)}, size={duration(window.size_ms)}"
        case Session():
            return f"SESSION(gap={duration(window.gap_ms)})"
    return text + (f", offset={duration(window.offset_ms)})" if window.offset_ms else ")")


def duration(ms: int) -> str:
    """Return milliseconds in the largest unit that is exact."""
    for unit_ms, unit in _UNITS:
        if ms and ms % unit_ms == 0:
            return f"{ms // unit_ms} {unit}"
    return f"{ms} ms"


def simplify(window: Window) -> Window:
    """Return the simplest spelling of the same windows: a HOP by its whole size is a TUMBLE."""
    match window:
        case Hop(slide_ms=step_ms, size_ms=size_ms) | Cumulate(step_ms=step_ms, size_ms=size_ms) if step_ms == size_ms:
            return Tumble(size_ms=size_ms, offset_ms=window.offset_ms % size_ms)
        case Tumble(size_ms=period_ms) | Hop(slide_ms=period_ms) | Cumulate(size_ms=period_ms):
            return replace(window, offset_ms=window.offset_ms % period_ms)
        case Session():
            return window


def slice_end(window: SlicedWindow, at_ms: int) -> int:
    """Return the end of the slice that contains an instant."""
    width = window.slice_ms
    return (at_ms - window.offset_ms) // width * width + width + window.offset_ms


def next_window_end(window: SlicedWindow, at_ms: int) -> int:
    """Return the end of the first window to end after an instant."""
    if isinstance(window, Hop):
        return at_ms - (at_ms - window.size_ms - window.offset_ms) % window.slide_ms + window.slide_ms
    return slice_end(window, at_ms)


def window_start(window: SlicedWindow, end_ms: int) -> int:
    """Return the start of the window that ends at `end_ms`."""
    match window:
        case Tumble() | Hop():
            return end_ms - window.size_ms
        case Cumulate():
            return (end_ms - 1 - window.offset_ms) // window.size_ms * window.size_ms + window.offset_ms


def window_ends(window: SlicedWindow, slice_end_ms: int) -> Iterator[int]:
    """Yield the ends of all windows that contain a slice, earliest first."""
    match window:
        case Tumble():
            yield slice_end_ms
        case Hop():
            first = slice_end_ms + (window.size_ms + window.offset_ms - slice_end_ms) % window.slide_ms
            yield from range(first, last_window_end(window, slice_end_ms) + 1, window.slide_ms)
        case Cumulate():
            last = window_start(window, slice_end_ms) + window.size_ms
            yield from range(slice_end_ms, last + 1, window.step_ms)


def last_window_end(window: SlicedWindow, slice_end_ms: int) -> int:
    """Return the end of the last window that contains a slice.

    When that window has fired, the slice is no longer needed. The result is before `slice_end_ms`
    if no window contains the slice.
    """
    match window:
        case Tumble():
            return slice_end_ms
        case Hop():
            last = slice_end_ms + window.size_ms - window.slice_ms
            return last - (last - window.size_ms - window.offset_ms) % window.slide_ms
        case Cumulate():
            return window_start(window, slice_end_ms) + window.size_ms
