"""Files that are there as a whole or not at all, and files that are nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600


def make_private_folder(folder: Path) -> None:
    """Makes a folder that only its owner can enter, unless it is there: then its mode is somebody's choice. OSError."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def make_private_file(file: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists; later writes keep its mode. OSError."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))


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
