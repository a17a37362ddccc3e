"""The archive of Spark's classes with a real JVM: it is used, and an unusable archive is
ignored silently.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from everfold.spark.archive import archive_options, write_archive
from everfold.spark.java import Java, require_java
from everfold.spark.pyspark_path import spark_home

ROOT = Path(__file__).parents[2]
FROM_ARCHIVE = "shared objects file (top)"


@pytest.fixture(scope="module")
def java() -> Java:
    return require_java()


@pytest.fixture(scope="module")
def archive(java: Java, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Make an archive of the few classes of a small program."""
    path = tmp_path_factory.mktemp("archive") / "small.jsa"
    run(java, f"-XX:ArchiveClassesAtExit={path}", check=False)
    return path.read_bytes()


def run(java: Java, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a small Java program from Spark's jars."""
    (jar,) = (spark_home() / "jars").glob("scala-library-*.jar")
    command: list[str] = [str(java.program), *options, "-cp", str(jar), "scala.util.Properties"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=check)


def test_an_archive_is_used(java: Java, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path))
    with write_archive(java) as part:
        part.write_bytes(archive)
    loaded = run(java, *archive_options(java, ""), "-Xlog:class+load").stdout
    assert any(FROM_ARCHIVE in line and " scala." in line for line in loaded.splitlines())


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole: b"",
        lambda whole: b"no archive at all",
        lambda whole: whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :],
    ],
    ids=["empty", "not one", "a bit is wrong"],
)
def test_a_damaged_archive_is_ignored(
    java: Java, archive: bytes, damaged: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path))
    with write_archive(java) as part:
        part.write_bytes(damaged(archive))
    done = run(java, *archive_options(java, ""))
    plain = run(java)
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    loaded = run(java, *archive_options(java, ""), "-Xlog:class+load").stdout
    assert FROM_ARCHIVE not in loaded


def share_from_archive(log: Path) -> float:
    """Return the share of Spark's classes that a JVM has loaded from the archive."""
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line and "Lambda" not in line]
    return sum(FROM_ARCHIVE in line for line in loaded) / len(loaded)


def start_with_s3(java_option: str, environment: dict[str, str], folder: Path) -> None:
    """Start and stop a JVM as for a job in S3, with an empty jar as the jars for S3."""
    jar = folder / "s3.jar"
    with zipfile.ZipFile(jar, "w") as content:
        content.writestr("of-s3", "")
    program = f"""
from pathlib import Path
from everfold.spark import s3_jars, session
s3_jars.s3_class_path = lambda: {str(jar)!r}
conf = {{"spark.driver.extraJavaOptions": {java_option!r}}}
gateway = session.start_gateway(master=None, conf=conf, log_file=Path({str(folder / "spark.log")!r}), uses_s3=True)
loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
assert loader.getResource("of-s3") is not None
session.stop_jvm()
"""
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=120, check=True)


@pytest.mark.slow
def test_a_prepared_machine_starts_spark_from_the_archive(tmp_path: Path) -> None:
    environment = {**os.environ, "EVERFOLD_CACHE": str(tmp_path / "a cache")}

    def everfold(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "everfold", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=True
        )

    for _ in range(2):
        prepared = everfold("check-setup", "--prepare")
        (archive,) = (tmp_path / "a cache").glob("*.jsa")
        ok = f"ok       Spark's classes are archived for a fast start ({archive})"
        assert prepared.stdout.splitlines()[-2] == ok  # the last line is about S3
    log = tmp_path / "classes.log"
    watched = f"-Xlog:class+load:file={log}"
    done = everfold("run", "examples/bids/tumble.sql", "--conf", f"spark.driver.extraJavaOptions={watched}")
    assert share_from_archive(log) > 0.9
    assert done.stdout.splitlines()[-1] == "2 rows in set"
    start_with_s3(watched, environment, tmp_path)
    assert share_from_archive(log) > 0.9
    cut = archive.with_suffix(".cut")  # a separate file: a JVM that is still ending has the archive mapped
    cut.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    os.replace(cut, archive)
    again = everfold("run", "examples/bids/tumble.sql")
    assert again.stdout == done.stdout
