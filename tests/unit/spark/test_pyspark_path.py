"""The SPARK_HOME of the JVM: links to PySpark's, without its zip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everfold.spark.pyspark_path import spark_home, spark_home_without_zip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty cache and no SPARK_HOME."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_installed_pyspark_has_jars() -> None:
    assert list((spark_home() / "jars").glob("spark-core_*.jar"))


def test_the_home_has_programs_and_jars_but_no_zip() -> None:
    for _ in range(2):
        with spark_home_without_zip():
            home = Path(os.environ["SPARK_HOME"])
            assert (home / "bin" / "spark-submit").samefile(spark_home() / "bin" / "spark-submit")
            assert list((home / "jars").glob("spark-core_*.jar"))
            assert not (home / "python").exists()
        assert "SPARK_HOME" not in os.environ


def test_a_configured_home_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with spark_home_without_zip():
        assert os.environ["SPARK_HOME"] == str(tmp_path)
    assert os.environ["SPARK_HOME"] == str(tmp_path)


def test_without_a_cache_pysparks_own_home_is_used(cache: Path) -> None:
    cache.write_text("a file where a folder should be")
    with spark_home_without_zip():
        assert "SPARK_HOME" not in os.environ


def test_changed_links_are_not_followed(cache: Path, tmp_path: Path) -> None:
    with spark_home_without_zip():
        jars = Path(os.environ["SPARK_HOME"]) / "jars"
    jars.unlink()
    jars.symlink_to(tmp_path)
    with spark_home_without_zip():
        assert "SPARK_HOME" not in os.environ
