"""Change files of Spark in a checkpoint, each with its checksum file.

A file may be a hard link to one in another checkpoint, so it is replaced and never written to.
"""

from __future__ import annotations

from pathlib import Path

from everfold.files import link, write_atomically


def replace_file(file: Path, content: str) -> None:
    """Replace the content of a file and drop its checksum."""
    write_atomically(file, content)
    _checksum_file(file).unlink(missing_ok=True)


def remove_file(file: Path) -> None:
    """Remove a file and its checksum."""
    file.unlink()
    _checksum_file(file).unlink(missing_ok=True)


def _checksum_file(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def link_folder(old: Path, new: Path) -> None:
    """Copy a folder by hard links."""
    new.mkdir()
    for source in sorted(old.rglob("*")):
        target = new / source.relative_to(old)
        if source.is_dir():
            target.mkdir()
        else:
            link(source, target)
