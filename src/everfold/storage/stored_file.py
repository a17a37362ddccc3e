"""A file in a store, read piece by piece."""

from __future__ import annotations

import io
from typing import Any

from everfold.storage.store import Store


class StoredFile(io.RawIOBase):
    """A file for reading from any position. size: in bytes."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(self._size - self._at, 0))
        content = self._store.read_range(self._path, self._at, wanted) if wanted else b""
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
