"""The test broker is a real one: it keeps records, partitions, timestamps and headers across a
kill.
"""

from __future__ import annotations

import pytest
from broker import KafkaBroker, Received
from confluent_kafka import KafkaException
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
