"""Every way to read a table gives the same rows: the source, its format, what its records mean, who
decodes them, and what is computed first.

The combinations are generated from the registries of connectors and formats, so a new one is drawn
too, or has to be listed with a reason. Expected values are computed here in Python.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker import KafkaBroker
from postgres import Database
from spark.running import run_script
from unit.connectors.tables import encode_rows, table

from everfold.connectors.contract import Role
from everfold.connectors.delta.table import DELTA
from everfold.connectors.filesystem.connector import FORMATS as FILE_FORMATS
from everfold.connectors.formats.format import record_columns
from everfold.connectors.formats.registry import CHANGES, format_of, options_of
from everfold.connectors.formats.registry import NAMES as FORMATS
from everfold.connectors.kafka.table_options import FORMATS as TOPIC_FORMATS
from everfold.connectors.kafka.table_options import ROWS as ROW_FORMATS
from everfold.connectors.registry import connector_names
from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import KIND, RETRACTIONS, RowKind
from everfold.plan.topic_storage import STRUCTURES
from everfold.types import INT, STRING, TIMESTAMP3, DataType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_ROWS_TO_READ = {
    "print": "a sink",
    "blackhole": "a sink",
    "datagen": "random rows: test_made_up_rows.py",
}
NOT_WRITTEN_HERE = {"avro-confluent": "needs a schema registry: test_schema_registry.py"}
NAMES_TABLE = "CREATE TABLE names (k STRING, name STRING) WITH ('connector' = 'filesystem', 'path' = 'names.csv', 'format' = 'csv');"
_T = dt.datetime(2026, 1, 1)


class Row(NamedTuple):
    """A row of the table."""

    key: str
    n: int
    ts: dt.datetime


def _row(key: str, n: int, minute: int) -> Row:
    return Row(key, n, _T + dt.timedelta(minutes=minute))


CHANGELOG = (
    (RowKind.INSERT, _row("a", 1, 0)),
    (RowKind.INSERT, _row("b", 5, 1)),
    (RowKind.UPDATE_BEFORE, _row("a", 1, 0)),
    (RowKind.UPDATE_AFTER, _row("a", 2, 12)),
    (RowKind.INSERT, _row("c", 7, 13)),
    (RowKind.DELETE, _row("b", 5, 1)),
    (RowKind.INSERT, _row("d", 3, 21)),
    (RowKind.UPDATE_BEFORE, _row("c", 7, 13)),
    (RowKind.UPDATE_AFTER, _row("c", 8, 22)),
)
ADDED = tuple(row for kind, row in CHANGELOG if kind.value not in RETRACTIONS)
LAST = tuple({row.key: row for row in ADDED}.values())
CURRENT = tuple(row for row in LAST if row.key != "b")
"""All rows, the last one of each key, and those that have not been deleted."""
KEYS = {"a": "Ann", "c": "Cid", "d": "Dot"}
_TYPES: Mapping[str, DataType] = {"_key": STRING, "n": INT, "ts": TIMESTAMP3}

Rows = Sequence[Row]
Expected = Counter[tuple[Any, ...]]


# --- what is computed -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """A query of the table `t`, and what it returns for some rows."""

    sql: str
    expect: Callable[[Rows], Expected]
    needs: tuple[str, ...] = ("_key", "n", "ts")
    is_quick: bool = False


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> Mapping[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _sum(rows: Iterable[Row]) -> int:
    return sum(row.n for row in rows)


def _window(row: Row) -> dt.datetime:
    return row.ts - dt.timedelta(minutes=row.ts.minute % 10)


def _expect_windows(rows: Rows) -> Expected:
    return Counter((start, len(group), _sum(group)) for start, group in _grouped(rows, _window).items())


def _expect_over(rows: Rows, minutes: int = 1_000) -> Expected:
    distance = dt.timedelta(minutes=minutes)
    frames = ((row, [other for other in rows if row.ts - distance <= other.ts <= row.ts]) for row in rows)
    return Counter((row.key, row.n, _sum(frame)) for row, frame in frames)


FLINK = {
    "filter": Query(
        "SELECT _key FROM t WHERE _key <> 'd'",
        lambda rows: Counter((row.key,) for row in rows if row.key != "d"),
        ("_key",),
    ),
    "project": Query(
        "SELECT _key, n * 2 FROM t WHERE n > 1",
        lambda rows: Counter((row.key, row.n * 2) for row in rows if row.n > 1),
        ("_key", "n"),
    ),
    "group": Query(
        "SELECT _key, COUNT(*) FROM t GROUP BY _key",
        lambda rows: Counter((key, len(group)) for key, group in _grouped(rows, lambda row: row.key).items()),
        ("_key",),
        is_quick=True,
    ),
    "group by an expression": Query(
        "SELECT n % 2, COUNT(*), SUM(n) FROM t WHERE n <> 1 GROUP BY n % 2",
        lambda rows: Counter(
            (odd, len(group), _sum(group))
            for odd, group in _grouped((row for row in rows if row.n != 1), lambda row: row.n % 2).items()
        ),
        ("n",),
    ),
    "window": Query(
        "SELECT window_start, COUNT(*), SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE)"
        " GROUP BY window_start, window_end",
        _expect_windows,
        ("n", "ts"),
    ),
    "over": Query("SELECT _key, n, SUM(n) OVER (ORDER BY ts) FROM t", _expect_over),
    "over a distance": Query(
        "SELECT _key, n, SUM(n) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW) FROM t",
        lambda rows: _expect_over(rows, 10),
    ),
    "join": Query(
        "SELECT name, SUM(n) FROM t JOIN names ON t._key = names.k GROUP BY name",
        lambda rows: Counter(
            (KEYS[key], _sum(group)) for key, group in _grouped(rows, lambda row: row.key).items() if key in KEYS
        ),
        ("_key", "n"),
    ),
}
LENSES = {
    "filter": Query(
        "SELECT {} n AS m FROM t WHERE n > 1",
        lambda rows: Counter((row.key, row.n) for row in rows if row.n > 1),
        ("_key", "n"),
    ),
    "group": Query(
        "SELECT {} COUNT(*) AS c, SUM(n) AS s FROM t GROUP BY _key",
        lambda rows: Counter(
            (key, len(group), _sum(group)) for key, group in _grouped(rows, lambda row: row.key).items()
        ),
        ("_key", "n"),
        is_quick=True,
    ),
}


# --- what is read ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """A way to read a table.

    connector, format: of the table. key: what says which row a record replaces: `PRIMARY KEY`, the
    key of a `record`, or nothing. kind: of the query: SQL of Flink, or STREAM or TABLE of Lenses
    SQL.
    """

    connector: str
    format: str
    key: str = ""
    kind: str = "SQL"

    @property
    def id(self) -> str:
        """The name of the reading in the names of tests."""
        return "-".join(filter(None, (self.connector, self.format, self.key and f"by {self.key}", self.kind)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table: one if the records have one field."""
        return ("_key",) if self.format == "raw" else tuple(_TYPES)

    @property
    def queries(self) -> Mapping[str, Query]:
        queries = FLINK if self.kind == "SQL" else LENSES
        return {name: query for name, query in queries.items() if set(query.needs) <= set(self.columns)}

    @property
    def has_deletes(self) -> bool:
        """Whether records can delete a row."""
        return self.format in CHANGES or (self.connector in ("upsert-kafka", "topic") and self.key != "")

    @property
    def rows(self) -> Rows:
        """The rows that a query sees in the end."""
        if self.connector in ("jdbc", "delta") or (self.has_deletes and self.kind != "STREAM"):
            return CURRENT
        return LAST if self.kind == "TABLE" else ADDED

    def refusal(self, path: str, name: str) -> str | None:
        """Return the code of the error with which a path refuses a query, None if it runs it."""
        if self.connector == "kafka" and self.kind == "TABLE" and self.format not in CHANGES:
            return "primary-key"
        if path == "batch":
            return "changes-in-batch" if self.format in CHANGES and self.kind == "SQL" else None
        return "over-bound" if name == "over a distance" and self.has_deletes else None


def _readings() -> Iterator[Reading]:
    for connector in connector_names():
        if connector in NO_ROWS_TO_READ:
            continue
        for reading in _tables(connector):
            kinds = ("SQL", "TABLE") if reading.format in CHANGES else ("SQL", "STREAM", "TABLE")
            yield from (replace(reading, kind=kind) for kind in kinds)


def _tables(connector: str) -> Iterator[Reading]:
    match connector:
        case "filesystem":
            yield from (Reading(connector, name) for name in FILE_FORMATS)
        case "kafka":
            yield from (Reading(connector, name) for name in TOPIC_FORMATS)
            yield from (Reading(connector, name, "record") for name in ROW_FORMATS if name != "raw")
        case "upsert-kafka":
            yield from (Reading(connector, name, "PRIMARY KEY") for name in ROW_FORMATS if name != "raw")
        case "topic":
            formats = [name.lower() for name in STRUCTURES]
            yield from (Reading(connector, name, key) for name, key in itertools.product(formats, ("", "PRIMARY KEY")))
        case "delta" | "jdbc":
            yield from (Reading(connector, "", key) for key in ("", "PRIMARY KEY"))
        case _:
            raise AssertionError(f"{connector}: say here how to write its rows, or in NO_ROWS_TO_READ why not")


READINGS = [reading for reading in _readings() if reading.format not in NOT_WRITTEN_HERE]


@dataclass(frozen=True)
class Stored:
    """A table whose rows are stored: its options, and its columns and keys as in CREATE TABLE."""

    options: Mapping[str, str]
    reading: Reading

    def create(self) -> str:
        """Return the statement that declares the table."""
        columns = [f"{name} {_TYPES[name].sql}" for name in self.reading.columns]
        if "ts" in self.reading.columns:
            columns.append("WATERMARK FOR ts AS ts - INTERVAL '1' HOUR")
        if self.reading.key == "PRIMARY KEY":
            columns.append("PRIMARY KEY (_key) NOT ENFORCED")
        options = ", ".join(f"'{name}' = '{value}'" for name, value in self.options.items())
        return f"CREATE TABLE t ({', '.join(columns)}) WITH ({options});"


@dataclass(frozen=True)
class Systems:
    """Where tables are stored. broker, database: return a running one, which is started if needed."""

    spark: SparkSession
    folder: Path
    name: str
    broker: Callable[[], KafkaBroker]
    database: Callable[[], Database]

    def store(self, reading: Reading) -> Stored:
        """Store the changelog as a table, in two files or batches."""
        match reading.connector:
            case "filesystem":
                return self._write_files(reading)
            case "jdbc":
                return self._write_database(reading)
            case "delta":
                return self._write_delta(reading)
        return self._write_topic(reading)

    def _write_files(self, reading: Reading) -> Stored:
        folder = self.folder / "in"
        folder.mkdir()
        options = {"connector": "filesystem", "path": str(folder), "format": reading.format}
        changes = [change for change in CHANGELOG if reading.has_deletes or change[0].value not in RETRACTIONS]
        for number, part in enumerate((changes[:4], changes[4:])):
            path = folder / f"{'ba'[number]}.{reading.format}"
            if reading.format == "parquet":
                schema = pa.schema([("_key", pa.string()), ("n", pa.int32()), ("ts", pa.timestamp("us"))])
                pq.write_table(
                    pa.Table.from_pylist([dict(zip(_TYPES, row, strict=True)) for _, row in part], schema), path
                )
            else:
                path.write_bytes(b"".join(record + b"\n" for record in _encode(reading.format, part, reading.columns)))
            os.utime(path, (1_000_000 + number, 1_000_000 + number))
        return Stored({**options, "scan.max-files-per-batch": "1"}, reading)

    def _write_topic(self, reading: Reading) -> Stored:
        broker = self.broker()
        options = {
            "connector": reading.connector,
            "topic": self.name,
            "properties.bootstrap.servers": broker.bootstrap_servers,
            "scan.bounded.mode": "latest-offset",
            "scan.max-records-per-batch": "4",
        }
        columns = reading.columns
        match reading.connector, reading.key:
            case "kafka", "record":
                options |= {"key.format": "raw", "key.fields": "_key", "value.fields-include": "EXCEPT_KEY"}
                options |= {"value.format": reading.format, "scan.startup.mode": "earliest-offset"}
                columns = columns[1:]
            case "kafka", _:
                options |= {"format": reading.format, "scan.startup.mode": "earliest-offset"}
            case "upsert-kafka", _:
                options |= {"key.format": "raw", "value.format": reading.format}
            case _:
                options |= {"key.format": "string", "value.format": reading.format}
                del options["scan.max-records-per-batch"]
                columns = columns[1:]
        changes = [change for change in CHANGELOG if reading.has_deletes or change[0].value not in RETRACTIONS]
        if reading.format not in CHANGES:
            changes = [change for change in changes if change[0] is not RowKind.UPDATE_BEFORE]
        records = _encode(reading.format, changes, columns, ["_key"] if reading.key == "PRIMARY KEY" else [])
        has_tombstones = reading.format not in CHANGES
        broker.create_topic(self.name)
        broker.produce(
            self.name,
            [
                (row.key, None if has_tombstones and kind is RowKind.DELETE else record)
                for (kind, row), record in zip(changes, records, strict=True)
            ],
        )
        return Stored(options, reading)

    def _write_database(self, reading: Reading) -> Stored:
        database = self.database()
        database.run("CREATE TABLE t (_key text PRIMARY KEY, n int, ts timestamp)")
        for row in CURRENT:
            database.run("INSERT INTO t VALUES (%s, %s, %s)", *row)
        return Stored(database.options("t"), reading)

    def _write_delta(self, reading: Reading) -> Stored:
        DELTA.add_to(self.spark)
        self.spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
        path = str(self.folder / "in")
        types = "_key STRING, n INT, ts TIMESTAMP_NTZ"
        self.spark.createDataFrame(list(CURRENT), types).coalesce(1).write.format("delta").save(path)
        return Stored({"connector": "delta", "table-path": path}, reading)


def _encode(
    name: str, changes: Sequence[tuple[RowKind, Row]], columns: Sequence[str], key: Sequence[str] = ()
) -> Sequence[bytes]:
    """Return the records of changes, with some of their columns. key: those that are never NULL."""
    types = {column: _TYPES[column].as_nullable(column not in key) for column in columns}
    declared = table("t", **types).with_options({})
    form = format_of(name, declared, options_of(name).read(declared, Role.SINK.value), "")
    rows = [[value for column, value in zip(_TYPES, row, strict=True) if column in columns] for _, row in changes]
    kinds = [kind.value for kind, _ in changes] if name in CHANGES else None
    records = encode_rows(form, record_columns(declared, Role.SINK), rows, kinds)
    return [b"" if record is None else record for record in records]


def _materialize(tables: Iterable[pa.Table]) -> Expected:
    """Return the rows that remain after all changes."""
    rows: Expected = Counter()
    for received in tables:
        kinds = received[KIND].to_pylist() if KIND in received.column_names else [0] * received.num_rows
        columns = [received[name].to_pylist() for name in received.column_names if not name.startswith("__")]
        for kind, *values in zip(kinds, *columns, strict=True):
            rows[tuple(values)] += -1 if kind in RETRACTIONS else 1
    return Counter({row: count for row, count in rows.items() if count})


PATHS = {
    "workers": {"everfold.scan": "auto"},
    "catalyst": {"everfold.scan": "catalyst"},
    "batch": {"execution.runtime-mode": "batch"},
}


def _marks(reading: Reading, name: str) -> tuple[pytest.MarkDecorator, ...]:
    query = reading.queries[name]
    is_quick = query.is_quick and reading in (
        Reading("filesystem", "json"),
        Reading("filesystem", "debezium-json"),
        Reading("filesystem", "json", kind="TABLE"),
        Reading("kafka", "json", kind="TABLE"),
    )
    return () if is_quick else (pytest.mark.slow,)


@pytest.mark.parametrize(
    ("reading", "name"),
    [
        pytest.param(reading, name, marks=_marks(reading, name), id=f"{reading.id}-{name}".replace(" ", "-"))
        for reading in READINGS
        for name in reading.queries
    ],
)
def test_rows_do_not_depend_on_how_they_are_read(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, reading: Reading, name: str
) -> None:
    systems = Systems(
        spark,
        tmp_path,
        f"readings-{uuid.uuid4().hex}",
        lambda: request.getfixturevalue("kafka_broker"),
        lambda: request.getfixturevalue("database"),
    )
    declaration = systems.store(reading).create()
    query = reading.queries[name]
    (tmp_path / "names.csv").write_text("".join(f"{key},{value}\n" for key, value in KEYS.items()))
    expected = query.expect(reading.rows)
    results: dict[str, Expected | str] = {}
    for path, options in PATHS.items():
        dialect = "" if reading.kind == "SQL" else "SET 'everfold.dialect' = 'lenses';"
        sql = f"{declaration} {NAMES_TABLE} {dialect} {query.sql.replace('{}', reading.kind)}"
        try:
            tables = run_script(spark, sql, options, tmp_path, tmp_path / path)
        except UnsupportedFeature as refused:
            results[path] = refused.diagnostics[0].code
        else:
            results[path] = _materialize(tables)
    assert results == {path: reading.refusal(path, name) or expected for path in PATHS}


def test_every_format_is_drawn() -> None:
    assert {reading.format for reading in READINGS} - {""} == set(FORMATS) - set(NOT_WRITTEN_HERE)
