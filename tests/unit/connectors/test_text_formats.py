"""JSON, CSV and raw records in Python: what Flink 2.3 reads (asked of it), and what everfold
refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from unit.connectors.samples import FLINK_READS, JSON_TEXTS, OURS, TYPES
from unit.connectors.tables import encode_rows, table

from everfold.connectors.contract import Role
from everfold.connectors.formats.format import Format, record_columns
from everfold.connectors.formats.registry import format_of
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.printing import java_string
from everfold.connectors.registry import connector_of
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
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
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    TimeType,
)
from everfold.value_text import format_float


def form(of: Table) -> Format:
    options = connector_of(of).check(of, Role.SOURCE)
    name = options.string("format")
    return format_of(name, of, options, f"{name}.")


def read(of: Table, *records: str | bytes) -> list[list[object]]:
    decode = form(of).decoder(record_columns(of, Role.SOURCE))
    return [row for record in records for row in decode(record if isinstance(record, bytes) else record.encode())]


def json_table(**columns: DataType) -> Table:
    return table(**columns).with_("filesystem", path="x", format="json")


@pytest.mark.parametrize("of", [each for each in TYPES if each.sql in FLINK_READS], ids=lambda each: each.sql)
def test_json_values_are_read_as_in_flink(of: DataType) -> None:
    expected = FLINK_READS[of.sql] | OURS.get(of.sql, {})
    for text in JSON_TEXTS:
        try:
            [[found]] = read(json_table(x=of), f'{{"x": {text}}}')
        except BadValue:
            assert text not in expected, f"{of}: {text} was not read"
            continue
        if text == "null":
            assert found is None
        else:
            assert str(found) == expected.get(text), f"{of}: {text} was read as {found!r}"


@pytest.mark.parametrize("text", ["٣", "３", "1٣", "𝟏", "1\u00a0", "1\u0085", "1\u2003", "²"])
@pytest.mark.parametrize("of", [INT, BIGINT, DOUBLE, FLOAT, DecimalType(precision=10, scale=2)], ids=str)
def test_digits_and_spaces_of_other_scripts_are_refused(of: DataType, text: str) -> None:
    for form_, record in (("json", json.dumps({"x": text})), ("csv", text)):
        with pytest.raises(BadValue):
            read(table(x=of).with_("filesystem", path="x", format=form_), record)


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (DOUBLE, "0x1p3", 8.0),
        (DOUBLE, " 1d\t", 1.0),
        (DOUBLE, "-Infinity", float("-inf")),
        (FLOAT, "16777217.0000000001", 16777218.0),
        (FLOAT, "16777217", 16777216.0),
        (DecimalType(precision=10, scale=2), "1e-999999999", Decimal(0)),
        (BOOLEAN, "\ttrue\x00", True),
    ],
)
def test_strings_are_read_as_in_java(of: DataType, text: str, value: object) -> None:
    assert read(table(x=of).with_("filesystem", path="x", format="csv"), text) == [[value]]


@pytest.mark.parametrize(
    ("of", "text"),
    [(DOUBLE, "1_0"), (DOUBLE, "+nan"), (DOUBLE, "NaNf"), (DATE, "0000-01-01"), (BYTES, "="), (BYTES, "PY="), (DecimalType(precision=10, scale=2), "1e-3000000000")],
)  # fmt: skip
def test_strings_that_java_refuses_are_refused(of: DataType, text: str) -> None:
    with pytest.raises(BadValue):
        read(table(x=of).with_("filesystem", path="x", format="csv"), text)


def test_a_comment_may_contain_any_bytes() -> None:
    assert read(csv(allow_comments="true"), b"#\xff", "1,x") == [[1, "x"]]


def test_json_records_are_read() -> None:
    of = json_table(n=INT, x=STRING)
    assert read(of, '{"x":"a","n":1}', "", "  ", '{"n":null}', '{"N":3}', '{"n":1,"n":2,"x":"a"}', '\ufeff{"n":5}', '{"n":1} trailing') == [
        [1, "a"], [None, None], [None, None], [2, "a"], [5, None], [1, None],
    ]  # fmt: skip
    assert read(of, '[{"n":7,"x":"a"},{"n":8}]', "[]") == [[7, "a"], [8, None]]
    assert read(of, '{"x":{"b": [1, 2.50]}}', '{"x":1.50}', '{"x":true}', '{"x":"a\tb"}') == [
        [None, '{"b": [1, 2.50]}'], [None, "1.50"], [None, "true"], [None, "a\tb"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("5", "it is the number 5, not an object"),
        ("null", "it is null, not an object"),
        ("{'n':1}", "it is not JSON: expecting property name enclosed in double quotes at character 2"),
        ('{"n":NaN}', "it is not JSON: NaN is not a JSON number"),
        ('{"n":01}', "it is not JSON: expecting ',' delimiter at character 7"),
        ('{"n":1,"x":"a"', "it is not JSON: expecting ',' delimiter at character 15"),
        ('{"n":5,}', "it is not JSON: "),
        ('{"n":"abc"}', "field `n` is not an INT: `abc`"),
        ('{"n":2147483648}', "field `n` is not an INT: `2147483648`"),
        ('{"n":[1]}', "field `n` is not an INT: `an array`"),
        (b'{"n":1,"x":"\xff\xfe"}', "it is not UTF-8: byte 13 is 0xff"),
    ],
)  # fmt: skip
def test_wrong_json_is_refused(record: str | bytes, reason: str) -> None:
    with pytest.raises(BadValue) as caught:
        read(json_table(n=INT, x=STRING), record)
    assert caught.value.reason.startswith(reason)


def test_json_with_ignored_errors_loses_fields_not_rows() -> None:
    of = table(n=INT, a=ArrayType(element=INT)).with_(
        "filesystem", path="x", format="json", json__ignore_parse_errors="true"
    )
    assert read(of, '{"n":"x","a":[1]}', '{"n":1,"a":{}}', '{"n":1,"a":["q"]}') == [[None, [1]], [1, None], [1, [None]]]
    with pytest.raises(BadValue):  # the caller counts it
        read(of, "{")


def test_json_that_spark_cannot_read_is_refused_here_too() -> None:
    a, r = ArrayType(element=INT), RowType(fields=(RowField(name="a", type=ArrayType(element=INT)),))
    for of, record in (
        (json_table(a=a), '{"a":5,"a":[1]}'),
        (json_table(r=r), '{"r":{"a":5,"a":[1]}}'),
        (json_table(m=MapType(key=STRING, value=a)), '{"m":{"k":5,"k":[1]}}'),
    ):
        with pytest.raises(BadValue, match="is not an ARRAY<INT>: `5`"):
            read(of, record)
        lenient = table(**{column.name: column.type for column in of.columns}).with_(
            "filesystem", path="x", format="json", json__ignore_parse_errors="true"
        )
        assert read(lenient, record) in ([[[1]]], [[{"a": [1]}]], [[[("k", [1])]]])
    assert read(json_table(a=a), '{"a":[5],"a":[1]}') == [[[1]]]


def test_a_missing_json_field_is_refused_on_demand() -> None:
    of = table(n=INT, x=STRING).with_options(
        {"connector": "filesystem", "path": "x", "format": "json", "json.fail-on-missing-field": "true"}
    )
    assert read(of, '{"n":null,"x":"a"}') == [[None, "a"]]
    with pytest.raises(BadValue, match="field `x` is missing"):
        read(of, '{"n":1}')


def test_json_reads_iso_timestamps() -> None:
    of = table(t=TIMESTAMP3, z=TIMESTAMP_LTZ3).with_options(
        {"connector": "filesystem", "path": "x", "format": "json", "json.timestamp-format.standard": "ISO-8601"}
    )
    assert read(of, '{"t":"2020-04-15T08:05","z":"2020-04-15T08:05:00.5Z"}') == [
        [datetime(2020, 4, 15, 8, 5), datetime(2020, 4, 15, 8, 5, 0, 500_000, UTC)]
    ]
    with pytest.raises(BadValue, match="field `t`"):
        read(of, '{"t":"2020-04-15 08:05:00"}')


def test_json_decimals_are_exact() -> None:
    of = json_table(d=DecimalType(precision=38, scale=18))
    assert read(of, '{"d":12345678901234567890.123456789012345678}') == [
        [Decimal("12345678901234567890.123456789012345678")]
    ]
    with pytest.raises(BadValue, match=r"not a DECIMAL\(5, 2\): `1234567.5`"):
        read(json_table(d=DecimalType(precision=5, scale=2)), '{"d":1234567.5}')


CSV = table(n=INT, x=STRING)


def csv(**options: str) -> Table:
    return CSV.with_options(
        {
            "connector": "filesystem",
            "path": "x",
            "format": "csv",
            **{f"csv.{key.replace('_', '-')}": value for key, value in options.items()},
        }
    )


@pytest.mark.parametrize(
    ("record", "options", "row"),
    [
        ("1,x", {}, [1, "x"]),
        ("1,x,", {}, [1, "x"]),
        ('"1","x, y"', {}, [1, "x, y"]),
        ('1,"a""b"', {}, [1, 'a"b']),
        ('1,a"b', {}, [1, 'a"b']),
        (" 1 , x ", {}, [1, " x "]),
        ('1, "x"', {}, [1, ' "x"']),
        ('1,""', {}, [1, ""]),
        ("1,", {}, [1, ""]),
        ("\ufeff1,x", {}, [1, "x"]),
        ('n/a,"n/a"', {"null_literal": "n/a"}, [None, None]),
        ("1;x", {"field_delimiter": ";"}, [1, "x"]),
        ("1\tx", {"field_delimiter": "\\t"}, [1, "x"]),
        ("1,'a,b'", {"quote_character": "'"}, [1, "a,b"]),
        ('1,"ab"', {"disable_quote_character": "true"}, [1, '"ab"']),
        ("1,a\\,b", {"escape_character": "\\"}, [1, "a,b"]),
        ("1,a\\nb", {"escape_character": "\\"}, [1, "a\nb"]),
        ('1,"a\\"b"', {"escape_character": "\\"}, [1, 'a"b']),
    ],
)
def test_csv_is_read_as_in_flink(record: str, options: dict[str, str], row: list[object]) -> None:
    assert read(csv(**options), record) == [row]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("1", "it has 1 field, the table has 2"),
        ("1,x,y", "it has 3 fields, the table has 2"),
        ('1,"a', "a quote is not closed, or characters follow it"),
        ('1,"x"z', "a quote is not closed, or characters follow it"),
        (",x", "field `n` is not an INT: ``"),
        ("1.5,x", "field `n` is not an INT: `1.5`"),
    ],
)
def test_wrong_csv_is_refused(record: str, reason: str) -> None:
    with pytest.raises(BadValue) as caught:
        read(csv(), record)
    assert caught.value.reason == reason


def test_csv_skips_comments_but_not_empty_strings() -> None:
    assert read(csv(allow_comments="true"), "#c", "", "1,x") == [[1, "x"]]
    assert read(table(s=STRING).with_("filesystem", path="x", format="csv"), "", "a") == [[""], ["a"]]


def test_csv_reads_collections() -> None:
    of = table(
        a=ArrayType(element=INT), r=RowType(fields=(RowField(name="x", type=INT), RowField(name="y", type=STRING)))
    ).with_("filesystem", path="x", format="csv")
    assert read(of, "1;2,1;z", ",1;") == [[[1, 2], {"x": 1, "y": "z"}], [[], {"x": 1, "y": ""}]]
    with pytest.raises(BadValue, match="field `r` has 1 field"):
        read(of, "1,5")


def test_raw_values_are_read() -> None:
    assert read(table(s=STRING).with_("filesystem", path="x", format="raw"), b"a\xff") == [["a\ufffd"]]
    assert read(table(n=INT).with_("filesystem", path="x", format="raw"), b"\xff\xff\xff\xfe") == [[-2]]
    little = table(n=BIGINT).with_options(
        {"connector": "filesystem", "path": "x", "format": "raw", "raw.endianness": "little-endian"}
    )
    assert read(little, b"\x05" + bytes(7)) == [[5]]
    with pytest.raises(BadValue, match="it has 3 bytes, INT has 4"):
        read(table(n=INT).with_("filesystem", path="x", format="raw"), b"abc")


# --- writing --------------------------------------------------------------------------------------

WRITTEN: dict[str, tuple[DataType, object, str, str]] = {
    "boolean": (BOOLEAN, True, "true", "true"),
    "float": (FLOAT, 1.5, "1.5", "1.5"),
    "double": (DOUBLE, 1e10, "1.0E10", "1.0E10"),
    "nan": (DOUBLE, float("nan"), '"NaN"', "NaN"),
    "decimal": (DecimalType(precision=10, scale=2), Decimal("100.00"), "100.00", "100.00"),
    "text": (STRING, 'a"b\\c\né/', '"a\\"b\\\\c\\né/"', '"a""b\\c\né/"'),
    "bytes": (BYTES, b"\x01\x02\xff", '"AQL/"', "AQL/"),
    "time": (TimeType(precision=3), 29100500, '"08:05:00.5"', "08:05:00.5"),
    "timestamp": (TIMESTAMP3, datetime(2020, 4, 15, 8, 5), '"2020-04-15 08:05:00"', '"2020-04-15 08:05:00"'),
    "fraction": (TIMESTAMP3, datetime(2020, 4, 15, 8, 5, 0, 120_000), '"2020-04-15 08:05:00.12"', '"2020-04-15 08:05:00.12"'),
    "instant": (TIMESTAMP_LTZ3, datetime(2020, 4, 15, 8, 5, tzinfo=UTC), '"2020-04-15 08:05:00Z"', '"2020-04-15 08:05:00Z"'),
    "array": (ArrayType(element=INT), [1, None], "[1,null]", "1;"),
    "row": (RowType(fields=(RowField(name="x", type=INT), RowField(name="y", type=STRING))), {"x": 1, "y": "z"}, '{"x":1,"y":"z"}', "1;z"),
    "null": (INT, None, "null", ""),
}  # fmt: skip
"""As Flink 2.3 writes them (observed), except for decimals: Flink strips their trailing zeros."""


@pytest.mark.parametrize("case", WRITTEN.values(), ids=WRITTEN.keys())
def test_values_are_written_as_in_flink(case: tuple[DataType, object, str, str]) -> None:
    of, value, as_json, as_csv = case
    for name, expected in (("json", '{"x":' + as_json + "}"), ("csv", as_csv)):
        target = table(x=of).with_("filesystem", path="x", format=name)
        written = encode_rows(form(target), record_columns(target, Role.SINK), [[value]])
        assert written == [expected.encode()]


def test_json_leaves_out_null_fields_as_configured() -> None:
    of = table(m=MapType(key=STRING, value=DOUBLE), n=INT, s=STRING)
    base = {"connector": "filesystem", "path": "x", "format": "json"}
    columns = record_columns(of.with_options(base), Role.SINK)
    rows: list[list[object]] = [[[("k", 1.0)], None, "a"], [None, 1, None], [None, None, None]]
    with_nulls = [b'{"m":{"k":1.0},"n":null,"s":"a"}', b'{"m":null,"n":1,"s":null}', b'{"m":null,"n":null,"s":null}']
    assert encode_rows(form(of.with_options(base)), columns, rows) == with_nulls
    without = form(of.with_options({**base, "json.encode.ignore-null-fields": "true"}))
    assert encode_rows(without, columns, rows) == [b'{"m":{"k":1.0},"s":"a"}', b'{"n":1}', b"{}"]


def test_a_csv_without_quotes_refuses_values_that_need_them() -> None:
    of = csv(disable_quote_character="true")
    with pytest.raises(ConnectorError, match="csv-needs-quotes"):
        encode_rows(form(of), record_columns(of, Role.SINK), [[1, "a"], [1, "a,b"]])


@pytest.mark.parametrize(
    ("of", "value", "text"),
    [
        (TIMESTAMP3, datetime(2020, 4, 15, 8, 5), "2020-04-15T08:05"),
        (TIMESTAMP3, datetime(2020, 4, 15, 8, 5, 0, 120_000), "2020-04-15T08:05:00.120"),
        (TIMESTAMP_LTZ3, datetime(2020, 4, 15, 8, 0, tzinfo=UTC), "2020-04-15T08:00:00Z"),
        (TimeType(precision=3), 29100500, "08:05:00.500"),
        (TimeType(precision=3), 29100000, "08:05"),
        (DecimalType(precision=10, scale=2), Decimal("4.00"), "4.00"),
        (BYTES, b"\x01\xff", "[1, -1]"),
        (MapType(key=STRING, value=DOUBLE), [("k", 1.0)], "{k=1.0}"),
        (RowType(fields=(RowField(name="x", type=INT),)), {"x": None}, "+I[null]"),
        (BOOLEAN, True, "true"),
    ],
)
def test_values_are_printed_as_in_java(of: DataType, value: object, text: str) -> None:
    assert java_string(value, of) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (1.0, "1.0"), (0.001, "0.001"), (0.0001, "1.0E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (-1234567.5, "-1234567.5"), (1.5e300, "1.5E300")],
)  # fmt: skip
def test_doubles_are_printed_as_in_java(value: float, text: str) -> None:
    assert format_float(value) == text


# --- files ----------------------------------------------------------------------------------------


def read_local_rows(of: Table, base: Path) -> Iterator[dict[str, object]]:
    for piece in check_table(of, Role.SOURCE).source().read_local(base):
        yield from piece.to_pylist()


def test_files_of_a_directory_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "bids"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.json").write_text('{"item":"A","price":1}\r\n\n')
    (folder / "deep" / "b.json").write_text('{"item":"B","price":2}')
    for hidden in (".c.json", "_SUCCESS", "x.json.crc"):
        (folder / hidden).write_text("not JSON") if hidden != "x.json.crc" else None
    of = table("bids", (), {"f": (STRING, "file.name"), "s": (BIGINT, "file.size")}, item=STRING, price=INT).with_(
        "filesystem", path="bids", format="json"
    )
    assert sorted(read_local_rows(of, tmp_path), key=str) == [
        {"c0": "A", "c1": 1, "c2": "a.json", "c3": 25},
        {"c0": "B", "c1": 2, "c2": "b.json", "c3": 22},
    ]
    one = table(item=STRING).with_("filesystem", path=f"file://{folder}/a.json", format="json")
    assert list(read_local_rows(one, Path("/elsewhere"))) == [{"c0": "A"}]
    some = table(item=STRING).with_options(
        {"connector": "filesystem", "path": "bids", "format": "json", "source.path.regex-pattern": ".*/deep/.*"}
    )
    assert list(read_local_rows(some, tmp_path)) == [{"c0": "B"}]


def test_a_bad_line_is_reported_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "bids.json").write_text('{"price":1}\n' * 16 + '{"price":"abc"}\n')
    of = table(price=INT).with_("filesystem", path="bids.json", format="json")
    with pytest.raises(ConnectorError) as caught:
        list(read_local_rows(of, tmp_path))
    assert str(caught.value) == (
        "error[bad-record]: `bids.json` line 17: field `price` is not an INT: `abc`\n"
        '  | {"price":"abc"}\n'
        "  = help: fix the record, or set 'json.ignore-parse-errors' = 'true' to skip and count such records"
    )


def test_a_header_of_a_csv_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "bids.csv").write_text("item,Price\na,1\n")
    of = table(item=STRING, price=INT).with_("filesystem", path="bids.csv", format="csv")
    with pytest.raises(ConnectorError) as caught:
        list(read_local_rows(of, tmp_path))
    assert str(caught.value) == (
        "error[bad-record]: `bids.csv` line 1: this is a header, the names of the columns\n"
        "  | item,Price\n"
        "  = help: remove the line, or set 'csv.ignore-parse-errors' = 'true' to skip and count such records"
    )


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    of = table(price=INT).with_("filesystem", path="nowhere", format="json")
    with pytest.raises(ConnectorError) as caught:
        list(read_local_rows(of, tmp_path))
    assert caught.value.code == "no-such-path"
    assert "table `bids`: there is no file or folder `nowhere`" in str(caught.value)


def test_partition_columns_are_read_from_directory_names(tmp_path: Path) -> None:
    for folder, item in (("dt=2020-04-15/k=a%2Fb", "A"), ("dt=2020-04-16/k=__DEFAULT_PARTITION__", "B")):
        (tmp_path / "t" / folder).mkdir(parents=True)
        (tmp_path / "t" / folder / "f.json").write_text(f'{{"item":"{item}"}}\n')
    from everfold.types import DATE

    of = table("t", ("dt", "k"), item=STRING, dt=DATE, k=STRING).with_("filesystem", path="t", format="json")
    assert sorted(read_local_rows(of, tmp_path), key=str) == [
        {"c0": "A", "c1": date(2020, 4, 15), "c2": "a/b"},
        {"c0": "B", "c1": date(2020, 4, 16), "c2": None},
    ]


def test_parquet_columns_are_converted_to_the_declared_types(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rows = pa.table({
        "n": pa.array([1], pa.int16()), "t": pa.array([1_586_937_900_120_000_001], pa.timestamp("ns")),
        "z": pa.array([1_586_937_900_120], pa.timestamp("ms")), "d": pa.array([Decimal("1.5")], pa.decimal128(5, 1)),
    })  # fmt: skip
    pq.write_table(rows, tmp_path / "f.parquet")
    of = table(n=BIGINT, t=TIMESTAMP3, z=TIMESTAMP_LTZ3, d=DecimalType(precision=10, scale=2)).with_(
        "filesystem", path="f.parquet", format="parquet"
    )
    assert list(read_local_rows(of, tmp_path)) == [
        {
            "c0": 1,
            "c1": datetime(2020, 4, 15, 8, 5, 0, 120_000),
            "c2": datetime(2020, 4, 15, 8, 5, 0, 120_000, UTC),
            "c3": Decimal("1.50"),
        }
    ]
    for wrong, code in ((table(n=TYPES[1]), "wrong-column-type"), (table(m=INT), "missing-column")):
        with pytest.raises(ConnectorError) as caught:
            list(read_local_rows(wrong.with_("filesystem", path="f.parquet", format="parquet"), tmp_path))
        assert caught.value.code == code
