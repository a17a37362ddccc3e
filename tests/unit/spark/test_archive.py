"""The archive of Spark's classes: what its name depends on, when it is used, and that it is
complete or absent.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everfold.spark.archive import archive_of, archive_options, write_archive
from everfold.spark.java import Java

JAVA = Java(Path("/opt/java/bin/java"), 'openjdk version "17.0.15" 2025-04-15')


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an installation of Spark with two jars, and an empty cache."""
    home = tmp_path / "spark"
    for name in ("spark-core.jar", "spark-sql.jar"):
        jar = home / "jars" / name
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(b"classes")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))
    return home


def make(java: Java = JAVA, content: bytes = b"archive") -> Path:
    with write_archive(java) as part:
        part.write_bytes(content)
    made = archive_of(java)
    assert made is not None
    return made


def test_an_archive_is_found_for_its_java_and_its_jars(tmp_path: Path) -> None:
    assert archive_of(JAVA) is None
    archive = make()
    assert archive.parent == tmp_path / "cache"
    assert archive_of(Java(Path("/usr/bin/java"), JAVA.version_output)) == archive


def test_an_archive_does_not_fit_another_java() -> None:
    make()
    assert archive_of(Java(JAVA.program, 'openjdk version "21.0.2" 2024-01-16')) is None


def test_an_archive_does_not_fit_other_jars(spark_home: Path) -> None:
    """The JVM compares names, sizes and times: all of them must be part of the archive's name."""
    jar = spark_home / "jars" / "spark-sql.jar"
    make()
    jar.write_bytes(b"other classes")
    assert archive_of(JAVA) is None
    make()
    os.utime(jar, (1, 1))
    assert archive_of(JAVA) is None
    make()
    jar.rename(jar.with_name("spark-sql-2.jar"))
    assert archive_of(JAVA) is None
    make()
    (spark_home / "jars" / "more.jar").write_bytes(b"")
    assert archive_of(JAVA) is None


def test_an_archive_does_not_fit_the_same_jars_elsewhere(spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    moved = spark_home.rename(spark_home.with_name("moved"))
    monkeypatch.setenv("SPARK_HOME", str(moved))
    assert archive_of(JAVA) is None


def test_an_existing_archive_is_used() -> None:
    assert archive_options(JAVA, "") == []
    archive = make()
    assert f"-XX:SharedArchiveFile={archive}" in archive_options(JAVA, "-Xss4m")


@pytest.mark.parametrize("given", ["-XX:ArchiveClassesAtExit=own.jsa", "-Xss4m -XX:SharedArchiveFile=own.jsa"])
def test_an_archive_of_the_user_takes_precedence(given: str) -> None:
    make()
    assert archive_options(JAVA, given) == []


def test_a_truncated_archive_is_ignored() -> None:
    archive = make()
    archive.write_bytes(archive.read_bytes()[:-1])
    assert archive_of(JAVA) is None
    assert make() == archive


def test_an_unreadable_cache_has_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "file"))
    assert archive_options(JAVA, "") == []


def test_an_interrupted_write_leaves_no_file(tmp_path: Path) -> None:
    def interrupt() -> None:
        with write_archive(JAVA) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    with write_archive(JAVA):
        pass
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_concurrent_writes_leave_a_complete_archive() -> None:
    with write_archive(JAVA) as first:
        first.write_bytes(b"fi")
        assert make(content=b"other").read_bytes() == b"other"
        first.write_bytes(b"first")
    archive = archive_of(JAVA)
    assert archive is not None
    assert archive.read_bytes() == b"first"


def test_the_most_recently_used_archives_are_kept() -> None:
    """Several installations of Spark can each have one."""
    javas = [Java(JAVA.program, f'openjdk version "{version}.0.1"') for version in range(9)]
    for age, java in enumerate(javas[:8]):
        os.utime(make(java), (1_000 + age, 1_000 + age))
    archive_options(javas[0], "")
    make(javas[8])
    assert [archive_of(java) is not None for java in javas] == [True, False, *[True] * 7]
