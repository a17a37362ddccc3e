"""Change files of Spark in a checkpoint, each with its checksum file.

A file may share its content with one in another checkpoint, so it is replaced and never written to.
"""

from __future__ import annotations

from everfold.storage import Location


def replace_file(file: Location, content: str) -> None:
    """Replace the content of a file and drop its checksum."""
    file.write(content)
    _drop_checksum(file)


def remove_file(file: Location) -> None:
    """Remove a file and its checksum."""
    file.delete()
    _drop_checksum(file)


def _drop_checksum(file: Location) -> None:
    """Delete the checksum file that Hadoop keeps with a local file."""
    if file.store.is_local:
        file.with_name(f".{file.name}.crc").delete()
