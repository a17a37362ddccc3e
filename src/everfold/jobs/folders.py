"""Job directories as users name them: a local path, or the URI of a folder in another store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from everfold.activity import report_activity
from everfold.local_paths import foreign_scheme, is_remote, parse_local_path, require_no_credentials
from everfold.plan.nodes import Root, Sink
from everfold.plan.walk import tables_read
from everfold.storage import Location, Store, local

FolderName: TypeAlias = Path | str
"""A local path, or the URI of a folder in another store."""


def needs_s3(folder: FolderName | None, roots: Sequence[Root]) -> bool:
    """Return whether a job directory or a table of some plans is in S3."""
    written = (root.table for root in roots if isinstance(root, Sink))
    tables = [dict(table.options) for table in (*tables_read(roots), *written)]
    paths = [options.get(name, "") for options in tables for name in ("path", "table-path")]
    return any(foreign_scheme(str(each)) == "s3a" for each in (folder or "", *paths))


def parse_folder(text: str | os.PathLike[str]) -> FolderName:
    """Return a folder as users write it.

    Raises UsageError `file-system` for an unknown scheme, `credentials-in-path`.
    """
    path = os.fspath(text)
    if not is_remote(path):
        return parse_local_path(path)
    require_no_credentials(path)
    return path.rstrip("/")


def open_folder(folder: FolderName, connect: Callable[[], Store]) -> Location:
    """Return the location of a folder. connect: returns the store of a URI."""
    if isinstance(folder, str) and is_remote(folder):
        return Location(folder, connect())
    return local(folder)


def open_folder_alone(folder: FolderName, conf: Mapping[str, str]) -> Location:
    """Return the location of a folder for a command that needs no Spark.

    conf: of Spark, for the store. Raises UsageError, ConnectorError.
    """

    def connect() -> Store:
        from everfold.spark.pyspark_path import require_pyspark

        require_pyspark()
        from everfold.spark.hadoop import connect_without_spark

        report_activity(f"connecting to {folder}")
        return connect_without_spark(conf)

    return open_folder(folder, connect)


def join_folder(folder: FolderName, *names: str) -> FolderName:
    """Return a folder below another one."""
    return folder.joinpath(*names) if isinstance(folder, Path) else "/".join((folder, *names))
