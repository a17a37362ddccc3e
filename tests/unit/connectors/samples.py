"""Strings, and the values that Flink 2.3 reads from them (asked 2026-11).

The Spark tests and the Python tests share this table.
"""

from __future__ import annotations

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

JSON_TEXTS = (
    '1', '1.5', '1e2', '"1"', '" 1 "', '"1.0"', '"+1"', '"1e2"', '""', '"abc"', 'true', '"true"', '"TRUE "', 'null', '128', '32768',
    '2147483648', '3e9', '9223372036854775808', '1e30', '-0', '"NaN"', '[1]', '[]', '{"a": 1}', '{}', '["x",null]', '[1, 2.5,"3"]',
    '"2020-01-01"', '"2020-01-01 00:00:00"', '"2020-01-01T00:00:00"', '"2020-01-01T00:00"', '"2020-01-01 00:00:00.1"',
    '"2020-01-01 00:00:00.123456789"', '"2020-01-01 00:00"', '"2020-01-01 00:00:00Z"', '"2020-01-01T00:00:00Z"',
    '"2020-01-01 00:00:00+01:00"', '"2020-02-30 00:00:00"', '"2020-02-30"', '"12:00:00"', '"12:00:00.5"', '"12:00"', '"2020-1-1"',
    '"2020-13-01"', '"aGVsbG8="', '"a b"', '"123.456"', '123.456', '123.455', '123456789.5', '12345678.995', '1577836800000',
    '12345678901234567890.123', '"1,5"', '"\\u0000x"', '"tab\\tq\\"uo\\\\te é \\ud83d\\ude00"', '1.50', '"24:00:00"', '"1d"', '"0x10"',
    '"1969-12-31 23:59:59.999"', '"0001-01-01 00:00:00"', '"9999-12-31 23:59:59.999"', '[[1],[2]]', '[{"a":1,"b":"x"}]',
)  # fmt: skip

TYPES: tuple[DataType, ...] = (
    BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DecimalType(precision=10, scale=2), DecimalType(precision=38, scale=10), STRING,
    BYTES, DATE, TimeType(precision=3), TIMESTAMP3, TimestampType(precision=0), TimestampType(precision=6), TIMESTAMP_LTZ3,
)  # fmt: skip
NESTED: tuple[DataType, ...] = (
    ArrayType(element=INT),
    ArrayType(element=ArrayType(element=INT)),
    ArrayType(element=STRING),
    MapType(key=STRING, value=INT),
    RowType(fields=(RowField(name="a", type=INT),)),
    ArrayType(element=RowType(fields=(RowField(name="a", type=INT), RowField(name="b", type=STRING)))),
)

FLINK_READS: dict[str, dict[str, str]] = {
    "TINYINT": {"1": "1", '"1"': "1", '" 1 "': "1", '"+1"': "1", "-0": "0"},
    "SMALLINT": {"1": "1", '"1"': "1", '" 1 "': "1", '"+1"': "1", "128": "128", "-0": "0"},
    "INT": {
        "1": "1", "1.5": "1", "1e2": "100", '"1"': "1", '" 1 "': "1", '"+1"': "1", "128": "128", "32768": "32768", "-0": "0",
        "123.456": "123", "123.455": "123", "123456789.5": "123456789", "12345678.995": "12345678", "1.50": "1",
    },
    "DECIMAL(10, 2)": {
        "1": "1.00", "1.5": "1.50", "1e2": "100.00", '"1"': "1.00", '" 1 "': "1.00", '"1.0"': "1.00", '"+1"': "1.00", '"1e2"': "100.00",
        "128": "128.00", "32768": "32768.00", "-0": "0.00", '"123.456"': "123.46", "123.456": "123.46", "123.455": "123.46",
        "12345678.995": "12345679.00", "1.50": "1.50",
    },
    "DATE": {'"2020-01-01"': "2020-01-01"},
    "TIME(3)": {'"12:00:00"': "43200000", '"12:00:00.5"': "43200500"},
    "TIMESTAMP(3)": {
        '"2020-01-01 00:00:00"': "2020-01-01 00:00:00", '"2020-01-01 00:00:00.1"': "2020-01-01 00:00:00.100000",
        '"2020-01-01 00:00:00.123456789"': "2020-01-01 00:00:00.123000", '"1969-12-31 23:59:59.999"': "1969-12-31 23:59:59.999000",
        '"0001-01-01 00:00:00"': "0001-01-01 00:00:00", '"9999-12-31 23:59:59.999"': "9999-12-31 23:59:59.999000",
    },
    "TIMESTAMP_LTZ(3)": {'"2020-01-01 00:00:00Z"': "2020-01-01 00:00:00+00:00"},
}  # fmt: skip
"""By type: the value that is read from each string. All other strings are refused.

An INT written as a string with a fraction is in `OURS`.
"""

OURS: dict[str, dict[str, str]] = {"INT": {'"1.0"': "1", '"1e2"': "100", '"123.456"': "123"}}
"""Values that everfold reads and Flink does not: an integer with a fraction, in quotes."""
