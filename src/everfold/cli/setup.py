"""`everfold check-setup`: check what everfold needs on this machine.

Imports none of the packages that it checks.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from everfold.errors import EverfoldError
from everfold.spark.archive import archive_of
from everfold.spark.java import require_java
from everfold.spark.s3_jars import download_s3_jars, s3_class_path, s3_folder

MIN_PYTHON = (3, 11)
MIN_DISK_BYTES = 1 << 30
MIN_MEMORY_BYTES = 2 << 30
_PACKAGES = {
    "pyspark": ((4, 2), (4, 3), "pip install 'everfold[spark]'"),
    "pandas": ((2, 2), (3, 0), "pip install 'everfold[spark]'"),
    "protobuf": ((5, 28), (8, 0), "pip install 'everfold[spark]'"),
    "polars": ((2, 1), (3, 0), "pip install 'polars>=2.1,<3'"),
    "pyarrow": ((18, 0), (27, 0), "pip install 'pyarrow>=18,<27'"),
    "duckdb": ((1, 4), (3, 0), "pip install 'duckdb>=1.4,<3'"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    found: what was found. todo: what to do if it is not sufficient, None if it is.
    """

    found: str
    todo: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the check passed."""
        return self.todo is None

    def line(self) -> str:
        """Return the result as one line."""
        return f"ok       {self.found}" if self.todo is None else f"missing  {self.found}: {self.todo}"


def run_checks(folder: Path) -> Iterator[Check]:
    """Yield the results of all checks. folder: where job directories would be created."""
    yield _python()
    yield _java()
    for name, (least, below, todo) in _PACKAGES.items():
        yield _package(name, least, below, todo)
    yield _disk(folder)
    yield _disk(Path(tempfile.gettempdir()))
    if (memory := _memory_bytes()) is not None:
        found = f"{memory / (1 << 30):.1f} GiB of memory"
        yield Check(found, None if memory >= MIN_MEMORY_BYTES else "the Spark JVM alone needs 2 GiB")


def check_fast_start(*, prepare: bool) -> Check:
    """Check for an archive of Spark's classes; prepare: create it.

    To be called only if all other checks passed.
    """
    if prepare:
        from everfold.jobs.class_archive_warmup import write_class_archive

        try:
            write_class_archive()
        except EverfoldError as error:
            return _failed_check(error)
    archive = archive_of(require_java())
    if archive is None:
        return Check(
            "no archive of Spark's classes yet; `everfold check-setup --prepare` creates one, for a faster start"
        )
    return Check(f"Spark's classes are archived for a fast start ({archive})")


def check_s3(*, download: bool) -> Check:
    """Check for the jars for S3. download: fetch missing ones, and show the progress."""
    if download and s3_class_path() is None:
        try:
            _download_s3()
        except EverfoldError as error:
            return _failed_check(error)
    if s3_class_path() is None:
        return Check("no classes for S3; `everfold check-setup --with s3` downloads them, for paths of `s3a`")
    return Check(f"classes for S3 ({s3_folder()})")


def _download_s3() -> None:
    import click

    with click.progressbar(length=1, label="downloading classes for S3", file=sys.stderr) as bar:

        def report(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        download_s3_jars(report)


def _python() -> Check:
    found = f"Python {'.'.join(map(str, sys.version_info[:3]))}"
    return Check(found, None if sys.version_info >= MIN_PYTHON else "everfold needs Python 3.11 or newer")


def _java() -> Check:
    try:
        java = require_java()
    except EverfoldError as error:
        return _failed_check(error)
    return Check(f"Java {java.version} ({java.program})")


def _failed_check(error: EverfoldError) -> Check:
    return Check(error.diagnostics[0].message, error.diagnostics[0].help)


def _package(name: str, least: tuple[int, int], below: tuple[int, int], todo: str) -> Check:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, todo)
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    return Check(f"{name} {version}", None if least <= numbers < below else todo)


def _disk(folder: Path) -> Check:
    existing = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    free = shutil.disk_usage(existing).free
    found = f"{free / (1 << 30):.1f} GiB free in {existing}"
    if not os.access(existing, os.W_OK):
        return Check(found, "the folder cannot be written to")
    return Check(found, None if free >= MIN_DISK_BYTES else "state and Spark's temporary files need at least 1 GiB")


def _memory_bytes() -> int | None:
    """Return the memory of the machine, None if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
