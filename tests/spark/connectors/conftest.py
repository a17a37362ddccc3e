"""Tests of connectors use a session like that of everfold's queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    from everfold.spark.session import create_session

    return create_session(spark, 2)
