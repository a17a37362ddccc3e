"""Topics of a real broker: where reading starts and ends, keys and metadata, bad records, and a
sink that writes once.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from broker import KafkaBroker
from unit.connectors.tables import TableMaker, table

from everfold.connectors.contract import BatchId, LocalSink, Role, SinkContext, Source, SourceContext
from everfold.connectors.kafka.source import KafkaSource
from everfold.connectors.validate import check_table
from everfold.error_transport import extract_error
from everfold.errors import ConnectorError, StateError
from everfold.plan.nodes import Table, TableColumn
from everfold.spark.batch_metrics import count_skipped_rows
from everfold.spark.session import create_session
from everfold.storage import local
from everfold.types import BIGINT, BYTES, DOUBLE, FLOAT, INT, STRING, TIMESTAMP3, TIMESTAMP_LTZ3, DecimalType, MapType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = {
    "p": (INT, "partition"), "o": (BIGINT, "offset"), "t": (TIMESTAMP_LTZ3, "timestamp"), "h": (MapType(key=STRING, value=BYTES), "headers"),
    "tt": (STRING, "timestamp-type"),
}  # fmt: skip
RECORDS = table("k", (), METADATA, i=INT, d=DecimalType(precision=38, scale=9))
PLAIN = table("k", i=INT)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return create_session(spark, 2)


class Topic:
    """A topic and tables over it."""

    def __init__(self, broker: KafkaBroker, name: str, session: SparkSession, folder: Path) -> None:
        self.broker, self.name, self.session, self.folder = broker, name, session, folder

    def table(self, of: TableMaker = PLAIN, /, **options: str) -> Table:
        base = {
            "connector": "kafka", "topic": self.name, "properties.bootstrap.servers": self.broker.bootstrap_servers, "format": "json",
            "scan.startup.mode": "earliest-offset",
        }  # fmt: skip
        return of.with_options({**base, **options})

    def source(self, of: TableMaker = PLAIN, /, **options: str) -> tuple[Source, SourceContext]:
        made = self.table(of, **options)
        context = SourceContext(
            spark=self.session, name="k_1", base_folder=self.folder, table=made, job_folder=local(self.folder / "job")
        )
        return check_table(made, Role.SOURCE).source(), context

    def batch(self, of: TableMaker = PLAIN, /, **options: str) -> list[tuple[Any, ...]]:
        source, context = self.source(of, **options)
        return sorted((tuple(row) for row in source.batch(context).drop("__place").collect()), key=str)

    def stream(self, source: Source, context: SourceContext) -> tuple[list[Any], str]:
        """Return the rows and the source's last line of the offset log."""
        rows: list[Any] = []
        checkpoint = self.folder / "checkpoint"
        query = (
            source.stream(context).writeStream.foreachBatch(lambda frame, _: rows.extend(tuple(row) for row in frame.drop("__place").collect()))
            .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        newest = max(
            (each for each in (checkpoint / "offsets").iterdir() if each.name.isdigit()),
            key=lambda each: int(each.name),
        )
        line = next(each for each in newest.read_text().splitlines() if each.startswith("k_1:"))
        return rows, line.partition(":")[2]


@pytest.fixture
def topic(
    kafka_broker: KafkaBroker, session: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[int], Topic]:
    def make(partitions: int) -> Topic:
        name = request.node.name.replace("test_", "").replace("_", "-")[:40]
        kafka_broker.create_topic(name, partitions)
        return Topic(kafka_broker, name, session, tmp_path)

    return make


def test_startup_modes_and_record_metadata(topic: Callable[[int], Topic]) -> None:
    of = topic(2)
    of.broker.produce(of.name, [
        ("a", '{"i":1,"d":12345678901234567890.123456789}', 0, 1_600_000_000_123, [("h", b"1"), ("h", b"2")]),
        (None, '{"i":"2"}', 1, 1_600_000_001_000), ("a", None, 1), ("a", "", 1), ("a", '{"i":4}', 0, 1_600_000_002_000),
    ])  # fmt: skip
    first, second, third = of.batch(RECORDS)
    assert str(first[1]) == "12345678901234567890.123456789"
    assert first[2:4] == (0, 0)
    assert first[4].replace(tzinfo=UTC) == datetime(2020, 9, 13, 12, 26, 40, 123_000, UTC)
    assert {key: bytes(value) for key, value in first[5].items()} == {"h": b"2"}
    assert first[6:] == ("CreateTime", "k/0")
    assert (second[0], second[5], second[-1]) == (2, {}, "k/1")
    assert third[0] == 4

    def values(**options: str) -> list[int]:
        return [row[0] for row in of.batch(**options)]

    assert values(**{"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1600000001000"}) == [2, 4]
    assert values(
        **{"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:1"}
    ) == [2, 4]
    assert values(**{"scan.startup.mode": "latest-offset"}) == []
    assert values(**{"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "1600000001000"}) == [1]
    group = {"scan.startup.mode": "group-offsets", "properties.group.id": f"nobody-{of.name}"}
    with pytest.raises(ConnectorError, match="has committed no offsets"):
        values(**group)
    assert values(**group, **{"properties.auto.offset.reset": "earliest"}) == [1, 2, 4]


def test_a_bounded_stream_keeps_its_end_and_commits_its_group(topic: Callable[[int], Topic]) -> None:
    of = topic(2)
    of.broker.produce(of.name, [("a", f'{{"i":{at}}}', at % 2) for at in range(6)])
    options = {
        "scan.bounded.mode": "latest-offset",
        "properties.group.id": f"g-{of.name}",
        "scan.max-records-per-batch": "2",
    }
    source, context = of.source(**options)
    assert source.splits(context) == ("k/0", "k/1")
    assert not source.has_reached_end(context, "{}")
    rows, offsets = of.stream(source, context)
    assert sorted(row[0] for row in rows) == [*range(6)]
    assert source.has_reached_end(context, offsets)
    source.after_batch(context, offsets)
    of.broker.produce(of.name, [("a", '{"i":99}', 0)])
    source, context = of.source(**options)  # a restart keeps the end
    rows, offsets = of.stream(source, context)
    assert rows == []
    assert source.has_reached_end(context, offsets)
    assert [
        row[0] for row in of.batch(**{"scan.startup.mode": "group-offsets", "properties.group.id": f"g-{of.name}"})
    ] == [99]


def test_a_batch_has_as_many_records_as_fit(topic: Callable[[int], Topic]) -> None:
    of = topic(3)

    def records_per_batch(**options: str) -> int:
        source, context = of.source(**options)
        assert isinstance(source, KafkaSource)
        return source.batch_records(context, source.client.partitions())

    assert records_per_batch() == 500_000  # nothing is known of the records
    of.broker.produce(of.name, [("key", '{"i":1}'.ljust(size), at % 2) for at, size in enumerate((7, 97, 7, 97))])
    assert records_per_batch() == 5_000_000
    assert records_per_batch(**{"scan.max-bytes-per-batch": "5500 b"}) == 100
    assert records_per_batch(**{"scan.max-bytes-per-batch": "1 b"}) == 1
    assert records_per_batch(**{"scan.max-bytes-per-batch": "5500 b", "scan.max-records-per-batch": "7"}) == 7


def test_keys_and_raw_numbers(topic: Callable[[int], Topic]) -> None:
    of = topic(1)
    of.broker.produce(of.name, [('{"id":7}', '{"v":"x"}'), (None, '{"v":"y"}')])
    keyed = table("k", k_id=INT, v=STRING)
    options = {
        "key.format": "json",
        "key.fields": "k_id",
        "key.fields-prefix": "k_",
        "value.fields-include": "EXCEPT_KEY",
    }
    assert of.batch(keyed, **options) == [(7, "x", "k/0"), (None, "y", "k/0")]
    of.broker.produce(of.name, [(b"\0\0\0\x05", b"\xff\xff\xff\xfe"), (b"\x80\0\0\0", None)])
    raw = {"format": "raw", "key.format": "raw", "key.fields": "a", "value.fields-include": "EXCEPT_KEY"}
    later = {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:2"}
    assert of.batch(table("k", a=INT, b=INT), **raw, **later) == [(-(2**31), None, "k/0"), (5, -2, "k/0")]
    numbers = [
        (1.5, 0.1),
        (-0.0, -5e-324),
        (float("inf"), 1.7976931348623157e308),
        (-(2.0**-149), -2.2250738585072014e-308),
    ]
    of.broker.produce(of.name, [(struct.pack(">f", a), struct.pack(">d", b)) for a, b in numbers])
    later["scan.startup.specific-offsets"] = "partition:0,offset:4"
    found = of.batch(table("k", a=FLOAT, b=DOUBLE), **raw, **later)
    assert sorted(map(repr, found)) == sorted(repr((a, b, "k/0")) for a, b in numbers)


def test_bad_records_and_unreachable_brokers_are_reported(topic: Callable[[int], Topic]) -> None:
    of = topic(1)
    of.broker.produce(of.name, [("a", '{"i":1}'), ("b", '{"i":"x"}'), ("c", '{"i":')])
    source, context = of.source()
    for action in (lambda: source.batch(context).collect(), lambda: of.stream(source, context)):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            action()
        assert str(extract_error(str(caught.value))) == (
            f"error[bad-record]: topic `{of.name}` partition 0 offset 1: field `i` is not an INT: `x`\n"
            '  | {"i":"x"}\n'
            "  = help: set 'json.ignore-parse-errors' = 'true' to skip and count such records"
        )
    source, context = of.source(**{"json.ignore-parse-errors": "true"})
    with count_skipped_rows(context.spark) as counts:
        assert [row[0] for row in source.batch(context).collect()] == [1, None]
    assert counts == {"not readable in full": 2}

    source, context = of.source(topic=of.name.replace("broker", "brooker"))
    with pytest.raises(ConnectorError) as absent:
        source.stream(context)
    assert absent.value.code == "no-such-topic"
    assert absent.value.diagnostics[0].help == f"did you mean `{of.name}`?"
    source, context = of.source(**{"properties.bootstrap.servers": "127.0.0.1:1"})
    started = time.monotonic()
    with pytest.raises(ConnectorError) as down:
        source.stream(context)
    assert time.monotonic() - started < 16
    assert "table `k`: no Kafka broker answers at 127.0.0.1:1" in str(down.value)


def test_a_batch_is_written_once(topic: Callable[[int], Topic]) -> None:
    of = topic(2)
    columns = table("out", k=STRING, n=BIGINT, ts=TIMESTAMP3)
    at = TableColumn(name="at", type=TIMESTAMP_LTZ3, metadata_key="timestamp")
    hidden = TableColumn(name="o", type=BIGINT, metadata_key="offset", virtual=True)
    target = of.table(
        TableMaker("out", (*columns.columns[:1], hidden, *columns.columns[1:], at), ()),
        **{"key.format": "raw", "key.fields": "k"},
    )
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    rows = pa.table({
        "c0": ["a", "b"], "c1": [1, 2], "c2": pa.array([datetime(2020, 1, 1, 0, 0, 0, 500_000), None], pa.timestamp("us")),
        "c3": pa.array([moment, None], pa.timestamp("us", "UTC")), "__kind": pa.array([0, 0], pa.int8()),
    })  # fmt: skip

    def sink() -> LocalSink:
        made = check_table(target, Role.SINK).sink(SinkContext(name="s", base_folder=of.folder, table=target))
        assert isinstance(made, LocalSink)
        made.prepare()
        return made

    first = sink()
    first.write(rows, BatchId(of.name, "s", 0, 0))
    first.write(rows, BatchId(of.name, "s", 0, 0))
    second = sink()  # as after a crash
    second.write(rows, BatchId(of.name, "s", 0, 0))
    second.write(rows.slice(0, 1), BatchId(of.name, "s", 0, 1))
    with pytest.raises(StateError, match="another run of this job"):
        first.write(rows, BatchId(of.name, "s", 0, 2))
    second.close()
    found = of.broker.consume(of.name)
    assert sorted((each.key, json.loads(each.value or b"")["n"]) for each in found) == [(b"a", 1), (b"a", 1), (b"b", 2)]
    one = next(each for each in found if each.key == b"a")
    assert one.value == b'{"k":"a","n":1,"ts":"2020-01-01 00:00:00.5"}'
    assert one.timestamp_ms == 1_577_836_800_000
