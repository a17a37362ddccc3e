"""Creating topics for Lenses SQL when no broker answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.connectors.contract import LocalSink, Role, SinkContext
from everfold.connectors.kafka import topic_records
from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.plan.nodes import Sink
from everfold.sql.planner import Session, Submit

OPTIONS = {
    "everfold.dialect": "lenses",
    "defaults.topic.autocreate": "true",
    "defaults.topic.properties.bootstrap.servers": "localhost:1",
}
SQL = """
CREATE TABLE sessions(_key STRING, country STRING) FORMAT (STRING, JSON);
INSERT INTO counts SELECT STREAM COUNT(*) AS n FROM sessions GROUP BY country;
"""


def test_an_unreachable_broker_is_reported(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The Kafka client logs its own messages and does not print them."""
    monkeypatch.setattr(topic_records, "TIMEOUT_S", 0.5)
    [submit] = [each for each in Session(OPTIONS, connected=apply_connector).run(SQL) if isinstance(each, Submit)]
    [root] = submit.roots
    assert isinstance(root, Sink)
    sink = check_table(root.table, Role.SINK).sink(SinkContext(name="s", base_folder=Path(), table=root.table))
    assert isinstance(sink, LocalSink)
    with pytest.raises(ConnectorError, match="no Kafka broker answers at localhost:1"):
        sink.prepare()
    assert capfd.readouterr().err == ""
