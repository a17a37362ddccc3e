"""Create the environment in which Flink is measured, in `.venv-flink` next to this file: PyFlink's
pins clash with PySpark's.

    python flink_environment.py    # creates it if necessary, prints its Python and the jars
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FLINK_VERSION = "2.3.0"
PYTHON_VERSION = "3.11"
VENV = Path(__file__).resolve().parent / ".venv-flink"
PARQUET, KAFKA = ("flink-sql-parquet", FLINK_VERSION), ("flink-sql-connector-kafka", "5.0.0-2.2")
"""Artifacts of Maven and their versions. The newest Kafka connector was built for Flink 2.2."""
_UV = (sys.executable, "-m", "uv")


def flink_python() -> Path:
    """Return the interpreter that has PyFlink. The first call installs it, which takes minutes."""
    python = VENV / "bin" / "python"
    if not (VENV / "installed").exists():
        _run_quietly([*_UV, "venv", "--quiet", "--clear", "--python", PYTHON_VERSION, str(VENV)])
        _run_quietly([*_UV, "pip", "install", "--quiet", "--python", str(python), f"apache-flink=={FLINK_VERSION}"])
        (VENV / "installed").touch()
    return python


def flink_jars() -> list[Path]:
    """Return the jars that Flink needs to read Parquet and Kafka: its own from Maven, through the
    Ivy inside PySpark, and Hadoop from PySpark's jars.
    """
    hadoop = [next(_pyspark_jars().glob(f"hadoop-client-{part}-*.jar")) for part in ("api", "runtime")]
    return [_fetch_jar(*PARQUET), _fetch_jar(*KAFKA), *hadoop]


def flink_shell() -> Path:
    """Return the program of the SQL client. PyFlink has it, but not the gateway that it needs."""
    (home,) = flink_python().parent.parent.glob("lib/python*/site-packages/pyflink")
    jar = _fetch_jar("flink-sql-gateway", FLINK_VERSION)
    if not (home / "opt" / jar.name).exists():
        shutil.copy(jar, home / "opt")
    return home / "bin" / "sql-client.sh"


def _fetch_jar(artifact: str, version: str) -> Path:
    name = f"{artifact}-{version}.jar"
    jar = _cache_home() / f"flink-{FLINK_VERSION}" / name
    if jar.exists():
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    ivy = next(_pyspark_jars().glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
        command = ["java", "-jar", str(ivy), "-cache", f"{folder}/ivy", "-confs", "default", "-notransitive"]
        command += ["-dependency", "org.apache.flink", artifact, version]
        _run_quietly([*command, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"])
        shutil.move(Path(folder, name), jar)
    return jar


def _cache_home() -> Path:
    configured = os.environ.get("EVERFOLD_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "everfold"


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec, "PySpark is a dependency"
    assert spec.origin, "PySpark is a package with a file"
    return Path(spec.origin).parent / "jars"


def _run_quietly(command: list[str]) -> None:
    """Run a command. Show its output only if it fails."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}")


if __name__ == "__main__":
    print(flink_python())
    print(":".join(map(str, flink_jars())))
