"""Handles of Kafka records are rows, metadata and places again."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.formats.registry import format_of
from everfold.connectors.kafka.worker_records import HandleLayout, RecordReader
from everfold.connectors.registry import connector_of
from everfold.errors import ConnectorError
from everfold.types import BIGINT, INT, STRING, TIMESTAMP_LTZ3, DataType

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
METADATA: dict[int, tuple[str, DataType]] = {
    1: ("topic", STRING),
    2: ("partition", INT),
    3: ("offset", BIGINT),
    4: ("timestamp", TIMESTAMP_LTZ3),
}


def make_reader(only_topic: str = "", *, has_time: bool = True) -> RecordReader:
    options = {"connector": "kafka", "topic": "a;b", "properties.bootstrap.servers": "b:9092", "format": "json"}
    of = table("k", i=INT).with_options({**options, "scan.startup.mode": "earliest-offset"})
    form = format_of("json", of, connector_of(of).check(of, Role.SOURCE), "json.")
    assert isinstance(form, JsonFormat)
    metadata = METADATA if has_time else {at: METADATA[at] for at in (1, 2, 3)}
    return RecordReader(form, [RecordColumn("i", 0, INT)], metadata, "k", HandleLayout(only_topic, has_time))


def make_handle(layout: HandleLayout, topic: str, partition: int, offset: int, value: bytes) -> bytes:
    """Return what `HandleLayout.to_sql` makes of a record."""
    parts = [partition.to_bytes(4, "big")]
    if not layout.only_topic:
        parts += [len(topic.encode()).to_bytes(4, "big"), topic.encode()]
    parts.append(offset.to_bytes(8, "big"))
    if layout.has_time:
        parts.append((int(NOON.timestamp()) * 1_000_000 + offset * 1000).to_bytes(8, "big", signed=True))
    return b"".join([*parts, value])


@pytest.mark.parametrize("has_time", [False, True])
@pytest.mark.parametrize("only_topic", ["", "tä"])
def test_partitions_and_metadata(only_topic: str, has_time: bool) -> None:
    reader = make_reader(only_topic, has_time=has_time)
    other = only_topic or "tä2"
    records = [("tä", 0, 5, 1), ("tä", 0, 7, 2), (other, 1, 1 << 40, 3), ("tä", 0, 9, 4)]
    handles = [make_handle(reader.layout, topic, at, offset, b'{"i":%d}' % i) for topic, at, offset, i in records]
    pieces = list(reader.read(pa.array([b"?", *handles])[1:]))
    assert [piece.split for piece in pieces] == (["k/0", "k/1"] if only_topic else ["k/tä/0", "k/tä2/1"])
    rows = [tuple(row.values()) for piece in pieces for row in piece.rows.to_pylist()]
    expected = [(i, topic, at, offset) for topic, at, offset, i in records]
    assert [row[:4] for row in rows] == [expected[at] for at in (0, 1, 3, 2)]
    if has_time:
        assert rows[0][4] == NOON.replace(microsecond=5000)
    assert [piece.locate(0) for piece in pieces if piece.locate] == [
        "topic `tä` partition 0 offset 5",
        f"topic `{other}` partition 1 offset {1 << 40}",
    ]


def test_metadata_of_records_with_several_rows() -> None:
    reader = make_reader("t")
    values = [b'{"i":1}', b'[{"i":2},{"i":3}]', b'{"i":4}']
    handles = [make_handle(reader.layout, "t", 3, 10 + at, value) for at, value in enumerate(values)]
    (piece,) = reader.read(pa.array(handles))
    assert piece.rows["c0"].to_pylist() == [1, 2, 3, 4]
    assert piece.rows["c3"].to_pylist() == [10, 11, 11, 12]
    assert piece.rows["c2"].to_pylist() == [3] * 4
    assert piece.locate is not None
    assert piece.locate(2).endswith("offset 11")


def test_place_of_a_bad_record() -> None:
    reader = make_reader("t")
    handles = [make_handle(reader.layout, "t", 3, 10 + at, value) for at, value in enumerate([b'{"i":1}', b"", b"?"])]
    with pytest.raises(ConnectorError, match="topic `t` partition 3 offset 12"):
        list(reader.read(pa.array(handles)))
