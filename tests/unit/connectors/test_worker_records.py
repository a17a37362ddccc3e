"""Handles of Kafka records are rows, metadata and places again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.registry import format_of
from everfold.connectors.kafka.handles import HandleLayout
from everfold.connectors.kafka.worker_records import RecordPart, RecordReader
from everfold.connectors.registry import connector_of
from everfold.errors import ConnectorError
from everfold.plan.changelog import RowKind
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
    metadata = METADATA if has_time else {at: METADATA[at] for at in (1, 2, 3)}
    values, layout = RecordPart(form, [RecordColumn("i", 0, INT)]), HandleLayout(only_topic, has_time)
    return RecordReader(values, None, (0, *metadata), metadata, "k", layout)


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
    assert [piece.locate(0) for piece in pieces] == [
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
    assert (piece.locate(2) or "").endswith("offset 11")


def test_place_of_a_bad_record() -> None:
    reader = make_reader("t")
    handles = [make_handle(reader.layout, "t", 3, 10 + at, value) for at, value in enumerate([b'{"i":1}', b"", b"?"])]
    with pytest.raises(ConnectorError, match="topic `t` partition 3 offset 12"):
        list(reader.read(pa.array(handles)))


def pack(part: bytes | None) -> bytes:
    return (-1).to_bytes(4, "big", signed=True) if part is None else len(part).to_bytes(4, "big") + part


def read_keyed(records: Sequence[tuple[bytes | None, bytes | None]], **options: str) -> list[tuple[Any, ...]]:
    """Return the rows of an upsert-kafka table `(k, v)`: the offset, `k`, `v` and the row kind."""
    settings = {"connector": "upsert-kafka", "topic": "t", "properties.bootstrap.servers": "b:9092"}
    of = table("k", k=INT, v=STRING).with_options({**settings, "key.format": "json", "value.format": "json", **options})
    of = replace(of, primary_key=("k",))
    checked = connector_of(of).check(of, Role.SOURCE)
    keys = format_of("json", of, checked, "key.json.")
    values = format_of("json", of, checked, "value.json.")
    columns = [RecordColumn("k", 0, INT), RecordColumn("v", 1, STRING)]
    layout = HandleLayout("t", has_key=True, keeps_nulls=True)
    reader = RecordReader(
        RecordPart(values, columns),
        RecordPart(keys, columns[:1]),
        (0, 1),
        {},
        "k",
        layout,
        upsert=True,
        has_changes=True,
    )
    head = (0).to_bytes(4, "big")
    handles = [head + at.to_bytes(8, "big") + pack(key) + pack(value) for at, (key, value) in enumerate(records)]
    (piece,) = reader.read(pa.array(handles))
    rows = [tuple(row.values()) for row in piece.rows.to_pylist()]
    assert piece.offsets is not None
    found = [(offset, *row) for offset, row in zip(piece.offsets.to_pylist(), rows, strict=True)]
    return [*found, ("skipped", piece.skipped)] if piece.skipped else found


UPSERT, DELETE = RowKind.UPDATE_AFTER.value, RowKind.DELETE.value


def test_keys_and_tombstones() -> None:
    records = [
        (b'{"k":1}', b'{"k":1,"v":"a"}'), (b'{"k":1}', None), (b'{"k":2}', b'[{"k":2,"v":"b"},{"k":2,"v":"c"}]'),
        (b"", b'{"v":"no key in it"}'), (b'{"k":3}', b"  "), (b'[{"k":4},{"k":5}]', None), (b'{"k":6}', b'{"k":7}'),
    ]  # fmt: skip
    assert read_keyed(records) == [
        (0, 1, "a", UPSERT), (1, 1, None, DELETE), (2, 2, "b", UPSERT), (2, 2, "c", UPSERT), (3, None, "no key in it", UPSERT),
        (5, 4, None, DELETE), (5, 5, None, DELETE), (6, 7, None, UPSERT),
    ]  # fmt: skip


def test_bad_keys() -> None:
    for key, reason in ((None, "it has no key"), (b"?", "it is not JSON"), (b'{"k":"x"}', "not an INT")):
        with pytest.raises(ConnectorError, match=f"topic `t` partition 0 offset 1, key: .*{reason}"):
            read_keyed([(b'{"k":1}', b"{}"), (key, b"{}")])
    lenient = {"key.json.ignore-parse-errors": "true", "value.json.ignore-parse-errors": "true"}
    records = [(None, b"{}"), (b"?", b'{"k":1}'), (b'{"k":"x"}', None), (b'{"k":1}', b"?"), (b'{"k":2}', b'{"k":"x","v":"y"}')]  # fmt: skip
    assert read_keyed(records, **lenient) == [(2, None, None, DELETE), (4, None, "y", UPSERT), ("skipped", 5)]


def test_other_metadata() -> None:
    layout = HandleLayout("t", has_time_type=True, has_headers=True)
    headers = [b'[["a","eA=="],["b",null],["a","eQ=="]]', None, b"[]"]
    handles = [
        (0).to_bytes(4, "big") + at.to_bytes(8, "big") + (at - 1).to_bytes(4, "big", signed=True) + pack(each) + b"v"
        for at, each in enumerate(headers)
    ]
    (records,) = layout.split(pa.array(handles))
    assert records.read_metadata("headers").to_pylist() == [[("a", b"y"), ("b", None)], [], []]
    assert records.read_metadata("timestamp-type").to_pylist() == ["NoTimestampType", "CreateTime", "LogAppendTime"]
    assert records.values.to_pylist() == [b"v"] * 3
