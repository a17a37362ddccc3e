"""Files that are there as a whole or not at all, and files that are nobody else's."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600


def make_private_folder(folder: Path) -> None:
    """Create a folder, and those above it that are missing, so that only their owner can enter them. A folder that exists keeps its mode. OSError."""
    for missing in [each for each in reversed(folder.parents) if not each.exists()]:
        missing.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def make_private_file(file: Path) -> None:
    """Create an empty file that only its owner can read; of a file that exists, take the rights of others away. Later writes keep its mode. OSError."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) & ~PRIVATE_FOLDER:
            with suppress(PermissionError):  # it belongs to another user
                os.fchmod(handle, stat.S_IMODE(mode) & PRIVATE_FOLDER)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Puts a file in place in one step: readers see what it was or what it is, also after a crash. private: only its owner can read it. OSError."""
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
    """Gives a file a second name. On a file system without links it is copied, and its name appears when it is whole."""
    try:
        os.link(file, target)
    except OSError:
        hidden = target.with_name(f".{target.name}.new")
        shutil.copy2(file, hidden)
        os.rename(hidden, target)
