"""PostgreSQL through Spark: tasks stage, the driver merges.

Tables are read at each run of a frame, or once for a stream.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from postgres import PASSWORD, Database
from unit.connectors.tables import TableMaker, table

from everfold.connectors.contract import KIND, BatchId, ClusterSink, Role, SinkContext, Source, SourceContext
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.storage import local
from everfold.types import BIGINT, BYTES, STRING, TIMESTAMP3, TIMESTAMP_LTZ3, DecimalType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOTALS = table(
    "totals", k=STRING, n=BIGINT, d=DecimalType(precision=10, scale=2), b=BYTES, ts=TIMESTAMP3, tz=TIMESTAMP_LTZ3
)
DDL = "CREATE TABLE t (k text PRIMARY KEY, n bigint, d numeric(10, 2), b bytea, ts timestamp, tz timestamptz)"
VALUES = "CAST('1.50' AS DECIMAL(10,2)), X'00FF', TIMESTAMP_NTZ'2020-01-01 00:00:00.5', TIMESTAMP'2020-01-01 00:00:00Z'"


def make_sink(database: Database, of: TableMaker = TOTALS, *key: str) -> ClusterSink:
    made = replace(of.with_options(database.options("t")), primary_key=key)
    sink = check_table(made, Role.SINK).sink(SinkContext(name="s", base_folder=Path(), table=made))
    assert isinstance(sink, ClusterSink)
    sink.prepare()
    return sink


def frame(spark: SparkSession, *rows: tuple[str, int | None, int], tasks: int = 2) -> DataFrame:
    """Return rows of key, number and kind, in order, from the given number of tasks."""
    values = ", ".join(f"('{key}', {'NULL' if n is None else n}, {kind})" for key, n, kind in rows)
    columns = ", ".join(f"v{at} AS c{at + 2}" for at in range(4))
    made = spark.sql(
        f"SELECT k AS c0, CAST(n AS BIGINT) AS c1, {columns}, CAST(kind AS TINYINT) AS {KIND}"
        f" FROM (SELECT *, {', '.join(f'{value} AS v{at}' for at, value in enumerate(VALUES.split(', ')))} FROM VALUES {values} AS (k, n, kind))"
    )
    return made.repartition(tasks) if tasks > 1 else made.coalesce(1)


def read_content(database: Database) -> list[tuple[Any, ...]]:
    return sorted(database.run("SELECT k, n FROM t"))


def test_batches_are_written_once(spark: SparkSession, database: Database) -> None:
    database.run(DDL)
    sink = make_sink(database, TOTALS, "k")
    first = frame(spark, *((f"k{at}", at, 0) for at in range(100)))
    assert sink.write(first, BatchId("job", "s", 0, 0)) == 100
    assert len(read_content(database)) == 100
    assert database.run(
        "SELECT d::text, b, ts::text, tz AT TIME ZONE 'UTC' = ts - interval '0.5 s' FROM t LIMIT 1"
    ) == [("1.50", b"\0\xff", "2020-01-01 00:00:00.5", True)]
    database.run("UPDATE t SET n = -1")
    assert sink.write(first, BatchId("job", "s", 0, 0)) is None
    sink.close()
    again = make_sink(database, TOTALS, "k")  # as after a crash
    assert again.write(first, BatchId("job", "s", 0, 0)) is None
    assert {n for _, n in read_content(database)} == {-1}
    changes = frame(spark, ("k1", 1, 1), ("k1", 7, 2), *((f"k{at}", at, 3) for at in range(2, 100)), tasks=1)
    assert again.write(changes, BatchId("job", "s", 0, 1)) == 100
    assert read_content(database) == [("k0", -1), ("k1", 7)]
    assert again.write(changes.where("false"), BatchId("job", "s", 0, 2)) == 0
    again.close()
    assert database.run("SELECT epoch, batch, rows FROM everfold_commits ORDER BY 1, 2") == [(0, 0, 100), (0, 1, 100)]


def test_an_error_in_a_task_is_reported(spark: SparkSession, database: Database) -> None:
    database.run(DDL.replace("text", "varchar(3)"))
    sink = make_sink(database, TOTALS, "k")
    with pytest.raises(ConnectorError) as caught:
        sink.write(frame(spark, ("ok", 1, 0), ("much too long", 1, 0)), BatchId("job", "s", 0, 0))
    sink.close()
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "refused-row"
    assert (
        diagnostic.message
        == "table `totals`: PostgreSQL refuses a row: `k`: value too long for type character varying(3)"
    )
    assert PASSWORD not in diagnostic.message
    assert read_content(database) == []


def open_source(
    spark: SparkSession, of: TableMaker, database: Database, folder: Path, **options: str
) -> tuple[Source, SourceContext]:
    made = of.with_options(database.options("t", **options))
    context = SourceContext(spark=spark, name="t_1", base_folder=folder, table=made, job_folder=local(folder / "job"))
    return check_table(made, Role.SOURCE).source(), context


def test_a_frame_reads_the_table_at_each_run(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.run(DDL)
    database.run(
        "INSERT INTO t SELECT 'k' || x, x, 1.5, '\\x00ff', '2020-01-01 00:00:00.5', '2020-01-01 00:00:00Z' FROM generate_series(1, 50) AS x"
    )
    shares = {
        "scan__partition__column": "n",
        "scan__partition__num": "3",
        "scan__partition__lower_bound": "1",
        "scan__partition__upper_bound": "50",
    }
    source, context = open_source(spark, TOTALS, database, tmp_path, **shares)
    rows = source.batch(context)
    assert rows.rdd.getNumPartitions() == 3
    first = rows.where("c0 = 'k1'").collect()
    assert [str(each) for each in first[0]] == [
        "k1", "1", "1.50", "b'\\x00\\xff'", "2020-01-01 00:00:00.500000", "2020-01-01 00:00:00", "totals",
    ]  # fmt: skip
    assert rows.count() == 50
    database.run("DELETE FROM t WHERE n > 10")
    assert rows.count() == 10
    assert (source.is_read_per_batch(), source.is_bounded()) == (True, True)
    whole, _ = open_source(spark, TOTALS, database, tmp_path, lookup__cache="FULL")
    assert not whole.is_read_per_batch()
    assert PASSWORD not in (rows._jdf.queryExecution().toString())


@pytest.mark.slow
def test_a_stream_join_reads_the_table_in_every_batch(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (k text, n bigint)")
    database.run("INSERT INTO t VALUES ('a', 1)")
    source, context = open_source(spark, table("names", k=STRING, n=BIGINT), database, tmp_path)
    (tmp_path / "in").mkdir()
    found: list[tuple[Any, ...]] = []
    stream = spark.readStream.name("names").schema("k STRING").json(str(tmp_path / "in"))
    joined = stream.join(source.batch(context).selectExpr("c0 AS k", "c1 AS n"), "k", "left")
    query = (
        joined.writeStream.foreachBatch(lambda frame, _: found.extend(map(tuple, frame.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        for number in (1, 2):
            database.run("UPDATE t SET n = %s", number)
            (tmp_path / f"{number}.json").write_text('{"k":"a"}\n{"k":"b"}\n')
            (tmp_path / f"{number}.json").rename(tmp_path / "in" / f"{number}.json")
            query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(found, key=str) == [("a", 1), ("a", 2), ("b", None), ("b", None)]


def test_a_stream_holds_the_table_as_of_the_start_of_the_job(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.run(DDL)
    database.run("INSERT INTO t (k, n) VALUES ('a', 1), ('b', 2)")

    def stream() -> list[tuple[Any, ...]]:
        source, context = open_source(spark, TOTALS, database, tmp_path)
        found: list[tuple[Any, ...]] = []
        query = (
            source.stream(context).writeStream.foreachBatch(lambda frame, _: found.extend(map(tuple, frame.select("c0", "c1", "__split").collect())))
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sorted(found)

    assert stream() == [("a", 1, "totals"), ("b", 2, "totals")]
    database.run("INSERT INTO t (k, n) VALUES ('c', 3)")
    assert stream() == []


@pytest.mark.slow
def test_an_error_in_a_reading_task_is_reported(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (ts timestamp)")
    database.run("INSERT INTO t VALUES ('infinity')")
    source, context = open_source(spark, table("t", ts=TIMESTAMP3), database, tmp_path)
    rows = source.batch(context)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        rows.collect()
    error = source.parse_failure(str(caught.value))
    assert error is not None
    assert error.code == "bad-record"
    assert "infinity" in str(error)
