"""The class data archive of Spark, which the JVM maps instead of loading and linking each class.

This is Java's class data sharing. An archive is written once, by a warm-up run
(`jobs.class_archive_warmup`), and used at every later start with the same Java and the same jars.
The JVM checks these itself, and starts without an archive that does not match.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everfold.files import cache_folder, remove_least_used
from everfold.spark.java import Java
from everfold.spark.pyspark_path import spark_home

_NAME = "spark-classes-"
_KEPT = 8
"""Number of archives to keep, those used last. Each has about 170 MB, for one installed Spark."""
_USE = ("-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off", "-Xlog:class+path=off")
"""The JVM silently ignores an archive that is damaged or written by another Java.

A truncated one would crash it, so `archive_of` checks the size.
"""


def archive_of(java: Java) -> Path | None:
    """Return the archive for a Java and the installed Spark, None if there is no complete one."""
    for each in cache_folder().glob(f"{_name(java)}-*.jsa"):
        if each.stem.endswith(f"-{each.stat().st_size}"):
            return each
    return None


def archive_options(java: Java, given: str) -> list[str]:
    """Return the JVM options that use the archive.

    given: the options of the caller. There are none if these specify an archive, or if none exists.
    """
    if "ArchiveClassesAtExit" in given or "SharedArchiveFile" in given:
        return []
    try:
        archive = archive_of(java)
        if archive is None or os.pathsep in str(archive):  # the JVM would read such a path as several archives
            return []
        os.utime(archive)
    except OSError:
        return []
    return [f"-XX:SharedArchiveFile={archive}", *_USE]


@contextmanager
def write_archive(java: Java) -> Iterator[Path]:
    """Provide a path to write the archive to.

    A file at that path is moved to its final name after the block, but not after an error.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{_NAME}", dir=folder) as hidden:
        part = Path(hidden) / "part.jsa"
        yield part
        if part.is_file():
            os.replace(part, folder / f"{_name(java)}-{part.stat().st_size}.jsa")
            # A JVM that has mapped one can still read it.
            remove_least_used(folder.glob(f"{_NAME}*.jsa"), _KEPT)


def _name(java: Java) -> str:
    """Return the file name of the archives for a Java and the installed Spark, without their size.

    The JVM accepts an archive only with unchanged jars at the same location, so the name has a hash
    of these.
    """
    jars = spark_home() / "jars"
    known = [java.version_output, str(jars)]
    for jar in sorted(jars.glob("*.jar")):
        status = jar.stat()
        known.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    return _NAME + hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
