"""Tables on the terminal: the frame of Flink's SQL client, truncated cells, wide characters, widths
by type.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rich.cells import cell_len

from everfold.cli.output import Format, create_output, show
from everfold.rendering import table_format
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    RowField,
    RowType,
    Schema,
    TimeType,
)

SCHEMA = Schema(
    (
        Field(name="window_start", type=TIMESTAMP3),
        Field(name="supplier_id", type=STRING),
        Field(name="total_price", type=DecimalType(precision=38, scale=2)),
    )
)
ROWS = pa.table(
    {
        "c0": pa.array([datetime(2020, 4, 15, 8), datetime(2020, 4, 15, 8, 10)], TIMESTAMP3.arrow),
        "c1": pa.array(["supplier1", None]),
        "c2": pa.array([Decimal("11.00"), Decimal("10.00")], pa.decimal128(38, 2)),
    }
)


def print_rows(format: Format = "text", **kwargs: Any) -> str:
    out = io.StringIO()
    made = create_output(format, out, SCHEMA, **kwargs)
    made.write(ROWS)
    made.finish()
    return out.getvalue()


def test_a_table_of_known_rows_is_as_wide_as_its_cells() -> None:
    assert print_rows() == (
        "+-------------------------+-------------+-------------+\n"
        "|            window_start | supplier_id | total_price |\n"
        "+-------------------------+-------------+-------------+\n"
        "| 2020-04-15 08:00:00.000 |   supplier1 |       11.00 |\n"
        "| 2020-04-15 08:10:00.000 |      <NULL> |       10.00 |\n"
        "+-------------------------+-------------+-------------+\n"
        "2 rows in set\n"
    )


def test_a_live_table_is_as_wide_as_its_types() -> None:
    lines = print_rows(live=True, kinds=True).splitlines()
    assert lines[0] == f"+----+-------------------------+{'-' * 32}+{'-' * 42}+"
    assert lines[1].startswith("| op |            window_start |")
    assert lines[3] == f"| +I | 2020-04-15 08:00:00.000 | {'supplier1':>30} | {'11.00':>40} |"
    assert lines[-2:] == [lines[0], "Received a total of 2 rows"]


def test_json_and_csv_are_written_without_a_frame() -> None:
    assert print_rows("json") == (
        '{"window_start": "2020-04-15 08:00:00.000", "supplier_id": "supplier1", "total_price": 11.00}\n'
        '{"window_start": "2020-04-15 08:10:00.000", "supplier_id": null, "total_price": 10.00}\n'
    )
    assert print_rows("csv", kinds=True) == (
        "op,window_start,supplier_id,total_price\n"
        "+I,2020-04-15 08:00:00.000,supplier1,11.00\n"
        "+I,2020-04-15 08:10:00.000,,10.00\n"
    )


def test_row_counts_are_printed_as_in_flink() -> None:
    assert list(table_format.table(["a"], [])) == ["Empty set"]
    assert list(table_format.table(["a"], [["1"]]))[-1] == "1 row in set"


def test_long_cells_are_truncated_and_wide_characters_take_two_columns() -> None:
    lines = list(table_format.table(["text"], [["x" * 40], ["中文" * 10], ["é"]]))
    assert lines[3] == "| " + "x" * 27 + "... |"
    assert lines[4] == "|  " + "中文" * 6 + "中" + "... |"
    assert lines[5] == "| " + "é".rjust(30) + " |"
    assert {cell_len(line) for line in lines[:-1]} == {34}


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (True, BOOLEAN, "TRUE"),
        (1e10, DOUBLE, "1.0E10"),
        (b"\x00\xff", BYTES, "x'00ff'"),
        (datetime(2020, 4, 15, 16, tzinfo=UTC), TIMESTAMP_LTZ3, "2020-04-16 00:00:00.000"),
        (["a", None], ArrayType(element=STRING), "[a, NULL]"),
        ([("k", 1)], MapType(key=STRING, value=INT), "{k=1}"),
        ({"a": 1, "b": ["x"]}, RowType(fields=(RowField(name="a", type=INT), RowField(name="b", type=ArrayType(element=STRING)))), "(1, [x])"),
        (29_100_000, TimeType(), "08:05:00"),
    ],
)  # fmt: skip
def test_values_are_formatted_as_in_the_sql_client(value: object, type: DataType, text: str) -> None:
    assert table_format.format_value(value, type, zone="Asia/Shanghai") == text


def test_widths_by_type() -> None:
    types = (INT, BIGINT, DATE, TimeType(precision=3), TIMESTAMP3, BOOLEAN, DecimalType(precision=10, scale=2))
    schema = Schema(tuple(Field(name="c", type=type) for type in types))
    assert table_format.widths_by_type(schema, 30) == [11, 20, 10, 12, 23, 6, 12]


def test_describe_leaves_missing_values_empty_and_truncates_nothing() -> None:
    out = io.StringIO()
    show(out, ["name", "watermark"], [["bidtime", "`bidtime` - INTERVAL '1' SECOND"], ["price", None]], "text")
    assert out.getvalue().splitlines()[3:5] == [
        "| bidtime | `bidtime` - INTERVAL '1' SECOND |",
        "|   price |                                 |",
    ]


def test_multiline_strings_are_printed_without_a_frame() -> None:
    out = io.StringIO()
    show(out, ["result"], [["CREATE TABLE t (\n  a INT\n)"]], "text")
    assert out.getvalue() == "CREATE TABLE t (\n  a INT\n)\n"
