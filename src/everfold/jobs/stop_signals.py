"""Signals that stop a job in the foreground: Ctrl-C, SIGTERM, the interruption of a kernel."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class StopSignals:
    """Handles signals in a block, in which a job calls `should_stop` between batches.

    The first signal stops the job after the running batch, the second at once. A handler must not
    raise an exception while the job runs: py4j swallows it, and a lock that is about to be released
    stays locked. Spark replaces the handler of SIGINT when its session starts, and would abort the
    batch, so `should_stop` installs the handlers again.

    numbers: the signals. announce: called at the first signal. stop_at_once: called at the second.
    ends_start: whether the first signal already stops at once while the job has not called
    `should_stop` (yet, or ever, as in batch mode).
    """

    def __init__(
        self,
        *numbers: signal.Signals,
        stop_at_once: Callable[[], None],
        announce: Callable[[], None] = lambda: None,
        ends_start: bool = False,
    ) -> None:
        self._numbers, self._announce, self._stop_at_once = numbers, announce, stop_at_once
        self._may_wait = not ends_start
        self._before: dict[signal.Signals, Any] = {}
        self.wanted = False

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in self._numbers}
            self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _listen(self) -> None:
        for number in self._before:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.wanted or not self._may_wait:
            self._stop_at_once()
        self.wanted = True
        self._announce()

    def should_stop(self) -> bool:
        """Return whether the user wants the job to stop. The job calls this between batches."""
        self._may_wait = True
        if threading.current_thread() is threading.main_thread():
            self._listen()
        return self.wanted
