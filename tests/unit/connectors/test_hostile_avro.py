"""Records and schemas of Avro that would recurse, or create values, without end."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from unit.connectors.test_avro_confluent import Registry, columns, registry, write

from everfold.connectors.formats.avro_confluent import AvroConfluentFormat
from everfold.connectors.formats.avro_limits import find_check
from everfold.connectors.formats.schema_registry import SchemaRegistry
from everfold.connectors.formats.text_decode import BadValue
from everfold.errors import ConnectorError
from everfold.limits import MAX_RECORD_DEPTH, MAX_SCHEMA_BYTES, MAX_SCHEMA_REFERENCES
from everfold.types import INT, STRING

__all__ = ["registry"]
NODE = b"\x02a\x0a"
"""k = 'a', n = 5."""
HEADER = b"\0\0\0\0\1"
ROW = {"k": "a", "n": 5}


def schema_of(more: Any) -> dict[str, Any]:
    """Return the schema of a record with the columns of the table and another field."""
    fields = [{"name": "k", "type": "string"}, {"name": "n", "type": "int"}, {"name": "more", "type": more}]
    return {"type": "record", "name": "r", "fields": fields}


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(types)]}


def number(value: int) -> bytes:
    """Return a number as Avro writes it."""
    value, written = value << 1, b""
    while value > 0x7F:
        value, written = value >> 7, written + bytes([value & 0x7F | 0x80])
    return written + bytes([value])


def doubling(leaf: Any, levels: int) -> Any:
    """Return a type with two values of the type below it, at each level."""
    below: Any = record("t0", leaf)
    for level in range(1, levels):
        below = record(f"t{level}", below, f"t{level - 1}")
    return below


def read(registry: Registry, record: bytes) -> dict[str, Any]:
    form = AvroConfluentFormat(registry=SchemaRegistry((registry.url,)))
    return form.open_reader(columns(k=STRING, n=INT))(record)


@pytest.mark.parametrize(
    ("more", "content", "reason"),
    [
        (["null", "r"], b"\2" + (NODE + b"\2") * 50_000 + NODE + b"\0", "nested more than 400 levels"),
        ({"type": "array", "items": "r"}, b"\2" + (NODE + b"\2") * 50_000, "nested more than 400 levels"),
        ({"type": "map", "values": "r"}, b"\2\2b" + (NODE + b"\2\2b") * 50_000, "nested more than 400 levels"),
        ({"type": "array", "items": "null"}, number(1 << 40) + b"\0", "more than 1,000,000 values"),
        ({"type": "array", "items": "null"}, number(999_000) * 2 + b"\0", "more than 1,000,000 values"),
        ({"type": "array", "items": record("e")}, number(1 << 40) + b"\0", "more than 1,000,000 values"),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, number(1 << 40), "more than 1,000,000"),
        (doubling("null", 50), b"", "more than 1,000,000 values"),
        ({"type": "array", "items": ["null", doubling("null", 22)]}, b"\2\2", "more than 1,000,000 values"),
        (doubling("int", 50), b"\0" * 10_000, "EOF|ends too early|left over|not an Avro record"),
    ],
)
def test_a_record_that_grows_is_bad(registry: Registry, more: Any, content: bytes, reason: str) -> None:
    registry.add(schema_of(more))
    with pytest.raises(BadValue, match=reason):
        read(registry, HEADER + NODE + content)


def test_recursive_and_empty_types_are_read_within_the_limits(registry: Registry) -> None:
    row: dict[str, Any] = {**ROW, "more": None}
    for _ in range(MAX_RECORD_DEPTH // 2 - 2):
        row = {**ROW, "more": row}
    recursive, empty = schema_of(["null", "r"]), schema_of({"type": "array", "items": "null"})
    assert read(registry, write(registry.add(recursive), recursive, row)) == ROW
    assert read(registry, write(registry.add(empty), empty, {**ROW, "more": [None] * 1000})) == ROW


ALL_TYPES = {
    "type": "record",
    "name": "all",
    "fields": [
        {"name": "recursive", "type": ["null", "all"]},
        {
            "name": "array",
            "type": {"type": "array", "items": ["double", {"type": "enum", "name": "e", "symbols": ["A"]}]},
        },
        {"name": "map", "type": {"type": "map", "values": {"type": "map", "values": "float"}}},
        {"name": "fixed", "type": {"type": "fixed", "name": "f", "size": 3}},
        {"name": "again", "type": "f"},
        {"name": "long", "type": "long"},
        {"name": "bytes", "type": "bytes"},
        {"name": "boolean", "type": "boolean"},
    ],
}


def test_a_scan_follows_every_type() -> None:
    named: dict[str, Any] = {}
    schema = parse_schema(ALL_TYPES, named_schemas=named)
    check = find_check(schema, named)
    inner: dict[str, Any] = {"recursive": None, "array": [1.5, "A", "A"], "map": {"x": {"y": 1.0, "z": 2.0}, "": {}}}
    inner |= {"fixed": b"abc", "again": b"def", "long": -(1 << 63), "bytes": b"x" * 1000, "boolean": True}
    written = io.BytesIO()
    schemaless_writer(written, schema, {**inner, "recursive": inner})
    content = written.getvalue()
    check(content)
    for end in range(len(content)):
        with pytest.raises(BadValue, match="ends too early"):
            check(content[:end])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested more than"),
        ('{"type":' * 100_000 + '"int"' + "}" * 100_000, "nested more than"),
        ('"r"', ""),
        ("17", ""),
        ("null", ""),
        ("{}", ""),
        ('{"type": "record", "name": "r", "fields": 1}', ""),
        ('{"type": "record", "name": "r", "fields": ["k"]}', ""),
        ('{"type": "record", "name": ["r"], "fields": []}', ""),
        ('{"type": "array", "items": "nothing"}', ""),
        ('{"type": "fixed", "name": "f", "size": "x"}', ""),
        ("not JSON", "cannot be read"),
    ],
)
def test_a_schema_that_is_none_is_a_bad_record(registry: Registry, schema: str, reason: str) -> None:
    registry.schemas.append({"schema": schema})
    with pytest.raises(BadValue, match=f"schema 1.*{reason}"):
        read(registry, HEADER + NODE)


@pytest.mark.parametrize("schema", ["[]", '{"type": "record", "name": "r"}'])
def test_a_record_of_a_schema_without_fields_is_bad(registry: Registry, schema: str) -> None:
    registry.schemas.append({"schema": schema})
    with pytest.raises(BadValue):
        read(registry, HEADER + NODE)


@pytest.mark.parametrize(
    "entry", [{}, {"schema": None}, {"schema": "{}", "references": [1]}, {"schema": "{}", "references": 7}]
)
def test_an_answer_without_a_schema_is_a_bad_record(registry: Registry, entry: dict[str, Any]) -> None:
    registry.schemas.append(entry)
    with pytest.raises(BadValue, match=r"schema 1 of the schema registry cannot be read"):
        read(registry, HEADER + NODE)


def test_references_may_be_a_cycle_or_double_at_each_level(registry: Registry) -> None:
    def refer(number: int) -> dict[str, Any]:
        return {"name": f"s{number}", "subject": f"s{number}", "version": 1}

    plain = schema_of("int")
    registry.add(plain, references=[refer(1)])
    registry.subjects["s1"] = [1]
    assert read(registry, write(1, plain, {**ROW, "more": 1})) == ROW

    for level in range(2, 60):
        below = refer(level - 1)
        registry.subjects[f"s{level}"] = [registry.add(record(f"s{level}", "int"), references=[below, below])]
    registry.add(plain, references=[refer(59), refer(58)])
    assert read(registry, write(len(registry.schemas), plain, {**ROW, "more": 1})) == ROW


def test_a_schema_refers_to_a_limited_number_of_others(registry: Registry) -> None:
    count = MAX_SCHEMA_REFERENCES + 1
    for number in range(count):
        registry.subjects[f"s{number}"] = [registry.add(record(f"s{number}", "int"))]
    references = [{"name": f"s{number}", "subject": f"s{number}", "version": 1} for number in range(count)]
    registry.add(schema_of("int"), references=references)
    with pytest.raises(BadValue, match="refers to more than"):
        read(registry, b"\0" + len(registry.schemas).to_bytes(4, "big") + NODE)


@pytest.mark.parametrize("answer", ["[" * 100_000, " " * (MAX_SCHEMA_BYTES + 1)])
def test_an_answer_of_a_registry_is_limited(registry: Registry, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)

    def send(request: Any, *_: object) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer.encode())

    monkeypatch.setattr(Registry, "_send", staticmethod(send))
    registry.add({})
    with pytest.raises(ConnectorError, match="does not answer: the answer"):
        read(registry, HEADER + NODE)


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    """Forget the answers of earlier registries, which may have had the same address."""
    from everfold.connectors.formats import avro_confluent, schema_registry

    yield
    avro_confluent._load_schema.cache_clear()
    schema_registry._fetch.cache_clear()
