"""Measure what a JSON record in a topic costs before everfold sees it, and in all.

    python kafka_parts.py
    python kafka_parts.py --query group --repeat 1

The parts, each over the same topic with two partitions, in one session with two cores:

- reader: Spark's Kafka source alone; its rows are dropped.
- worker: Spark's Kafka source, and each record's bytes, partition and offset passed to a Python
  worker, which only counts them.
- query: everfold's whole query as a job.

The rates are between runs over a short and a long topic, as in `run.py`, in turns. `processor` is
the user and system time of Spark and its workers, `broker` that of the broker. The rate of a part
is a limit for everything that contains it: no change of everfold makes the query faster than
`worker`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compare import format_table
from data_sets import DATA_SETS, FILE_ROWS, SCRATCH, Store
from engine_process import run_in_own_session, sample_session
from kafka_input import PARTITIONS, KafkaInput
from pyspark.sql import DataFrame, SparkSession
from queries import QUERIES
from query import BLACKHOLE

from everfold import TableEnvironment
from everfold.connectors.kafka.client import JAVA_DEFAULTS
from everfold.connectors.kafka.handles import HandleLayout
from everfold.connectors.kafka.jars import KAFKA
from everfold.spark.session import create_session

if TYPE_CHECKING:
    import pyarrow as pa

LENGTHS = (2, 10)
"""Millions of records in the short and the long topic."""
PARTS = ("reader", "worker", "query")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a part took: seconds, and processor time of Spark and of the broker."""

    seconds: float
    processor_s: float
    broker_s: float


def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows of a task."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def read_topic(spark: SparkSession, connector: dict[str, str]) -> DataFrame:
    """Return the records of a topic, read with everfold's settings of the client."""
    reader = spark.read.format("kafka").option("subscribe", connector["topic"])
    for key, value in JAVA_DEFAULTS.items():
        reader = reader.option(f"kafka.{key}", value)
    return reader.option("kafka.bootstrap.servers", connector["properties.bootstrap.servers"]).load()


def run_reader(spark: SparkSession, connector: dict[str, str]) -> None:
    """Read a topic and drop its rows."""
    read_topic(spark, connector).select("value").write.format("noop").mode("overwrite").save()


def run_worker(spark: SparkSession, connector: dict[str, str]) -> None:
    """Read a topic and pass its records to Python."""
    handle = HandleLayout(connector["topic"], has_time=False).to_sql()
    read_topic(spark, connector).selectExpr(f"{handle} AS handle").mapInArrow(count_rows, "rows BIGINT").toArrow()


def run_query(environment: TableEnvironment, name: str, connector: dict[str, str]) -> None:
    """Run a query over a topic as a job."""
    query = QUERIES[name]
    for statement in (*query.source_statements(connector), query.sink_statement(BLACKHOLE)):
        environment.execute_sql(statement)
    with tempfile.TemporaryDirectory() as state:
        environment.execute_sql(f"INSERT INTO snk {query.select}", state_dir=Path(state, "job"))
    environment.execute_sql("DROP TABLE snk; DROP TABLE src")


def measure(name: str, repeat: int) -> Iterator[tuple[str, Cost, Cost]]:
    """Run the parts in turns, after a run of each that warms it up. Yield short and long run."""
    store = Store(SCRATCH, FILE_ROWS)
    folders = [store.prepare(DATA_SETS["1k-keys"], length) for length in LENGTHS]
    environment = TableEnvironment(master=f"local[{PARTITIONS}]", conf={"spark.driver.memory": "6g"})
    environment.sql_query("SELECT 1").collect()  # starts Spark
    active = SparkSession.getActiveSession()
    assert active is not None
    spark = create_session(active, PARTITIONS)
    KAFKA.add_to(spark)
    runs: dict[str, Callable[[dict[str, str]], None]] = {
        "reader": lambda connector: run_reader(spark, connector),
        "worker": lambda connector: run_worker(spark, connector),
        "query": lambda connector: run_query(environment, name, connector),
    }
    with KafkaInput() as topics:
        short, long = (topics.connector("everfold", folder) for folder in folders)

        def cost(part: str, connector: dict[str, str]) -> Cost:
            before = look()
            runs[part](connector)
            return Cost(*(end - start for start, end in zip(before, look(), strict=True)))

        def look() -> tuple[float, float, float]:
            own, broker = (sample_session(each).cpu_seconds for each in (os.getpid(), topics.broker.pid))
            return time.perf_counter(), own, broker

        for part in PARTS:
            runs[part](long)
        for _ in range(repeat):
            for part in PARTS:
                yield part, cost(part, short), cost(part, long)
    environment.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure what a record in a topic costs.")
    parser.add_argument("--query", default="tumble")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(arguments)
    more = LENGTHS[1] - LENGTHS[0]
    found: dict[str, list[list[float]]] = {part: [] for part in PARTS}
    for part, short, long in measure(options.query, options.repeat):
        seconds = (long.seconds - short.seconds) / more
        processor = (long.processor_s - short.processor_s) / more
        broker = (long.broker_s - short.broker_s) / more
        print(f"{part}: {1 / seconds:.2f} M/s, processor {processor:.2f}, broker {broker:.2f}", file=sys.stderr)
        found[part].append([1 / seconds, processor, broker])
    rows = [
        [part, *(f"{statistics.median(each[at] for each in measured):.2f}" for at in range(3))]
        for part, measured in found.items()
    ]
    head = ["part", "M/s", "processor s per million records", "broker"]
    print(format_table(head, rows, texts=1))
    return 0


if __name__ == "__main__":
    run_in_own_session()
    sys.exit(main(sys.argv[1:]))
