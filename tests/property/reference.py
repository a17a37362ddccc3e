"""Windows computed row by row in plain Python: without slices, batches or operators.

Late rows follow Flink's rule with a watermark after each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from everfold.plan.windows import Cumulate, Hop, Session, Tumble, Window

Row = tuple[int, Any, int | None]
"""Time in ms, key, value."""
Result = tuple[Any, int, int, int, int | None, int | None]
"""Key, window start, window end, COUNT(*), SUM(value), MAX(value)."""


def windows_of(window: Window, at: int) -> list[tuple[int, int]]:
    """Return the windows that contain an instant, for a window function other than SESSION."""
    match window:
        case Tumble(size_ms=size, offset_ms=offset):
            start = at - (at - offset) % size
            return [(start, start + size)]
        case Hop(slide_ms=slide, size_ms=size, offset_ms=offset):
            last = at - (at - offset) % slide
            return [(start, start + size) for start in range(last, at - size, -slide)]
        case Cumulate(step_ms=step, size_ms=size, offset_ms=offset):
            start = at - (at - offset) % size
            return [(start, end) for end in range(start + step, start + size + 1, step) if end > at]
        case _:
            raise AssertionError(window)


@dataclass
class Reference:
    """Read rows one by one; `results` holds the rows emitted so far."""

    window: Window
    delay_ms: int
    watermark: int = -(1 << 62)
    late: int = 0
    open: dict[tuple[Any, int, int], list[int | None]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    def take(self, row: Row) -> None:
        at, key, value = row
        if isinstance(self.window, Session):
            self._merge(at, key, value, self.window.gap_ms)
        else:
            holders = [each for each in windows_of(self.window, at) if each[1] - 1 > self.watermark]
            self.late += not holders
            for start, end in holders:
                self.open.setdefault((key, start, end), []).append(value)
        self.watermark = max(self.watermark, at - self.delay_ms)
        self._fire(self.watermark)

    def end(self) -> list[Result]:
        """End the input and return all results."""
        self._fire(1 << 62)
        return sorted(self.results, key=repr)

    def _merge(self, at: int, key: Any, value: int | None, gap: int) -> None:
        start, end, values = at, at + gap, [value]
        touching = [each for each in self.open if each[0] == key and each[1] <= end and start <= each[2]]
        start = min([start, *(each[1] for each in touching)])
        end = max([end, *(each[2] for each in touching)])
        if end - 1 <= self.watermark:
            self.late += 1
            return
        for each in touching:
            values += self.open.pop(each)
        self.open[key, start, end] = values

    def _fire(self, watermark: int) -> None:
        for key, start, end in sorted(
            (each for each in self.open if each[2] - 1 <= watermark), key=lambda each: each[2]
        ):
            if isinstance(self.window, Cumulate):
                self._carry(key, start, end)
            self.results.append((key, start, end, *fold(self.open.pop((key, start, end)))))

    def _carry(self, key: Any, start: int, end: int) -> None:
        """Do nothing: each row was added to all its windows when it came."""


def fold(values: Sequence[int | None]) -> tuple[int, int | None, int | None]:
    """Return COUNT(*), SUM and MAX."""
    known = [value for value in values if value is not None]
    return len(values), sum(known) if known else None, max(known, default=None)


def compute_results(window: Window, rows: Iterable[Row], delay_ms: int) -> tuple[list[Result], int]:
    """Return all results in a fixed order, and the number of late rows."""
    reference = Reference(window, delay_ms)
    for row in rows:
        reference.take(row)
    return reference.end(), reference.late
