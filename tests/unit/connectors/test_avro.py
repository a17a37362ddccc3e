"""Bare Avro records, compared with fastavro and explicit schemas; and single numbers."""

from __future__ import annotations

import io
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader
from unit.connectors.tables import encode_rows, table

from everfold.connectors.formats.avro import AvroFormat
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.raw import RawFormat
from everfold.connectors.formats.text_decode import BadValue
from everfold.errors import UnsupportedFeature
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP3,
    TINYINT,
    ArrayType,
    DataType,
    DecimalType,
    IntervalType,
    MapType,
    RowField,
    RowType,
    TimestampType,
    TimeType,
)  # fmt: skip

FORMAT = AvroFormat()
DECIMAL = DecimalType(precision=10, scale=2)
LTZ6 = TimestampType(precision=6, local_zone=True)
PLACE = RowType(fields=(RowField(name="city", type=STRING), RowField(name="zip", type=INT.as_nullable(False))))


def columns(*types: DataType) -> list[RecordColumn]:
    return [RecordColumn(f"f{at}", at, of) for at, of in enumerate(types)]


@pytest.mark.parametrize(
    ("of", "schema", "value", "meant"),
    [
        (BOOLEAN, "boolean", True, True),
        (INT, "int", -5, -5),
        (BIGINT, "long", 2**40, 2**40),
        (FLOAT, "float", 0.5, 0.5),
        (DOUBLE, "double", -0.1, -0.1),
        (STRING, "string", "ä€", "ä€"),
        (BYTES, "bytes", b"\0\xff", b"\0\xff"),
        (DATE, {"type": "int", "logicalType": "date"}, date(1969, 12, 31), date(1969, 12, 31)),
        (TimeType(), {"type": "int", "logicalType": "time-millis"}, 1_500, 1_500),
        (TIMESTAMP3, {"type": "long", "logicalType": "local-timestamp-millis"}, datetime(1969, 12, 31, 23, 59, 59, 1000), datetime(1969, 12, 31, 23, 59, 59, 1000)),
        (LTZ6, {"type": "long", "logicalType": "timestamp-micros"}, datetime(2024, 2, 29, 1, 2, 3, 4, UTC), datetime(2024, 2, 29, 1, 2, 3, 4, UTC)),
        (DECIMAL, {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, Decimal("-1.28"), Decimal("-1.28")),
        (DECIMAL, {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, Decimal("99999999.99"), Decimal("99999999.99")),
        (ArrayType(element=INT), {"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        (MapType(key=STRING, value=INT), {"type": "map", "values": ["null", "int"]}, [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (
            PLACE,
            {"type": "record", "name": "p", "fields": [{"name": "city", "type": ["null", "string"]}, {"name": "zip", "type": "int"}]},
            {"city": None, "zip": 7},
            {"city": None, "zip": 7},
        ),
    ],
)  # fmt: skip
def test_values_are_written_and_read(of: DataType, schema: Any, value: object, meant: object) -> None:
    """A nullable column is a union with null, and null comes first."""
    whole = {"type": "record", "name": "r", "fields": [{"name": "f0", "type": ["null", schema]}, {"name": "f1", "type": ["null", "int"]}]}  # fmt: skip
    (record,) = encode_rows(FORMAT, columns(of, INT), [[value, None]])
    assert record is not None
    found: Any = schemaless_reader(io.BytesIO(record), parse_schema(whole), None)
    if isinstance(of, TimeType):
        found["f0"] = found["f0"].second * 1000 + found["f0"].microsecond // 1000
    assert found == {"f0": meant, "f1": None}
    (read,) = FORMAT.decoder(columns(of, INT))(record)
    assert pa.array([read[0]], of.arrow).to_pylist() == [value]
    assert read[1] is None


def test_a_column_that_is_not_null_is_not_a_union() -> None:
    assert encode_rows(FORMAT, columns(INT.as_nullable(False)), [[3]]) == [b"\x06"]
    assert encode_rows(FORMAT, columns(INT), [[3]]) == [b"\x02\x06"]


@pytest.mark.parametrize(("record", "reason"), [(b"", "not an Avro record"), (b"\x02\x06\x00", "1 bytes are left over"), (b"\x08", "not an Avro record")])  # fmt: skip
def test_other_bytes_are_refused(record: bytes, reason: str) -> None:
    with pytest.raises(BadValue, match=reason):
        list(FORMAT.decoder(columns(INT))(record))


@pytest.mark.parametrize(
    ("of", "record"),
    [(INT, 1 << 40), (TINYINT, 128), (DATE, 3_000_000), (TimeType(), 86_400_000), (TIMESTAMP3, 1 << 50)],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(of: DataType, record: int) -> None:
    """Arrow and Python would raise other errors for them."""
    zigzag = record << 1
    encoded = bytearray(b"\x02")
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    with pytest.raises(BadValue, match="not an Avro record of these columns"):
        list(FORMAT.decoder(columns(of))(bytes(encoded)))


def test_a_decimal_with_too_many_digits_is_refused() -> None:
    wider = columns(DecimalType(precision=20, scale=2))
    (record,) = encode_rows(FORMAT, wider, [[Decimal("123456789012.00")]])
    assert record is not None
    with pytest.raises(BadValue, match="is outside of DECIMAL"):
        list(FORMAT.decoder(columns(DECIMAL))(record))


@pytest.mark.parametrize(
    ("name", "of"),
    [("a-b", INT), ("a", IntervalType()), ("a", MapType(key=INT, value=INT)), ("a", TimestampType(precision=9)), ("a", ArrayType(element=IntervalType()))],
)  # fmt: skip
def test_types_and_names_that_avro_lacks_are_refused(name: str, of: DataType) -> None:
    made = table("t", x=INT).with_("kafka")
    with pytest.raises(UnsupportedFeature, match=r"avro-type"):
        FORMAT.check(made, [RecordColumn(name, 0, of)])


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -2.25e-300, 5e-324, float("inf"), 1.7976931348623157e308])
def test_a_raw_double_has_the_bytes_of_kafkas_serializer(value: float) -> None:
    raw = RawFormat()
    assert encode_rows(raw, columns(DOUBLE), [[value]]) == [struct.pack(">d", value)]
    (read,) = raw.decoder(columns(DOUBLE))(struct.pack(">d", value))
    assert read == [value]
