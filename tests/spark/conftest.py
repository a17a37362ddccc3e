"""One Spark session and one Kafka broker for all tests that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import kafka_broker
from jvm import SHORT_LIVED_DRIVER
from spark.running import Run, runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["kafka_broker", "run", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Create a session as a caller may have it, with custom configuration."""
    from everfold.spark.session import start_spark

    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start_spark(master="local[2]", conf=SHORT_LIVED_DRIVER, log_file=log_file)
    yield session
    session.stop()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the current one."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run `everfold run job.sql` in the test's folder."""
    monkeypatch.chdir(tmp_path)
    return runner(spark, monkeypatch, capsys)
