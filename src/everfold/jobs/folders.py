"""Job directories as users name them: a local path, or the URI of a folder in another store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from everfold.errors import UsageError
from everfold.local_paths import foreign_scheme, parse_local_path
from everfold.storage import Location, Store, local

FolderName: TypeAlias = Path | str
"""A local path, or the URI of a folder in another store."""
SCHEMES = ("s3a", "hdfs", "gs", "abfs", "abfss")
"""The other stores; `gs` and the last two were not tried."""
_S3 = ("s3", "s3n")


def parse_folder(text: str | os.PathLike[str]) -> FolderName:
    """Return a folder as users write it. Raises UsageError `file-system` for an unknown scheme."""
    scheme = foreign_scheme(os.fspath(text))
    if scheme in SCHEMES:
        return os.fspath(text).rstrip("/")
    if scheme in _S3:
        raise UsageError.of(
            "file-system",
            f"`{text}`: paths of `{scheme}` are not supported",
            help=f"write s3a{os.fspath(text)[len(scheme) :]}",
        )
    return parse_local_path(text)


def open_folder(folder: FolderName, connect: Callable[[], Store]) -> Location:
    """Return the location of a folder. connect: returns the store of a URI."""
    if isinstance(folder, str) and foreign_scheme(folder) is not None:
        return Location(folder, connect())
    return local(folder)


def open_folder_alone(folder: FolderName, conf: Mapping[str, str]) -> Location:
    """Return the location of a folder for a command that needs no Spark.

    conf: of Spark, for the store. Raises UsageError, ConnectorError.
    """

    def connect() -> Store:
        from everfold.spark.hadoop import connect_without_spark

        return connect_without_spark(conf)

    return open_folder(folder, connect)


def join_folder(folder: FolderName, *names: str) -> FolderName:
    """Return a folder below another one."""
    return folder.joinpath(*names) if isinstance(folder, Path) else "/".join((folder, *names))
