"""Stores of a bucket's pages: a few blobs under typed keys, in Spark's MapState or a dict in
memory.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PageKey(NamedTuple):
    """The key of a page of a bucket.

    epoch: raised when the operator is reset. table: the keyed table of the operator ("head",
    "slices", "sessions", …). at: a slice's end in ms, or another range of the table. part: the hash
    part or run within it.
    """

    epoch: int
    table: str
    at: int
    part: int


class Store(Protocol):
    """The pages of one bucket of one operator.

    Writes are visible at once and durable when the batch commits.
    """

    def get(self, key: PageKey) -> bytes | None:
        """Return the page, None if there is none."""

    def put(self, key: PageKey, blob: bytes) -> None:
        """Write a page, replacing an existing one."""

    def delete(self, key: PageKey) -> None:
        """Remove a page; do nothing if there is none."""


class MemoryStore:
    """A store in a dict, for the in-process runner and tests."""

    def __init__(self) -> None:
        self.pages: dict[PageKey, bytes] = {}

    def get(self, key: PageKey) -> bytes | None:
        return self.pages.get(key)

    def put(self, key: PageKey, blob: bytes) -> None:
        self.pages[key] = blob

    def delete(self, key: PageKey) -> None:
        self.pages.pop(key, None)
