"""The runs of this process that have not ended, whose end is recorded if it exits at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_ends: list[Callable[[], None]] = []


@contextmanager
def end_at_exit(end: Callable[[], None]) -> Iterator[None]:
    """Let `stop_open_runs` call `end` while the block runs."""
    _ends.append(end)
    try:
        yield
    finally:
        _ends.remove(end)


def stop_open_runs() -> None:
    """Record that all open runs were stopped. A signal handler may call it before it exits."""
    for end in list(_ends):
        with suppress(Exception):  # the signal may have interrupted the writing of a record
            end()
