"""The test broker is a real one: it keeps records, partitions, timestamps and headers across a
kill.
"""

from __future__ import annotations

import threading

import pytest
from broker import KafkaBroker, Received
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient


@pytest.mark.kafka
def test_records_survive_a_kill() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("bids", partitions=2)
        broker.produce("bids", [("a", "1", 1, 1_000, [("trace", b"x")]), (None, "2", 0, 2_000)])
        expected = [
            Received(0, 0, 2_000, None, b"2", ()),
            Received(1, 0, 1_000, b"a", b"1", (("trace", b"x"),)),
        ]
        assert broker.consume("bids") == expected

        address = broker.bootstrap_servers
        broker.kill()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=0.5)
        broker.start()

        assert broker.bootstrap_servers == address
        assert broker.consume("bids") == expected


@pytest.mark.kafka
def test_records_of_a_transaction_that_is_ending_are_read() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("bids", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "log_level": 0})
        producer.init_transactions()
        broker.produce("bids", [("a", "1", 0), ("b", "2", 1)])
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("bids", "3", partition=partition)
        producer.flush()
        commit = threading.Timer(1.0, producer.commit_transaction)
        commit.start()
        found = broker.consume("bids")
        commit.join()
        assert [(each.partition, each.value) for each in found] == [(0, b"1"), (0, b"3"), (1, b"2"), (1, b"3")]
