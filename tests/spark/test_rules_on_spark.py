"""Apply each compatibility rule on Spark, from files and from Kafka.

A job whose query changes emits what the same change emits in memory, where it is compared with
queries that never stopped (`property.halves`).
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from broker import KafkaBroker
from hypothesis import HealthCheck, given, settings
from property.test_succession import pairs
from test_compat import ALL

from everfold.compat import CompatOptions, judge, shape_of
from everfold.errors import EverfoldError, SqlError, StateError
from everfold.jobs.change import OnChange
from everfold.jobs.engine import Engine
from everfold.jobs.progress import Progress
from everfold.jobs.spec import JobSpec
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Collect, Plan, Root, Scan
from everfold.plan.parts import children, with_children
from everfold.sql.planner import Session, Submit
from everfold.sql.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_SHORT = ("AGG006", "GRP001", "OVR001", "WIN001")
"""Rules that `make test` also applies, from files."""
NOT_HERE = {
    "AGG001": "a Python function is never judged to be safe",
    "INP006": "these tables have no format that reads by position",
    "INP007": "these tables keep the types of their columns",
    "KEY001": "a table with a PRIMARY KEY that its rows change by is an `upsert-kafka` topic",
    "KEY002": "as KEY001",
    "OPR004": "these jobs have one INSERT",
}
"""Rules that no change of these jobs triggers, and why."""
CODES = sorted({code for change in ALL for code in change.codes} - NOT_HERE.keys())
REFERENCE = Session().settings
EXTENDED = REFERENCE.with_option("everfold.compat.rules", "extended")
PATIENCE_S = 120.0
COLUMNS = {"MyTable": "a INT, b INT, c INT, d INT", "t": "k STRING, j STRING, x INT, y INT, a INT, b INT"}
TABLES = {"MyTable": "MyTable", "src": "MyTable", "t": "t", "u": "t"}
"""The tables of the examples, and the columns that each has besides its times."""


def make_plan(text: str) -> Root:
    """Return the plan of a query over these tables, without the table that it writes to."""
    ddl = "".join(
        f"CREATE TABLE {name} ({COLUMNS[like]}, ts TIMESTAMP(3), proctime AS PROCTIME(), WATERMARK FOR ts AS ts) WITH ('connector' = 'print');"
        for name, like in TABLES.items()
    )
    session = Session(lenient=True)
    (submit,) = [each for each in session.run(ddl + text) if isinstance(each, Submit)]
    (root,) = submit.roots
    if not all(scan.table.name in TABLES for scan in _all(root.input) if isinstance(scan, Scan)):
        raise NotImplementedError
    return Collect(input=root.input)


def part(seed: int, first: int, count: int) -> list[dict[str, Any]]:
    """Return rows of any of the tables, a second apart, with few values and some NULLs."""
    chance = random.Random(seed + first)
    rows = []
    for at in range(first, first + count):
        numbers: dict[str, Any] = {name: chance.choice([None, *range(6)]) for name in "abcdxy"}
        texts = {name: chance.choice([None, "p", "q", "r"]) for name in "kj"}
        rows.append({**numbers, **texts, "ts": at * 1_000_000})
    return rows


def batch(root: Root, rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """Return rows in the format of the scans of a plan."""
    found = {}
    for scan in (node for node in _all(root.input) if isinstance(node, Scan)):
        columns = scan.table.columns
        arrays = [pa.array([row[column.name] for row in rows]).cast(column.type.arrow) for column in columns]
        found[scan.table.name] = pa.Table.from_arrays(arrays, names=[f"c{at}" for at in range(len(columns))])
    return found


class Job:
    """A job on Spark. Its input comes in parts, and each run reads the new part."""

    def __init__(
        self, session: SparkSession, folder: Path, broker: KafkaBroker | None, settings: Settings = REFERENCE
    ) -> None:
        self.engine, self.folder, self.broker = Engine(session=session), folder, broker
        self.options = {"connector": "filesystem", "format": "json"}
        self.new = self.parts = 0
        self.settings = settings
        for name in TABLES:
            (folder / "in" / name).mkdir(parents=True)
        if broker is not None:
            for name in TABLES:
                broker.create_topic(self._topic(name))  # an empty partition would hold time back
            servers = {"properties.bootstrap.servers": broker.bootstrap_servers}
            self.options = {"connector": "kafka", "format": "json", "scan.startup.mode": "earliest-offset", **servers}

    def _topic(self, table: str) -> str:
        return f"{self.folder.name}-{table}".replace("_", "-")

    def put(self, rows: list[dict[str, Any]]) -> None:
        """Add these rows to each table."""
        stamps = [f"1970-01-01 00:{row['ts'] // 60_000_000:02}:{row['ts'] // 1_000_000 % 60:02}" for row in rows]
        lines = [json.dumps(row | {"ts": stamp}) for row, stamp in zip(rows, stamps, strict=True)]
        for name in TABLES:
            if self.broker is None:
                (self.folder / "in" / name / f"{self.parts}.json").write_text("\n".join(lines) + "\n")
            else:
                self.broker.produce(self._topic(name), [(None, line, 0) for line in lines])
        self.new, self.parts = len(rows), self.parts + 1

    def run(self, root: Root, how: OnChange = OnChange.REFUSE) -> Counter[tuple[Any, ...]]:
        """Run a query until it has read the new rows, and leave its windows open.

        Return the emitted rows minus the retracted ones.
        """
        got: list[pa.Table] = []
        read = [0]
        scans = sum(isinstance(node, Scan) for node in _all(root.input))
        until = time.monotonic() + PATIENCE_S

        def progress(now: Progress) -> None:
            read[0] = now.rows

        self.engine.run(
            JobSpec(
                roots=(replace(root, input=self._from_source(root.input)),),
                settings=self.settings,
                base_folder=self.folder,
                state_dir=self.folder / "job",
                suspend=True,
                receive=got.append,
                progress=progress,
                stopping=lambda: self.broker is not None and (read[0] >= self.new * scans or time.monotonic() > until),
                decide=lambda _: how,
            )
        )
        return fold_changes(got, len(root.input.schema))

    def _from_source(self, node: Plan) -> Plan:
        if isinstance(node, Scan):
            name = node.table.name
            location = {"path": f"in/{name}"} if self.broker is None else {"topic": self._topic(name)}
            return replace(node, table=replace(node.table, options=tuple({**self.options, **location}.items())))
        return with_children(node, tuple(map(self._from_source, children(node))))


def _all(node: Plan) -> Iterator[Plan]:
    yield node
    for child in children(node):
        yield from _all(child)


def fold_changes(tables: list[pa.Table], width: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in (row for table in tables for row in table.to_pylist()):
        comes = row.get(KIND, 0) in (RowKind.INSERT, RowKind.UPDATE_AFTER)
        found[tuple(repr(row[f"c{at}"]) for at in range(width))] += 1 if comes else -1
    return Counter({row: count for row, count in found.items() if count})


class Memory:
    """The same job in memory."""

    def __init__(self, root: Root) -> None:
        self.pipeline = MemoryPipeline(root, REFERENCE, buckets=2)

    def change(self, root: Root, seen: list[dict[str, Any]] | None = None, settings: Settings = REFERENCE) -> None:
        """Change the query. seen: the rows read so far, for a backfill."""
        self.pipeline = self.pipeline.change_query(root, 1, settings, None if seen is None else batch(root, seen))

    def run(self, root: Root, rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
        return fold_changes([self.pipeline.feed(batch(root, rows), now_ms=0)], len(root.input.schema))


def example(code: str) -> tuple[Root, Root, Settings]:
    """Return the first pair of queries for which the rule reports a finding and which a stream
    can run over the tables of these tests, and the rules under which it does.
    """
    for rules, change in product((REFERENCE, EXTENDED), ALL):
        text = change.old + change.new
        if code not in change.codes or "weighted_avg" in text or "everfold.compat" in text:
            continue
        try:
            before, after = make_plan(change.old), make_plan(change.new)
            for root in (before, after):
                Memory(root).run(root, part(0, 0, 1))
        except (
            EverfoldError,
            NotImplementedError,
            duckdb.Error,
            ValueError,
        ):  # undeclared tables have columns of no type
            continue
        found = judge([shape_of(before)], [shape_of(after)], CompatOptions.of(rules))
        if code in {each.code for operator in found.operators for each in operator.findings}:
            return before, after, rules
    raise AssertionError(f"no case of {code} runs over the tables of these tests")


def check_change(before: Root, after: Root, job: Job) -> None:
    memory, first, second = Memory(before), part(7, 0, 40), part(7, 40, 40)
    job.put(first)
    assert job.run(before) == memory.run(before, first)
    job.put(second)
    verdict = judge([shape_of(before)], [shape_of(after)], CompatOptions.of(job.settings)).verdict
    if verdict.reuses_state:
        memory.change(after, settings=job.settings)
        assert job.run(after, OnChange.ACCEPT) == memory.run(after, second)
        return
    with pytest.raises(StateError, match=r"incompatible-change|unknown-change"):
        job.run(after, OnChange.ACCEPT)
    assert job.run(before) == memory.run(before, second)


@pytest.mark.spark
@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=[] if code in IN_SHORT else [pytest.mark.slow]) for code in CODES]
)
def test_rules_from_files(code: str, spark: SparkSession, tmp_path: Path) -> None:
    before, after, settings = example(code)
    check_change(before, after, Job(spark, tmp_path, None, settings))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_rules_from_kafka(code: str, spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    before, after, settings = example(code)
    check_change(before, after, Job(spark, tmp_path, kafka_broker, settings))


HOP = "FROM HOP(TABLE MyTable, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '30' SECOND) GROUP BY window_start, window_end, a"
SESSION = "FROM SESSION(TABLE MyTable PARTITION BY a, DESCRIPTOR(ts), INTERVAL '4' SECOND) GROUP BY window_start, window_end, a"
OVER = "FROM MyTable WINDOW w AS (PARTITION BY a ORDER BY ts"
FILLED = {
    "group": ("SELECT a, SUM(b) FROM MyTable GROUP BY a", "SELECT a, SUM(b), COUNT(*), FIRST_VALUE(c) FROM MyTable GROUP BY a"),
    "hop": (f"SELECT window_end, a, SUM(b) {HOP}", f"SELECT window_end, a, SUM(b), MAX(c), COUNT(c) {HOP}"),
    "session": (f"SELECT window_end, a, SUM(b) {SESSION}", f"SELECT window_end, a, SUM(b), MIN(c) {SESSION}"),
    "unbounded frame": (f"SELECT a, b, SUM(b) OVER w {OVER})", f"SELECT a, b, SUM(b) OVER w, MAX(b) OVER w {OVER})"),
    "frame of rows": (f"SELECT a, b, SUM(b) OVER w {OVER} ROWS 4 PRECEDING)", f"SELECT a, b, SUM(b) OVER w, MAX(b) OVER w {OVER} ROWS 4 PRECEDING)"),
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("source", ["files", "kafka"])
@pytest.mark.parametrize("what", FILLED)
def test_backfill(what: str, source: str, spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker = request.getfixturevalue("kafka_broker") if source == "kafka" else None
    before, after = map(make_plan, FILLED[what])
    job, memory, first, second = Job(spark, tmp_path, broker), Memory(before), part(7, 0, 40), part(7, 40, 40)
    job.put(first)
    assert job.run(before) == memory.run(before, first)
    job.put(second)
    memory.change(after, first)
    assert job.run(after, OnChange.BACKFILL) == memory.run(after, second)


@pytest.mark.spark
@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs())
def test_random_changes_on_spark(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, pair: tuple[str, str]
) -> None:
    try:
        before, after = map(make_plan, pair)
    except SqlError:
        return
    check_change(before, after, Job(spark, tmp_path_factory.mktemp("random"), None))
