"""The operations of a file system or an object store that jobs need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

UNFINISHED = (".part", ".new")
"""How the names of hidden files end that become other files when they are complete.

A process that is killed leaves them.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder as a store lists it.

    size: in bytes. modified_ms: since the epoch. content: identifies what several files share on a
    local disk by hard links, 0 elsewhere. links: how many files share it.
    """

    name: str
    is_folder: bool
    size: int = 0
    modified_ms: int = 0
    content: int = field(default=0, compare=False)
    links: int = field(default=1, compare=False)


class Store(Protocol):
    """A file system or an object store.

    Paths are absolute. A local one is written as usual (`/a/b`), another one as a URI
    (`s3a://bucket/a/b`). Files are complete: no reader sees a part of one. All methods raise
    OSError, with FileNotFoundError and PermissionError where they apply.
    """

    @property
    def is_local(self) -> bool:
        """Whether paths are those of this machine's file system."""
        ...

    def find(self, path: str) -> Entry | None:
        """Return a file or folder, None if there is none."""
        ...

    def list(self, folder: str) -> Sequence[Entry]:
        """Return what lies directly in a folder, by name; nothing if it does not exist."""
        ...

    def walk(self, folder: str) -> Sequence[Entry]:
        """Return all files below a folder; their names are paths relative to it."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        ...

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes of a file from a position; it has as many."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Create a file durably, and its folders; return False if it exists already.

        Of several writers exactly one gets True. The content must be unique to the writer: if the
        answer of the store is lost, the content tells who has won.
        """
        ...

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file durably, and create its folders.

        Only for files that one process alone writes.
        """
        ...

    def copy(self, old: str, new: str) -> None:
        """Copy a file, or a folder with all files below it, to a path where nothing lies yet.

        The copies may share their content with the originals, so both may only be replaced.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything below it, if it exists."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents where they are missing."""
        ...

    def to_uri(self, path: str) -> str:
        """Return a path as Spark takes it, with its scheme."""
        ...
