"""A connector declares whether this process writes its tables, and so the memory engine can."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from everfold.cli.main import everfold
from everfold.connectors.blackhole import BlackholeSink
from everfold.connectors.contract import Connector, LocalSink
from everfold.connectors.delta.sink import DeltaSink
from everfold.connectors.filesystem.sink import FileSink
from everfold.connectors.jdbc.sink import JdbcSink
from everfold.connectors.kafka.sink import KafkaSink
from everfold.connectors.kafka.topic_records import TopicSink
from everfold.connectors.printing import PrintSink
from everfold.connectors.registry import connector_names, get_connector
from everfold.errors import EverfoldError

SINKS = {
    "filesystem": FileSink, "kafka": KafkaSink, "upsert-kafka": KafkaSink, "topic": TopicSink, "jdbc": JdbcSink,
    "delta": DeltaSink, "print": PrintSink, "blackhole": BlackholeSink,
}  # fmt: skip


@pytest.mark.parametrize("name", connector_names())
def test_a_connector_declares_the_kind_of_its_sinks(name: str) -> None:
    connector = get_connector(name)
    assert (name in SINKS) is (type(connector).sink is not Connector.sink)
    assert connector.writes_in_process is (name in SINKS and issubclass(SINKS[name], LocalSink))


@pytest.mark.parametrize(
    "options",
    [
        "'connector' = 'delta', 'table-path' = 'out'",
        "'connector' = 'filesystem', 'path' = 's3a://b/out', 'format' = 'json'",
        "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 'out'",
    ],
)
def test_the_memory_engine_refuses_tables_that_only_spark_writes(options: str, tmp_path: Path) -> None:
    """Before the first INSERT of a script runs, and without an internal error."""
    printed = "CREATE TABLE p (a INT) WITH ('connector' = 'print'); INSERT INTO p SELECT 1;"
    (tmp_path / "q.sql").write_text(f"{printed} CREATE TABLE t (a INT) WITH ({options}); INSERT INTO t SELECT 1;")
    result = CliRunner().invoke(everfold, ["run", str(tmp_path / "q.sql"), "--engine", "memory"])
    assert isinstance(result.exception, EverfoldError), result.output
    assert (result.exception.code, result.stdout) == ("not-in-memory", "")
