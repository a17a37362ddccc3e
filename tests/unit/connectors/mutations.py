"""Seeded records of every format with values of every column type, many of them damaged.

A source must read the same rows from them on every engine.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from random import Random

from unit.connectors.samples import JSON_TEXTS, NESTED, TYPES
from unit.connectors.tables import encode_rows

from everfold.types import (
    INT,
    STRING,
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    IntervalType,
    MapType,
    RowField,
    RowType,
    TimestampType,
    TimeType,
)

PAIR = RowType(fields=(RowField(name="x", type=INT), RowField(name="y", type=STRING)))
INTERVALS: tuple[DataType, ...] = (IntervalType(months=True), IntervalType(months=False))
SCALARS: tuple[DataType, ...] = (*TYPES, *INTERVALS)
COLUMNS: dict[str, tuple[DataType, ...]] = {
    "json": (*SCALARS, *NESTED),
    "debezium-json": (*SCALARS, *NESTED),
    "canal-json": (*SCALARS, *NESTED),
    "csv": (*SCALARS, *(ArrayType(element=each) for each in (INT, STRING, DecimalType(precision=10, scale=2))), PAIR),
    "avro": (*TYPES, *NESTED),
}
"""The column types of the table that is read, by format."""

ODD_TEXTS = (
    "٣", "３", "1٣", "٢٠٢٠-٠١-٠١", "٢٠٢٠-٠١-٠١ ٠٠:٠٠:٠٠", "١٢:٠٠:٠٠", "²", "Ⅷ", "𝟏", "1\u00a0", "\u00a01", "\u20031", "1\u0085", "1\u001c",
    "\u001f1", "1\x7f", "\x001", "1\x00", "\t1\r", "\x0b1\x0c", "1\u200b", "\ufeff1", "−1", "1,000", "1_000", "1 2", "+-1", "--1", "+", "-", ".",
    ".5", "5.", "+.5", "-5.", "1.e2", ".5e1", "1e", "e1", "1e+", "1e+2", "1E-2", "1e400", "-1e400", "1e-400", "4e-46", "3.4028236e38", "1.7976931348623159e308",
    "1e999999999", "1e-999999999", "1e99999999999999999999", "0x1p3", "0X1F", "1f", "1F", "1d", "1D", "1l", "1e2f", "1.d", ".f", "NaN", "nan", "NAN", "-NaN", "+NaN",
    "Infinity", "-Infinity", "+Infinity", "infinity", "INFINITY", "inf", "Inf", "-inf", "+inf", "NaNf", "Infinityd", "null", "NULL", "0" * 60 + "1", "9" * 39,
    "1." + "0" * 60, "0." + "9" * 45, "-0.0", "-0", "+0", "00", "007", "127", "-128", "-129", "32767", "-32769", "2147483647", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "99999999.99", "99999999.994", "99999999.995", "0.005", "-0.005",
    "0.0049", "16777217", "0.1", "1e23", "9007199254740993", "123456789012345678", "true", "TRUE", " true ", "True\u00a0", "trUe\x1c", "tru", "t", "T", "yes", "1", "0",
    "on", "FALSE", "false\t", "ſalse", "falſe", "ﬀalse", "2020-01-01", " 2020-01-01", "2020-01-01 ", "2020-1-1", "2020-1-01", "2020-001-01", "+2020-01-01", "-2020-01-01",
    "0000-01-01", "0001-01-01", "0001-12-31 23:59:59.999999", "9999-12-31", "10000-01-01", "1582-10-10", "1582-10-04 12:00:00", "1900-02-29", "2000-02-29", "2020-02-30",
    "2020-04-31", "2020-13-01", "2020-00-10", "2020-01-00", "2020/01/01", "20200101", "2020-01", "2020-01-01T00:00:00", "2020-01-01 00:00:00", "2020-01-01  00:00:00",
    "2020-01-01 0:00:00", "2020-01-01 00:00", "2020-01-01 00:00:00.", "2020-01-01 00:00:00.1", "2020-01-01 00:00:00.123456", "2020-01-01 00:00:00.1234567",
    "2020-01-01 00:00:00.123456789", "2020-01-01 00:00:00.1234567890", "2020-01-01 24:00:00", "2020-01-01 23:59:60", "2020-01-01 00:60:00", "2020-01-01 00:00:00Z",
    "2020-01-01 00:00:00z", "2020-01-01 00:00:00.5Z", "2020-01-01 00:00:00+00:00", "2020-01-01 00:00:00 UTC", "2020-01-01 00:00:00ZZ", "1969-12-31 23:59:59.9999Z",
    "0001-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z", "0000-12-31 23:59:59Z", "2021-03-28 02:30:00", "12:00:00", "12:00", "12:00:00.", "12:00:00.5", "12:00:00.9999",
    "12:00:00.999999999", "12:00:00.1234567890", "24:00:00", "23:59:60", "-1:00:00", "1:00:00", "12:0:0", "12:00:00 ", "aGVsbG8=", "aGVsbG8", "aGVsbG8==", "aGVsbG8=\n", "aGVs bG8=",
    "aGVsbG9=", "YQ", "YQ=", "YQ==", "YQ===", "YR==", "Y", "YWI=", "YWJ=", "YWJj", "YWJjZ", "=", "==", "====", "a-_b", "a+/b", "", " ", "  ", "\t", "abc", "ä", "e\u0301", "😀", "\ufffd",
    "\ufffe", "a,b", "a;b", "a|b", 'a"b', '"', '""', "'", "\\", "\\n", "\\u0041", "#x", "a" * 30, "1;2", "1;", ";1", ";", ";;", "1;x", "x;1", "1;2;3", "٣;1", "1; 2", " 1;2 ", "12;ab", "0.5;1e2",
)  # fmt: skip
"""Strings: some are values of some type, most are values of no type, or only to some library."""

ODD_JSON = (
    *JSON_TEXTS, '-1', '+1', '.5', '5.', '01', '-', '-0', '-0.0', '0.0', '1e400', '-1e400', '1e-400', '12345678901234567890.123e0', '2147483647.99999999999999999',
    '16777217.00000000000000001', '0.005000000000000000001', '"\\ud800"', '"a\\udc00b"', '{"b":"\\ud83d"}', '"\x01"', '"a\tb"', '["\x00\x1f",[1]]', '[{"a":1,"b":"\t"},5]', '[{"a":1.50}]',
    '[1.50,1e2,-0.0]', '1E3', '1e-3', '1E+2', '0x1F', 'NaN', '-Infinity', 'Infinity', 'True', 'nul', 'nulll', 'truee',
    '1 2', '1.0000000000000000001', '0.1', '1.10', '100000000000000000000', '12345678.994999999999999999', '99999999.995', '3.4028236e38', "'a'", 'abc', '"a', 'a"', '"\\x"', '"\\u12"', '"\\ud83d\\ude00"', '"\x7f"', '"\\/\\b\\f\\n\\r\\t"', '"é"', '[1,]', '[,1]', '[1 2]', '[null]', '[[]]', '[[1],null]', '[[1],["x"]]', '[[1],[2.5]]', '[["٣"]]', '["1","2"]',
    '[1,"x"]', '[{"a":1}]', '[{"a":"x","b":{"c":[1, 2]}}]', '[{"a":1},null,{"b":2}]', '[{"a":1},5]', '[5]', '["a",["b" ,1]]', '{"a":"x"}', '{"a":"٣"}', '{"a":null}', '{"a":[1]}', '{"a":{"a":1}}', '{"a":1,"a":2}',
    '{"a":1,"b":2}', '{"b":"x"}', '{"a":1.5}', '{"a" : 1 , "b" :"2"}', '{"A":1}', '{"":1}', '{a:1}', "{'a':1}", '{"a":1,}', '{"a"}', '{"a":}', '{"a":1', '{"\\u0061":1}', '/* c */ 1', '1 // c', '{"a":"2147483648"}',
    '"' + 'x' * 30 + '"', '[' * 40 + ']' * 40, '1577836800000', '1.577836800E12', '"1e2"', '"1E+2"', '123456789012345678901234567890.5', '[12345678901234567890.123]', '1.500', '-1.5e1', '"{}"', '"[1]"', '"null"',
)  # fmt: skip
"""JSON fragments that may occur in place of a JSON value."""


def record_of(form: str, random: Random) -> bytes:
    """Return a record: sound, with odd values, or with odd bytes."""
    made = _RECORDS[form](random)
    return _damage(made, random) if random.random() < 0.2 else made


def records(form: str, count: int, seed: int) -> list[bytes]:
    """Return `count` records of a format. The same seed produces the same records."""
    random = Random(f"{form} {seed}")
    return [record_of(form, random) for _ in range(count)]


def _damage(record: bytes, random: Random) -> bytes:
    """Change, remove, add or repeat some of the bytes."""
    bytes_ = bytearray(record)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(bytes_) + 1)
        match random.randrange(6):
            case 0 if at < len(bytes_):
                bytes_[at] ^= 1 << random.randrange(8)
            case 1:
                del bytes_[at : at + random.randrange(1, 4)]
            case 2:
                bytes_[at:at] = random.choice(
                    (
                        b"\xff",
                        b"\xc3",
                        b"\xed\xa0\x80",
                        b"\xf0\x9f\x98",
                        b"\xc0\x80",
                        b"\x00",
                        b"\xef\xbb\xbf",
                        b"\xf4\x90\x80\x80",
                    )
                )
            case 3:
                bytes_[at:at] = random.choice(b"\"\\{}[],:;' \t#0n").to_bytes(1, "big")
            case 4:
                del bytes_[at:]
            case _:
                bytes_[at:at] = bytes_[at : at + random.randrange(1, 9)]
    return bytes(bytes_).replace(b"\n", b"\\n")


# --- values as strings --------------------------------------------------------------------------


def text_for(of: DataType, random: Random) -> str:
    """Return a string that is a value of the type."""
    match of:
        case BooleanType():
            return random.choice(("true", "false", "TRUE", " False "))
        case IntegerType() | IntervalType():
            bits = of.bits if isinstance(of, IntegerType) else 32
            return str(random.randrange(-(1 << bits - 1), 1 << bits - 1) >> random.randrange(bits))
        case FloatingType():
            return repr(random.choice((1.0, 1e-3, 1e10, 1e300, -1.0)) * random.random())
        case DecimalType():
            whole = random.randrange(10 ** random.randrange(1, of.precision - of.scale + 1))
            return f"{random.choice(('', '-', '+'))}{whole}" + (
                f".{random.randrange(10**of.scale):0{of.scale}}" if random.random() < 0.7 else ""
            )
        case BytesType():
            import base64

            return base64.b64encode(random.randbytes(random.randrange(6))).decode()
        case DateType():
            return str(date(1, 1, 1) + timedelta(days=random.randrange(3_652_059)))
        case TimeType():
            return f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}" + _fraction(random)
        case TimestampType():
            at = datetime(1, 1, 1) + timedelta(seconds=random.randrange(3_652_059 * 86400))
            return at.isoformat(" ") + _fraction(random) + ("Z" if of.local_zone else "")
        case _:
            return "".join(random.choice("abc XYZ,;|\"'\\/äß😀\t0189") for _ in range(random.randrange(12)))


def _fraction(random: Random) -> str:
    return random.choice(("", "", "." + "".join(random.choice("0123456789") for _ in range(random.randrange(1, 10)))))


def _text(of: DataType, random: Random) -> str:
    return random.choice(ODD_TEXTS) if random.random() < 0.4 else text_for(of, random)


# --- JSON -----------------------------------------------------------------------------------------


def _json_value(of: DataType, random: Random, sound: bool) -> str:
    odd = random.random()
    if sound:
        odd = max(odd, 0.3)
    if odd < 0.15:
        return random.choice(ODD_JSON)
    if odd < 0.3:
        return json.dumps(random.choice(ODD_TEXTS), ensure_ascii=random.random() < 0.5)
    if odd < 0.35:
        return "null"
    match of:
        case ArrayType():
            return "[" + ",".join(_json_value(of.element, random, sound) for _ in range(random.randrange(4))) + "]"
        case MapType():
            return (
                "{"
                + ",".join(
                    f'"{random.choice("abcdé")}":{_json_value(of.value, random, sound)}'
                    for _ in range(random.randrange(4))
                )
                + "}"
            )
        case RowType():
            return _json_object([(each.name, each.type) for each in of.fields], random, sound)
        case _:
            text = text_for(of, random)
            if (
                isinstance(of, BooleanType | IntegerType | FloatingType | DecimalType | IntervalType)
                and random.random() < 0.6
            ):
                return text.strip().lower().removeprefix("+")
            return json.dumps(text, ensure_ascii=random.random() < 0.5)


def _json_object(fields: Sequence[tuple[str, DataType]], random: Random, sound: bool, share: float = 0.8) -> str:
    members = []
    for name, of in fields:
        if random.random() < share:
            members.append(
                f'"{name}"{random.choice(("", "", " "))}:{random.choice(("", "", " "))}{_json_value(of, random, sound)}'
            )
            if random.random() < 0.03:
                members.append(f'"{name}":{_json_value(of, random, sound)}')
    random.shuffle(members)
    return "{" + random.choice((",", ", ")).join(members) + "}"


def fields_of(form: str) -> list[tuple[str, DataType]]:
    """Return the columns of the table that is read."""
    return [(f"x{at}", of) for at, of in enumerate(COLUMNS[form])]


def _row(form: str, random: Random) -> str:
    return _json_object(fields_of(form), random, random.random() < 0.5, random.choice((0.05, 0.1, 0.3)))


def _json(random: Random) -> bytes:
    around = random.random()
    row = _row("json", random)
    if around < 0.1:
        row = "[" + ",".join([row, *(_row("json", random) for _ in range(random.randrange(3)))]) + "]"
    elif around < 0.15:
        row = random.choice(ODD_JSON)
    elif around < 0.3:
        row = random.choice(
            (
                "{0} ",
                " {0}",
                "\ufeff{0}",
                "{0} x",
                "{0}{0}",
                "{0},",
                "\t{0}\r",
                "\u00a0{0}",
                "[{0}",
                "{0}]",
                "[{0}] x",
                "[{0},5]",
                "[[{0}]]",
                "[{0},null]",
                "\x00{0}",
                "{0}\x00",
                "[]",
                "",
                " ",
                "[ ]",
                "//{0}",
            )
        ).replace("{0}", row)
    return row.encode("utf-8", "surrogatepass")


def _debezium(random: Random) -> bytes:
    members = {
        "before": _row("debezium-json", random),
        "after": _row("debezium-json", random),
        "op": random.choice(('"c"', '"r"', '"u"', '"u"', '"d"')),
    }
    if members["op"] in ('"c"', '"r"') and random.random() < 0.8:
        members["before"] = "null"
    if members["op"] == '"d"' and random.random() < 0.8:
        members["after"] = "null"
    if random.random() < 0.25:
        members[random.choice(list(members))] = random.choice((*ODD_JSON, "null", '"C"', '""', "[{}]", "{}"))
    if random.random() < 0.05:
        members.pop(random.choice(list(members)))
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}").encode(
        "utf-8", "surrogatepass"
    )


def _canal(random: Random) -> bytes:
    count = random.randrange(1, 3)
    counts = {"data": count, "old": count if random.random() < 0.9 else random.randrange(4)}
    rows = {name: "[" + ",".join(_row("canal-json", random) for _ in range(n)) + "]" for name, n in counts.items()}
    members = {**rows, "type": random.choice(('"INSERT"', '"UPDATE"', '"UPDATE"', '"UPDATE"', '"DELETE"', '"CREATE"'))}
    if members["type"] != '"UPDATE"' and random.random() < 0.8:
        members["old"] = "null"
    if random.random() < 0.25:
        members[random.choice(list(members))] = random.choice(
            (*ODD_JSON, "null", '"insert"', "[]", "[null]", "[{},5]", "[{}]", "{}")
        )
    if random.random() < 0.05:
        members.pop(random.choice(list(members)))
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}").encode(
        "utf-8", "surrogatepass"
    )


# --- other formats --------------------------------------------------------------------------------


def _csv(random: Random) -> bytes:
    sound = random.random() < 0.7
    fields = []
    for _, of in fields_of("csv"):
        if isinstance(of, ArrayType):
            field = ";".join(text_for(of.element, random).replace(";", "") for _ in range(random.randrange(4)))
        elif isinstance(of, RowType):
            field = ";".join(text_for(each.type, random).replace(";", "") for each in of.fields)
        else:
            field = text_for(of, random)
        if random.random() < (0.02 if sound else 0.3):
            field = random.choice(ODD_TEXTS)
        if random.random() < 0.1:
            field = "n/a"
        if any(each in field for each in ',"\\') or random.random() < 0.1:
            field = '"' + field.replace('"', '""') + '"' if random.random() < 0.95 else field
        fields.append(field.replace("\n", "").replace("\r", ""))
    if random.random() < 0.1:
        del fields[random.randrange(len(fields))]
    if random.random() < 0.1:
        fields.append(random.choice(("", "", "x")))
    line = ",".join(fields)
    if random.random() < 0.05:
        line = random.choice(("", "\ufeff" + line, "#" + line, " ", ",", '"', line + "\r", "\r", '""'))
    return line.encode("utf-8", "surrogatepass")


def _avro(random: Random) -> bytes:
    from everfold.connectors.formats.avro import AvroFormat
    from everfold.connectors.formats.format import RecordColumn

    fields = fields_of("avro")
    columns = [RecordColumn(name, at, of) for at, (name, of) in enumerate(fields)]
    row = [None if random.random() < 0.5 else value_for(of, random) for _, of in fields]
    (record,) = encode_rows(AvroFormat(), columns, [row])
    assert record is not None
    return record


def value_for(of: DataType, random: Random) -> object:
    """Return a value of the type as Arrow returns it in Python."""
    from everfold.connectors.formats.csv import RULES
    from everfold.connectors.formats.text_decode import converter

    match of:
        case ArrayType():
            return [value_for(of.element, random) for _ in range(random.randrange(3))]
        case MapType():
            return [(key, value_for(of.value, random)) for key in random.sample("abcdef", random.randrange(3))]
        case RowType():
            return {each.name: value_for(each.type, random) for each in of.fields}
        case _:
            value = converter(of, RULES)(text_for(of, random))
            if isinstance(of, TimestampType) and of.precision < 6:
                assert isinstance(value, datetime)
                return value.replace(microsecond=value.microsecond // 1000 * 1000)
            return value


RAW: tuple[DataType, ...] = (*TYPES[:7], STRING, *(each for each in TYPES if isinstance(each, BytesType)))


def raw_records(of: DataType, count: int, seed: int) -> list[bytes]:
    """Return `count` records of the format raw for a type."""
    random = Random(f"raw {of} {seed}")
    width = {"BOOLEAN": 1, "FLOAT": 4, "DOUBLE": 8}.get(of.sql, of.bits // 8 if isinstance(of, IntegerType) else 5)
    odd = [
        struct.pack(">d", each)
        for each in (
            0.0,
            -0.0,
            float("inf"),
            float("-inf"),
            float("nan"),
            5e-324,
            2.2250738585072014e-308,
            1.7976931348623157e308,
        )
    ]
    odd += [
        struct.pack(">f", each) for each in (0.0, -0.0, float("inf"), float("nan"), 1e-45, 1.17549435e-38, 3.4028235e38)
    ]
    odd += [
        bytes(width),
        b"\xff" * width,
        b"\x80" + bytes(width - 1),
        b"\x7f" + b"\xff" * (width - 1),
        b"",
        bytes(width + 1),
        bytes(max(width - 1, 0)),
        *(each.encode("utf-8", "surrogatepass") for each in ODD_TEXTS),
    ]
    return [random.choice(odd) if random.random() < 0.3 else random.randbytes(width) for _ in range(count)]


_RECORDS: dict[str, Callable[[Random], bytes]] = {
    "json": _json, "csv": _csv, "avro": _avro, "debezium-json": _debezium, "canal-json": _canal,
}  # fmt: skip
FORMATS = tuple(_RECORDS)
