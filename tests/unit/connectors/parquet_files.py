"""Parquet files of every kind: physical and logical types with extreme values, and damaged ones."""

from __future__ import annotations

import datetime as dt
import io
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    TINYINT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    TimestampType,
    TimeType,
)

TIMESTAMP6 = TimestampType(precision=6)
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
UUIDS = [uuid.UUID(int=number) for number in (0, 0x2096DD51DF0C4477ABE73B9494A682BE, (1 << 128) - 1)]


@dataclass(frozen=True)
class Kind:
    """A column of a file. type: of the table's column. rows: what is read, None for the same."""

    type: DataType
    values: pa.Array
    rows: list[object] | None = None


def _integers(bits: int, signed: bool = True) -> pa.Array:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return pa.array([low, high, None, 1], getattr(pa, f"{'' if signed else 'u'}int{bits}")())


def _times(unit: str, zone: str | None = None) -> pa.Array:
    first, last = (FIRST, LAST) if unit != "ns" else (dt.datetime(1678, 1, 1), dt.datetime(2262, 1, 1))
    if unit == "ms":
        last = last.replace(microsecond=999_000)
    return pa.array([first, last, None, dt.datetime(1969, 12, 31, 23, 59, 59, 999_000)], pa.timestamp(unit, zone))


def _decimals(precision: int, scale: int) -> pa.Array:
    most = "9" * (precision - scale) + "." + "9" * scale
    return pa.array([Decimal(most), Decimal(f"-{most}"), None, Decimal(0)], pa.decimal128(precision, scale))


PLAIN_KINDS: Mapping[str, Kind] = {
    "a_boolean": Kind(BOOLEAN, pa.array([True, False, None, True])),
    "an_int8": Kind(TINYINT, _integers(8)),
    "an_int16": Kind(SMALLINT, _integers(16)),
    "an_int32": Kind(INT, _integers(32)),
    "an_int64": Kind(BIGINT, _integers(64)),
    "a_wide_int8": Kind(BIGINT, _integers(8)),
    "a_uint8": Kind(SMALLINT, _integers(8, False)),
    "a_uint16": Kind(INT, _integers(16, False)),
    "a_uint32": Kind(BIGINT, _integers(32, False)),
    "a_float": Kind(FLOAT, pa.array([float("inf"), -0.0, None, 1e-45], pa.float32())),
    "a_wide_float": Kind(DOUBLE, pa.array([float("-inf"), 3e38, None, 0.1], pa.float32())),
    "a_double": Kind(DOUBLE, pa.array([1.7e308, -0.0, None, 5e-324])),
    "a_string": Kind(STRING, pa.array(["", "\0", None, "ä😀" * 9])),
    "a_binary_string": Kind(STRING, pa.array([b"", b"x", None, "ä".encode()]), ["", "x", None, "ä"]),
    "a_dictionary": Kind(STRING, pa.array(["a", "b", None, "a"]).dictionary_encode()),
    "bytes": Kind(BYTES, pa.array([b"", b"\xff\x00", None, b"x" * 300])),
    "a_date": Kind(DATE, pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1582, 10, 10)])),
    "millis": Kind(TIMESTAMP3, _times("ms")),
    "micros": Kind(TIMESTAMP6, _times("us")),
    "nanos": Kind(TIMESTAMP6, _times("ns")),
    "millis_of_instants": Kind(TIMESTAMP_LTZ3, _times("ms", "UTC")),
    "micros_of_instants": Kind(TIMESTAMP6, _times("us", "Asia/Tokyo")),
    "instants": Kind(TimestampType(precision=6, local_zone=True), _times("us")),
    "nanos_of_instants": Kind(TIMESTAMP_LTZ3, _times("ns", "UTC")),
    "a_decimal": Kind(DecimalType(precision=5, scale=2), _decimals(5, 2)),
    "a_decimal_of_64_bits": Kind(DecimalType(precision=18, scale=4), _decimals(18, 4)),
    "a_long_decimal": Kind(DecimalType(precision=38, scale=10), _decimals(38, 10)),
    "a_wide_decimal": Kind(DecimalType(precision=20, scale=2), _decimals(9, 2)),
}  # fmt: skip
"""Columns that Catalyst decodes in a batch."""

_PAIR = RowType(fields=(RowField(name="b", type=STRING), RowField(name="a", type=BIGINT)))
OTHER_KINDS: Mapping[str, Kind] = {
    "a_uuid": Kind(
        STRING,
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([each.bytes for each in UUIDS] + [None], pa.binary(16))),
        [*map(str, UUIDS), None],
    ),
    "a_uuid_as_bytes": Kind(
        BYTES,
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([each.bytes for each in UUIDS] + [None], pa.binary(16))),
        [*(each.bytes for each in UUIDS), None],
    ),
    "uuids": Kind(
        ArrayType(element=STRING),
        pa.ListArray.from_arrays(
            pa.array([0, 1, 1, 2, 2]), pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUIDS[1].bytes] * 2, pa.binary(16)))
        ),
        [[str(UUIDS[1])], [], [str(UUIDS[1])], []],
    ),
    "json": Kind(
        STRING, pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', "", None, "not"])), ['{"a":1}', "", None, "not"]
    ),
    "nothing": Kind(STRING, pa.nulls(4)),
    "no_number": Kind(DecimalType(precision=5, scale=2), pa.nulls(4)),
    "no_list": Kind(ArrayType(element=INT), pa.array([[None], [], None, [None, None]], pa.list_(pa.null()))),
    "a_half_float": Kind(FLOAT, pa.array([1.5, 65504.0, None, float("inf")], pa.float16())),
    "a_time": Kind(
        TimeType(precision=3), pa.array([0, 86_399_999, None, 1], pa.time32("ms")), [0, 86_399_999, None, 1]
    ),
    "fixed_bytes": Kind(BYTES, pa.array([b"abc", b"\0\0\0", None, b"\xff" * 3], pa.binary(3))),
    "another_scale": Kind(DecimalType(precision=10, scale=3), _decimals(5, 2)),
    "lists": Kind(ArrayType(element=BIGINT), pa.array([[1, None], [], None, [-(2**31)]], pa.list_(pa.int32()))),
    "fixed_lists": Kind(ArrayType(element=INT), pa.array([[1, None], [2, 3], None, [4, 5]], pa.list_(pa.int32(), 2))),
    "large_lists": Kind(ArrayType(element=STRING), pa.array([["a", None], [], None, ["ä"]], pa.large_list(pa.string()))),
    "times_in_lists": Kind(
        ArrayType(element=TIMESTAMP6),
        pa.array([[LAST], [], None, [None, FIRST]], pa.list_(pa.timestamp("us"))),
    ),
    "maps": Kind(
        MapType(key=STRING, value=DOUBLE),
        pa.array([[("x", 1.5)], [], None, [("y", None), ("z", -0.0)]], pa.map_(pa.string(), pa.float32())),
    ),
    "rows": Kind(
        _PAIR,
        pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": "y"}], pa.struct({"a": pa.int32(), "b": pa.string()})),
        [{"b": "x", "a": 1}, None, {"b": None, "a": None}, {"b": "y", "a": 2}],
    ),
    "lists_of_rows": Kind(
        ArrayType(element=_PAIR),
        pa.array([[{"a": 1, "b": "x"}, None], None, [], [{"a": None, "b": ""}]], pa.list_(pa.struct({"a": pa.int8(), "b": pa.string()}))),
        [[{"b": "x", "a": 1}, None], None, [], [{"b": "", "a": None}]],
    ),
}  # fmt: skip
"""Columns that only workers decode."""


# --- files that are refused -----------------------------------------------------------------------


def write(values: pa.Array, **options: Any) -> bytes:
    """Return a file with a column `x`."""
    file = io.BytesIO()
    pq.write_table(pa.table({"x": values}), file, **options)
    return file.getvalue()


def int96(*moments: tuple[int, int]) -> bytes:
    """Return a file of INT96 timestamps. moments: Julian days and nanoseconds."""
    place = [dt.datetime(2000, 1, 1, 0, 0, 0, number + 1) for number in range(len(moments))]
    content = write(
        pa.array(place, pa.timestamp("ns")),
        use_deprecated_int96_timestamps=True, compression="none", use_dictionary=False, write_statistics=False, store_schema=False,
    )  # fmt: skip
    for number, (day, nanoseconds) in enumerate(moments):
        old = struct.pack("<qI", (number + 1) * 1000, 2_451_545)
        assert content.count(old) == 1
        content = content.replace(old, struct.pack("<qI", nanoseconds, day))
    return content


def replace_once(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return a file with other bytes, which are there once."""
    assert content.count(old) == 1
    assert len(old) == len(new)
    return content.replace(old, new)


_FLAT = {"compression": "none", "use_dictionary": False, "store_schema": False}


def _rename(name: bytes) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"x": [1], "zqzq": [1]}), file, store_schema=False)
    return file.getvalue().replace(b"zqzq", name)


def _twice() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], ["x", "y"]), file, store_schema=False)
    return file.getvalue().replace(b"y", b"x")


@dataclass(frozen=True)
class BadFile:
    """A file that is refused. error: the end of the message, after the path."""

    content: Callable[[], bytes]
    type: DataType
    error: str


BAD_FILES: Mapping[str, BadFile] = {
    "year-10000 in milliseconds": BadFile(
        lambda: write(pa.array([0, None, 0, 253_402_300_800_000], pa.int64()).view(pa.timestamp("ms"))),
        TIMESTAMP6,
        "` row 4: the year is 10000, not one from 1 to 9999",
    ),
    "year-10000 in microseconds": BadFile(
        lambda: write(pa.array([0, None, 0, 253_402_300_800_000_000], pa.int64()).view(pa.timestamp("us"))),
        TIMESTAMP6,
        "` row 4: the year is 10000, not one from 1 to 9999",
    ),
    "year-0": BadFile(
        lambda: write(pa.array([0, None, 0, -62_135_596_800_001], pa.int64()).view(pa.timestamp("ms", "UTC"))),
        TIMESTAMP_LTZ3,
        "` row 4: the year is 0, not one from 1 to 9999",
    ),
    "the greatest number of milliseconds": BadFile(
        lambda: write(pa.array([(1 << 63) - 1], pa.int64()).view(pa.timestamp("ms"))),
        TIMESTAMP3,
        "` row 1: the year is 292278994, not one from 1 to 9999",
    ),
    "a date": BadFile(
        lambda: write(pa.array([0, 2_932_897, None], pa.int32()).view(pa.date32())),
        DATE,
        "` row 2: the year is 10000, not one from 1 to 9999",
    ),
    "dates in lists": BadFile(
        lambda: write(pa.ListArray.from_arrays(pa.array([0, 2, 2, 3]), pa.array([0, 1, 3_000_000], pa.int32()).view(pa.date32()))),
        ArrayType(element=DATE),
        "` row 3: the year is 10183, not one from 1 to 9999",
    ),
    "INT96 of the year 10000": BadFile(
        lambda: int96((2_440_588, 0), (5_373_485, 0)), TIMESTAMP6, "` row 2: the year is 10000, not one from 1 to 9999"
    ),
    "INT96 beyond microseconds": BadFile(
        lambda: int96((2_440_588, 0), ((1 << 32) - 1, 0)), TIMESTAMP6, "` row 2: the year is 11754508, not one from 1 to 9999"
    ),
    "a time of day": BadFile(
        lambda: write(pa.array([0, 86_400_000], pa.int32()), store_schema=False),
        TimeType(precision=3),
        "` row 2: 86400000 ms are not a time of day",
    ),
    "not UTF-8": BadFile(lambda: write(pa.array([b"a", None, b"\xff"])), STRING, "` row 3: it is not UTF-8"),
    "not UTF-8 in maps": BadFile(
        lambda: write(pa.array([[], [(b"a", 1)], [(b"\xff", 1)]], pa.map_(pa.binary(), pa.int32()))),
        MapType(key=STRING, value=INT),
        "` row 3: it is not UTF-8",
    ),
    "a decimal with too many digits": BadFile(
        lambda: replace_once(
            write(pa.array([Decimal("0.01"), Decimal("123.45")], pa.decimal128(5, 2)), store_decimal_as_integer=True, write_statistics=False, **_FLAT),
            struct.pack("<i", 12_345),
            struct.pack("<i", 1_234_567),
        ),
        DecimalType(precision=5, scale=2),
        "` row 2: Decimal value 1234567 does not fit in precision of decimal128(5, 2)",
    ),
    "a name that is not UTF-8": BadFile(lambda: _rename(b"\xff\xfe\xfd\xfc"), BIGINT, "` is not a readable Parquet file: a name in it is not UTF-8"),
    "two columns of a name": BadFile(_twice, BIGINT, "` has 2 columns `x`"),
    "cut off": BadFile(lambda: write(pa.array([1]))[:-9], BIGINT, "` is not a readable Parquet file: "),
    "empty": BadFile(lambda: b"", BIGINT, "` is not a readable Parquet file: "),
    "overwritten": BadFile(
        lambda: (lambda content: content[:20] + b"\xee" * 2000 + content[2020:])(write(pa.array(range(1000)), **_FLAT)),
        BIGINT,
        "` is not a readable Parquet file: ",
    ),
}  # fmt: skip
