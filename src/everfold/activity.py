"""What everfold is doing, for people who wait: "starting Spark", "resuming after batch 14".

Activities are messages of the logger `everfold.activity` at level INFO. The command line shows
them; a Python program sees them if it configures that logger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

Printing: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Returns a context in which other output may be printed: activities are not shown meanwhile."""

_LOGGER = logging.getLogger("everfold.activity")


def report_activity(text: str) -> None:
    """Report that something begins which may take longer than half a second.

    text: what it is, as a phrase: "starting Spark". It lasts until the next activity, or until the
    job reports progress. An empty string ends it.
    """
    _LOGGER.info("%s", text)


class _Listener(logging.Handler):
    def __init__(self, listen: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._listen = listen

    def emit(self, record: logging.LogRecord) -> None:
        self._listen(record.getMessage())


@contextmanager
def listen_to_activities(listen: Callable[[str], None]) -> Iterator[None]:
    """Call a function with each activity that begins in the block, in any thread."""
    listener, level, propagate = _Listener(listen), _LOGGER.level, _LOGGER.propagate
    _LOGGER.addHandler(listener)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.removeHandler(listener)
        _LOGGER.setLevel(level)
        _LOGGER.propagate = propagate
