"""Buckets are distributed evenly over Spark's shuffle partitions, by Spark's hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from everfold.spark.buckets import bucket_ids, spark_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_hash_matches_spark(spark: SparkSession) -> None:
    numbers = [0, 1, 2, 42, -1, 2**31, -(2**31), 2**63 - 1, -(2**63), 123456789012345]
    rows = (
        spark.createDataFrame([(each,) for each in numbers], "id BIGINT")
        .selectExpr("id", "hash(id) AS hashed")
        .collect()
    )
    assert {row.id: row.hashed for row in rows} == {each: spark_hash(each) for each in numbers}


@pytest.mark.parametrize(("buckets", "partitions"), [(8, 2), (8, 3), (16, 8), (8, 8)])
def test_buckets_are_assigned_in_turn(buckets: int, partitions: int) -> None:
    ids = bucket_ids(buckets, partitions)
    assert len(set(ids)) == buckets
    assert [spark_hash(each) % partitions for each in ids] == [at % partitions for at in range(buckets)]
