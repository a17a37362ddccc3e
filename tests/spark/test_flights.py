"""The flights example on Spark, from files and from Kafka, against DuckDB over the raw table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import flights
import pytest

from everfold import TableEnvironment

if TYPE_CHECKING:
    from broker import KafkaBroker
    from pyspark.sql import SparkSession

DAYS = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a folder with `data`, ten days of flights in five files."""
    folder = tmp_path_factory.mktemp("flights")
    flights.module("make_data").main(["--out", str(folder / "data"), "--days", str(DAYS), "--files", "5"])
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", flights.NAMES)
def test_from_files(spark: SparkSession, folder: Path, name: str) -> None:
    result = TableEnvironment(spark, base_folder=folder).execute_sql(flights.script(name))
    assert flights.rows(result.to_arrow()) == flights.answers(name, DAYS)


@pytest.mark.parametrize("name", ["daily_by_carrier", "plane_sessions"])
def test_from_files_in_batch(spark: SparkSession, folder: Path, name: str) -> None:
    environment = TableEnvironment(spark, base_folder=folder, options={"execution.runtime-mode": "batch"})
    result = environment.execute_sql(flights.script(name))
    assert flights.rows(result.to_arrow()) == flights.answers(name, DAYS)


@pytest.mark.slow
def test_from_kafka_to_kafka(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER", kafka_broker.bootstrap_servers)
    flights.module("make_data").main(
        ["--kafka", kafka_broker.bootstrap_servers, "--topic", "flights", "--days", str(DAYS)]
    )
    kafka_broker.create_topic("daily_by_carrier", 1)
    for _ in range(2):  # the second run resumes: it finds no new rows and writes none twice
        TableEnvironment(spark, base_folder=tmp_path).execute_sql(flights.script("daily_by_carrier_kafka"))
    records = [json.loads(record.value or b"") for record in kafka_broker.consume("daily_by_carrier")]
    got = [
        (
            datetime.fromisoformat(row["window_start"]),
            datetime.fromisoformat(row["window_end"]),
            *list(row.values())[2:],
        )
        for row in records
    ]
    assert sorted(got, key=repr) == flights.answers("daily_by_carrier", DAYS)
