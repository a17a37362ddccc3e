"""Folders in which Spark keeps rows on its way between tasks, closed to other users.

By default, everyone on a machine can read the files of a shuffle in its temporary folder.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everfold.spark.pyspark_path import spark_home

_VARIABLE = "SPARK_LOCAL_DIRS"
_OPTION = "spark.local.dir"
_DEFAULT = re.compile(rf"^\s*{re.escape(_OPTION)}(?:\s*[=:]\s*|\s+)(\S.*?)\s*$", re.MULTILINE)
"""The option in a file of properties."""


@contextmanager
def private_local_folders(conf: Mapping[str, str]) -> Iterator[list[Path]]:
    """Let a JVM that is started in the block use folders that only this user can enter.

    Yields them. They are in those that the environment or the configuration of Spark names. One
    that cannot be made is left to Spark, which reports it.
    """
    given = os.environ.get(_VARIABLE)
    named = given or conf.get(_OPTION) or _read_default() or tempfile.gettempdir()
    names = [name.strip() for name in named.split(",")]
    folders: dict[str, Path] = {}
    for name in filter(None, names):
        try:
            os.makedirs(name, exist_ok=True)
            folders[name] = Path(tempfile.mkdtemp(prefix="everfold-spark-", dir=name))
        except OSError:
            continue
    os.environ[_VARIABLE] = ",".join(str(folders.get(name, name)) for name in names)
    try:
        yield [*folders.values()]
    finally:
        if given is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = given


def _read_default() -> str | None:
    """Return the folders that `spark-defaults.conf` names, None without them."""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")
    try:
        values = _DEFAULT.findall((folder / "spark-defaults.conf").read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return values[-1] if values else None


def remove_at_exit(jvm: Any, folders: list[Path]) -> None:
    """Let a JVM remove folders when it ends, also if this process is killed."""
    for folder in folders:
        jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))
