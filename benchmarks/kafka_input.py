"""Inputs as topics of JSON records, of a Kafka broker that runs as long as it is needed.

Each input has a topic with two partitions; row n is in partition n mod 2.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl
from query import kafka_connector

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from broker import KafkaBroker
from confluent_kafka import Producer

PARTITIONS = 2
_FLUSH_SECONDS = 120.0


class KafkaInput:
    """A broker with a topic for each input that was asked for."""

    def __init__(self) -> None:
        self.broker = KafkaBroker()
        self._topics: dict[Path, str] = {}

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.close()

    def connector(self, engine: str, folder: Path) -> dict[str, str]:
        """Return the options of a source with the rows of an input, the same for each engine."""
        assert engine
        if folder not in self._topics:
            topic = f"input-{len(self._topics)}"
            self.broker.create_topic(topic, PARTITIONS)
            for file in sorted((folder / "files").glob("*.parquet")):
                self._produce(topic, pl.read_parquet(file))
            self._topics[folder] = topic
        return kafka_connector(self.broker.bootstrap_servers, self._topics[folder])

    def _produce(self, topic: str, rows: pl.DataFrame) -> None:
        """Append rows to a topic."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "linger.ms": 50,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        for at, value in enumerate(to_json_lines(rows)):
            while True:
                try:
                    producer.produce(topic, value, partition=at % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(_FLUSH_SECONDS)
        if left:
            raise TimeoutError(f"{left} records were not acknowledged")


def to_json_lines(rows: pl.DataFrame) -> list[str]:
    """Encode rows as JSON objects, with times in SQL's notation."""
    times = [name for name, kind in rows.schema.items() if isinstance(kind, pl.Datetime)]
    columns = [pl.col(name).dt.strftime("%Y-%m-%d %H:%M:%S%.3f") if name in times else name for name in rows.columns]
    return rows.select(pl.struct(columns).struct.json_encode()).to_series().to_list()
