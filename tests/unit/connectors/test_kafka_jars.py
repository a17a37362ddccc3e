"""The download of Spark's Kafka connector: a server that fails once, and one that stays away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everfold.connectors.kafka.jars import KAFKA
from everfold.errors import ConnectorError


class _Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value


class _Spark:
    """A session without a JVM whose downloads fail a number of times."""

    def __init__(self, failures: int) -> None:
        self.conf, self.failures, self.added = _Conf(), failures, list[str]()
        self._jvm = None

    def sql(self, text: str) -> Any:
        if text.startswith("LIST"):
            return self
        if self.failures:
            self.failures -= 1
            raise RuntimeError("download failed: 503\n\tat Ivy")
        self.added.append(text)
        return None

    def collect(self) -> list[Any]:
        return []


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path))


def test_a_download_that_fails_twice_is_repeated() -> None:
    spark: Any = _Spark(failures=2)
    KAFKA.add_to(spark)
    assert spark.added == [f"ADD JAR '{jar}'" for jar in KAFKA.uris]


def test_the_error_names_the_cause() -> None:
    spark: Any = _Spark(failures=3)
    with pytest.raises(ConnectorError, match=r"kafka-jars.*download failed: 503\n") as raised:
        KAFKA.add_to(spark)
    assert raised.value.code == "kafka-jars"
    assert not spark.added
