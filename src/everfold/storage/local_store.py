"""The local file system as a store: copies are hard links, and only the owner can read files."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from everfold.files import link, make_private_folder, write_atomically
from everfold.local_paths import spark_path
from everfold.storage.location import Location
from everfold.storage.store import Entry


class LocalStore:
    """See `Store`."""

    is_local = True

    def find(self, path: str) -> Entry | None:
        try:
            return _describe(os.path.basename(path), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, folder: str) -> Sequence[Entry]:
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(filter(None, map(_describe_entry, entries)), key=lambda each: each.name)

    def walk(self, folder: str) -> Sequence[Entry]:
        found: list[Entry] = []
        for place, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(place, name)
                with suppress(FileNotFoundError):  # it was just deleted, or is a broken link
                    found.append(_describe(os.path.relpath(path, folder), os.stat(path)))
        return sorted(found, key=lambda each: each.name)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(length)

    def create(self, path: str, content: bytes) -> bool:
        target = Path(path)
        make_private_folder(target.parent)
        part = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.part")
        write_atomically(part, content, private=True)
        try:
            os.link(part, target)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            return _create_alone(target, content)
        finally:
            part.unlink()
        _sync_folder(target.parent)
        return True

    def write(self, path: str, content: bytes) -> None:
        write_atomically(Path(path), content, private=True)

    def copy(self, old: str, new: str) -> None:
        if not os.path.isdir(old):
            make_private_folder(Path(new).parent)
            link(Path(old), Path(new))
            return
        make_private_folder(Path(new))
        for each in self.list(old):
            self.copy(f"{old}/{each.name}", f"{new}/{each.name}")

    def delete(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def make_folder(self, path: str) -> None:
        make_private_folder(Path(path))

    def to_uri(self, path: str) -> str:
        return spark_path(Path(path))


LOCAL = LocalStore()


def local(path: str | os.PathLike[str]) -> Location:
    """Return a location on this machine; links in the path are followed."""
    return Location(os.path.realpath(path), LOCAL)


def _describe(name: str, status: os.stat_result) -> Entry:
    return Entry(
        name,
        stat.S_ISDIR(status.st_mode),
        status.st_size,
        status.st_mtime_ns // 1_000_000,
        status.st_ino,
        status.st_nlink,
    )


def _describe_entry(entry: os.DirEntry[str]) -> Entry | None:
    """Return an entry of a folder, None if it was deleted meanwhile."""
    try:
        return _describe(entry.name, entry.stat())
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _create_alone(path: Path, content: bytes) -> bool:
    """Create a file where hard links are not possible: a reader may see it while it is written."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with open(handle, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    return True
