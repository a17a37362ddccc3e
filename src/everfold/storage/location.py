"""A file or folder in a store."""

from __future__ import annotations

import errno
import fnmatch
import io
import posixpath
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from everfold.local_paths import escape_pattern
from everfold.storage.store import Entry, Store
from everfold.storage.stored_file import StoredFile

_THREADS = 16


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A file or folder in a store, whether it exists or not.

    path: see `Store`. The names of the methods are those of `pathlib.Path` where they do the same.
    All methods that access the store raise OSError.
    """

    path: str
    store: Store = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.path

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.path.rstrip('/')}/{name}", self.store)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> Location:
        """The folder that it lies in."""
        return Location(self.path.rpartition("/")[0] or "/", self.store)

    def with_name(self, name: str) -> Location:
        """Return another location in the same folder."""
        return self.parent / name

    def is_in(self, folder: Location) -> bool:
        """Whether the location is a folder or lies below it."""
        return self.path == folder.path or self.path.startswith(f"{folder.path.rstrip('/')}/")

    def relative_to(self, folder: Location) -> str:
        """Return the path from a folder to this location below it."""
        assert self.is_in(folder), f"{self} is not in {folder}"
        return self.path[len(folder.path) :].strip("/")

    @property
    def uri(self) -> str:
        """The path for Spark's writers and for its readers of one file or folder."""
        return self.store.to_uri(self.path)

    @property
    def pattern(self) -> str:
        """The path for Spark's readers, which take it for a glob."""
        return escape_pattern(self.uri)

    @property
    def local_path(self) -> Path | None:
        """The path on this machine, None in another store."""
        return Path(self.path) if self.store.is_local else None

    # --- reading ----------------------------------------------------------------------------------

    def find(self) -> Entry | None:
        """Return size and time of the file or folder, None if there is none."""
        return self.store.find(self.path)

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        return self.find() is not None

    def is_dir(self) -> bool:
        """Whether there is a folder."""
        found = self.find()
        return found is not None and found.is_folder

    def is_file(self) -> bool:
        """Whether there is a file."""
        found = self.find()
        return found is not None and not found.is_folder

    def iterdir(self) -> Iterator[Location]:
        """Yield what lies in the folder, by name; nothing if there is no folder."""
        yield from (self / each.name for each in self.store.list(self.path))

    def entries(self) -> Sequence[Entry]:
        """Return what lies in the folder with size and time, by name."""
        return self.store.list(self.path)

    def is_complete(self) -> bool:
        """Whether Spark has finished writing the folder."""
        return (self / "_SUCCESS").exists()

    def glob(self, pattern: str) -> Iterator[Location]:
        """Yield what lies below the folder at paths that match a pattern, by name."""
        first, _, rest = pattern.partition("/")
        if not any(char in first for char in "*?["):
            if rest:
                yield from (self / first).glob(rest)
            elif (self / first).exists():
                yield self / first
            return
        for each in self.store.list(self.path):
            if fnmatch.fnmatchcase(each.name, first):
                if not rest:
                    yield self / each.name
                elif each.is_folder:
                    yield from (self / each.name).glob(rest)

    def walk(self) -> Iterator[Location]:
        """Yield all files below the folder."""
        yield from (self / each.name for each in self.store.walk(self.path))

    def read_bytes(self) -> bytes:
        """Return the content of the file."""
        return self.store.read(self.path)

    def read_text(self) -> str:
        """Return the content of the file, which is UTF-8. Raises UnicodeDecodeError."""
        return self.read_bytes().decode()

    def open(self) -> BinaryIO:
        """Open the file for reading; a remote one is not copied."""
        found = self.find()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", self.path)
        return io.BufferedReader(StoredFile(self.store, self.path, found.size))

    # --- writing ----------------------------------------------------------------------------------

    def create(self, content: str | bytes) -> bool:
        """Create the file; return False if it exists already (`Store.create`)."""
        return self.store.create(self.path, _encode(content))

    def write(self, content: str | bytes) -> None:
        """Create or replace the file (`Store.write`)."""
        self.store.write(self.path, _encode(content))

    def copy_to(self, target: Location) -> None:
        """Copy the file or folder within its store (`Store.copy`)."""
        self.store.copy(self.path, target.path)

    def delete(self) -> None:
        """Delete the file, or the folder with everything below it, if it exists."""
        self.store.delete(self.path)

    def make_folder(self) -> None:
        """Create the folder and its parents where they are missing."""
        self.store.make_folder(self.path)


def run_all(function: Callable[..., object], arguments: Sequence[tuple[Any, ...]], *, parallel: bool) -> None:
    """Call a function with each of some arguments. parallel: several at a time."""
    if not parallel or len(arguments) < 2:
        for each in arguments:
            function(*each)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for done in [pool.submit(function, *each) for each in arguments]:
            done.result()


def _encode(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
