"""Buckets are distributed evenly over Spark's shuffle partitions, by Spark's hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from everfold.spark.buckets import bucket_ids, choose_modulus, count_buckets, find_partition, spark_hash

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
