"""Where an operator's bucket keeps its pages: a few blobs under typed keys. Spark's MapState is one, a dict in memory another."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PageKey(NamedTuple):
    """Names a page of a bucket.

    `epoch`: raised when the operator is reset. `table`: which keyed table of the operator ("head", "slices", "sessions", …).
    `at`: a slice's end in ms, or another range of the table. `part`: hash part or run within it.
    """

    epoch: int
    table: str
    at: int
    part: int


class Store(Protocol):
    """The pages of one bucket of one operator. Writes become visible at once and last when the batch commits."""

    def get(self, key: PageKey) -> bytes | None:
        """The page, None if there is none."""

    def put(self, key: PageKey, blob: bytes) -> None:
        """Writes a page, in place of the one that may be there."""

    def delete(self, key: PageKey) -> None:
        """Removes a page; no error if there is none."""


class MemoryStore:
    """A store in a dict: for the in-process runner and for tests."""

    def __init__(self) -> None:
        self.pages: dict[PageKey, bytes] = {}

    def get(self, key: PageKey) -> bytes | None:
        return self.pages.get(key)

    def put(self, key: PageKey, blob: bytes) -> None:
        self.pages[key] = blob

    def delete(self, key: PageKey) -> None:
        self.pages.pop(key, None)
