"""Records decoded many at once have the rows, the flaws and the errors of those decoded one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from unit.connectors import mutations
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.formats.record_decoder import BadRecord, RecordDecoder
from everfold.connectors.formats.registry import format_of
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.registry import connector_of
from everfold.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    RowField,
    RowType,
    TimestampType,
)

FLAT = [
    ("i", INT),
    ("l", BIGINT),
    ("x", DOUBLE),
    ("f", FLOAT),
    ("s", STRING),
    ("b", BOOLEAN),
    ("d", DATE),
    ("t", TimestampType(precision=3)),
    ("z", TimestampType(precision=3, local_zone=True)),
]


NESTED = [
    *FLAT,
    ("m", DecimalType(precision=10, scale=2)),
    ("r", RowType(fields=(RowField(name="a", type=INT), RowField(name="t", type=TimestampType(precision=3))))),
    ("v", ArrayType(element=DATE)),
    ("w", ArrayType(element=RowType(fields=(RowField(name="m", type=DecimalType(precision=10, scale=2)),)))),
]
SETTINGS = {"csv": {"csv.null-literal": "n/a", "csv.allow-comments": "true"}}
SKIPPING = ("json", "csv", "debezium-json", "canal-json")


class Records:
    """The two decoders of a table."""

    def __init__(self, fields: Sequence[tuple[str, DataType]], name: str = "json", **options: str) -> None:
        settings = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "b:9092", "scan.startup.mode": "earliest-offset"}  # fmt: skip
        made = table("t", **dict(fields)).with_options({**settings, "format": name, **options})
        self.form: Format = format_of(name, made, connector_of(made).check(made, Role.SOURCE), f"{name}.")
        self.columns = [RecordColumn(name, at, of) for at, (name, of) in enumerate(fields)]
        self.fast = RecordDecoder(self.form, self.columns)

    def one_by_one(self, records: Sequence[bytes]) -> tuple[Any, ...]:
        """Return the rows, the record of each, and the flawed ones; or the index of the first bad
        record and what is wrong with it.
        """
        flaws: list[BadValue] = []
        decode = self.form.decoder(self.columns, flaws.append)
        rows, owners, flawed = [], [], []
        for index, record in enumerate(records):
            flaws.clear()
            try:
                decoded = list(decode(record))
            except BadValue as wrong:
                if not self.form.ignore_errors:
                    return index, wrong.reason
                decoded, flaws[:] = [], [wrong]
            rows += decoded
            owners += [index] * len(decoded)
            flawed += [index] * bool(flaws)
        types = self.form.row_schema(self.columns).types
        plain = [[pa.array([value], of)[0].as_py() for value, of in zip(row, types, strict=True)] for row in rows]
        return plain, owners, flawed

    def at_once(self, records: Sequence[bytes]) -> tuple[Any, ...]:
        """Return the same from the decoder under test."""
        try:
            found = self.fast.decode(pa.array(records, pa.binary()))
        except BadRecord as wrong:
            return wrong.index, wrong.reason
        rows = [list(row.values()) for row in found.rows.to_pylist()]
        return rows, found.row_records.tolist(), list(found.flawed)

    def are_alike(self, records: Sequence[bytes]) -> bool:
        """Return whether both decoders return the same."""
        return bool(plain(self.at_once(records)) == plain(self.one_by_one(records)))


def plain(value: Any) -> Any:
    """Return a value in which NaN is equal to itself, and -0.0 is not 0.0."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return repr(value) if isinstance(value, float) else value


SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", mutations.FORMATS)
def test_damaged_records(name: str, seed: int) -> None:
    fields, records = mutations.fields_of(name), mutations.records(name, 300 if seed else 100, seed)
    for ignore in ("false", "true") if name in SKIPPING else ("false",):
        options = SETTINGS.get(name, {}) | ({f"{name}.ignore-parse-errors": ignore} if name in SKIPPING else {})
        both = Records(fields, name, **options)
        for record in records:
            assert both.are_alike([record]), record
        readable = [record for record in records if len(both.one_by_one([record])) == 3]
        assert len(readable) > 10
        assert both.are_alike(readable)
        assert both.are_alike(records)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", mutations.FORMATS)
def test_records_with_few_columns(name: str, seed: int) -> None:
    """Of columns that can be decoded at once, so that blocks are."""
    fields = mutations.fields_of(name)
    records = mutations.records(name, 200 if seed else 40, seed)
    for field in fields if name not in ("avro", "csv") else []:
        both = Records([field], name)
        readable = [record for record in records if len(both.one_by_one([record])) == 3]
        assert both.are_alike(readable * 2), field
        for record in readable[: 50 if seed else 5]:
            assert both.are_alike([record] * 20), record


@pytest.mark.parametrize("of", mutations.RAW, ids=str)
def test_raw_records(of: DataType) -> None:
    both = Records([("x", of)], "raw")
    records = mutations.raw_records(of, 200, 1)
    assert both.are_alike([record for record in records if len(both.one_by_one([record])) == 3])
    assert both.are_alike(records)


CSV_FIELDS = [*FLAT, ("m", DecimalType(precision=10, scale=2))]
_TEXTS = ("", "a", "ü", '"', '""', "a,b", "\n", "n/a", " x", "x ", "#", "7", "'", "\ufeff", "a\rb", '","', "\\", "|")
_VALUES = ("1", "-7", "0", "007", "+1", "1.5", " 1", "1e3", "true", "TRUE", "2026-01-01", "2026-1-1", "2026-01-01 10:00:00", "2026-01-01 10:00", "", "n/a", "1.005", "99999999.99", "123456789.5", "-123456789", "2147483648")  # fmt: skip


def _csv_record(source: random.Random, quote: str, delimiter: str, *, plain: bool) -> bytes:
    fields = []
    for name, of in CSV_FIELDS:
        if plain or source.random() < 0.9:
            text = {"s": source.choice(_TEXTS), "b": "true", "d": "2026-01-01", "t": "2026-01-01 10:00:00.5", "z": "2026-01-01 10:00:00Z"}.get(name, str(source.randint(-99, 99)))  # fmt: skip
        else:
            text = source.choice(_VALUES)
        must_quote = any(each in text for each in (quote, delimiter, "\n", "\r"))
        if must_quote or (source.random() < 0.3 and of is STRING):
            text = quote + text.replace(quote, quote * 2) + quote
        fields.append(text)
    record = delimiter.join(fields)
    if not plain and source.random() < 0.2:
        at = source.randrange(len(record) + 1)
        record = record[:at] + source.choice([quote, delimiter, "\n", "\r", "x", '""', "#"]) + record[at:]
    return record.encode()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("options", [
    {}, {"csv.null-literal": "n/a"}, {"csv.allow-comments": "true"}, {"csv.field-delimiter": "|", "csv.quote-character": "'"},
    {"csv.escape-character": "\\"}, {"csv.field-delimiter": "ü"}, {"csv.disable-quote-character": "true"},
], ids=str)  # fmt: skip
def test_records_of_csv(options: dict[str, str], seed: int) -> None:
    source = random.Random(seed)
    delimiter, quote = options.get("csv.field-delimiter", ","), options.get("csv.quote-character", '"')
    for ignore in ("false", "true"):
        both = Records(CSV_FIELDS, "csv", **options, **{"csv.ignore-parse-errors": ignore})
        regular = [_csv_record(source, quote, delimiter, plain=True) for _ in range(40)]
        assert both.are_alike(regular)
        assert both.are_alike([record for record in regular if b"\n" not in record and b"\r" not in record])
        for _ in range(60 if seed else 10):
            odd = _csv_record(source, quote, delimiter, plain=False)
            assert both.are_alike([*regular[:20], odd, *regular[20:30]]), odd
            assert both.are_alike([odd]), odd
            assert both.are_alike([odd] * 2), odd


def test_fields_that_are_not_needed() -> None:
    fields = [("a", INT), ("b", STRING), ("c", INT)]
    for name, records in (("csv", [b"1,x,2", b'3,"y,z",4']), ("json", [b'{"a":1,"b":"x","c":2}', b'{"a":3,"b":"y,z","c":4}'])):  # fmt: skip
        made = Records(fields, name)
        for wanted in ([0], [1], [2], [0, 2], [1, 2]):
            decoded = RecordDecoder(made.form, made.columns, wanted).decode(pa.array(records))
            expected = {"c0": [1, 3], "c1": ["x", "y,z"], "c2": [2, 4]}
            assert decoded.rows.to_pydict() == {f"c{at}": expected[f"c{at}"] for at in wanted}
        assert RecordDecoder(made.form, made.columns, []).decode(pa.array(records)).rows.num_rows == 2


@pytest.mark.parametrize(
    "record",
    [
        b'{"l":1,"l":2}', b'{"z0":1,"z0":2,"l":5}', b'{"l":1.5}', b'{"l":1e3}', b'{"l":"7"}', b'{"s":1}', b'{"s":1.50}',
        b'{"s":"a\x01b"}', b'{"s":"\\ud800"}', b'{"s":"\\ud83d\\ude00"}', b'{"s":"a\\u0000b"}', b'{"l":9223372036854775808}',
        b'{"l":-0}', b'{"x":-0}', b'{"x":-0.0}', b'{"l":NaN}', b'{"x":NaN}', b'{"x":"NaN"}', b'{"l":1}{"l":2}', b'{"l":1}xx', b'{"l":1}}',
        b'{"q":{}', b'{"s":"x}', b'{"l":1,}', b'{"q":{"l":5},"l":1}', b'{"b":true}', b'{"b":"TRUE"}', b'{"b":1}', b'null', b'{}', b'[]',
        b'[{"l":1},{"l":2}]', b'', b'  ', b'{"l":01}', b'{"l":+1}', b'{"\\u006c":1}', b'{"s":"\xff"}', b'{"s":"\xc0\x80"}', b'{"l":1/*x*/}',
        b'{"l":{"b":1}}', b'{"s":[1, 2]}', b'{"":1,"l":2}', b'{"l":null,"s":null}', b' {"l" : 1 , "s" : "q" } ', b'{"l":1}\r', b'{"l":1}\n',
        b'{"s":"a\nb"}', b'{"i":2147483648}', b'{"x":1e400}', b'{"x":1e-400}', b'{"x":0.1}', b'{"x":1}', b'{"f":0.1}', b'{"f":1e39}', b'{"f":16777217}',
        b'{"f":0.30000001192092896}', b'{"x":123456789012345678901234567890}', b'{"d":"2026-02-29"}', b'{"d":"2024-02-29"}', b'{"d":"0001-01-01"}', b'{"d":"1500-01-01"}',
        b'{"t":"2026-01-01 00:00:00"}', b'{"t":"2026-01-01T00:00:00"}', b'{"t":"2026-01-01 00:00:00.1234"}', b'{"t":"2026-01-01 24:00:00"}', b'{"t":"2026-01-01 00:00:60"}',
        b'{"t":"2026-01-01 00:00:00Z"}', b'{"z":"2026-01-01 00:00:00Z"}', b'{"z":"2026-01-01 00:00:00.5Z"}', b'{"z":"2026-01-01 00:00:00"}', b'{"t":"1582-10-10 00:00:00"}',
        b'{"t":"9999-12-31 23:59:59.999"}', b'{"t":" 2026-01-01 00:00:00"}', b'{"t":1}', b'\xef\xbb\xbf{"l":1}', b'{"L":1}', b'{"s":"' + b"x" * 100_000 + b'"}',
        b'{"q":' + b"[" * 5000 + b"]" * 5000 + b',"l":1}', b'{"q":"' + b"[" * 5000 + b'","l":1}',
    ],
)  # fmt: skip
def test_records_that_parsers_disagree_about(record: bytes) -> None:
    regular = [b'{"l":%d,"s":"v"}' % at for at in range(40)]
    for both in (Records(FLAT), Records(NESTED), Records(FLAT, **{"json.ignore-parse-errors": "true"})):
        assert both.are_alike([record])
        assert both.are_alike([*regular[:17], record, *regular[17:]])
    required = Records(FLAT[1:2], **{"json.fail-on-missing-field": "true"})
    assert required.are_alike([record] * 20)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("l", [b"1", b"-7", b"0", b"null", b"9223372036854775807"]), ("l", [b"1", b"-0"]), ("l", [b"1", b"00"]), ("l", [b"1", b"0x7"]), ("l", [b"1", b"+1"]),
        ("l", [b"1", b"9223372036854775808"]), ("i", [b"1", b"2147483648"]), ("i", [b"1", b"1.0"]), ("i", [b"1", b'"2"']), ("i", [b"1", b"true"]), ("l", [b"null", b"null"]),
        ("x", [b"1", b"-0", b"1.5", b"1e3", b"null"]), ("x", [b"1", b".5"]), ("x", [b"1", b"5."]), ("x", [b"1", b"inf"]), ("x", [b"1", b"NaN"]), ("x", [b"1", b"1e999"]), ("f", [b"0.1", b"1e39"]),
        ("b", [b"true", b"false", b"null"]), ("b", [b"true", b"TRUE"]), ("b", [b"true", b"1"]), ("s", [b'"a"', b'""', b'"\xc3\xbc"']), ("s", [b'"a"', b"null"]), ("s", [b"null"] * 2), ("s", [b"1", b"2"]),
        ("s", [b'"a"', b'"\x7f"']), ("s", [b'"null"', b'"a"']), ("d", [b'"2026-01-01"', b'"2024-02-29"']), ("d", [b'"2026-01-01"', b'"2026-02-29"']), ("t", [b'"2026-01-01 00:00:00.5"', b'"2026-01-01 00:00:01"']),
        ("t", [b'"2026-01-01 00:00:00"', b'"2026-01-01T00:00:00"']), ("z", [b'"2026-01-01 00:00:00Z"', b'"2026-01-01 00:00:00.25Z"']), ("q", [b"1", b"x"]), ("q", [b"1", b"-1.5e-3"]), ("q", [b"1", b"01"]),
        ("l", [b"10", b"0", b"-5"]), ("l", [b"1", b"1 "]), ("l", [b"1", b"1\xc2\xa0"]), ("l", [b"1", b"-"]), ("l", [b"1", b"-01"]), ("l", [b"1", b"1_0"]), ("l", [b"1", b"0X2"]), ("l", [b"-9223372036854775808"]),
        ("q", [b"0", b"10"]), ("q", [b"10", b"00"]), ("q", [b"1", b"1:"]), ("q", [b"1", b"1/"]), ("q", [b"1", b"-"]), ("q", [b"1", b"-0"]), ("q", [b"1", b"\xd9\xa1"]),
        *(("t", [b'"%s"' % text] * 2) for text in (
            b"1600-01-01 00:00:00", b"1599-12-31 23:59:59", b"0999-12-31 23:59:59", b"1:00-01-01 00:00:00", b"9999-12-31 23:59:59.999", b"2026-01-01 00:00:00.1234", b"2026-01-01 00:00:00.",
            b"2026-01-01 00:00:0:", b"2026-01-01 00:00:0/", b"2026-01-01x00:00:00", b"2026-13-01 00:00:00", b"2026-01-01 24:00:00", b"2026-01-01 00:00:60", b"2026-01-01 00:00", b"", b"null",
            b"2026-01-01 00:00:00Z",
        )),
        ("z", [b'"2026-01-01 00:00:00.5Z"'] * 2), ("z", [b'"2026-01-01 00:00:00.5z"'] * 2), ("z", [b'"2026-01-01 00:00:00.555"'] * 2), ("d", [b'"1600-02-29"', b'"2026-12-31"']), ("d", [b'"1600-02-30"']), ("d", [b'"1599-01-01"']),
    ],
)  # fmt: skip
def test_records_of_one_shape(name: str, values: list[bytes]) -> None:
    both = Records(FLAT)
    for pattern in (b'{"%s":%s}', b'{"%s":%s,"q1":true}', b' { "q2" : "x", "%s" : %s , "q1":-1.5} '):
        records = [pattern % (name.encode(), value) for value in values] * 10
        assert both.are_alike(records)


@pytest.mark.parametrize(
    "value",
    [
        b'"m":1.5', b'"m":"1.5"', b'"m":1.005', b'"m":1e3', b'"m":" 1"', b'"m":123456789.01', b'"m":-0.0', b'"m":123456789.5', b'"m":"-123456789"', b'"r":null,"w":[{"m":123456789}]', b'"m":null', b'"m":true', b'"m":0x1',
        b'"r":{"a":1,"t":"2026-01-01 00:00:00"}', b'"r":null', b'"r":{}', b'"r":{"a":"1"}', b'"r":{"t":"2026-13-01 00:00:00"}', b'"r":[1]', b'"r":{"a":1,"a":2}', b'"r":{"a":1.0}',
        b'"v":["2026-01-01",null,"1999-12-31"]', b'"v":[]', b'"v":null', b'"v":["x"]', b'"v":{}', b'"v":[["2026-01-01"]]', b'"v":["1500-01-01"]',
        b'"w":[{"m":1},{"m":null},null,{}]', b'"w":[{"m":"x"}]', b'"w":[]', b'"w":[{"m":1.005}]',
    ],
)  # fmt: skip
def test_nested_records(value: bytes) -> None:
    record = b'{"i":1,' + value + b"}"
    regular = b'{"i":2,"m":2.5,"r":{"a":1,"t":"2026-01-01 10:00:00.5"},"v":["2026-01-01"],"w":[{"m":7}]}'
    for both in (Records(NESTED), Records(NESTED, **{"json.ignore-parse-errors": "true"})):
        assert both.are_alike([record])
        assert both.are_alike([record] * 20)
        assert both.are_alike([*[regular] * 20, record, *[regular] * 20])


def test_rows_know_their_records() -> None:
    both = Records(FLAT)
    records = [b'{"l":1}', b"", b'[{"l":2},{"l":3}]', b'{"l":4}']
    found = both.fast.decode(pa.array(records))
    assert found.rows["c1"].to_pylist() == [1, 2, 3, 4]
    assert found.row_records.tolist() == [0, 2, 2, 3]
    assert both.fast.decode(pa.array(records[:1])).records is None


CHANGES = [
    b'{"before":null,"after":{"i":1,"s":"a"},"op":"c"}', b'{"before":{"i":1},"after":{"i":2},"op":"u","ts_ms":5,"source":{"db":"x"}}', b'{"before":{"i":2},"after":null,"op":"d"}',
    b'{"after":{"i":7},"op":"r"}', b'{"after":{"i":7},"op":"u"}', b'{"before":{"i":1},"op":"c"}', b'{"op":"d"}', b'{"op":"x"}', b"{}", b"", b"[]", b'{"before":{"i":"x"},"after":{"i":2},"op":"c"}',
    b'{"before":{"i":"x"},"after":{"i":2},"op":"u"}', b'{"before":{"i":1},"after":{"i":1.5},"op":"u"}', b'{"before":null,"after":{"i":1,"t":"2026-01-01 00:00:00"},"op":"c"}', b'{"after":[],"op":"c"}',
]  # fmt: skip


@pytest.mark.parametrize("record", CHANGES)
def test_changes(record: bytes) -> None:
    for ignore in ("false", "true"):
        both = Records(FLAT, "debezium-json", **{"debezium-json.ignore-parse-errors": ignore})
        assert both.are_alike([record])
        assert both.are_alike([record] * 20)
        assert both.are_alike([*CHANGES[:4] * 6, record, *CHANGES[:4] * 6])
