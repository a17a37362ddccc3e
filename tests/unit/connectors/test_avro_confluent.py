"""Records with schemas in a registry, compared with fastavro; and the requests to the registry.

The registry is a small server with the REST interface of Confluent's: its paths, its error codes,
and one number for the same schema in all subjects. `tests/spark/connectors/test_schema_registry.py`
uses Apicurio's server.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from unit.connectors.tables import encode_rows, table

from everfold.connectors.contract import Role
from everfold.connectors.formats.avro_confluent import AvroConfluentFormat
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.schema_registry import SchemaRegistry
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError, EverfoldError
from everfold.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP3,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    TimestampType,
    TimeType,
)

DECIMAL = DecimalType(precision=6, scale=2)
PLACE = RowType(fields=(RowField(name="city", type=STRING), RowField(name="zip", type=INT)))


class Registry:
    """A schema registry. schemas: by number, counted from 1. refusals: codes of the next answers."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.refusals: list[int] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self, None)

            def do_POST(self) -> None:
                registry._answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def add(self, schema: object, **more: object) -> int:
        self.schemas.append({"schema": json.dumps(schema), **more})
        return len(self.schemas)

    def _answer(self, request: BaseHTTPRequestHandler, body: Mapping[str, Any] | None) -> None:
        self.requests.append((request.command, request.path, request.headers.get("Authorization")))
        if self.refusals:
            code = self.refusals.pop(0)
            self._send(request, code, {"error_code": code, "message": "refused"})
            return
        match request.path.split("/")[1:]:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                self._send(request, 200, self.schemas[int(number) - 1])
            case ["subjects", subject, "versions"] if body is not None:
                known = [each["schema"] for each in self.schemas]
                at = (
                    known.index(body["schema"]) + 1 if body["schema"] in known else self.add(json.loads(body["schema"]))
                )
                self.schemas[at - 1]["schema"] = body["schema"]
                self.subjects.setdefault(subject, []).append(at)
                self._send(request, 200, {"id": at})
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                self._send(request, 200, self.schemas[self.subjects[subject][int(version) - 1] - 1])
            case _:
                self._send(request, 404, {"error_code": 40403, "message": "Schema not found"})

    @staticmethod
    def _send(request: BaseHTTPRequestHandler, code: int, answer: Mapping[str, Any]) -> None:
        content = json.dumps(answer).encode()
        request.send_response(code)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.server.shutdown()
    made.server.server_close()


def columns(**types: DataType) -> list[RecordColumn]:
    return [RecordColumn(name, at, of) for at, (name, of) in enumerate(types.items())]


def write(number: int, schema: Any, value: Mapping[str, object]) -> bytes:
    """Return a record in Confluent's wire format, as another producer writes it."""
    record = io.BytesIO()
    record.write(struct.pack(">bI", 0, number))
    schemaless_writer(record, parse_schema(schema), dict(value))
    return record.getvalue()


def decode(registry: Registry, record: bytes, **types: DataType) -> list[object]:
    form = AvroConfluentFormat(registry=SchemaRegistry((registry.url,)))
    [row] = form.decoder(columns(**types))(record)
    return row


def record_of(*fields: tuple[str, object]) -> dict[str, Any]:
    return {"type": "record", "name": "com.shop.Order", "fields": [{"name": n, "type": t} for n, t in fields]}


def test_a_record_is_read_with_the_schema_of_its_number(registry: Registry) -> None:
    old = record_of(("id", "int"), ("extra", "string"))
    place = {"type": "record", "name": "com.shop.Place", "fields": [{"name": "zip", "type": "int"}]}
    new = record_of(
        ("from", place),
        ("id", "long"),
        ("to", ["null", "com.shop.Place"]),
        ("tags", {"type": "array", "items": "string"}),
    )
    one, two = registry.add(old), registry.add(new)
    types: dict[str, DataType] = {"id": BIGINT, "from": PLACE, "to": PLACE, "tags": ArrayType(element=STRING)}
    assert decode(registry, write(one, old, {"id": 7, "extra": "x"}), **types) == [7, None, None, None]
    value = {"id": 2**40, "from": {"zip": 1}, "to": None, "tags": ["a"]}
    assert decode(registry, write(two, new, value), **types) == [2**40, {"city": None, "zip": 1}, None, ["a"]]
    value = {"id": 2**40, "from": {"zip": 1}, "to": {"zip": 2}, "tags": []}
    assert decode(registry, write(two, new, value), **types)[2] == {"city": None, "zip": 2}
    paths = [path for _, path, _ in registry.requests]
    assert paths == ["/schemas/ids/1", "/schemas/ids/2"]  # each once


@pytest.mark.parametrize(
    ("stored", "value", "of", "meant"),
    [
        ("int", 5, DOUBLE, 5.0),
        ("string", "é", BYTES, "é".encode()),
        ("bytes", "é".encode(), STRING, "é"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", STRING, "B"),
        (["null", "int", "string"], "5", STRING, None),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1_234_567, TIMESTAMP3, 1_234_000),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_234, TimestampType(precision=6), 1_234_000),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_234, TIMESTAMP3, 1_234_000),
        ("long", 1_234, TIMESTAMP3, 1_234_000),
        ({"type": "int", "logicalType": "date"}, 1, DATE, 1),
        ({"type": "long", "logicalType": "time-micros"}, 1_999, TimeType(), 1),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, Decimal("1.250"), DECIMAL, Decimal("1.25")),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 1}, Decimal("-1.5"), DECIMAL, Decimal("-1.50")),
        ({"type": "map", "values": ["null", "int"]}, {"k": 1, "n": None}, MapType(key=STRING, value=INT), [("k", 1), ("n", None)]),
    ],
)  # fmt: skip
def test_a_type_is_read_as_another_one(
    registry: Registry, stored: Any, value: object, of: DataType, meant: object
) -> None:
    schema = record_of(("f", stored))
    record = write(registry.add(schema), schema, {"f": value})
    if meant is None:
        with pytest.raises(BadValue, match="field `f` is int, which is not read as STRING"):
            decode(registry, record, f=of)
    else:
        assert decode(registry, record, f=of) == [meant]


@pytest.mark.parametrize(
    ("stored", "value", "of", "reason"),
    [
        ("long", 1, INT, r"schema 1: field `f` is long, which is not read as INT"),
        ("string", "1", INT, r"schema 1: field `f` is string, which is not read as INT"),
        (["null", "int"], None, INT.as_nullable(False), r"NULL is not a value of INT NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, Decimal("1.234"), DECIMAL, r"1\.234 has more digits than DECIMAL\(6, 2\)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}, Decimal("12345"), DECIMAL, r"is outside of DECIMAL\(6, 2\)"),
    ],
)  # fmt: skip
def test_a_value_that_a_column_cannot_have_is_a_bad_record(
    registry: Registry, stored: Any, value: object, of: DataType, reason: str
) -> None:
    schema = record_of(("f", stored))
    with pytest.raises(BadValue, match=reason):
        decode(registry, write(registry.add(schema), schema, {"f": value}), f=of)


def test_other_bytes_are_bad_records(registry: Registry) -> None:
    schema = record_of(("f", "int"))
    good = write(registry.add(schema), schema, {"f": 1})
    other = registry.add({"type": "object"}, schemaType="JSON")
    for record, reason in (
        (b"", "does not begin with a byte 0"),
        (b"\1" + good[1:], "does not begin with a byte 0"),
        (good[:4], "does not begin with a byte 0"),
        (good[:5], "not an Avro record of these columns"),
        (good + b"\0", "1 bytes are left over"),
        (struct.pack(">bI", 0, 99), "the schema registry has no schema 99"),
        (struct.pack(">bI", 0, other), "is not an Avro schema, but JSON"),
    ):
        with pytest.raises(BadValue, match=reason):
            decode(registry, record, f=INT)
    with pytest.raises(BadValue, match="no field `g`, and the column is NOT NULL"):
        decode(registry, good, f=INT, g=INT.as_nullable(False))


def test_a_schema_can_refer_to_others(registry: Registry) -> None:
    place = {"type": "record", "name": "com.shop.Place", "fields": [{"name": "zip", "type": "int"}]}
    registry.subjects["place"] = [registry.add(place)]
    schema = record_of(("at", "com.shop.Place"))
    number = registry.add(schema, references=[{"name": "com.shop.Place", "subject": "place", "version": 1}])
    record = struct.pack(">bI", 0, number) + b"\x02"
    assert decode(registry, record, at=PLACE) == [{"city": None, "zip": 1}]


def test_rows_are_written_with_the_schema_of_flink(registry: Registry) -> None:
    form = AvroConfluentFormat(registry=SchemaRegistry((registry.url,)), subject="orders-value")
    made = columns(id=BIGINT.as_nullable(False), price=DECIMAL, at=TIMESTAMP3, day=DATE, to=PLACE)
    rows = [[1, Decimal("2.50"), datetime(2020, 1, 1, 0, 0, 1), date(2020, 1, 2), {"city": "x", "zip": None}]]
    assert encode_rows(form, made, []) == []
    assert registry.requests == []
    [record] = encode_rows(form, made, rows)
    assert encode_rows(form, made, rows) == [record]
    assert [(how, path) for how, path, _ in registry.requests] == [("POST", "/subjects/orders-value/versions")]
    assert record is not None
    assert record[:5] == b"\0\0\0\0\1"
    # The schema that AvroSchemaConverter of Flink 2.3 derives from these columns.
    schema = json.loads(registry.schemas[0]["schema"])
    name = "org.apache.flink.avro.generated.record"
    assert schema == {
        "type": "record", "name": name, "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}], "default": None},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
            {"name": "to", "type": ["null", {"type": "record", "name": f"{name}_to", "fields": [
                {"name": "city", "type": ["null", "string"], "default": None},
                {"name": "zip", "type": ["null", "int"], "default": None},
            ]}], "default": None},
        ]}  # fmt: skip
    found = schemaless_reader(io.BytesIO(record[5:]), parse_schema(schema), None)
    assert isinstance(found, dict)
    assert found["price"] == Decimal("2.50")
    assert str(found["at"]) == "2020-01-01 00:00:01+00:00"
    assert found["day"] == date(2020, 1, 2)
    types = {column.name: column.type for column in made}
    assert decode(registry, record, **types) == [
        1,
        Decimal("2.50"),
        1577836801000000,
        18263,
        {"city": "x", "zip": None},
    ]


ORDERS = table("orders", id=INT, at=TIMESTAMP3)
KAFKA = {
    "connector": "kafka",
    "topic": "orders",
    "properties.bootstrap.servers": "h:1",
    "scan.startup.mode": "earliest-offset",
}


def check(url: str, prefix: str = "avro-confluent.", **options: str) -> AvroConfluentFormat:
    given = {prefix + name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    made = ORDERS.with_options({**KAFKA, "format": "avro-confluent", f"{prefix}url": url, **given})
    checked = check_table(made, Role.SINK)
    return AvroConfluentFormat.of(made, checked.options, prefix)


def test_the_registry_is_asked_as_the_options_say(registry: Registry) -> None:
    basic = "Basic " + base64.b64encode(b"ann:s3cret").decode()
    host = registry.url.removeprefix("http://")
    for form, authorization in (
        (check(registry.url), None),
        (check(registry.url, basic_auth__user_info="ann:s3cret"), basic),
        (check(registry.url, basic_auth__user_info="ann:s3cret", basic_auth__credentials_source="USER_INFO"), basic),
        (check(f"http://ann:s3cret@{host}/"), basic),
        (
            check(registry.url, bearer_auth__token="t0ken", bearer_auth__credentials_source="STATIC_TOKEN"),
            "Bearer t0ken",
        ),
    ):
        assert form.subject == "orders-value"
        assert form.registry.find_schema(99) is None
        assert registry.requests.pop() == ("GET", "/schemas/ids/99", authorization)
        assert "s3cret" not in repr(form)
        assert "t0ken" not in repr(form)


def test_errors_of_options_name_no_secret(registry: Registry) -> None:
    with pytest.raises(EverfoldError, match=r"avro-confluent\.url` is not the URL of a schema registry"):
        check("s3cret.example")
    with pytest.raises(EverfoldError, match="java-key-store"):
        check(registry.url, ssl__truststore__location="/etc/trust.jks")
    derived = {"type": "record", "name": "Mine", "doc": "d", "fields": [
        {"name": "at", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "null"]},
        {"name": "id", "type": ["null", "int"]},
    ]}  # fmt: skip
    assert check(registry.url, schema=json.dumps(derived)).schema
    for wrong, reason in (
        ("{", "is not an Avro schema"),
        (json.dumps(record_of(("id", "int"))), "differs from the columns"),
    ):
        with pytest.raises(EverfoldError, match=reason):
            check(registry.url, schema=wrong)


def test_a_registry_that_refuses_or_is_away(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    servers = SchemaRegistry((registry.url,), "Bearer t0ken")
    registry.refusals = [503, 500]
    assert servers.register("s", '"int"') == 1  # after two failures
    registry.refusals = [409]
    with pytest.raises(ConnectorError, match=r"registry-refused.*refuses a request: refused \(409\)"):
        servers.register("s", '"long"')
    away = SchemaRegistry(("http://127.0.0.1:1",), "Bearer t0ken")
    with pytest.raises(ConnectorError, match="registry-unreachable") as caught:
        away.find_schema(1)
    assert "t0ken" not in str(caught.value)
    assert SchemaRegistry(("http://127.0.0.1:1", registry.url)).find_schema(1) == {"schema": '"int"'}
