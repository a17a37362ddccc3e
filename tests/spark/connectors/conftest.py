"""The broker for tests of Kafka tables."""

from __future__ import annotations

from broker import kafka_broker

__all__ = ["kafka_broker"]
