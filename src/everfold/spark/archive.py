"""The archive of Spark's classes: the JVM maps it at its start instead of finding, checking and linking each class anew.

It is what Java calls class data sharing. An archive is made once, by a run that goes through it for its sake (`jobs.class_archive_warmup`), and serves
every later start with the same Java and the same jars. The JVM compares them itself, and starts without an archive that is not its own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everfold.cache import cache_folder
from everfold.spark.java import Java
from everfold.spark.pyspark_path import spark_home

_NAME = "spark-classes-"
_KEPT = 3
"""How many archives are kept, each of about 170 MB: those of the Javas and environments that were used last."""
_USE = ("-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off", "-Xlog:class+path=off")
"""An archive that is damaged or another Java's is passed over without a word. One that is cut off would crash the JVM: that we look for."""


def archive_of(java: Java) -> Path | None:
    """The archive for a Java and the installed Spark, None when there is none, or none that is whole."""
    for each in cache_folder().glob(f"{_name(java)}-*.jsa"):
        if each.stem.endswith(f"-{each.stat().st_size}"):
            return each
    return None


def archive_options(java: Java, given: str) -> list[str]:
    """The options that make a JVM use the archive, if there is one and the caller's options name none."""
    if "ArchiveClassesAtExit" in given or "SharedArchiveFile" in given:
        return []
    try:
        archive = archive_of(java)
        if archive is None or os.pathsep in str(archive):  # the JVM would read several archives in such a path
            return []
        os.utime(archive)
    except OSError:
        return []
    return [f"-XX:SharedArchiveFile={archive}", *_USE]


@contextmanager
def written(java: Java) -> Iterator[Path]:
    """A place to write the archive at. It gets its name when the block is done; without a file there, or after an error, it never does."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{_NAME}", dir=folder) as hidden:
        part = Path(hidden) / "part.jsa"
        yield part
        if part.is_file():
            os.replace(part, folder / f"{_name(java)}-{part.stat().st_size}.jsa")
            _forget(folder)


def _name(java: Java) -> str:
    """What the archives for a Java and the installed Spark are called, up to their size in bytes.

    The JVM takes an archive only with the jars that it was made with, in the same place and unchanged: so all of that is in the name.
    """
    jars = spark_home() / "jars"
    known = [java.said, str(jars)]
    for jar in sorted(jars.glob("*.jar")):
        status = jar.stat()
        known.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    return _NAME + hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


def _forget(folder: Path) -> None:
    """Removes the archives that were not used for longest; a JVM that has one mapped keeps it."""
    found = sorted(folder.glob(f"{_NAME}*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in found[_KEPT:]:
        each.unlink(missing_ok=True)
