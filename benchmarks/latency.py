"""Measure how long a record takes from its creation to the sink, through Kafka.

    python latency.py                                  # 1,000 and 20,000 records per second
    python latency.py --rates 1000 --engines everfold --seconds 20

Records with a thousand keys are produced at a constant rate. The query counts them by key and
writes every change of a count to a topic, at least once. The latency of the n-th record of a key is
the time from its creation until the broker appends the first count of n or more, by the clock of
the machine. The first records warm the engine up and do not count.

Results are appended to the file of `run.py` in `history/`. The exit status is 1 if a record was
not counted, or a count was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from compare import TITLES, format_table
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from data_sets import SCRATCH
from engine_process import EngineProcess, end_cleanly_on_signals, measure_usage
from engine_protocol import STREAM, Request
from history import describe_circumstances, history_file
from kafka_input import PARTITIONS
from queries import COUNTS
from query import kafka_connector, upsert_connector
from run import START_TIMEOUT_S, engine_command

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from broker import KafkaBroker

Times: TypeAlias = npt.NDArray[np.float64]
ENGINES = ("flink", "spark", "everfold")
KEYS = 1000
TICK_S = 0.005
FIRST_RESULT_S, DRAIN_S = 300.0, 120.0
START_OF_TIME = "2026-01-01 00:00:00.000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latencies of an engine at a rate.

    missing: the records that no count includes.
    """

    engine: str
    records_per_s: int
    records: int
    missing: int
    median_ms: float
    p99_ms: float
    longest_ms: float
    cpu_cores: float


class Topics:
    """The topics of one measurement."""

    def __init__(self, broker: KafkaBroker, name: str) -> None:
        self.servers = broker.bootstrap_servers
        self.input, self.output = f"{name}-input", f"{name}-output"
        broker.create_topic(self.input, PARTITIONS)
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        options = {"message.timestamp.type": "LogAppendTime"}
        admin.create_topics([NewTopic(self.output, 1, 1, config=options)])[self.output].result(30)

    def count_results(self) -> int:
        """Return the number of records in the output topic."""
        consumer = self._consumer()
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(self.output, 0), timeout=30)
            return int(end)
        finally:
            consumer.close()

    def read_results(self, total: int) -> list[tuple[int, int, int]]:
        """Return key, count and time of the records of the output topic in their order.

        Reads until the counts add up to `total`, or for as long as it is waited for them.
        """
        consumer = self._consumer()
        consumer.assign([TopicPartition(self.output, 0, OFFSET_BEGINNING)])
        results: list[tuple[int, int, int]] = []
        newest: dict[int, int] = {}
        deadline = time.monotonic() + DRAIN_S
        try:
            while sum(newest.values()) != total and time.monotonic() < deadline:
                for message in consumer.consume(10_000, timeout=1):
                    value = message.value()
                    if message.error() is None and value is not None:
                        row = json.loads(value)
                        results.append((row["a"], row["n"], message.timestamp()[1]))
                        newest[row["a"]] = row["n"]
        finally:
            consumer.close()
        return results

    def _consumer(self) -> Consumer:
        return Consumer(
            {"bootstrap.servers": self.servers, "group.id": "latency", "enable.auto.commit": False, "log_level": 0}
        )


def produce(topics: Topics, rate: int, count: int, first: int) -> Times:
    """Produce records `first` to `first + count` at a rate. Return when each was created, in ms."""
    producer = Producer({"bootstrap.servers": topics.servers, "linger.ms": 1, "log_level": 0})
    created = np.zeros(count)
    start, done = time.time(), 0
    while done < count:
        now = time.time()
        due = min(int((now - start) * rate) + 1, count)
        created[done:due] = now * 1000
        for number in range(first + done, first + due):
            record = f'{{"a":{number % KEYS},"b":0,"c":0,"ts":"{START_OF_TIME}"}}'
            producer.produce(topics.input, record, partition=number % PARTITIONS)
        done = due
        producer.poll(0)
        time.sleep(max(TICK_S - (time.time() - now), 0))
    producer.flush(60)
    return created


def find_latencies(results: list[tuple[int, int, int]], created: Times, first: int) -> Times:
    """Return the latency of each record in ms, NaN for records that no count includes.

    `created` are the times of the records from number `first` on.
    """
    counts: dict[int, list[tuple[int, int]]] = {key: [] for key in range(KEYS)}
    for key, count, at in results:
        counts[key].append((count, at))
    numbers = np.arange(first, first + len(created))
    latencies = np.full(len(created), np.nan)
    for key, changes in counts.items():
        mine = numbers % KEYS == key
        if not changes:
            continue
        reached, at = np.array(changes, dtype=np.float64).T
        position = np.searchsorted(np.maximum.accumulate(reached), numbers[mine] // KEYS + 1)
        known = position < len(at)
        times = np.where(known, at[np.minimum(position, len(at) - 1)], np.nan)
        latencies[mine] = times - created[mine]
    return latencies


def wait_for_results(topics: Topics, process: EngineProcess, timeout_s: float) -> None:
    """Wait until the output topic has a record."""
    deadline = time.monotonic() + timeout_s
    while not topics.count_results():
        process.require_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no result after {timeout_s:.0f} s")
        time.sleep(0.5)


def measure(broker: KafkaBroker, engine: str, rate: int, *, warm_up: float, seconds: float) -> Latency:
    """Measure an engine at a rate, in a new process."""
    topics = Topics(broker, f"{engine}-{rate}")
    with EngineProcess(engine_command(engine), SCRATCH / f"latency-{engine}.log") as process:
        process.wait_until_ready(START_TIMEOUT_S)
        produce(topics, 10 * KEYS, KEYS, 0)
        request = Request(
            action=STREAM,
            query=COUNTS.name,
            connector=kafka_connector(topics.servers, topics.input, bounded=False),
            sink=upsert_connector(topics.servers, topics.output),
        )
        process.send(request)
        wait_for_results(topics, process, FIRST_RESULT_S)
        skipped = int(rate * warm_up)
        with measure_usage(process.session) as usage:
            created = produce(topics, rate, int(rate * (warm_up + seconds)), KEYS)
        results = topics.read_results(KEYS + len(created))
        process.close(patience_s=0)
    latencies = find_latencies(results, created, KEYS)
    if max(count for _, count, _ in results) > -(-(KEYS + len(created)) // KEYS):
        raise SystemExit(f"{engine} counted more records than there are")
    counted = latencies[skipped:]
    known = counted[~np.isnan(counted)]
    return Latency(
        engine=engine,
        records_per_s=rate,
        records=len(counted),
        missing=int(np.isnan(latencies).sum()),
        median_ms=round(float(np.median(known)), 1),
        p99_ms=round(float(np.percentile(known, 99)), 1),
        longest_ms=round(float(known.max()), 1),
        cpu_cores=round(usage.cpu_seconds / (warm_up + seconds), 2),
    )


def format_latencies(found: list[Latency]) -> str:
    """Return a table of all measurements."""
    head = ["engine", "records / s", "median, ms", "99th percentile, ms", "longest, ms", "cores used", "not counted"]
    rows = [
        [
            *(TITLES[one.engine], f"{one.records_per_s:,}", f"{one.median_ms:,.0f}", f"{one.p99_ms:,.0f}"),
            *(f"{one.longest_ms:,.0f}", f"{one.cpu_cores:.2f}", f"{one.missing:,}"),
        ]
        for one in found
    ]
    return format_table(head, rows, texts=1)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure the time from record to sink through Kafka.")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--rates", nargs="+", type=int, default=[1_000, 20_000])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=30)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--results", type=Path, help="default: a file in history/")
    options = parser.parse_args(arguments)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    file = options.results or history_file()
    found = []
    for _ in range(options.repeat):
        for rate in options.rates:
            for engine in options.engines:
                with KafkaBroker() as broker:
                    one = measure(broker, engine, rate, warm_up=options.warm_up, seconds=options.seconds)
                found.append(one)
                line = json.dumps({"kind": "latency", **asdict(one), **describe_circumstances()})
                print(line, file=sys.stderr, flush=True)
                with file.open("a") as lines:
                    lines.write(line + "\n")
    print(format_latencies(found))
    return 1 if any(one.missing for one in found) else 0


if __name__ == "__main__":
    end_cleanly_on_signals()
    sys.exit(main(sys.argv[1:]))
