"""Fetch jars from Maven once per machine, with the Ivy that PySpark ships.

The jars go into `$EVERFOLD_CACHE` or `~/.cache/everfold`.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Coordinates = tuple[str, str, str]
"""Group, artifact and version."""


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
    """Return the directory `name` in the cache, which holds these jars and all their dependencies.

    The first call on a machine fetches them. The directory is either absent or complete.
    """
    target = cache_home() / name
    if not target.is_dir():
        with lock_file(target.with_name(f"{name}.lock")):
            if not target.is_dir():
                _fetch(target, jars)
    return target


def _fetch(target: Path, jars: Sequence[Coordinates]) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    module = staging / "ivy.xml"
    module.write_text(_ivy_module(jars), encoding="utf-8")
    command = [java_program(), "-jar", str(_ivy_jar()), "-cache", str(staging / "ivy"), "-ivy", str(module)]
    command += ["-retrieve", str(staging / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
    try:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"cannot fetch {target.name}:\n{done.stdout[-2000:]}")
        (staging / "jars").rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _ivy_module(jars: Sequence[Coordinates]) -> str:
    return "\n".join(
        [
            '<ivy-module version="2.0"><info organisation="everfold" module="tests"/>',
            '<configurations><conf name="default"/></configurations><dependencies>',
            *(f'<dependency org="{group}" name="{artifact}" rev="{version}"/>' for group, artifact, version in jars),
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
