"""Values in cells: what is read, what is written, what is refused."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfold.rendering.cells import CellError, read, to_canonical, write
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
    TIMESTAMP_LTZ3,
    TINYINT,
    ArrayType,
    DataType,
    DecimalType,
    IntervalType,
    MapType,
    MultisetType,
    RowField,
    RowType,
    TimestampType,
    TimeType,
)
from everfold.value_text import format_float

ROW = RowType(fields=(RowField(name="id", type=INT), RowField(name="at", type=TIMESTAMP3)))


@pytest.mark.parametrize(
    ("text", "type", "shown"),
    [
        ("a|b", STRING, "a|b"),
        ("true", BOOLEAN, "TRUE"),
        ("+7", INT, "7"),
        ("1.5", DOUBLE, "1.5"),
        ("1e10", DOUBLE, "1.0E10"),
        ("0.1", FLOAT, "0.1"),
        ("-Infinity", DOUBLE, "-Infinity"),
        ("NaN", FLOAT, "NaN"),
        ("4", DecimalType(precision=10, scale=2), "4.00"),
        ("2.345", DecimalType(precision=10, scale=2), "2.35"),
        ("9" * 28 + "." + "9" * 10, DecimalType(precision=38, scale=10), "9" * 28 + "." + "9" * 10),
        ("2020-04-15", DATE, "2020-04-15"),
        ("08:05", TimeType(), "08:05:00"),
        ("08:05:00.12", TimeType(precision=3), "08:05:00.120"),
        ("2020-04-15", TIMESTAMP3, "2020-04-15 00:00:00.000"),
        ("2020-04-15 08:05", TIMESTAMP3, "2020-04-15 08:05:00.000"),
        ("2020-04-15T08:05:00.5", TimestampType(precision=6), "2020-04-15 08:05:00.500000"),
        ("2020-04-15 08:05", TimestampType(precision=0), "2020-04-15 08:05:00"),
        ("1969-12-31 23:59:59.999", TIMESTAMP3, "1969-12-31 23:59:59.999"),
        ("2020-04-15 08:05:00Z", TIMESTAMP_LTZ3, "2020-04-15 08:05:00.000Z"),
        ("2020-04-15 08:05:00+08:00", TIMESTAMP_LTZ3, "2020-04-15 00:05:00.000Z"),
        ("2020-04-15 08:05:00", TIMESTAMP_LTZ3, "2020-04-15 00:05:00.000Z"),
        ("2020-04-15", TIMESTAMP_LTZ3, "2020-04-14 16:00:00.000Z"),
        ("00ff", BYTES, "00ff"),
        ('["x", null]', ArrayType(element=STRING), '["x", null]'),
        ("[1.50, 2]", ArrayType(element=DecimalType(precision=10, scale=2)), "[1.50, 2.00]"),
        ("[0.1]", ArrayType(element=DOUBLE), "[0.1]"),
        ("[true]", ArrayType(element=BOOLEAN), "[true]"),
        ('{"b": 2, "a": 1}', MapType(key=STRING, value=INT), '{"a": 1, "b": 2}'),
        ('{"2": [1]}', MapType(key=INT, value=ArrayType(element=INT)), '{"2": [1]}'),
        ('{"x": 2}', MultisetType(key=STRING), '{"x": 2}'),
        ('{"id": 1}', ROW, '{"id": 1, "at": null}'),
        ('[1, "2020-04-15 08:05"]', ROW, '{"id": 1, "at": "2020-04-15 08:05:00.000"}'),
        ('["a\\"b", "é"]', ArrayType(element=STRING), '["a\\"b", "é"]'),
    ],
)
def test_a_cell_has_one_canonical_string(text: str, type: DataType, shown: str) -> None:
    value = read(text, type, zone="Asia/Shanghai")
    through_arrow = pa.array([value], type.arrow).to_pylist()[0]
    assert write(through_arrow, type) == shown
    assert to_canonical(text, type, zone="Asia/Shanghai") == shown


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("128", TINYINT),
        ("1.0", BIGINT),
        ("yes", BOOLEAN),
        ("x", DOUBLE),
        ("123456789.00", DecimalType(precision=10, scale=2)),
        ("Infinity", DecimalType(precision=10, scale=2)),
        ("15.04.2020", TIMESTAMP3),
        ("2020-04-31 08:05", TIMESTAMP3),
        ("2020-04-15 08:05:00.1234567", TimestampType(precision=6)),
        ("25:00", TimeType()),
        ("0f0", BYTES),
        ("{", ArrayType(element=INT)),
        ("{}", ArrayType(element=INT)),
        ('{"no": 1}', ROW),
    ],
)
def test_a_wrong_string_is_refused_with_its_type(text: str, type: DataType) -> None:
    with pytest.raises(CellError, match=r"is not a valid .*" + type.sql.partition("(")[0]):
        read(text, type)


def test_intervals_are_written_as_in_java() -> None:
    assert [write(ms, IntervalType()) for ms in (0, 90_000, 5_400_500, -1_000)] == [
        "PT0S",
        "PT1M30S",
        "PT1H30M0.5S",
        "PT-1S",
    ]
    assert write(14, IntervalType(months=True)) == "P14M"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
        (0.00015, "1.5E-4"),
        (123456789.25, "1.2345678925E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_written_as_in_java(value: float, text: str) -> None:
    assert format_float(value) == text


@pytest.mark.parametrize("single", [False, True])
def test_the_least_numbers_have_the_nearest_two_digits(single: bool) -> None:
    for bits in range(1, 300):
        (value,) = struct.unpack("<f" if single else "<d", bits.to_bytes(4 if single else 8, "little"))
        text = format_float(value, single=single)
        digits = Decimal(text).normalize().as_tuple().digits
        exact = Decimal(value)
        nearest = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), context=Context(prec=2000, Emin=-9999))
        assert len(digits) > 2 or Decimal(text) == nearest or struct.pack("<f", nearest) != struct.pack("<f", value)
        assert format_float(-value, single=single) == f"-{text}"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_double_reads_back(value: float) -> None:
    assert float(format_float(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_written_float_reads_back_and_is_short(value: float) -> None:
    text = format_float(value, single=True)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    assert len(text.strip("-").partition("E")[0].replace(".", "").strip("0")) <= 9


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_timestamps_read_back(value: datetime) -> None:
    precise = TimestampType(precision=6)
    assert read(write(value, precise), precise) == value
    zoned = TimestampType(precision=6, local_zone=True)
    assert read(write(value.replace(tzinfo=UTC), zoned), zoned) == value.replace(tzinfo=UTC)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**8), max_value=10**8))
def test_decimals_read_back(value: Decimal) -> None:
    type = DecimalType(precision=12, scale=2)
    assert read(write(value, type), type) == value


def test_null_is_null() -> None:
    assert read(None, INT) is None
    assert write(None, INT) is None
    assert math.isnan(read("NaN", DOUBLE))
