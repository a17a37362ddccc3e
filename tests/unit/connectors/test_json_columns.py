"""Records of JSON decoded many at once have the rows of the decoder that reads one at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from unit.connectors import mutations
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.formats.json_columns import BadRecord, JsonDecoder, reason_not_in_columns
from everfold.connectors.formats.registry import format_of
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.registry import connector_of
from everfold.types import BIGINT, BOOLEAN, DATE, DOUBLE, FLOAT, INT, STRING, DataType, TimestampType

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


class Records:
    """The two decoders of a table."""

    def __init__(self, fields: list[tuple[str, DataType]], **options: str) -> None:
        settings = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "b:9092", "scan.startup.mode": "earliest-offset"}  # fmt: skip
        of = table("t", **dict(fields)).with_options({**settings, "format": "json", **options})
        form = format_of("json", of, connector_of(of).check(of, Role.SOURCE), "json.")
        assert isinstance(form, JsonFormat)
        self.form = form
        self.columns = [RecordColumn(name, at, each) for at, (name, each) in enumerate(fields)]
        self.fast = JsonDecoder(form, self.columns)

    def one_by_one(self, records: list[bytes]) -> list[list[Any]] | tuple[int, str]:
        """Return the rows, or the index of the first bad record and what is wrong with it."""
        decode, rows = self.form.decoder(self.columns), []
        for at, record in enumerate(records):
            try:
                rows += list(decode(record))
            except BadValue as wrong:
                return at, wrong.reason
        schema = [column.type.arrow for column in self.columns]
        return [[pa.array([value], of)[0].as_py() for value, of in zip(row, schema, strict=True)] for row in rows]

    def at_once(self, records: list[bytes]) -> list[list[Any]] | tuple[int, str]:
        """Return the same from the decoder under test."""
        try:
            found = self.fast.decode(pa.array(records, pa.binary()))
        except BadRecord as wrong:
            return wrong.index, wrong.reason
        return [list(row.values()) for row in found.rows.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return repr(value) if isinstance(value, float) else value


@pytest.mark.parametrize("seed", range(4))
def test_damaged_records(seed: int) -> None:
    fields = [(name, of) for name, of in mutations.fields_of("json") if reason_not_in_columns(Records([(name, of)]).form, [RecordColumn(name, 0, of)]) is None]  # fmt: skip
    assert len(fields) > 4
    both = Records(fields)
    records = mutations.records("json", 400, seed)
    for record in records:
        assert _plain(both.at_once([record])) == _plain(both.one_by_one([record])), record
    readable = [record for record in records if not isinstance(both.one_by_one([record]), tuple)]
    assert len(readable) > 50
    assert _plain(both.at_once(readable)) == _plain(both.one_by_one(readable))
    for record in readable:
        assert _plain(both.at_once([record] * 3)) == _plain(both.one_by_one([record] * 3)), record
    assert _plain(both.at_once(records)) == _plain(both.one_by_one(records))


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
    both = Records(FLAT)
    assert _plain(both.at_once([record])) == _plain(both.one_by_one([record]))
    regular = [b'{"l":%d,"s":"v"}' % at for at in range(40)]
    mixed = [*regular[:17], record, *regular[17:]]
    assert _plain(both.at_once(mixed)) == _plain(both.one_by_one(mixed))


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
        assert _plain(both.at_once(records)) == _plain(both.one_by_one(records))


def test_rows_know_their_records() -> None:
    both = Records(FLAT)
    records = [b'{"l":1}', b"", b'[{"l":2},{"l":3}]', b'{"l":4}']
    found = both.fast.decode(pa.array(records))
    assert found.rows["c1"].to_pylist() == [1, 2, 3, 4]
    assert found.records == [0, 2, 2, 3]
    assert both.fast.decode(pa.array(records[:1])).records is None


def test_what_is_left_to_catalyst() -> None:
    columns = [RecordColumn("s", 0, STRING)]
    assert reason_not_in_columns(Records([("s", STRING)]).form, columns) is None
    skipping = Records([("s", STRING)], **{"json.ignore-parse-errors": "true"})
    assert reason_not_in_columns(skipping.form, columns) == "json.ignore-parse-errors"
