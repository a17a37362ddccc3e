"""Read the state pages of operators from a checkpoint with Spark, without changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everfold.checkpoint.damage import damaged_checkpoint_error
from everfold.checkpoint.state_metadata import StoredOperator, list_operators
from everfold.spark.session import create_session
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def reading_session(spark: SparkSession, partitions: int) -> SparkSession:
    """Return a session that reads state without writing to the checkpoint."""
    session = create_session(spark, partitions)
    # Otherwise Spark creates an empty changelog in the folder that it reads.
    session.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false")
    # A loaded store reports to a coordinator, which Spark starts with its first stream manager.
    session.streams.resetTerminated()
    return session


def read_pages(
    session: SparkSession, checkpoint: Location, operator: StoredOperator, epoch: int, batch: int
) -> DataFrame:
    """Return the pages of an operator after a batch.

    Columns: `bucket` BIGINT, `tbl` STRING, `at` BIGINT, `part` INT, `blob` BINARY. epoch: of the
    state; pages of other epochs are left out. Raises StateError `damaged-checkpoint`.
    """
    if operator not in list_operators(checkpoint):
        raise damaged_checkpoint_error(checkpoint / "state")
    reader = session.read.format("statestore").option("operatorId", operator.position).option("batchId", batch)
    pages = reader.option("stateVarName", f"pages_{operator.name}").load(checkpoint.uri)
    of_key = [f"user_map_key.{name}" for name in ("tbl", "at", "part")]
    return pages.where(f"user_map_key.epoch = {epoch}").select("key.bucket", *of_key, "user_map_value.blob")
