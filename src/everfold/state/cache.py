"""A content-addressed cache of decoded state frames.

A token is the digest of the bytes that a frame was decoded from, and the state that a batch starts
from lists its tokens. Equal tokens mean equal bytes, so a frame is never mistaken for that of
another version, attempt, partition or query. A missing frame is read from the state again: the
cache only saves time.

Frames are kept in this process up to a limit. With a folder they are also written to files, which
every worker of the host maps into its memory: Spark may run a partition in any of its workers, so
one worker need not fetch what another one has written. File errors are ignored.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import polars as pl

LIMIT_BYTES = 256 << 20
"""Maximum size of the frames in one process."""
FOLDER_SHARE = 0.5
"""Share of the disk not taken by other files that the folder may use."""
_MAX_MISSED = 100_000
"""Maximum number of frames whose misses are counted; the counting then starts again."""
_TIDY_EVERY_BYTES = 64 << 20


class FrameCache:
    """A least-recently-used cache of frames by token."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES, folder: Path | None = None) -> None:
        self._limit = limit_bytes
        self._folder = folder
        self._frames: OrderedDict[str, tuple[pl.DataFrame, int]] = OrderedDict()
        self._bytes = 0
        self._written = 0
        self._missed: dict[str, int] = {}

    def get(self, token: str) -> pl.DataFrame | None:
        """Return the frame of a token, None if it is not cached."""
        known = self._frames.get(token)
        if known is not None:
            self._frames.move_to_end(token)
            return known[0]
        if self._folder is None:
            return None
        with contextlib.suppress(OSError):
            path = self._path(token)
            frame = _map_file(path)
            os.utime(path)
            self._keep(token, frame, 0)
            return frame
        return None

    def put(self, token: str, frame: pl.DataFrame, *, shared: bool = True) -> None:
        """Cache a frame; `shared`: for the other workers of the host as well."""
        size = int(frame.estimated_size())
        self._missed.pop(token, None)
        if shared and self._folder is not None:
            with contextlib.suppress(OSError):
                self._write(token, frame, size)
                return
        self._keep(token, frame, size)

    def record_misses(self, token: str, count: int) -> int:
        """Record that `count` pages of a frame were fetched one by one; return the total so far."""
        if len(self._missed) >= _MAX_MISSED:
            self._missed.clear()
        self._missed[token] = self._missed.get(token, 0) + count
        return self._missed[token]

    def drop(self, token: str) -> None:
        """Remove a frame that the state no longer contains."""
        _, size = self._frames.pop(token, (None, 0))
        self._bytes -= size
        self._missed.pop(token, None)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._path(token).unlink(missing_ok=True)

    def _keep(self, token: str, frame: pl.DataFrame, size: int) -> None:
        _, before = self._frames.pop(token, (None, 0))
        self._frames[token] = frame, size
        self._bytes += size - before
        while self._bytes > self._limit and self._frames:
            _, (_, freed) = self._frames.popitem(last=False)
            self._bytes -= freed

    def _write(self, token: str, frame: pl.DataFrame, size: int) -> None:
        assert self._folder is not None
        path = self._path(token)
        if path.exists():
            return
        self._written += size
        if self._written > _TIDY_EVERY_BYTES:
            self._written = 0
            self._tidy(self._folder)
        handle, name = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                frame.rechunk().write_ipc(
                    file, compat_level=pl.CompatLevel.newest(), record_batch_size=max(1, frame.height)
                )
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise

    def _tidy(self, folder: Path) -> None:
        """Remove the least recently used files, and forget the frames whose files others have
        removed.
        """
        files = sorted(_files(folder), reverse=True)
        limit = FOLDER_SHARE * (shutil.disk_usage(folder).free + sum(size for _, size, _ in files))
        total = 0
        for _, size, path in files:
            total += size
            if total > limit:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        for token in [
            token for token, (_, size) in self._frames.items() if not size and not self._path(token).exists()
        ]:
            del self._frames[token]

    def _path(self, token: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{token}.arrow"


def _files(folder: Path) -> Iterator[tuple[float, int, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                yield status.st_mtime, status.st_size, entry.path


def _map_file(path: Path) -> pl.DataFrame:
    import pyarrow as pa

    frame = pl.from_arrow(pa.ipc.open_file(pa.memory_map(str(path))).read_all())
    assert isinstance(frame, pl.DataFrame)
    return frame


def shared_folder() -> Path | None:
    """Return a folder shared by this host's Spark workers; None outside a Spark worker.

    Spark removes the folder when it shuts down.
    """
    folders = os.environ.get("SPARK_LOCAL_DIRS")
    if not folders:
        return None
    folder = Path(folders.split(",")[0]) / "everfold-frames"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


_caches: dict[int, FrameCache] = {}


def frame_cache() -> FrameCache:
    """Return the cache of this process."""
    pid = os.getpid()
    if pid not in _caches:
        _caches.clear()
        _caches[pid] = FrameCache(folder=shared_folder())
    return _caches[pid]
