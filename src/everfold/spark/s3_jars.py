"""The jars for paths of S3: downloaded by `everfold check-setup --with s3`, then cached.

Imports nothing of Spark. The AWS SDK is large, so the jars are on the class paths of the driver and
the executors, and are never sent to an executor.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everfold.errors import ConnectorError
from everfold.files import cache_folder, remove_least_used
from everfold.spark.java import require_java
from everfold.spark.pyspark_path import spark_home

VERSION = "3.5.0"
"""The version of Hadoop in the supported Spark; hadoop-aws must have the same."""
_EXECUTORS = "spark.executor.extraClassPath"
_BEHIND_SPARK = "SPARK_DIST_CLASSPATH"
"""The variable with the end of the class path, for the launcher of a JVM of Spark."""
_POLL_S = 0.2
_KEPT = 2
"""Number of versions to keep in the cache, those downloaded last."""
_ATTEMPTS = 3
_URL = re.compile(r"(?:url )?https?://\S+")
_REASONS = ("Server access error", "No space left", r"(?i)invalid (sha1|md5)", "Exception", "not found", "FAILED")
"""What a line of Ivy's output has that names the reason of a failure, the best first."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar on Maven Central."""

    group: str
    artifact: str
    version: str
    size: int
    sha1: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.artifact}-{self.version}.jar"


JARS = (
    Jar("org.apache.hadoop", "hadoop-aws", VERSION, 938_071, "9e594525d264c0db653c7f68da98b245f7d61ea5"),
    Jar("software.amazon.awssdk", "bundle", "2.35.4", 686_119_507, "7252265e3970b214708e68a8b74a8fa8c875af1e"),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        2_473_459,
        "6c9bd0f6c440c9a78e82d272f5f0252d942419f6",
    ),
)


def s3_folder() -> Path:
    """Return the cache folder of the jars. It is absent or complete."""
    return cache_folder() / f"s3-{VERSION}"


def s3_class_path(jars: tuple[Jar, ...] = JARS) -> str | None:
    """Return the jars as a class path, None if they have not been downloaded."""
    files = [s3_folder() / jar.name for jar in jars]
    try:
        complete = all(file.stat().st_size == jar.size for file, jar in zip(files, jars, strict=True))
    except OSError:
        return None
    return os.pathsep.join(map(str, files)) if complete else None


def add_s3_to_executors(conf: Mapping[str, str]) -> dict[str, str]:
    """Return a conf with the jars after the class path of executors, unchanged without jars."""
    jars = s3_class_path()
    return dict(conf) if jars is None else {**conf, _EXECUTORS: _join(conf.get(_EXECUTORS), jars)}


@contextmanager
def s3_on_class_path() -> Iterator[None]:
    """Let a JVM started in the block have the jars, if they have been downloaded.

    They stand behind Spark's, since a class archive fits every class path that begins with its own.
    """
    jars = s3_class_path()
    if jars is None:
        yield
        return
    before = os.environ.get(_BEHIND_SPARK)
    os.environ[_BEHIND_SPARK] = _join(before, jars)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_BEHIND_SPARK]
        else:
            os.environ[_BEHIND_SPARK] = before


def download_s3_jars(report: Callable[[int, int], None], jars: tuple[Jar, ...] = JARS) -> Path:
    """Download the jars with the Ivy that Spark includes, and return their folder.

    report: receives the number of bytes so far and in total.

    Raises ConnectorError `store-jars`, UsageError `no-java`.
    """
    target = s3_folder()
    if s3_class_path(jars):
        return target
    java = require_java().program
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as staging:
            for attempt in range(1, _ATTEMPTS + 1):  # a server may fail once
                reason = _run_ivy(java, Path(staging), jars, report)
                if reason is None:
                    break
                if attempt == _ATTEMPTS:
                    raise _failed(reason)
            complete = _collect(Path(staging), jars)
            shutil.rmtree(target, ignore_errors=True)
            try:
                complete.rename(target)
                remove_least_used(target.parent.glob("s3-*"), _KEPT)
            except OSError:
                if not s3_class_path(jars):  # another process may have been faster
                    raise
    except OSError as error:
        raise _failed(error.strerror or str(error)) from error
    return target


def _join(before: str | None, jars: str) -> str:
    return os.pathsep.join(filter(None, [before, jars]))


def _run_ivy(java: Path, staging: Path, jars: tuple[Jar, ...], report: Callable[[int, int], None]) -> str | None:
    """Download the jars into a cache of Ivy. Return the reason of a failure."""
    module, log, cache = staging / "ivy.xml", staging / "log", staging / "ivy"
    module.write_text(_ivy_module(jars), encoding="utf-8")
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"))
    paths = staging / "paths"
    command: list[str | Path] = [java, "-jar", ivy, "-cache", cache, "-ivy", module, "-cachepath", paths]
    total = sum(jar.size for jar in jars)
    with log.open("wb") as out, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
        try:
            while process.poll() is None:
                report(min(total, _size(cache)), total)
                time.sleep(_POLL_S)
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        report(total, total)
        return None
    return _find_reason(log.read_text(errors="replace"))


def _find_reason(output: str) -> str:
    """Return the line of Ivy's output that tells the most about a failure."""
    lines = [line.strip(": \t") for line in output.splitlines()]
    found = (line for pattern in _REASONS for line in lines if re.search(pattern, line))
    return _URL.sub("the server", next(found, "Ivy failed"))[:200]


def _ivy_module(jars: tuple[Jar, ...]) -> str:
    needed = (
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false">'
        f'<artifact name="{jar.artifact}" type="jar"/></dependency>'
        for jar in jars
    )
    return "\n".join(
        [
            '<ivy-module version="2.0"><info organisation="everfold" module="s3"/>',
            '<configurations><conf name="default"/></configurations>',
            *("<dependencies>", *needed, "</dependencies></ivy-module>"),
        ]
    )


def _collect(staging: Path, jars: tuple[Jar, ...]) -> Path:
    """Move the downloaded jars into one folder. Raises ConnectorError if one is damaged."""
    complete = staging / "jars"
    complete.mkdir()
    for jar in jars:
        found = next((staging / "ivy").rglob(jar.name), None)
        if found is None or found.stat().st_size != jar.size or _sha1(found) != jar.sha1:
            raise _failed(f"{jar.name} does not have the expected checksum")
        found.rename(complete / jar.name)
    return complete


def _remove_abandoned(target: Path) -> None:
    """Remove what a killed download has left: files that have not changed for an hour."""
    for each in target.parent.glob(f".{target.name}-*"):
        newest = max((file.stat().st_mtime for file in [each, *each.rglob("*")]), default=0.0)
        if time.time() - newest > 3600:
            shutil.rmtree(each, ignore_errors=True)


def _sha1(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()


def _size(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_size
            except FileNotFoundError:  # a part that has just become complete
                continue
    return total


def _failed(reason: str) -> ConnectorError:
    names = " and ".join(f"{jar.group}:{jar.artifact}:{jar.version}" for jar in JARS)
    return ConnectorError.of(
        "store-jars",
        f"the jars for S3 could not be downloaded from Maven Central: {reason}",
        help=f"connect the machine to the network, or put the jars of {names} into {s3_folder()}",
    )
