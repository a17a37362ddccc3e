"""Lenses SQL from and to topics of a real broker: keys and values as bytes. Results are the seed's,
or computed by hand.

Bytes of STRING, INT, LONG and DOUBLE are those of Kafka's own serializers. JSON is read by Python's
parser, AVRO by fastavro with a separate schema.
"""

from __future__ import annotations

import io
import json
import struct
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broker import KafkaBroker, Received
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from spark.running import Done, Run, runner

from everfold.cli.main import everfold
from everfold.connectors.registry import apply_connector
from everfold.errors import StateError
from everfold.jobs.change import OnChange
from everfold.jobs.engine import Engine
from everfold.jobs.progress import Progress
from everfold.jobs.rewind import Consent
from everfold.jobs.spec import JobSpec
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSIONS = [("billy", 50, "uk"), ("billy", 90, "uk"), ("willy", 70, "uk"), ("noel", 82, "uk"), ("john", 50, "usa"), ("dave", 30, "usa"), ("billy", 90, "spain")]  # fmt: skip
STREAM = {"uk": (292, 73), "usa": (80, 40), "spain": (90, 90)}
TABLE = {"uk": (152, 76), "usa": (80, 40), "spain": (90, 90)}


class Job:
    """A script over topics whose names begin with the name of the test."""

    def __init__(self, broker: KafkaBroker, prefix: str, run: Run) -> None:
        self.broker, self.prefix, self._run = broker, prefix, run

    def topic(self, name: str, records: Iterable[tuple[Any, ...]] = ()) -> str:
        """Create a topic with records and return its name."""
        full = f"{self.prefix}.{name}"
        self.broker.create_topic(full)
        self.broker.produce(full, records)
        return full

    def run(self, sql: str, *arguments: str) -> Done:
        """Run the script until all records are read.

        `{}` in it stands for the prefix of the topic names.
        """
        script = f"""
            SET defaults.topic.properties.bootstrap.servers = '{self.broker.bootstrap_servers}';
            SET defaults.topic.autocreate = true;
            SET defaults.topic.scan.bounded.mode = latest-offset;
        """ + sql.replace("{}", self.prefix)
        Path("job.sql").write_text(script)
        return self._run("--dialect", "lenses", *arguments)

    def latest(self, name: str) -> dict[Any, Any]:
        """Return the newest value of each key of a topic."""
        return {each.key: each.value for each in self.records(name)}

    def records(self, name: str) -> list[Received]:
        """Return the records of a topic."""
        return self.broker.consume(f"{self.prefix}.{name}")


@pytest.fixture
def job(
    kafka_broker: KafkaBroker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Job:
    monkeypatch.chdir(tmp_path)
    prefix = request.node.name.replace("test_", "").replace("_", "-").partition("[")[0]
    return Job(kafka_broker, prefix, runner(spark, monkeypatch, capsys))


def sessions() -> Iterator[tuple[Any, ...]]:
    """Return the seed's records, with seconds as their times."""
    for at, (player, points, country) in enumerate(SESSIONS):
        yield player, json.dumps({"points": points, "country": country}), 0, 1000 * (at + 1)


GAMING = "CREATE TABLE {}.gaming-sessions(_key STRING, points INT, country STRING) FORMAT (STRING, JSON);"


@pytest.mark.slow
def test_a_stream_and_a_table(job: Job) -> None:
    job.topic("gaming-sessions", sessions())
    done = job.run(
        "SET defaults.topic.scan.max-records-per-batch = 4;"
        + GAMING
        + """
        INSERT INTO {}.by-stream SELECT STREAM SUM(points) AS total_points, AVG(points) AS average_points, MAXK(points, 2) AS top
        FROM {}.gaming-sessions GROUP BY country;
        INSERT INTO {}.by-table SELECT TABLE SUM(points) AS total_points, AVG(points) AS average_points
        FROM {}.gaming-sessions GROUP BY country AS place;
        INSERT INTO {}.many SELECT TABLE COUNT(*) AS players FROM {}.gaming-sessions GROUP BY country HAVING players > 2;
        """
    )
    assert done.code == 0, done.err
    found = {key.decode(): json.loads(value) for key, value in job.latest("by-stream").items()}
    assert {key: (of["total_points"], of["average_points"]) for key, of in found.items()} == STREAM
    assert found["uk"]["top"] == [90, 82]
    found = {json.loads(key)["place"]: json.loads(value) for key, value in job.latest("by-table").items()}
    assert {key: (of["total_points"], of["average_points"]) for key, of in found.items()} == TABLE
    client = AdminClient({"bootstrap.servers": job.broker.bootstrap_servers})
    [config] = client.describe_configs([ConfigResource(ResourceType.TOPIC, f"{job.prefix}.by-table")]).values()
    assert config.result()["cleanup.policy"].value == "compact"
    # Billy leaves uk with the last record, so HAVING removes uk.
    assert [(each.key, each.value and json.loads(each.value)) for each in job.records("many")] == [
        (b"uk", {"players": 3}),
        (b"uk", None),
    ]


def write_avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


def read_avro(schema: dict[str, Any], record: bytes | None) -> Any:
    assert record is not None
    data = io.BytesIO(record)
    found = schemaless_reader(data, parse_schema(schema), None)
    assert data.read() == b""
    return found


def record(**fields: Any) -> dict[str, Any]:
    """Return a schema whose fields are all nullable, as those of declared columns are."""
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": ["null", of]} for name, of in fields.items()]}  # fmt: skip


TRIP_KEY = record(line="string", number="long")
TRIP = record(
    city="string", stops="int", rider="long", km="double", cost={"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-millis"}, tags={"type": "array", "items": ["null", "string"]},
)  # fmt: skip


def trips() -> Iterator[tuple[Any, ...]]:
    """Return Avro records with Avro keys and values."""
    rows: list[tuple[Any, ...]] = [
        (("a", 1), ("Ulm", 3, 7_000_000_000, 2.5, Decimal("1.10"), datetime(2024, 7, 3, 10, 0, 0, 500_000, tzinfo=UTC), ["x", None])),
        (("a", 2), ("Ulm", -4, 7_000_000_000, 1.5, Decimal("-2.20"), None, None)),
        (("b", 1), (None, 3, -1, -0.1, None, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), [])),
    ]  # fmt: skip
    for at, (key, value) in enumerate(rows):
        yield (
            write_avro(TRIP_KEY, dict(zip(("line", "number"), key, strict=True))),
            write_avro(TRIP, dict(zip((field["name"] for field in TRIP["fields"]), value, strict=True))),
            0,
            1000 * (at + 1),
        )


@pytest.mark.slow
def test_storage_formats(job: Job) -> None:
    job.topic("trips", trips())
    declared = """
        CREATE TABLE {}.trips(_key.line STRING, _key.number LONG, city STRING, stops INT, rider LONG, km DOUBLE, cost DECIMAL(6, 2),
          at TIMESTAMP_LTZ(3), tags ARRAY<STRING>) FORMAT (AVRO, AVRO);
    """
    done = job.run(
        declared
        + """
        INSERT INTO {}.by-int SELECT STREAM COUNT(*) AS _value FROM {}.trips GROUP BY stops;
        INSERT INTO {}.by-long SELECT STREAM COUNT(*) AS n, MAXK(at) AS latest, SUM(cost) AS cost, COLLECT({}.trips._key.line, 5) AS lines
        FROM {}.trips GROUP BY rider;
        INSERT INTO {}.by-double SELECT STREAM LAST(km) AS _value FROM {}.trips GROUP BY km;
        INSERT INTO {}.by-alias SELECT STREAM LAST(city) AS _value FROM {}.trips GROUP BY city AS city;
        INSERT INTO {}.by-several SELECT STREAM FIRST(tags) AS tags, MAXK(_meta.offset) AS at, LAST(_meta.partition) AS part FROM {}.trips GROUP BY {}.trips._key.line, stops;
        """
    )
    assert done.code == 0, done.err
    count = job.latest("by-int")
    assert count == {struct.pack(">i", 3): struct.pack(">q", 2), struct.pack(">i", -4): struct.pack(">q", 1)}
    of_long = record(
        n="long", latest={"type": "long", "logicalType": "timestamp-millis"}, cost={"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
    )  # fmt: skip
    of_long["fields"].append({"name": "lines", "type": ["null", {"type": "array", "items": ["null", "string"]}]})
    found = {key: read_avro(of_long, value) for key, value in job.latest("by-long").items()}
    assert found == {
        struct.pack(">q", 7_000_000_000): {"n": 2, "latest": datetime(2024, 7, 3, 10, 0, 0, 500_000, tzinfo=UTC), "cost": Decimal("-1.10"), "lines": ["a", "a"]},
        struct.pack(">q", -1): {"n": 1, "latest": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "cost": None, "lines": ["b"]},
    }  # fmt: skip
    assert job.latest("by-double") == {struct.pack(">d", each): struct.pack(">d", each) for each in (2.5, 1.5, -0.1)}
    found = {read_avro(record(city="string"), key)["city"]: value for key, value in job.latest("by-alias").items()}
    assert found == {"Ulm": b"Ulm", None: None}
    of_key, of_value = (
        record(line="string", stops="int"),
        record(tags={"type": "array", "items": ["null", "string"]}, at="long", part="int"),
    )
    found = {tuple(read_avro(of_key, key).values()): tuple(read_avro(of_value, value).values()) for key, value in job.latest("by-several").items()}  # fmt: skip
    assert found == {("a", 3): (["x", None], 0, 0), ("a", -4): (None, 1, 0), ("b", 3): ([], 2, 0)}

    # Written records are read again: plain numbers, in keys and values.
    done = job.run(
        """
        CREATE TABLE {}.by-double(_key DOUBLE, _value DOUBLE) FORMAT (DOUBLE, DOUBLE);
        INSERT INTO {}.sums SELECT STREAM SUM(_value) AS total, MAXK({}.by-double._key, 5) AS keys FROM {}.by-double GROUP BY _value > 0 AS positive;
        """,
        "--state",
        "again",
    )
    assert done.code == 0, done.err
    found = {json.loads(key)["positive"]: json.loads(value) for key, value in job.latest("sums").items()}
    assert found == {True: {"total": 4.0, "keys": [2.5, 1.5]}, False: {"total": -0.1, "keys": [-0.1]}}


@pytest.mark.slow
def test_single_values_and_structures_of_projections(job: Job) -> None:
    """Strings of any length are STRINGs; targets with several names are structures, in JSON and in
    Avro.
    """
    trip_with_code = record(city="string", code="string", stops="int")
    rows = [("Ulm", "ab", 3), ("Ulm", "cd", 5), ("Bonn", "ab", 7)]
    job.topic("trips", [(str(at), write_avro(trip_with_code, dict(zip(("city", "code", "stops"), row, strict=True)))) for at, row in enumerate(rows)])  # fmt: skip
    job.topic("gaming-sessions", sessions())
    done = job.run(
        GAMING
        + """
        CREATE TABLE {}.trips(_key STRING, city VARCHAR(9), code CHAR(2), stops INT) FORMAT (STRING, AVRO);
        INSERT INTO {}.by-choice COUNT(*) AS n, FROM {}.gaming-sessions GROUP BY CASE WHEN points > 60 THEN 'hi' ELSE 'lo' END;
        INSERT INTO {}.by-all COUNT(*) AS _value FROM {}.gaming-sessions GROUP BY 'all';
        INSERT INTO {}.codes SELECT STREAM LAST(UPPER(code)) AS _value FROM {}.trips GROUP BY city;
        INSERT INTO {}.by-code SELECT STREAM COUNT(*) AS stats.n, MAXK(stops) AS most, SUM(stops) AS stats.sums.stops FROM {}.trips GROUP BY code;
        INSERT INTO {}.nested SELECT TABLE SUM(points) AS stats.total, COUNT(*) AS stats.n FROM {}.gaming-sessions GROUP BY country HAVING stats.n > 1;
        INSERT INTO {}.keyed SELECT STREAM country AS _key.at.country, points AS _key.points, 'x' AS _value FROM {}.gaming-sessions WHERE points < 50;
        INSERT INTO {}.whole SELECT STREAM CAST(ROW(points, country) AS ROW<p INT, c STRING>) AS _value FROM {}.gaming-sessions WHERE points < 50;
        """
    )
    assert done.code == 0, done.err
    assert {key: json.loads(value) for key, value in job.latest("by-choice").items()} == {b"hi": {"n": 4}, b"lo": {"n": 3}}  # fmt: skip
    assert job.latest("by-all") == {b"all": struct.pack(">q", 7)}
    assert job.latest("codes") == {b"Ulm": b"CD", b"Bonn": b"AB"}
    inner = {"type": "record", "name": "r2", "fields": [{"name": "stops", "type": ["null", "int"]}]}
    stats = {"type": "record", "name": "r1", "fields": [{"name": "n", "type": ["null", "long"]}, {"name": "sums", "type": ["null", inner]}]}  # fmt: skip
    found = {key: read_avro(record(stats=stats, most="int"), value) for key, value in job.latest("by-code").items()}
    assert found == {
        b"ab": {"stats": {"n": 2, "sums": {"stops": 10}}, "most": 7},
        b"cd": {"stats": {"n": 1, "sums": {"stops": 5}}, "most": 5},
    }
    found = {key: json.loads(value) for key, value in job.latest("nested").items()}
    assert found == {b"uk": {"stats": {"total": 152, "n": 2}}, b"usa": {"stats": {"total": 80, "n": 2}}}
    [keyed] = job.records("keyed")
    assert (json.loads(keyed.key or b""), keyed.value) == ({"at": {"country": "usa"}, "points": 30}, b"x")
    [whole] = job.records("whole")
    assert (whole.key, json.loads(whole.value or b"")) == (b"dave", {"p": 30, "c": "usa"})


FIELDS: dict[str, tuple[str, Any]] = {
    "c": ("CHAR(3)", "abc"), "v": ("VARCHAR(5)", "ab"), "s": ("STRING", "x"), "flag": ("BOOLEAN", True), "price": ("DECIMAL(5, 2)", 1.5), "tiny": ("TINYINT", 1),
    "small": ("SMALLINT", 2), "i": ("INT", 3), "l": ("LONG", 4), "f": ("FLOAT", 1.5), "d": ("DOUBLE", 2.5), "day": ("DATE", "2024-01-02"), "clock": ("TIME", "10:11:12"),
    "ts": ("TIMESTAMP(3)", "2024-01-02 10:11:12.123"), "at": ("TIMESTAMP_LTZ(3)", "2024-01-02 10:11:12.123Z"), "b": ("BYTES", "AQI="), "b2": ("BINARY(2)", "AQI="),
    "list": ("ARRAY<INT>", [1, 2]), "m": ("MAP<STRING, INT>", {"a": 1}), "r": ("ROW<x INT, y CHAR(2)>", {"x": 1, "y": "zz"}),
}  # fmt: skip
"""Fields of each type: its name in SQL, and a value in JSON."""
STORED = {"c": b"abc", "v": b"ab", "s": b"x", "i": b"\0\0\0\3", "l": b"\0\0\0\0\0\0\0\4", "d": struct.pack(">d", 2.5), "b": b"\1\2", "b2": b"\1\2"}  # fmt: skip
"""The values of those types that have a storage format, as bytes."""


@pytest.mark.slow
def test_every_type_as_a_key_and_as_a_value(job: Job) -> None:
    row = {name: value for name, (_, value) in FIELDS.items()}
    job.topic("fields", [("k1", json.dumps(row)), ("k2", json.dumps(row)), ("k3", json.dumps(dict.fromkeys(row)))])
    columns = ", ".join(f"{name} {of}" for name, (of, _) in FIELDS.items())
    script = f"""
        CREATE TABLE {{}}.fields(_key STRING, {columns}) FORMAT (STRING, JSON);
        INSERT INTO {{}}.keys COUNT(*) AS n FROM {{}}.fields GROUP BY {", ".join(FIELDS)};
        INSERT INTO {{}}.values {", ".join(f"LAST({name}) AS last.{name}" for name in FIELDS)} FROM {{}}.fields WHERE i = 3 GROUP BY _key;
    """
    for name in STORED:
        script += f"INSERT INTO {{}}.key-{name} COUNT(*) AS n FROM {{}}.fields WHERE i = 3 GROUP BY {name};"
        script += f"INSERT INTO {{}}.value-{name} LAST({name}) AS _value FROM {{}}.fields GROUP BY _key;"
    done = job.run(script)
    assert done.code == 0, done.err
    found = [(json.loads(key), json.loads(value)) for key, value in job.latest("keys").items()]
    assert len(found) == 2
    assert (row, {"n": 2}) in found
    assert (dict.fromkeys(row), {"n": 1}) in found
    assert {key: json.loads(value) for key, value in job.latest("values").items()} == {b"k1": {"last": row}, b"k2": {"last": row}}  # fmt: skip
    for name, stored in STORED.items():
        assert {key: json.loads(value) for key, value in job.latest(f"key-{name}").items()} == {stored: {"n": 2}}
        assert job.latest(f"value-{name}") == {b"k1": stored, b"k2": stored, b"k3": None}


@pytest.mark.slow
def test_a_table_in_batch(job: Job) -> None:
    """The last record of each key counts, as in a stream, and a record without a value deletes it."""
    job.broker.create_topic(f"{job.prefix}.players", partitions=3)
    rows: list[tuple[Any, ...]] = [
        (f"p{at % 11}", json.dumps({"team": f"t{at % 4}", "points": at}), at % 11 % 3, 1000 + at) for at in range(60)
    ]
    rows += [("p3", None, 0, 2000), ("p4", None, 1, 2001), ("p4", '{"team": "t9", "points": 7}', 1, 2002)]
    job.broker.produce(f"{job.prefix}.players", rows)
    last = {key: value and json.loads(value) for key, value, *_ in rows}
    expected: dict[str, int] = {}
    for value in filter(None, last.values()):
        expected[value["team"]] = expected.get(value["team"], 0) + value["points"]
    query = """
        CREATE TABLE {}.players(_key STRING, team STRING, points INT) FORMAT (STRING, JSON);
        INSERT INTO {}.MODE SELECT TABLE SUM(points) AS total FROM {}.players GROUP BY team;
        INSERT INTO {}.records-MODE SELECT TABLE points, team FROM {}.players WHERE points > 50;
    """
    for mode, arguments in (("batch", ["--batch"]), ("stream", [])):
        done = job.run(query.replace("MODE", mode), *arguments, "--state", mode)
        assert done.code == 0, done.err
        found = {key.decode(): json.loads(value)["total"] for key, value in job.latest(mode).items() if value}
        assert found == expected
        found = {key.decode(): json.loads(value) for key, value in job.latest(f"records-{mode}").items() if value}
        assert found == {key: value for key, value in last.items() if value and value["points"] > 50}


@pytest.mark.slow
def test_values_without_a_storage_format_are_refused(job: Job) -> None:
    job.topic("gaming-sessions", sessions())
    for query in (
        "COUNT(*) AS n FROM {}.gaming-sessions GROUP BY points > 60",
        "LAST(points > 60) AS _value FROM {}.gaming-sessions GROUP BY country",
    ):
        done = job.run(f"{GAMING} INSERT INTO {{}}.refused {query}")
        assert done.code == 2
        assert "of type BOOLEAN without a name has no storage format" in done.err
    client = AdminClient({"bootstrap.servers": job.broker.bootstrap_servers})
    assert f"{job.prefix}.refused" not in client.list_topics().topics


@pytest.mark.slow
def test_windows_and_rows_that_are_retracted(job: Job) -> None:
    job.topic(
        "players",
        [
            ("ann", '{"team":"red","points":5}', 0, 1_200_000),
            ("bob", '{"team":"red","points":7}', 0, 1_260_000),
            ("cid", '{"team":"blue","points":1}', 0, 1_290_000),
            ("ann", '{"team":"blue","points":6}', 0, 1_800_000),
            ("cid", None, 0, 1_810_000),
            ("bob", None, 0, 1_820_000),
            ("dee", '{"team":"red","points":9}', 0, 1_790_000),
        ],
    )
    done = job.run(
        """
        SET everfold.lenses.exact-tables = true;
        SET defaults.topic.scan.max-records-per-batch = 4;
        SET topic.{}.windows.partitions = 3;
        CREATE TABLE {}.players(_key STRING, team STRING, points INT) FORMAT (STRING, JSON);
        WITH many AS (SELECT TABLE COUNT(*) AS n, SUM(points) AS total, MAXK(points) AS top FROM {}.players GROUP BY team);
        INSERT INTO {}.teams SELECT TABLE COUNT(*) AS n, SUM(points) AS total, MAXK(points) AS top FROM {}.players GROUP BY team;
        INSERT INTO {}.tops SELECT TABLE COUNT(*) AS teams FROM many GROUP BY top;
        INSERT INTO {}.windows SELECT STREAM COUNT(*) AS n, SUM(points) AS total FROM {}.players WINDOW BY TUMBLE 10m GRACE BY 1m GROUP BY team;
        """
    )
    assert done.code == 0, done.err
    found = {key: value and json.loads(value) for key, value in job.latest("teams").items()}
    assert found == {b"red": {"n": 1, "total": 9, "top": 9}, b"blue": {"n": 1, "total": 6, "top": 6}}
    tombstones = [each.key for each in job.records("tops") if each.value is None]
    left = {key: json.loads(value) for key, value in job.latest("tops").items() if value is not None}
    assert left == {struct.pack(">i", 9): {"teams": 1}, struct.pack(">i", 6): {"teams": 1}}
    assert tombstones
    first, second = "1970-01-01 00:20:00", "1970-01-01 00:30:00"
    found = {(of["value"], of["window"]["start"]): json.loads(value) for key, value in job.latest("windows").items() for of in [json.loads(key)]}  # fmt: skip
    assert found == {
        ("red", first): {"n": 3, "total": 21},
        ("blue", first): {"n": 1, "total": 1},
        ("blue", second): {"n": 1, "total": 6},
    }
    assert {each.partition for each in job.records("windows")} <= {0, 1, 2}


class ChangingJob:
    """An unbounded job whose query changes."""

    def __init__(self, job: Job, spark: SparkSession, folder: Path) -> None:
        self.job, self.folder, self._spark = job, folder, spark
        self.notes: list[str] = []

    def take(
        self, query: str, records: int, how: OnChange = OnChange.REFUSE, *, refresh: bool = False, prune: bool = False
    ) -> None:
        """Run the query until it has read the given number of records.

        Messages about its tables go to `notes`.
        """
        taken = [0]

        def progress(now: Progress) -> None:
            taken[0] = now.rows

        options = {
            "everfold.dialect": "lenses",
            "defaults.topic.properties.bootstrap.servers": self.job.broker.bootstrap_servers,
            "defaults.topic.autocreate": "true",
        }
        until = time.monotonic() + 120
        session = Session(options, connected=apply_connector)
        (submit,) = [each for each in session.run((GAMING + query).replace("{}", self.job.prefix)) if isinstance(each, Submit)]  # fmt: skip
        self.notes = []
        Engine(session=self._spark).run(
            JobSpec(
                roots=submit.roots,
                settings=submit.settings,
                base_folder=self.folder,
                state_dir=self.folder / "job",
                suspend=True,
                progress=progress,
                stopping=lambda: taken[0] >= records or time.monotonic() > until,
                decide=lambda _: how,
                consent=Consent(refresh=refresh, prune=prune, note=self.notes.append),
            )
        )

    def totals(self) -> dict[str, int]:
        """Return the contents of the topic of totals."""
        latest = self.job.latest("totals").items()
        return {key.decode(): json.loads(value)["total"] for key, value in latest if key is not None and value is not None}  # fmt: skip


@pytest.mark.slow
def test_a_changed_query_resumes_with_its_state(job: Job, spark: SparkSession, tmp_path: Path) -> None:
    """A new aggregate is computed over all that the job has read.

    A job whose groups change is refused.
    """
    topic = job.topic("gaming-sessions", list(sessions())[:4])
    changing = ChangingJob(job, spark, tmp_path)
    before = "INSERT INTO {}.totals SELECT STREAM SUM(points) AS total FROM {}.gaming-sessions GROUP BY country AS c"
    after = before.replace("SUM(points) AS total", "COLLECT(points, 9) AS each, SUM(points) AS total")
    changing.take(before, 4)
    job.broker.produce(topic, list(sessions())[4:])
    with pytest.raises(StateError, match="incompatible"):
        changing.take(after.replace("country", "points"), 3, OnChange.ACCEPT)
    with pytest.raises(StateError, match="COLLECT_LIST"):
        changing.take(after, 3)
    changing.take(after, 3, OnChange.BACKFILL)
    found = {json.loads(key)["c"]: json.loads(value) for key, value in job.latest("totals").items()}
    assert found == {
        "uk": {"each": [50, 90, 70, 82], "total": 292},
        "usa": {"each": [50, 30], "total": 80},
        "spain": {"each": [90], "total": 90},
    }


@pytest.mark.slow
def test_a_refresh_a_rollback_and_a_rebuild_of_a_topic(job: Job, spark: SparkSession, tmp_path: Path) -> None:
    """A new HAVING retracts the rows that it excludes.

    The older query re-emits them. A rebuild leaves keys that do not reappear.
    """
    topic = job.topic("gaming-sessions", sessions())
    changing = ChangingJob(job, spark, tmp_path)
    query = "INSERT INTO {}.totals SELECT STREAM SUM(points) AS total FROM {}.gaming-sessions GROUP BY country"
    changing.take(query, 7)
    assert changing.totals() == {key: total for key, (total, _) in STREAM.items()}
    job.broker.produce(topic, [("ann", '{"points":1,"country":"uk"}', 0, 8000)])
    changing.take(query + " HAVING total > 85", 1, refresh=True)
    assert changing.totals() == {"uk": 293, "spain": 90}
    done = CliRunner().invoke(everfold, ["rollback", str(tmp_path / "job"), "0"])
    assert done.exit_code == 0, done.output
    job.broker.produce(topic, [("ann", '{"points":2,"country":"spain"}', 0, 9000)])
    changing.take(query, 2, refresh=True)
    assert changing.totals() == {"uk": 293, "usa": 80, "spain": 92}
    changing.take(query.replace("GROUP", "WHERE country <> 'usa' GROUP"), 9, OnChange.REBUILD, prune=True)
    assert changing.totals() == {"uk": 293, "spain": 92}
    assert any("totals" in line for line in changing.notes), changing.notes
