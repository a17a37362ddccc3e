"""The download of the classes for S3, with a replacement for Ivy; and their class path."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everfold.errors import ConnectorError
from everfold.spark import s3_jars
from everfold.spark.java import Java
from everfold.spark.s3_jars import (
    Jar,
    add_s3_to_executors,
    download_s3_jars,
    s3_class_path,
    s3_folder,
    s3_on_class_path,
)

CONTENT = b"a jar"
JARS = (Jar("org.example", "part", "1.0", len(CONTENT), hashlib.sha1(CONTENT).hexdigest()),)
EXECUTORS = "spark.executor.extraClassPath"
DRIVER = "SPARK_DIST_CLASSPATH"


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path))
    monkeypatch.setattr(s3_jars, "require_java", lambda: Java(Path("java"), ""))


def use_ivy(monkeypatch: pytest.MonkeyPatch, content: bytes, failures: int = 0) -> list[Path]:
    """Replace Ivy by a function that fails and then writes a jar; return the folders of its calls."""
    calls: list[Path] = []

    def run(java: Path, staging: Path, jars: tuple[Jar, ...], report: Callable[[int, int], None]) -> str | None:
        calls.append(staging)
        if len(calls) <= failures:
            return "a server error"
        folder = staging / "ivy" / "org.example" / "jars"
        folder.mkdir(parents=True)
        (folder / jars[0].name).write_bytes(content)
        report(len(content), len(content))
        return None

    monkeypatch.setattr(s3_jars, "_run_ivy", run)
    return calls


def test_a_download_is_repeated_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = use_ivy(monkeypatch, CONTENT, failures=2)
    reported: list[Any] = []
    assert s3_class_path(JARS) is None
    for _ in range(2):
        assert download_s3_jars(lambda *of: reported.append(of), JARS) == s3_folder()
    assert len(calls) == 3
    assert reported == [(5, 5)]
    assert s3_class_path(JARS) == str(s3_folder() / "part-1.0.jar")
    assert [each.name for each in s3_folder().parent.iterdir()] == [s3_folder().name]


@pytest.mark.parametrize(
    ("content", "failures", "message"),
    [
        (b"A jar", 0, "does not have the expected checksum"),
        (b"a j", 0, "does not have the expected checksum"),
        (b"", 3, "a server error"),
    ],
)
def test_a_download_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, content: bytes, failures: int, message: str
) -> None:
    use_ivy(monkeypatch, content, failures)
    with pytest.raises(ConnectorError, match=f"store-jars.*{message}") as raised:
        download_s3_jars(lambda done, total: None, JARS)
    assert str(s3_folder()) in str(raised.value)
    assert not list(s3_folder().parent.iterdir())


def test_the_reason_is_found_in_the_output_of_ivy() -> None:
    output = """:::: WARNINGS
\t\tmodule not found: org.example#part;1.0
:::: ERRORS
\tServer access error at url https://repository.example/a/b (java.net.ConnectException: Connection refused)
"""
    reason = "Server access error at the server (java.net.ConnectException: Connection refused)"
    assert s3_jars._find_reason(output) == reason
    assert s3_jars._find_reason(output.partition(":::: ERRORS")[0]) == "module not found: org.example#part;1.0"
    assert s3_jars._find_reason("") == "Ivy failed"


def test_a_damaged_jar_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    use_ivy(monkeypatch, CONTENT)
    s3_folder().mkdir()
    (s3_folder() / "part-1.0.jar").write_bytes(b"a")
    assert s3_class_path(JARS) is None
    download_s3_jars(lambda done, total: None, JARS)
    assert (s3_folder() / "part-1.0.jar").read_bytes() == CONTENT


def test_executors_have_the_jars_after_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    assert add_s3_to_executors({"a": "b"}) == {"a": "b"}
    monkeypatch.setattr(s3_jars, "s3_class_path", lambda: "x.jar:y.jar")
    assert add_s3_to_executors({EXECUTORS: "own.jar"}) == {EXECUTORS: "own.jar:x.jar:y.jar"}


@pytest.mark.parametrize("before", [None, "own.jar"])
def test_a_driver_has_the_jars_at_the_end_of_its_class_path(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(DRIVER, raising=False)
    if before is not None:
        monkeypatch.setenv(DRIVER, before)
    with s3_on_class_path():
        assert os.environ.get(DRIVER) == before
    monkeypatch.setattr(s3_jars, "s3_class_path", lambda: "x.jar:y.jar")
    with s3_on_class_path():
        assert os.environ[DRIVER] == ("x.jar:y.jar" if before is None else "own.jar:x.jar:y.jar")
    assert os.environ.get(DRIVER) == before
