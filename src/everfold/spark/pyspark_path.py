"""PySpark: whether it is installed, where, and a home with which Python workers start fast.

Spark puts `python/lib/pyspark.zip` of its home first on a worker's path. Every process that imports
modules from a zip compiles them again, which takes more than a second. Workers on this machine run
in the Python that PySpark is installed in, so they do not need the zip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everfold.errors import UsageError
from everfold.files import cache_folder, remove_least_used

_PACKAGES = ("pyspark", "pandas", "google.protobuf")
_NEEDED = ("bin", "jars", "conf")
_KEPT = 20
"""Number of folders of links to keep, those used last: one for each installed Spark."""


def require_pyspark() -> None:
    """Check that the packages of the extra `spark` are installed, without importing them.

    Raises UsageError `engine-missing`.
    """
    missing = [name for name in _PACKAGES if not _is_installed(name)]
    if missing:
        raise UsageError.of(
            "engine-missing",
            f"this needs Spark, and the Python package `{missing[0]}` is not installed",
            help="pip install 'everfold[spark]'",
        )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def spark_home() -> Path:
    """Return SPARK_HOME, else the folder of PySpark, without importing it."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


@contextmanager
def spark_home_without_zip() -> Iterator[None]:
    """Let a JVM started in the block use a home with links to PySpark's, but without `python/`.

    An existing SPARK_HOME is kept. Without support for links, PySpark's own home is used.
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
        os.utime(folder)
        remove_least_used(folder.parent.glob("spark-home-*"), _KEPT)
        return folder if (folder / "jars").samefile(home / "jars") else None
    except OSError:
        return None
