"""Topics whose records change rows: upserts by key, and changes of capture tools.

The rows are those that Flink 2.3 reads (asked 2026-11).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from broker import KafkaBroker
from spark.running import run_script
from unit.connectors.tables import TableMaker, table

from everfold.connectors.contract import KIND, BatchId, LocalSink, Role, SinkContext, Source, SourceContext
from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import check_table
from everfold.error_transport import extract_error
from everfold.plan.nodes import Table
from everfold.storage import local
from everfold.types import INT, STRING, TIMESTAMP_LTZ3, ArrayType, DataType, DecimalType, MapType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = table("t", id=INT, name=STRING, price=DecimalType(precision=10, scale=2))
UPDATE, DELETE = 2, 3


class Topic:
    """A topic and tables over it."""

    def __init__(self, broker: KafkaBroker, name: str, session: SparkSession, folder: Path) -> None:
        self.broker, self.name, self.session, self.folder = broker, name, session, folder

    def upserts(self, of: TableMaker = ROWS, /, *key: str, **options: str) -> Table:
        settings = {
            "connector": "upsert-kafka", "topic": self.name, "properties.bootstrap.servers": self.broker.bootstrap_servers, "key.format": "json",
            "value.format": "json", **options,
        }  # fmt: skip
        return apply_connector(replace(of.with_options(settings), primary_key=key or ("id",)))

    def changes(self, of: TableMaker, format_name: str, **options: str) -> Table:
        settings = {
            "connector": "kafka", "topic": self.name, "properties.bootstrap.servers": self.broker.bootstrap_servers, "format": format_name,
            "scan.startup.mode": "earliest-offset", **options,
        }  # fmt: skip
        return of.with_options(settings)

    def open_source(self, of: Table) -> tuple[Source, SourceContext]:
        context = SourceContext(
            spark=self.session, name="t_1", base_folder=self.folder, table=of, job_folder=local(self.folder / "job")
        )
        return check_table(of, Role.SOURCE).source(), context

    def read(self, of: Table) -> list[tuple[Any, ...]]:
        """Return the columns and then the kind of each row, in the order of the topic."""
        source, context = self.open_source(of)
        frame = source.batch(context)
        return [tuple(row) for row in frame.drop("__split", "__place").collect()]

    def sink(self, of: Table) -> LocalSink:
        made = check_table(of, Role.SINK).sink(SinkContext(name="s", base_folder=self.folder, table=of))
        assert isinstance(made, LocalSink)
        made.prepare()
        return made


@pytest.fixture
def topic(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., Topic]:
    def make(*records: tuple[Any, ...], partitions: int = 1, part: str = "") -> Topic:
        name = (request.node.name.replace("test_", "").replace("_", "-") + part)[:60]
        kafka_broker.create_topic(name, partitions)
        kafka_broker.produce(name, records)
        return Topic(kafka_broker, name, spark, tmp_path)

    return make


def rows_of(*rows: tuple[int, int | None, str | None]) -> pa.Table:
    kinds, ids, names = zip(*rows, strict=True)
    return pa.table(
        {"c0": pa.array(ids, pa.int32()), "c1": pa.array(names, pa.string()), KIND: pa.array(kinds, pa.int8())}
    )


def test_records_update_the_rows_of_their_keys(topic: Callable[..., Topic]) -> None:
    of = topic(
        ('{"id":1}', '{"id":1,"name":"a","price":1}'), ('{"id":2}', '{"id":2,"name":"b"}'), ('{"id":1}', '{"id":1,"name":"c"}'), ('{"id":2}', None),
        ('{"id":3}', None), ('{"id":1}', ""), ('{"id":4}', '{"id":5,"name":"other key"}'),
    )  # fmt: skip
    found = of.read(of.upserts())
    assert [(id_, name, kind) for id_, name, _, kind in found] == [
        (1, "a", UPDATE), (2, "b", UPDATE), (1, "c", UPDATE), (2, None, DELETE), (3, None, DELETE), (5, "other key", UPDATE),
    ]  # fmt: skip
    prefixed = table("t", k_id=INT, id=INT, name=STRING)
    options = {"key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"}
    assert of.read(of.upserts(prefixed, "k_id", **options)) == [
        (1, 1, "a", UPDATE), (2, 2, "b", UPDATE), (1, 1, "c", UPDATE), (2, None, None, DELETE), (3, None, None, DELETE), (4, 5, "other key", UPDATE),
    ]  # fmt: skip


@pytest.mark.slow
def test_upserts_in_raw_and_csv(topic: Callable[..., Topic]) -> None:
    of = topic(("a", "1"), ("b", None), ("a", ""))
    raw = {"key.format": "raw", "value.format": "raw", "value.fields-include": "EXCEPT_KEY"}
    assert of.read(of.upserts(table("t", k=STRING, v=STRING), "k", **raw)) == [
        ("a", "1", UPDATE),
        ("b", None, DELETE),
        ("a", "", UPDATE),
    ]
    of = topic(("1", "1,x"), ("2", ""), ("1", None), part="-csv")
    comma = {"key.format": "csv", "value.format": "csv", "value.csv.allow-comments": "true"}
    assert of.read(of.upserts(table("t", k=INT, v=STRING), "k", **comma)) == [(1, "x", UPDATE), (1, None, DELETE)]


def test_a_record_without_a_key_is_refused_or_skipped(topic: Callable[..., Topic]) -> None:
    of = topic(('{"id":1}', '{"id":1,"name":"a"}'), (None, '{"id":2}'), ('{"id":1}', "{x"))
    source, context = of.open_source(of.upserts())
    with pytest.raises(Exception) as caught:  # noqa: PT011
        source.batch(context).collect()
    assert f"topic `{of.name}` partition 0 offset 1, key: it has no key, but rows are identified by their keys" in str(
        extract_error(str(caught.value))
    )
    # An unreadable value is skipped; in Flink it deletes the row of its key.
    kept = of.upserts(**{"key.json.ignore-parse-errors": "true", "value.json.ignore-parse-errors": "true"})
    assert [(row[0], row[-1]) for row in of.read(kept)] == [(1, UPDATE)]


def test_a_bounded_stream_of_upserts_reads_to_its_end(topic: Callable[..., Topic]) -> None:
    of = topic(*((f'{{"id":{at % 2}}}', f'{{"id":{at % 2},"name":"{at}"}}') for at in range(6)))
    source, context = of.open_source(
        of.upserts(**{"scan.bounded.mode": "latest-offset", "scan.max-records-per-batch": "4"})
    )
    rows: list[tuple[Any, ...]] = []
    query = (
        source.stream(context).writeStream.foreachBatch(lambda frame, _: rows.extend(map(tuple, frame.select("c0", "c1", KIND).collect())))
        .option("checkpointLocation", str(of.folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert source.is_bounded()
    assert rows == [(at % 2, str(at), UPDATE) for at in range(6)]


def test_a_batch_writes_the_last_row_of_each_key(topic: Callable[..., Topic]) -> None:
    of = topic(partitions=3)
    target = of.upserts(table("out", id=INT, name=STRING))
    sink = of.sink(target)
    first = rows_of((0, 1, "a"), (0, 2, "b"), (1, 1, "a"), (2, 1, "z"), (0, 12, "k2"), (0, 13, "k3"))
    sink.write(first, BatchId(of.name, "s", 0, 0))
    sink.write(rows_of((3, 2, "b"), (1, 12, "k2"), (2, 13, "k4")), BatchId(of.name, "s", 0, 1))
    sink.close()
    again = of.sink(target)
    again.write(rows_of((3, 2, "b"), (1, 12, "k2"), (2, 13, "k4")), BatchId(of.name, "s", 0, 1))
    again.close()
    # The partitions are those that Flink's producer chose for the same keys.
    assert [(each.partition, each.key, each.value) for each in of.broker.consume(of.name)] == [
        (0, b'{"id":1}', b'{"id":1,"name":"z"}'), (0, b'{"id":13}', b'{"id":13,"name":"k3"}'), (0, b'{"id":13}', b'{"id":13,"name":"k4"}'),
        (1, b'{"id":2}', b'{"id":2,"name":"b"}'), (1, b'{"id":2}', None),
        (2, b'{"id":12}', b'{"id":12,"name":"k2"}'), (2, b'{"id":12}', None),
    ]  # fmt: skip


def test_a_batch_and_a_lookup_join_read_the_current_rows(topic: Callable[..., Topic]) -> None:
    """Flink refuses both: it reads the topic as a stream only."""
    keys = [json.dumps({"id": at}) for at in range(3)]
    values = [(0, "a"), (1, "b"), (0, "c"), (1, None), (2, "d"), (2, None), (2, "e")]
    of = topic(*((keys[at], name and json.dumps({"id": at, "name": name}), at) for at, name in values), partitions=3)
    (of.folder / "orders.json").write_text("".join(f'{{"id":{at}}}\n' for at in (0, 1, 2, 2)))
    script = f"""
        CREATE TABLE names (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = '{of.name}',
          'properties.bootstrap.servers' = '{of.broker.bootstrap_servers}', 'key.format' = 'json', 'value.format' = 'json', 'scan.bounded.mode' = 'latest-offset');
        CREATE TABLE orders (id INT) WITH ('connector' = 'filesystem', 'path' = 'orders.json', 'format' = 'json');
        SELECT orders.id, name FROM orders LEFT JOIN names ON orders.id = names.id;
    """
    for mode in ("batch", "streaming"):
        tables = run_script(of.session, script, {"execution.runtime-mode": mode}, of.folder, of.folder / mode)
        rows = sorted((row["c0"], row["c1"]) for table in tables for row in table.to_pylist())
        assert rows == [(0, "c"), (1, None), (2, "e"), (2, "e")]


@pytest.mark.slow
def test_metadata_of_a_capture_tool(topic: Callable[..., Topic]) -> None:
    settings = {
        "at": (TIMESTAMP_LTZ3, "value.ingestion-timestamp"), "there": (TIMESTAMP_LTZ3, "value.source.timestamp"), "db": (STRING, "value.source.database"),
        "s": (STRING, "value.source.schema"), "tab": (STRING, "value.source.table"), "all": (MapType(key=STRING, value=STRING), "value.source.properties"),
        "schema": (STRING, "value.schema"),
    }  # fmt: skip
    of = topic(
        (None, '{"before":null,"after":{"id":1},"op":"c","ts_ms":1600000000123,"source":{"ts_ms":1600000000456,"db":"d","schema":"s","table":"t","x":5,"n":null,"o":{"a":1}}}'),
        (None, None),
        (None, '{"before":{"id":1},"op":"d"}'),
    )  # fmt: skip
    first, second = of.read(of.changes(table("t", (), settings, id=INT), "debezium-json"))
    assert [each.replace(tzinfo=UTC) for each in first[1:3]] == [
        datetime(2020, 9, 13, 12, 26, 40, 123_000, UTC), datetime(2020, 9, 13, 12, 26, 40, 456_000, UTC),
    ]  # fmt: skip
    assert first[3:6] == ("d", "s", "t")
    assert first[6] == {
        "ts_ms": "1600000000456",
        "db": "d",
        "schema": "s",
        "table": "t",
        "x": "5",
        "n": None,
        "o": '{"a":1}',
    }
    assert (first[7], first[8], second) == (None, 0, (1, None, None, None, None, None, None, None, DELETE))
    of = topic(
        (
            None,
            '{"schema":{"type":"struct","fields":[]},"payload":{"before":null,"after":{"id":1},"op":"c","ts_ms":1600000000123}}',
        ),
        part="-schema",
    )
    schema: dict[str, tuple[DataType, str]] = {"g": (STRING, "value.schema")}
    [row] = of.read(
        of.changes(table("t", (), schema, id=INT), "debezium-json", **{"debezium-json.schema-include": "true"})
    )
    assert row == (1, '{"type":"struct","fields":[]}', 0)
    settings = {
        "db": (STRING, "value.database"), "tab": (STRING, "value.table"), "types": (MapType(key=STRING, value=INT), "value.sql-type"),
        "keys": (ArrayType(element=STRING), "value.pk-names"), "at": (TIMESTAMP_LTZ3, "value.ingestion-timestamp"),
    }  # fmt: skip
    of = topic(
        (
            None,
            '{"data":[{"id":1}],"type":"INSERT","database":"d","table":"t","sqlType":{"id":4},"pkNames":["id"],"ts":1600000000123}',
        ),
        part="-canal",
    )
    [row] = of.read(of.changes(table("t", (), settings, id=INT), "canal-json"))
    assert row[:5] == (1, "d", "t", {"id": 4}, ["id"])


@pytest.mark.slow
def test_changes_are_written_as_debezium_records(topic: Callable[..., Topic]) -> None:
    of = topic()
    target = of.changes(
        table("out", id=INT, name=STRING), "debezium-json", **{"key.format": "json", "key.fields": "id"}
    )
    sink = of.sink(target)
    sink.write(rows_of((0, 1, "a"), (1, 1, "a"), (2, 1, "b"), (3, 1, "b")), BatchId(of.name, "s", 0, 0))
    sink.close()
    found = [(each.key, each.value) for each in of.broker.consume(of.name)]
    key = b'{"id":1}'
    assert found == [
        (key, b'{"before":null,"after":{"id":1,"name":"a"},"op":"c"}'), (key, b'{"before":{"id":1,"name":"a"},"after":null,"op":"d"}'),
        (key, b'{"before":null,"after":{"id":1,"name":"b"},"op":"c"}'), (key, b'{"before":{"id":1,"name":"b"},"after":null,"op":"d"}'),
    ]  # fmt: skip
    assert [row[-1] for row in of.read(of.changes(table("t", id=INT, name=STRING), "debezium-json"))] == [0, 3, 0, 3]
