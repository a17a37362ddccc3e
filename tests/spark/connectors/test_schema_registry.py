"""Topics whose records have schemas in a registry, with Apicurio's server."""

from __future__ import annotations

import io
import json
import struct
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker import KafkaBroker
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from schema_registry import run_schema_registry
from spark.running import Run

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]
SECRET = "s3cret-of-the-registry"
TABLES = """
CREATE TABLE rows_in (id BIGINT, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = 'in.json', 'format' = 'json');
CREATE TABLE orders (id BIGINT, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'avro-confluent', 'key.avro-confluent.url' = '{url}',
  'key.avro-confluent.basic-auth.user-info' = 'ann:{secret}',
  'value.format' = 'avro-confluent', 'value.avro-confluent.url' = '{url}',
  'value.avro-confluent.basic-auth.user-info' = 'ann:{secret}');
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with run_schema_registry() as url:
        yield url


def ask(url: str, body: object = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(url, content, kind), timeout=60) as answer:
        return json.load(answer)


def test_keys_and_values_are_written_and_read(
    run: Run, tmp_path: Path, kafka_broker: KafkaBroker, registry: str
) -> None:
    kafka_broker.create_topic("orders", 1)
    rows = [{"id": at, "name": f"n{at}", "price": "1.25", "at": "2020-01-01 00:00:01"} for at in range(3)]
    (tmp_path / "in.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables = TABLES.format(servers=kafka_broker.bootstrap_servers, url=registry, secret=SECRET)
    (tmp_path / "job.sql").write_text(f"{tables}INSERT INTO orders SELECT * FROM rows_in;")
    written = run("--state", "state")
    assert written.code == 0, written.err
    assert set(ask(f"{registry}/subjects")) == {"orders-key", "orders-value"}
    # Another reader finds the schema by its number, and reads the record with it.
    for record in kafka_broker.consume("orders"):
        for part, content in (("key", record.key), ("value", record.value)):
            assert content is not None
            magic, number = struct.unpack_from(">bI", content)
            schema = ask(f"{registry}/schemas/ids/{number}")["schema"]
            assert magic == 0
            assert ask(f"{registry}/subjects/orders-{part}/versions/1")["id"] == number
            found: Any = schemaless_reader(io.BytesIO(content[5:]), parse_schema(json.loads(schema)), None)
            assert found["id"] in (0, 1, 2)
    # Another writer adds a record with a newer schema, which the registry knows.
    newer = {"type": "record", "name": "Order", "namespace": "com.shop", "fields": [
        {"name": "name", "type": "string"}, {"name": "id", "type": ["null", "int"], "default": None},
        {"name": "vip", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]}  # fmt: skip
    number = ask(f"{registry}/subjects/other-value/versions", {"schema": json.dumps(newer)})["id"]
    value = io.BytesIO()
    value.write(struct.pack(">bI", 0, number))
    schemaless_writer(value, parse_schema(newer), {"name": "new", "id": 1, "vip": True, "at": 1_000_000})
    [key] = [record.key for record in kafka_broker.consume("orders") if record.value and b"n1" in record.value]
    kafka_broker.produce("orders", [(key, value.getvalue())])
    (tmp_path / "job.sql").write_text(f"{tables}SELECT * FROM orders;")
    read = run("--batch", "--format", "json")
    assert read.code == 0, read.err
    found = {row["id"]: row for row in map(json.loads, read.out.splitlines())}
    assert found[1] == {"id": 1, "name": "new", "price": None, "at": "1970-01-01 00:00:01.000"}
    assert found[2] == {"id": 2, "name": "n2", "price": 1.25, "at": "2020-01-01 00:00:01.000"}
    for printed in (written, read):
        assert SECRET not in printed.out + printed.err
    for file in (tmp_path / "state").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def test_a_record_without_a_schema_and_a_registry_that_is_away(
    run: Run, tmp_path: Path, kafka_broker: KafkaBroker, registry: str
) -> None:
    kafka_broker.create_topic("bad", 1)
    kafka_broker.produce("bad", [(None, b"\0\0\1\0\0\2")])
    table = (
        "CREATE TABLE bad (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'bad', "
        f"'properties.bootstrap.servers' = '{kafka_broker.bootstrap_servers}', 'scan.startup.mode' = 'earliest-offset', "
        "'format' = 'avro-confluent', 'avro-confluent.url' = '{url}');\nSELECT * FROM bad;"
    )
    (tmp_path / "job.sql").write_text(table.replace("{url}", registry))
    done = run("--batch")
    assert done.code == 1
    assert "error[bad-record]: topic `bad` partition 0 offset 0: the schema registry has no schema 65536" in done.err
    (tmp_path / "job.sql").write_text(table.replace("{url}", "http://127.0.0.1:1"))
    assert "error[registry-unreachable]: the schema registry http://127.0.0.1:1 does not answer" in run("--batch").err
