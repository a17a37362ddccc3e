"""Buckets are distributed evenly over Spark's shuffle partitions, by Spark's hash, and the meta rows
of a batch do not grow with the product of tasks and buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everfold.compat.operator_ids import source_notes
from everfold.plan.naming import name_sources
from everfold.plan.nodes import Table
from everfold.spark.buckets import bucket_ids, choose_modulus, count_buckets, find_partition, spark_hash
from everfold.spark.session import create_session
from everfold.spark.stream import SourceStream, StreamLowering
from everfold.spark.task_input import FORWARDED, KEEP
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_the_hash_matches_spark(spark: SparkSession) -> None:
    numbers = [0, 1, 2, 42, -1, 2**31, -(2**31), 2**63 - 1, -(2**63), 123456789012345]
    rows = (
        spark.createDataFrame([(each,) for each in numbers], "id BIGINT")
        .selectExpr("id", "hash(id) AS hashed")
        .collect()
    )
    assert {row.id: row.hashed for row in rows} == {each: spark_hash(each) for each in numbers}


@pytest.mark.parametrize(("buckets", "modulus"), [(8, 2), (8, 3), (16, 8), (8, 8), (64, 192)])
def test_the_ids_are_the_first_numbers_with_the_right_hash(buckets: int, modulus: int) -> None:
    ids = bucket_ids(buckets, modulus)
    assert len(set(ids)) == buckets
    for bucket, found in enumerate(ids):
        fitting = [each for each in range(found + 1) if spark_hash(each) % modulus == bucket % modulus]
        assert fitting[-1] == found
        assert len(fitting) - 1 == bucket // modulus


@pytest.mark.parametrize(("buckets", "partitions"), [(8, 2), (16, 6), (1024, 7)])
def test_a_new_job_and_every_power_of_two_divide_the_buckets_evenly(buckets: int, partitions: int) -> None:
    ids = bucket_ids(buckets, choose_modulus(buckets, partitions))
    for number in (partitions, *(1 << power for power in range(buckets.bit_length()))):
        assert [find_partition(each, number) for each in ids] == [at % number for at in range(buckets)]
        shares = count_buckets(ids, number)
        assert sum(shares) == buckets
        assert max(shares) - min(shares) <= 1


def test_a_task_sends_a_meta_row_to_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the shuffle, counted by Spark: of each task the rows of the only key and a meta row
    for each partition, and a call for each bucket.

    The first task, which calls the buckets, has no rows. A later start with another number of
    partitions keeps that of the checkpoint.
    """
    tasks, buckets, partitions = 5, 64, 2
    (*_, action) = Session().run(
        """CREATE TABLE t (ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
        SELECT SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end"""
    )
    assert isinstance(action, Submit)
    (tmp_path / "control").mkdir()
    for folder in ("in", "excluded"):
        (tmp_path / folder).mkdir()
    (root,) = name_sources(action.roots, [note["name"] for note in source_notes(action.roots)])
    sums: list[int] = []
    for minute, started_with in enumerate((partitions, partitions + 1)):
        rows = [f'{{"c0": "2020-01-01T00:{minute:02}:{second:02}", "c1": 1}}\n' for second in range(60)]
        (tmp_path / "in" / f"{minute}.json").write_text("".join(rows))
        (tmp_path / "excluded" / f"{minute}.json").write_text('{"c1": -1}\n')
        session = create_session(spark, started_with)

        def read(folder: str, session: SparkSession = session) -> DataFrame:
            source = session.readStream.name(folder).schema("c0 TIMESTAMP_NTZ, c1 INT")
            return source.json(str(tmp_path / folder)).where("c1 > 0")

        def open_stream(table: Table, name: str, read: Callable[[str], DataFrame] = read) -> SourceStream:
            frame = read("excluded").union(read("in").repartition(tasks))
            return SourceStream(frame.selectExpr("*", "CAST(NULL AS STRING) AS __split"), (name,))

        lowering = StreamLowering(
            spark=session,
            zone="UTC",
            open_source=open_stream,
            control_folder=str(tmp_path / "control"),
            bucket_ids=bucket_ids(buckets, choose_modulus(buckets, partitions)),
        )
        found = lowering.lower(root.input).frame.where(f"{FORWARDED} IS NULL AND {KEEP}").selectExpr("c0")
        query = (
            found.writeStream.foreachBatch(lambda batch, _: sums.extend(row.c0 for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert tasks * (1 + partitions) + buckets in count_shuffled_rows(spark, str(query.runId))
    assert sums == [10] * 11  # the watermark, from the task with the last row, is in the last window


def count_shuffled_rows(spark: SparkSession, run: str) -> list[int]:
    """Return the rows that each stage of a query has written for a shuffle."""
    context, gateway = spark.sparkContext._jsc.sc(), spark.sparkContext._gateway
    assert gateway is not None
    context.listenerBus().waitUntilEmpty(60_000)
    found = context.statusStore().stageList(None, False, False, gateway.new_array(gateway.jvm.double, 0), None)
    stages = [found.apply(at) for at in range(found.size())]
    return [each.shuffleWriteRecords() for each in stages if run in str(each.description())]
