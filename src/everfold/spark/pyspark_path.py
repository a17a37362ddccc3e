"""Where Spark is installed, and how a JVM is told so that its Python workers start fast.

Spark puts `python/lib/pyspark.zip` of its home before all else on a worker's path, and what is in a zip is compiled anew by every process
that imports it: that is more than a second each. Workers on this machine run in the Python that PySpark is installed in, so they need no zip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everfold.cache import cache_folder

_NEEDED = ("bin", "jars", "conf")


def spark_home() -> Path:
    """SPARK_HOME, else the folder of PySpark, which is not imported."""
    named = os.environ.get("SPARK_HOME")
    if named:
        return Path(named)
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


@contextmanager
def without_zip() -> Iterator[None]:
    """A JVM that is started meanwhile takes for its home a folder of links to PySpark's, without `python/`.

    A SPARK_HOME that somebody has set stays, and so does PySpark's where no links can be made.
    """
    links = None if "SPARK_HOME" in os.environ else _links(spark_home())
    if links is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(links)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _links(home: Path) -> Path | None:
    folder = cache_folder() / f"spark-home-{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _NEEDED:
            if (home / name).exists():
                with suppress(FileExistsError):
                    (folder / name).symlink_to(home / name)
        return folder if (folder / "jars").samefile(home / "jars") else None
    except OSError:
        return None
