"""Measure Spark's own windowed streaming aggregation; `run.py` starts this script and sends it
requests (`engine_protocol.py`).

This is what a Spark user would write: `withWatermark` and `groupBy(window(…))` or
`groupBy(session_window(…))` in append mode, RocksDB with its changelog as the state store, one file
(or half a million records) per micro-batch, into a sink that drops every row. Spark has no CUMULATE. It emits a window only
when a later row's time has passed its end, so the windows after the last watermark stay in the
state; the check reports where that was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from engine_protocol import CHECK, STREAM, Request, serve
from measurement import Check
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "a BIGINT, b BIGINT, c BIGINT, ts TIMESTAMP"
GROUP = "group"
RECORDS_PER_BATCH = 500_000
"""The records of a batch from Kafka, which is everfold's default as well."""
WINDOWS: dict[str, Callable[..., Column]] = {
    "tumble": sf.window,
    "hop": sf.window,
    "session": sf.session_window,
}
ARGUMENTS = {
    "tumble": ("10 seconds",),
    "hop": ("60 seconds", "10 seconds"),
    "session": ("2 seconds",),
}


def start_spark(cores: int, memory: str) -> SparkSession:
    """Start a quiet local session with RocksDB as the state store."""
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmark")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def aggregate_windows(source: DataFrame, query: str) -> DataFrame:
    """Return the query over the stream: key, window, sum and count, and one column `checksum`."""
    window = WINDOWS[query](sf.col("ts"), *ARGUMENTS[query])
    result = (
        source.withWatermark("ts", "1 second")
        .groupBy(window.alias("w"), "a")
        .agg(sf.sum("c").alias("s"), sf.count("*").alias("n"))
    )
    return result.select("w", "a", "s", "n", sf.col("n" if query == "session" else "s").alias("checksum"))


def aggregate_groups(source: DataFrame) -> DataFrame:
    """Return sum, maximum and count by key, whose rows change."""
    result = source.groupBy("a").agg(sf.sum("c").alias("s"), sf.max("c").alias("m"), sf.count("*").alias("n"))
    return result.select("*", sf.col("s").alias("checksum"))


def read_source(spark: SparkSession, connector: dict[str, str]) -> DataFrame:
    """Return the stream of a table of Parquet files or of a topic with JSON records."""
    if connector["connector"] == "filesystem":
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(connector["path"])
    from everfold.connectors.kafka.jars import KAFKA

    KAFKA.add_to(spark)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", connector["properties.bootstrap.servers"])
        .option("subscribe", connector["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .load()
    )
    return records.select(sf.from_json(sf.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")


def run(spark: SparkSession, request: Request) -> tuple[float, Check]:
    """Run a query over its whole input. Return the seconds from its start on, and its output.

    For a result that changes, each batch emits the changed rows; the final rows are then read from
    the state.
    """
    query = request.query
    source = read_source(spark, request.connector)
    observed = (aggregate_groups(source) if query == GROUP else aggregate_windows(source, query)).observe(
        "out", sf.count("*").alias("rows_out"), sf.coalesce(sf.sum("checksum"), sf.lit(0)).alias("sum")
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        start = time.perf_counter()
        stream = (
            observed.writeStream.format("noop")
            .outputMode("update" if query == GROUP else "append")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination()
        seconds = time.perf_counter() - start
        return seconds, summarize_groups(spark, checkpoint) if query == GROUP else summarize_stream(stream)


def write_counts(spark: SparkSession, request: Request) -> None:
    """Write the number of rows of each key to a topic as it changes, until the process is ended."""
    counts = read_source(spark, request.connector).groupBy("a").agg(sf.count("*").alias("n"))
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = (
            counts.select(
                sf.to_json(sf.struct("a")).alias("key"),
                sf.to_json(sf.struct("a", "n")).alias("value"),
            )
            .writeStream.format("kafka")
            .outputMode("update")
            .option("kafka.bootstrap.servers", request.sink["properties.bootstrap.servers"])
            .option("topic", request.sink["topic"])
            .option("checkpointLocation", checkpoint)
            .start()
        )
        stream.awaitTermination()


def summarize_stream(stream: StreamingQuery) -> Check:
    """Return the output of all micro-batches together, and the last watermark."""
    rows_out = total = 0
    for progress in stream.recentProgress:
        out = progress.observedMetrics["out"]
        rows_out += out["rows_out"]
        total += out["sum"]
    watermark = stream.recentProgress[-1].eventTime["watermark"]
    return Check(rows_out=rows_out, sum=total, until_ms=_millis(watermark))


def summarize_groups(spark: SparkSession, checkpoint: str) -> Check:
    """Return the groups in the state, and their sums."""
    groups = spark.read.format("statestore").load(checkpoint)
    (row,) = groups.selectExpr("count(*) AS n", "coalesce(sum(value.sum), 0) AS s").collect()
    return Check(rows_out=row["n"], sum=row["s"])


def _millis(timestamp: str) -> int:
    moment = datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure Spark's own windowed streaming aggregation.")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    options = parser.parse_args(arguments)
    spark = start_spark(options.cores, options.memory)

    def answer(request: Request) -> dict[str, Any]:
        if request.action == STREAM:
            write_counts(spark, request)
        seconds, check = run(spark, request)
        return asdict(check) if request.action == CHECK else {"seconds": seconds}

    serve(answer)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
