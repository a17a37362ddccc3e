"""Interrupting the kernel: the query stops after the running batch."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Stop:
    """Handles SIGINT in a block, in which a job calls `should_stop` between batches.

    The handler must not raise an exception, which py4j would swallow. Spark replaces it when its
    session starts, so `should_stop` installs it again. The second interrupt raises
    KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._wanted = False
        self._before: Any = None

    def __enter__(self) -> Stop:
        self._before = signal.getsignal(signal.SIGINT)
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before)

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        if self._wanted:
            raise KeyboardInterrupt
        self._wanted = True

    def should_stop(self) -> bool:
        """Return whether the kernel was interrupted."""
        self._listen()
        return self._wanted
