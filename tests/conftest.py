"""Settings, fixtures and markers for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from postgres import database, postgres_server
from s3 import s3_jars, s3_server
from warm_process import warm_process

__all__ = ["database", "postgres_server", "s3_jars", "s3_server", "warm_process"]

settings.register_profile("everfold", deadline=None, print_blob=True)
settings.load_profile("everfold")
os.environ.setdefault("POLARS_MAX_THREADS", "2")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need Spark, Kafka, Flink or PostgreSQL, and run the Java ones last.

    The markers follow from a test's directory and its fixtures.

    With several workers (`-n 2 --dist loadgroup`), one worker runs all Java tests from the
    beginning, in one Spark session and with one broker, and the others run the rest. Slow tests run
    on any worker. Where case files run on Spark, each worker has a session for the files that it
    gets.

    `tryfirst`: xdist reads the groups in its own hook.
    """
    grouped = getattr(config.option, "loadgroup", False)
    root = Path(__file__).parent
    for item in items:
        parts = item.path.relative_to(root).parts if item.path.is_relative_to(root) else ()
        if "spark" in parts[:-1] or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if "kafka_broker" in getattr(item, "fixturenames", ()):
            item.add_marker("kafka")
        if "flink" in getattr(item, "fixturenames", ()):
            item.add_marker("flink")
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
        if grouped and _needs_java(item) and not _has(item, "slow"):
            item.add_marker(pytest.mark.xdist_group(item.path.name if item.path.suffix == ".yaml" else "java"))
    items.sort(key=lambda item: (_has(item, "slow"), _needs_java(item) is not grouped))


def _needs_java(item: pytest.Item) -> bool:
    return _has(item, "spark", "kafka", "flink")


def _has(item: pytest.Item, *markers: str) -> bool:
    return any(item.get_closest_marker(name) is not None for name in markers)
