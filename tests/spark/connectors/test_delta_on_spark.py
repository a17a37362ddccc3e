"""Tables of Delta Lake: written exactly once, read as a batch and as a stream.

Each test reads the table with Delta itself, as another reader would.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.running import Run
from unit.connectors.tables import TableMaker, table

from everfold.connectors.contract import KIND, AppliedBatch, BatchId, ClusterSink, Role, SinkContext
from everfold.connectors.delta.table import DELTA
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError, StateError
from everfold.types import BIGINT, DOUBLE, STRING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
TOTALS = table("totals", k=STRING, n=BIGINT)
DIGEST, OTHER_DIGEST = "0123456789abcdef" * 2, "f" * 32


def make_sink(spark: SparkSession, folder: Path, *key: str, of: TableMaker = TOTALS) -> ClusterSink:
    made = replace(of.with_options({"connector": "delta", "table-path": "t"}), primary_key=key)
    context = SinkContext(name="s", base_folder=folder, table=made, spark=spark, query="q")
    sink = check_table(made, Role.SINK).sink(context)
    assert isinstance(sink, ClusterSink)
    sink.prepare()
    return sink


def frame(spark: SparkSession, *rows: tuple[str, int, int], tasks: int = 1) -> DataFrame:
    """Return rows of key, number and kind, in order within each task."""
    values = ", ".join(f"('{key}', {n}, {kind})" for key, n, kind in rows)
    made = spark.sql(
        f"SELECT k AS c0, CAST(n AS BIGINT) AS c1, CAST(kind AS TINYINT) AS {KIND} FROM VALUES {values} AS (k, n, kind)"
    )
    return made.coalesce(1) if tasks == 1 else made.repartition(tasks)


def read(spark: SparkSession, folder: Path, name: str = "t") -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.read.format("delta").load(f"{folder}/{name}").collect()))


def write(spark: SparkSession, folder: Path, name: str, rows: str) -> None:
    """Append rows to a table as another job would. rows: `(key, number), …`."""
    made = spark.sql(f"SELECT k, CAST(n AS BIGINT) AS n FROM VALUES {rows} AS (k, n)").coalesce(1)
    made.write.format("delta").mode("append").save(f"{folder}/{name}")


@pytest.fixture
def delta(spark: SparkSession) -> SparkSession:
    """Return a session in which the test uses Delta itself."""
    DELTA.add_to(spark)
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    return spark


def test_batches_are_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = make_sink(spark, tmp_path)
    first = frame(spark, ("a", 1, 0), ("a", 1, 0), ("b", 2, 0), tasks=2)
    assert sink.write(first, BatchId("job", "s", 0, 0, DIGEST)) == 3
    assert sink.write(first, BatchId("job", "s", 0, 0, DIGEST)) is None
    sink.close()
    again = make_sink(spark, tmp_path)  # as after a crash
    assert again.write(first, BatchId("job", "s", 0, 0, DIGEST)) is None
    assert again.last_applied("job", "s") == AppliedBatch(0, 0, DIGEST[:8])
    assert again.last_applied("job", "other") is None
    with pytest.raises(StateError, match="sink-ahead"):
        again.write(first, BatchId("job", "s", 0, 0, OTHER_DIGEST))
    assert read(spark, tmp_path) == [("a", 1), ("a", 1), ("b", 2)]


@pytest.mark.slow
def test_batches_of_epochs_and_sinks_are_distinct(spark: SparkSession, tmp_path: Path) -> None:
    sink = make_sink(spark, tmp_path)
    one = frame(spark, ("a", 1, 0))
    assert sink.write(one, BatchId("job", "s", 0, 0, DIGEST)) == 1
    assert sink.write(one, BatchId("job", "s", 2, 0, DIGEST)) == 1
    assert sink.write(one, BatchId("job", "r", 0, 0, DIGEST)) == 1
    assert sink.write(one, BatchId("other", "s", 0, 0)) == 1
    assert sink.write(one, BatchId("other", "s", 0, 0)) is None
    assert sink.last_applied("job", "s") == AppliedBatch(2, 0, DIGEST[:8])
    assert sink.last_applied("other", "s") == AppliedBatch(0, 0, "")
    with pytest.raises(StateError, match="sink-taken-over"):
        sink.write(one, BatchId("job", "s", 1, 0, DIGEST))
    assert sink.find_other_job("job") == ""
    assert read(spark, tmp_path) == [("a", 1)] * 4


@pytest.mark.slow
def test_changes_are_merged_by_key(spark: SparkSession, tmp_path: Path) -> None:
    sink = make_sink(spark, tmp_path, "k")
    rows = frame(spark, *((f"k{at}", at, 0) for at in range(20)), tasks=2)
    assert sink.write(rows, BatchId("job", "s", 0, 0, DIGEST)) == 20
    changes = frame(
        spark,
        ("k0", 0, 1), ("k0", 7, 2),  # an update
        ("k1", 1, 3),  # a delete
        ("k2", 2, 3), ("k2", 5, 0),  # deleted and inserted
        ("new", 1, 0), ("new", 1, 1), ("new", 2, 2),  # inserted and updated
        ("brief", 1, 0), ("brief", 1, 3),  # inserted and deleted
    )  # fmt: skip
    assert sink.write(changes, BatchId("job", "s", 0, 1, DIGEST)) == 5
    expected = sorted([("k0", 7), ("k2", 5), ("new", 2), *((f"k{at}", at) for at in range(3, 20))])
    assert read(spark, tmp_path) == expected
    assert sink.write(changes, BatchId("job", "s", 0, 1, DIGEST)) is None
    # Of several tasks, an added row counts: the row has moved from one bucket to another.
    moved = spark.range(0, 3, 1, 3).selectExpr(
        "'k3' AS c0", "IF(id = 1, 33L, 3L) AS c1", f"CAST(IF(id = 1, 0, 3) AS TINYINT) AS {KIND}"
    )
    assert sink.write(moved, BatchId("job", "s", 0, 2, DIGEST)) == 1
    assert ("k3", 33) in read(spark, tmp_path)
    versions = len(list((tmp_path / "t" / "_delta_log").glob("*.json")))
    assert sink.write(frame(spark, ("k3", 0, 0)).where("false"), BatchId("job", "s", 0, 3, DIGEST)) == 0
    assert len(list((tmp_path / "t" / "_delta_log").glob("*.json"))) == versions


@pytest.mark.slow
def test_a_table_that_differs_is_refused(delta: SparkSession, tmp_path: Path) -> None:
    write(delta, tmp_path, "t", "('a', 1)")
    make_sink(delta, tmp_path)
    for of, reason in (
        (table("totals", k=STRING, n=DOUBLE), "its column `n` is bigint, and double is declared"),
        (table("totals", k=STRING, m=BIGINT), "it has no column `m`; its column `n` is not declared"),
        (table("totals", ("k",), k=STRING, n=BIGINT), "it is partitioned by no column, and `k` is declared"),
    ):
        with pytest.raises(ConnectorError, match="delta-schema") as caught:
            make_sink(delta, tmp_path, of=of)
        assert reason in caught.value.diagnostics[0].message
    assert read(delta, tmp_path) == [("a", 1)]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.parquet").write_bytes(b"")
    (tmp_path / "t").rename(tmp_path / "u")
    (tmp_path / "files").rename(tmp_path / "t")
    with pytest.raises(ConnectorError, match="not-delta"):
        make_sink(delta, tmp_path)


SOURCE = "CREATE TABLE t (k STRING, n BIGINT) WITH ('connector' = 'delta', 'table-path' = 't'{options});\n"
SINK = "CREATE TABLE sums (k STRING, s BIGINT{more}, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'delta', 'table-path' = 'sums');\n"


def put_script(query: str, options: str = "", more: str = "") -> None:
    Path("job.sql").write_text(SOURCE.format(options=options) + SINK.format(more=more) + query)


@pytest.mark.slow
def test_a_stream_reads_what_is_added_and_a_backfill_what_was_read(
    delta: SparkSession, run: Run, tmp_path: Path
) -> None:
    write(delta, tmp_path, "t", "('a', 1), ('b', 2)")
    write(delta, tmp_path, "t", "('a', 3)")
    one_file = ", 'scan.max-files-per-batch' = '1'"
    put_script("INSERT INTO sums SELECT k, SUM(n) FROM t GROUP BY k;", one_file)
    first = run("--state", "job")
    assert first.code == 0, first.err
    assert read(delta, tmp_path, "sums") == [("a", 4), ("b", 2)]
    assert run("--state", "job").code == 0  # resumes, without a new row
    write(delta, tmp_path, "t", "('a', 10), ('c', 5)")
    open_table(delta, tmp_path, "t").optimize().executeCompaction()  # rewrites files without changing rows
    assert run("--state", "job").code == 0
    assert read(delta, tmp_path, "sums") == [("a", 14), ("b", 2), ("c", 5)]
    write(delta, tmp_path, "t", "('a', 100)")
    # A new aggregate is computed from the beginning, and the new row is counted once.
    (tmp_path / "sums").rename(tmp_path / "old")
    put_script(
        "INSERT INTO sums SELECT k, SUM(n), COUNT(*), MIN(n) FROM t GROUP BY k;", one_file, ", c BIGINT, m BIGINT"
    )
    changed = run("--state", "job", "--on-change", "backfill")
    assert changed.code == 0, changed.err
    assert "computed from the beginning, over 5 rows" in changed.err
    assert ("a", 114, 4, 1) in read(delta, tmp_path, "sums")


def open_table(spark: SparkSession, folder: Path, name: str) -> Any:
    """Return Delta's object for a table."""
    jvm: Any = spark._jvm
    return jvm.io.delta.tables.DeltaTable.forPath(spark._jsparkSession, f"{folder}/{name}")


@pytest.mark.slow
def test_a_stream_starts_at_a_version_and_refuses_changes(delta: SparkSession, run: Run, tmp_path: Path) -> None:
    write(delta, tmp_path, "t", "('a', 1)")
    write(delta, tmp_path, "t", "('a', 2)")
    write(delta, tmp_path, "t", "('a', 4)")
    query = "INSERT INTO sums SELECT k, SUM(n) FROM t GROUP BY k;"
    put_script("SELECT SUM(n) AS s FROM t;", ", 'versionAsOf' = '1'")
    batch = run("--batch", "--format", "json")
    assert json.loads(batch.out)["s"] == 3, batch.err
    refused = run("--state", "other")
    assert "error[delta-time-travel]" in refused.err
    put_script("SELECT COUNT(*) AS n FROM t;", ", 'startingVersion' = '1'")
    assert "applies to tables with 'mode' = 'streaming' only" in run().err
    put_script(query)
    assert run("--state", "job").code == 0
    assert read(delta, tmp_path, "sums") == [("a", 7)]
    rows = delta.sql("SELECT 2L AS n").alias("new")
    merge = getattr(open_table(delta, tmp_path, "t"), "as")("old").merge(rows._jdf, "old.n = new.n")
    merge.whenMatched().updateExpr({"n": "3L"}).execute()
    changed = run("--state", "job")
    assert changed.code == 1
    assert "error[delta-changed]: table `t`: version 3 of the Delta table updates or deletes rows" in changed.err
    assert read(delta, tmp_path, "sums") == [("a", 7)]


@pytest.mark.slow
def test_columns_of_all_types_come_back(delta: SparkSession, run: Run, tmp_path: Path) -> None:
    columns = (
        "b BOOLEAN, i INT, d DECIMAL(10, 2), f DOUBLE, s STRING, y BYTES, e DATE, ts TIMESTAMP(3), z TIMESTAMP_LTZ(3), "
        "a ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, w STRING>, p STRING"
    )
    Path("job.sql").write_text(
        f"CREATE TABLE t ({columns}) PARTITIONED BY (p) WITH ('connector' = 'delta', 'table-path' = 't');\n"
        "INSERT INTO t SELECT TRUE, 1, CAST(1.5 AS DECIMAL(10, 2)), 2.5E0, 'x', X'00ff', DATE '2020-01-02', "
        "TIMESTAMP '2020-01-01 00:00:00.123', TO_TIMESTAMP_LTZ(1000, 3), ARRAY[1, 2], MAP['k', 3], "
        "CAST(ROW(1, 'w') AS ROW<x INT, w STRING>), 'part';\n"
        "SELECT * FROM t;\n"
    )
    done = run("--batch", "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1]) == {
        "b": True, "i": 1, "d": 1.5, "f": 2.5, "s": "x", "y": "00ff", "e": "2020-01-02",
        "ts": "2020-01-01 00:00:00.123", "z": "1970-01-01 00:00:01.000Z", "a": [1, 2], "m": {"k": 3},
        "r": {"x": 1, "w": "w"}, "p": "part",
    }  # fmt: skip
    assert list((tmp_path / "t").glob("p=part/*.parquet"))
