"""The flights example, killed five times while it reads from files and from Kafka, still agrees
with DuckDB over the raw table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import flights
import pytest
from broker import KafkaBroker
from killing import run_with_kills, seed_random

DAYS, KILLS, WITHIN_S = 30, 5, 10.0
pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def parse_rows(lines: list[str]) -> list[tuple[object, ...]]:
    rows = [json.loads(line) for line in lines]
    times = [(datetime.fromisoformat(row["window_start"]), datetime.fromisoformat(row["window_end"])) for row in rows]
    return sorted(((*at, *list(row.values())[2:]) for at, row in zip(times, rows, strict=True)), key=repr)


def test_from_files_to_files(tmp_path: Path) -> None:
    flights.module("make_data").main(["--out", str(tmp_path / "data"), "--days", str(DAYS), "--files", "90"])
    script = flights.script("weekly_hop_insert")
    script = script.replace("'path' = 'data',", "'path' = 'data', 'scan.max-files-per-batch' = '1',")
    (tmp_path / "job.sql").write_text(script)
    assert run_with_kills(tmp_path, "job.sql", kills=KILLS, within_s=WITHIN_S, chance=seed_random()) >= 2
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file() and file.name[0] not in "._"]
    assert parse_rows([line for file in files for line in file.read_text().splitlines()]) == flights.answers(
        "weekly_hop", DAYS
    )


def test_from_kafka_to_kafka(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", broker.bootstrap_servers)
    flights.module("make_data").main(["--kafka", broker.bootstrap_servers, "--days", str(DAYS)])
    broker.create_topic("plane_sessions", 2)
    script = flights.script("plane_sessions_kafka")
    script = script.replace("'topic' = 'flights',", "'topic' = 'flights', 'scan.max-records-per-batch' = '500',")
    (tmp_path / "job.sql").write_text(script)
    assert run_with_kills(tmp_path, "job.sql", kills=KILLS, within_s=WITHIN_S, chance=seed_random()) >= 2
    lines = [record.value.decode() for record in broker.consume("plane_sessions") if record.value is not None]
    assert parse_rows(lines) == flights.answers("plane_sessions", DAYS)
