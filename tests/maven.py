"""Fetch jars from Maven once per machine, with the Ivy that PySpark ships.

The jars go into `$EVERFOLD_CACHE` or `~/.cache/everfold`.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Coordinates = tuple[str, str, str]
"""Group, artifact and version."""
_WITHOUT_POMS = """\
<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
"""Settings for an archive, which has no dependencies."""


def java_program() -> str:
    """Return the `java` to run: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise RuntimeError("Java 17 is needed: install a JDK or set JAVA_HOME")
    return found


def cache_home() -> Path:
    """Return the directory for downloads: `$EVERFOLD_CACHE`, else `~/.cache/everfold`."""
    configured = os.environ.get("EVERFOLD_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "everfold"


def fetch_jars(name: str, jars: Sequence[Coordinates]) -> Path:
    """Return the directory `name` in the cache, which holds these jars and all that they need to run.

    The first call on a machine fetches them. The directory is either absent or complete.
    """
    target = cache_home() / name
    if not target.is_dir():
        with lock_file(target.with_name(f"{name}.lock")):
            if not target.is_dir():
                _fetch(target, [_dependency(*each) for each in jars])
    return target


def fetch_archive(name: str, archive: Coordinates, classifier: str) -> Path:
    """Return the directory `name` in the cache with the content of a `tar.gz` archive.

    classifier: the part of the file's name after the version.
    """
    target = cache_home() / name
    if not target.is_dir():
        with lock_file(target.with_name(f"{name}.lock")):
            if not target.is_dir():
                group, artifact, version = archive
                more = f'<artifact name="{artifact}" type="tgz" ext="tar.gz" m:classifier="{classifier}"/>'
                _fetch(target, [_dependency(group, artifact, version, more)], unpack=True)
    return target


def _fetch(target: Path, dependencies: Sequence[str], *, unpack: bool = False) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    module = staging / "ivy.xml"
    module.write_text(_ivy_module(dependencies), encoding="utf-8")
    command = [java_program(), "-jar", str(_ivy_jar()), "-cache", str(staging / "ivy"), "-ivy", str(module)]
    command += ["-retrieve", str(staging / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
    if unpack:
        settings = staging / "settings.xml"
        settings.write_text(_WITHOUT_POMS, encoding="utf-8")
        command += ["-settings", str(settings)]
    try:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"cannot fetch {target.name}:\n{done.stdout[-2000:]}")
        if unpack:
            [archive] = (staging / "jars").iterdir()
            with tarfile.open(archive) as content:
                content.extractall(staging / "content", filter="data")
        (staging / ("content" if unpack else "jars")).rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _dependency(group: str, artifact: str, version: str, more: str = "") -> str:
    # Other configurations are sources, documentation, and what the jar's own tests need. Ivy can take
    # a test jar among them for the jar of the same name.
    names = f'org="{group}" name="{artifact}" rev="{version}" conf="default->default"'
    return f'<dependency {names} transitive="false">{more}</dependency>' if more else f"<dependency {names}/>"


def _ivy_module(dependencies: Sequence[str]) -> str:
    return "\n".join(
        [
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
            '<info organisation="everfold" module="tests"/>',
            '<configurations><conf name="default"/></configurations><dependencies>',
            *dependencies,
            "</dependencies></ivy-module>",
        ]
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec, "PySpark is a dependency"
    assert spec.origin, "PySpark is a package with a file"
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold a lock file, so that only one of several processes runs the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
