"""The Python API on a real session: next to the caller's session, over files and over the
caller's DataFrames.
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everfold import TableEnvironment
from everfold.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BIDS = [
    ("08:05", "4.00"),
    ("08:07", "2.00"),
    ("08:09", "5.00"),
    ("08:11", "3.00"),
    ("08:13", "1.00"),
    ("08:17", "6.00"),
]
DDL = """
CREATE TABLE Bid (bidtime TIMESTAMP(3), price DECIMAL(10, 2), WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'bids', 'format' = 'json')
"""
TUMBLE = """
SELECT window_start, window_end, SUM(price) AS total_price
FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES) GROUP BY window_start, window_end
"""


def at(minute: int) -> datetime:
    return datetime(2020, 4, 15, 8, minute)


EXPECTED = [(at(0), at(10), Decimal("11.00")), (at(10), at(20), Decimal("10.00"))]  # the seed's table


@pytest.fixture
def bids(tmp_path: Path) -> Path:
    folder = tmp_path / "bids"
    folder.mkdir()
    lines = [json.dumps({"bidtime": f"2020-04-15 {time}:00", "price": float(price)}) for time, price in BIDS]
    (folder / "1.json").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def environment(spark: SparkSession, bids: Path) -> TableEnvironment:
    made = TableEnvironment(spark, base_folder=bids)
    made.execute_sql(DDL)
    return made


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("bidtime TIMESTAMP_NTZ, price DECIMAL(10,2)").json(str(folder / "bids"))


def collect_rows(frame: DataFrame, checkpoint: Path) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []

    def take(batch: DataFrame, number: int) -> None:
        rows.extend(tuple(row) for row in batch.collect())

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return rows


def test_a_query_returns_its_rows(environment: TableEnvironment) -> None:
    assert [tuple(row) for row in environment.sql_query(TUMBLE).collect()] == EXPECTED


def test_a_batch_returns_the_same_rows(environment: TableEnvironment) -> None:
    environment.get_config().set("execution.runtime-mode", "batch")
    assert sorted(tuple(row) for row in environment.sql_query(TUMBLE).collect()) == EXPECTED


def test_the_configuration_of_the_caller_is_unchanged(spark: SparkSession, environment: TableEnvironment) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    before = {row.key: row.value for row in spark.sql("SET").collect()}
    environment.sql_query(TUMBLE).collect()
    assert {row.key: row.value for row in spark.sql("SET").collect()} == before
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_streaming_frame_can_be_used_like_any_other(environment: TableEnvironment, tmp_path: Path) -> None:
    frame = environment.sql_query(TUMBLE).to_spark()
    assert frame.isStreaming
    assert frame.columns == ["window_start", "window_end", "total_price"]
    frame = frame.where("total_price > 0")
    assert collect_rows(frame, tmp_path / "checkpoint") == EXPECTED[:1]  # 08:20 has not passed yet


def test_a_changelog_has_the_kind_of_each_change(environment: TableEnvironment, tmp_path: Path) -> None:
    frame = environment.sql_query(TUMBLE).to_changelog()
    assert collect_rows(frame, tmp_path / "checkpoint") == [("+I", *EXPECTED[0])]


def test_another_query_with_the_same_checkpoint_is_refused(environment: TableEnvironment, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    collect_rows(environment.sql_query(TUMBLE).to_spark(), tmp_path / "checkpoint")
    with (tmp_path / "bids" / "2.json").open("w") as more:
        more.write('{"bidtime": "2020-04-15 08:31:00", "price": 1}\n')
    changed = TUMBLE.replace("SUM(price)", "MAX(price)")
    with pytest.raises(StreamingQueryException, match="changed-query"):
        collect_rows(environment.sql_query(changed).to_spark(), tmp_path / "checkpoint")


def test_a_streaming_frame_of_the_caller_is_a_table(spark: SparkSession, bids: Path, tmp_path: Path) -> None:
    environment = TableEnvironment(spark)
    watermark = "bidtime - INTERVAL '1' SECOND"
    environment.create_temporary_view("Bid", stream_of(spark, bids), rowtime="bidtime", watermark=watermark)
    frame = environment.sql_query(TUMBLE).to_spark()
    assert collect_rows(frame, tmp_path / "checkpoint") == EXPECTED[:1]


def test_a_finished_frame_of_the_caller_is_a_table(spark: SparkSession, bids: Path) -> None:
    environment = TableEnvironment(spark, options={"execution.runtime-mode": "batch"})
    finished = spark.read.schema("bidtime TIMESTAMP_NTZ, price DECIMAL(10,2)").json(str(bids / "bids"))
    environment.create_temporary_view("Bid", finished)
    assert sorted(tuple(row) for row in environment.sql_query(TUMBLE).collect()) == EXPECTED
    assert sorted(environment.sql_query(TUMBLE).to_pandas()["total_price"]) == [Decimal("10.00"), Decimal("11.00")]


def test_show_and_describe_return_rows(environment: TableEnvironment) -> None:
    assert environment.execute_sql("SHOW TABLES").collect()[0][0] == "Bid"
    assert [row[0] for row in environment.execute_sql("DESCRIBE Bid").collect()] == ["bidtime", "price"]


def test_sql_query_accepts_one_query(environment: TableEnvironment) -> None:
    with pytest.raises(UsageError, match="not-a-query"):
        environment.sql_query("SHOW TABLES")


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_fields_without_names_keep_their_positions(environment: TableEnvironment, bids: Path, mode: str) -> None:
    (bids / "lines").mkdir()
    (bids / "lines" / "1.csv").write_text("1,x,\n2,y,20\n")
    environment.execute_sql(
        f"SET 'execution.runtime-mode' = '{mode}'; CREATE TABLE lines (a INT, b STRING, c STRING) "
        "WITH ('connector' = 'filesystem', 'path' = 'lines', 'format' = 'csv')"
    )
    assert sorted(environment.sql_query("SELECT b FROM lines").collect()) == [("x",), ("y",)]
    assert sorted(environment.sql_query("SELECT c, a FROM lines").collect()) == [("", 1), ("20", 2)]


def test_lenses_sql(spark: SparkSession, bids: Path) -> None:
    environment = TableEnvironment(spark, dialect="lenses", base_folder=bids)
    environment.execute_sql("SET 'everfold.dialect' = 'flink';" + DDL)
    environment.execute_sql("SET 'everfold.dialect' = 'lenses';")
    found = environment.sql_query("SELECT STREAM SUM(price) AS total FROM Bid WINDOW BY TUMBLE 10m GROUP BY price > 0")
    last = {row["_key"]["window"]["start"]: row["total"] for row in found.collect()}
    assert last == {at(0): Decimal("11.00"), at(10): Decimal("10.00")}
