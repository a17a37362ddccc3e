"""Files and folders: private ones, atomic writes, links, and where the cache is."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents so that only their owner can enter them.

    A folder that already exists keeps its mode. Raises OSError.
    """
    for missing in [each for each in reversed(folder.parents) if not each.exists()]:
        missing.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def make_private_file(file: Path) -> None:
    """Create an empty file that only its owner can read.

    If the file exists, the permissions of other users are removed. Later writes keep the mode.
    Raises OSError.
    """
    handle = os.open(file, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) & ~PRIVATE_FOLDER:
            with suppress(PermissionError):  # it belongs to another user
                os.fchmod(handle, stat.S_IMODE(mode) & PRIVATE_FOLDER)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Replace a file in one step: readers see the old or the new content, even after a crash.

    private: only the owner can read the file. Raises OSError.
    """
    if private:
        make_private_folder(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.new")
    if private:
        make_private_file(part)
    with open(part, "wb") as out:
        out.write(content.encode() if isinstance(content, str) else content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(part, path)


def link(file: Path, target: Path) -> None:
    """Create a hard link to a file.

    On a file system without hard links the file is copied; the target appears when the copy is
    complete.
    """
    try:
        os.link(file, target)
    except OSError:
        hidden = target.with_name(f".{target.name}.new")
        shutil.copy2(file, hidden)
        os.rename(hidden, target)


def remove_least_used(found: Iterable[Path], keep: int) -> None:
    """Remove the files and folders of a cache but those that were used last.

    A use sets the modification time. File errors are ignored: another process may do the same.
    """
    used: list[tuple[float, Path]] = []
    for each in found:
        with suppress(OSError):
            used.append((each.stat().st_mtime, each))
    for _, each in sorted(used, reverse=True)[keep:]:
        with suppress(OSError):
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()


def use_cache_folder(folder: Path, *, keep: int) -> None:
    """Create a folder of the cache, and remove those next to it that were used least.

    keep: how many stay. Raises OSError.
    """
    make_private_folder(folder)
    os.utime(folder)
    remove_least_used(folder.parent.iterdir(), keep)


def cache_folder() -> Path:
    """Return the cache folder: `$EVERFOLD_CACHE`, or `~/.cache/everfold` by default.

    It may not exist yet. It holds only files that everfold can create or download again, so any of
    them may be deleted.
    """
    configured = os.environ.get("EVERFOLD_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "everfold"
