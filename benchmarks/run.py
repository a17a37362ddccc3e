"""Measure the engines on the queries, one after another, and compare them.

    python run.py                                  # all queries, three engines: hours
    python run.py --quick --queries tumble group   # short inputs: minutes
    python run.py --data-sets nexmark --engines flink everfold --repeat 1
    python run.py --minutes 120                    # a part; the same command measures the rest

Every measurement has a process of its own, and the engines take turns. In it a query runs five
times: over the shortest input, to check its result; over that one again and over a short one, to
warm up and to find out how long the inputs must be; and over a long and a short one, which are
timed. The rate is that of the rows that the long run has in addition to the short one.

Measurements are appended to a file in `history/`; those of `--quick` to a file in the scratch
folder. What is in the file of the same commit already is not measured again, so a comparison that
was interrupted continues; all engines of a repetition are measured one after another, though, and
again if one is missing, but not if it took too long. The exit status is 1 if a result is wrong, 2
if the time was not enough.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import compare
import goals
from data_sets import (
    CHECKED_LENGTH,
    DATA_SETS,
    FILE_ROWS,
    LENGTHS,
    QUICK_FILE_ROWS,
    SCRATCH,
    DataSet,
    Store,
    count_rows,
)
from engine_process import EngineFailure, EngineProcess, EngineTimeout, end_cleanly_on_signals
from engine_protocol import CHECK, RUN, Request
from expected import compute_expected, is_right
from flink_environment import flink_jars, flink_python
from history import describe_circumstances, history_file
from kafka_input import KafkaInput
from measurement import KEY_NAMES, Check, Key, Measurement, Run, parse_key
from query import parquet_connector

HERE = Path(__file__).resolve().parent
SHORT_PART = 6
"""The long input is about this many times as long as the short one."""
MARGIN = 1.1
"""How much longer than demanded the long run is planned to be."""
NOT_IN_SPARK = ("cumulate", "cascade", "over_range", "over_rows", "over_all", "count_distinct", "retract")
OK, WRONG, NOT_FINISHED = 0, 1, 2
"""Exit statuses."""
TIMEOUT = "timeout_seconds"
"""The member of a line of results that has no measurement, because an engine took longer."""
MINI_BATCH = ("group", "count_distinct", "retract", "q15", "q16", "q17")
"""The queries for which Flink has a mini-batch mode."""
ON_KAFKA = ("tumble", "group", "over_range")
KAFKA_LONGEST = 160
"""The greatest length of a topic, in files: about 12 GB."""
START_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one process measures. `connector` makes the source's options from an input's folder."""

    engine: str
    query: str
    data_set: DataSet
    connector: Callable[[str, Path], dict[str, str]]
    data: str
    longest: int

    @property
    def lengths(self) -> list[int]:
        """The lengths of input that may be measured."""
        return [each for each in LENGTHS if self.data_set.shortest <= each <= self.longest]

    def prepare(self, store: Store, length: int) -> Path:
        """Return the folder of an input of this length, in the layout that its engine reads."""
        in_lanes = self.connector is read_parquet and self.engine.startswith("flink")
        return store.prepare_lanes(self.data_set, length) if in_lanes else store.prepare(self.data_set, length)

    def key(self, repetition: int) -> Key:
        """Return the key of its measurement."""
        return (self.engine, self.query, self.data, repetition)


@dataclass(slots=True)
class Lengths:
    """The lengths of the inputs of a task, found out by its first repetition."""

    short: int
    long: int | None = None


@dataclass(slots=True)
class Runner:
    """Measures tasks.

    seconds: the least time of a long run.
    lengths: of the tasks that were measured before.
    """

    store: Store
    seconds: float
    timeout_s: float
    lengths: dict[tuple[str, str, str], Lengths] = field(default_factory=dict)

    def measure(self, task: Task, repetition: int) -> Measurement:
        """Measure a task in a new process."""
        log = self.store.folder / f"{task.engine}-{task.data.replace(', ', '-')}.log"
        with EngineProcess(engine_command(task.engine), log) as process:
            process.wait_until_ready(START_TIMEOUT_S)
            right = self._check(process, task)
            lengths = self.lengths.setdefault(
                (task.engine, task.query, task.data), Lengths(short=task.data_set.shortest)
            )
            first = self._run(process, task, CHECKED_LENGTH)
            if lengths.long is None:
                lengths.short = self._shortest_for(task, self.seconds / SHORT_PART, first.rows_per_s)
            warm = self._run(process, task, lengths.short)
            if lengths.long is None:
                enough = self._shortest_for(task, self.seconds, warm.rows_per_s)
                lengths.long = self._longer(task, lengths.short, enough)
            long = self._run(process, task, lengths.long)
            while long.seconds < self.seconds and (more := self._longer(task, lengths.long, 0)) > lengths.long:
                lengths.long = more
                long = self._run(process, task, lengths.long)
            short = self._run(process, task, lengths.short)
        return Measurement(
            engine=task.engine,
            query=task.query,
            data=task.data,
            repetition=repetition,
            short=short,
            long=long,
            right=right,
        )

    def note_lengths(self, measured: Measurement) -> None:
        """Use the lengths of the inputs of an earlier measurement for the next ones."""
        short, long = (run.rows // self.store.file_rows for run in (measured.short, measured.long))
        self.lengths[measured.key[:3]] = Lengths(short=short, long=long)

    def is_enough(self, task: Task, measured: Measurement | None) -> bool:
        """Return whether there is a measurement, with a long run that took as long as demanded."""
        if measured is None:
            return False
        longest = task.lengths[-1] * self.store.file_rows
        return measured.long.seconds >= self.seconds or measured.long.rows >= longest

    def _check(self, process: EngineProcess, task: Task) -> bool:
        folder = task.prepare(self.store, CHECKED_LENGTH)
        request = Request(action=CHECK, query=task.query, connector=task.connector(task.engine, folder))
        reply, _ = process.ask(request, self.timeout_s)
        check = Check(**reply)
        if is_right(task.engine, task.query, check, folder):
            return True
        right = compute_expected(task.query, folder, check.until_ms)
        print(f"wrong: {task.engine} {task.query} on {task.data}: {check}, expected {right}", file=sys.stderr)
        return False

    def _run(self, process: EngineProcess, task: Task, length: int) -> Run:
        folder = task.prepare(self.store, length)
        request = Request(action=RUN, query=task.query, connector=task.connector(task.engine, folder))
        reply, usage = process.ask(request, self.timeout_s)
        return Run(
            rows=count_rows(folder),
            seconds=round(reply["seconds"], 3),
            cpu_seconds=usage.cpu_seconds,
            driver_mb=usage.driver_mb,
            workers_mb=usage.workers_mb,
        )

    def _shortest_for(self, task: Task, seconds: float, rate: float) -> int:
        """Return the least length that takes this long at a rate."""
        allowed = task.lengths if seconds == self.seconds else task.lengths[:-1]
        enough = [each for each in allowed if each * self.store.file_rows >= seconds * rate * MARGIN]
        return min(enough, default=allowed[-1])

    @staticmethod
    def _longer(task: Task, than: int, at_least: int) -> int:
        """Return the least length over another one, or the same if there is none."""
        longer = [each for each in task.lengths if each > than]
        return min((each for each in longer if each >= at_least), default=max(longer, default=than))


def engine_command(engine: str) -> list[str]:
    """Return the command that starts an engine's script."""
    if engine.startswith("flink"):
        jars = ":".join(map(str, flink_jars()))
        mode = ["--mini-batch"] if engine == "flink-mini-batch" else []
        return [str(flink_python()), str(HERE / "run_flink.py"), "--jars", jars, *mode]
    return [sys.executable, str(HERE / f"run_{engine}.py")]


def read_parquet(engine: str, folder: Path) -> dict[str, str]:
    """Return the options of an engine's source of Parquet files."""
    return parquet_connector(folder / ("lanes" if engine.startswith("flink") else "files"))


def list_tasks(options: argparse.Namespace, kafka: KafkaInput | None) -> Iterator[tuple[int, list[Task]]]:
    """Yield repetitions with the tasks of each query; the engines take turns within them.

    All repetitions of a data set come before the next one: a part of a long comparison needs the
    files of few data sets.
    """
    for name in options.data_sets:
        data_set = DATA_SETS[name]
        for repetition, query in itertools.product(range(options.repeat), data_set.queries):
            if options.queries and query not in options.queries:
                continue
            engines = [each for each in options.engines if _can_run(each, query, data_set)]
            if kafka is not None and query not in ON_KAFKA:
                continue
            tasks = [
                Task(
                    engine=each,
                    query=query,
                    data_set=data_set,
                    connector=kafka.connector if kafka else read_parquet,
                    data=f"{data_set.name}, Kafka" if kafka else data_set.name,
                    longest=min(data_set.queries[query], KAFKA_LONGEST) if kafka else data_set.queries[query],
                )
                for each in engines
            ]
            yield repetition, tasks


def _can_run(engine: str, query: str, data_set: DataSet) -> bool:
    if engine == "spark":
        return query not in NOT_IN_SPARK and data_set.keys is not None
    return engine != "flink-mini-batch" or query in MINI_BATCH


def measure_all(runner: Runner, options: argparse.Namespace, kafka: KafkaInput | None, results: Path) -> int:
    """Measure what the file of results lacks, append it, and return the exit status."""
    files = [results] if results.exists() else []
    measured = {each.key: each for each in compare.read_measurements(files)}
    timeouts = {parse_key(fields) for fields in compare.read_lines(files) if TIMEOUT in fields}
    for each in measured.values():
        runner.note_lengths(each)
    failed = False
    until = time.monotonic() + options.minutes * 60
    status = OK
    for repetition, tasks in list_tasks(options, kafka):
        keys = [each.key(repetition) for each in tasks]
        if all(
            key in timeouts or runner.is_enough(each, measured.get(key)) for each, key in zip(tasks, keys, strict=True)
        ):
            continue
        if time.monotonic() > until:
            print(f"not finished in {options.minutes:g} minutes: the same command continues", file=sys.stderr)
            status = NOT_FINISHED
            break
        for task in tasks:
            try:
                done = runner.measure(task, repetition)
            except (EngineTimeout, EngineFailure) as failure:
                print(f"failed: {task.engine} {task.query} on {task.data}: {failure}", file=sys.stderr)
                failed = failed or isinstance(failure, EngineFailure)
                if isinstance(failure, EngineTimeout):
                    names = dict(zip(KEY_NAMES, task.key(repetition), strict=True))
                    _append(results, json.dumps({**names, TIMEOUT: runner.timeout_s, **describe_circumstances()}))
                continue
            measured[done.key] = done
            _append(results, done.to_json(**describe_circumstances()))
            print(_summarize(done), file=sys.stderr, flush=True)
    right = not failed and all(each.right for each in measured.values())
    return status if right else WRONG


def _append(results: Path, line: str) -> None:
    with results.open("a") as file:
        file.write(line + "\n")


def _summarize(measured: Measurement) -> str:
    long, verdict = measured.long, "" if measured.right else " WRONG"
    return (
        f"{measured.data} {measured.query} {measured.engine} #{measured.repetition}: "
        f"{measured.rate / 1e6:.3f} M/s; {long.rows:,} rows in {long.seconds:.1f} s, "
        f"{measured.short.rows:,} in {measured.short.seconds:.1f} s, start-up {measured.startup_seconds:.1f} s, "
        f"{long.driver_mb} + {long.workers_mb} MB{verdict}"
    )


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the engines on the queries and compare them.")
    parser.add_argument("--engines", nargs="+", choices=compare.ENGINES, default=list(compare.ENGINES))
    parser.add_argument("--data-sets", nargs="+", choices=DATA_SETS, default=["1k-keys", "1m-keys"])
    parser.add_argument("--queries", nargs="+", help="default: all")
    parser.add_argument("--kafka", action="store_true", help="read JSON records from a Kafka broker")
    parser.add_argument("--repeat", type=int, help="measurements of each query; default: 3, with --quick 1")
    parser.add_argument("--seconds", type=float, help="least time of the long run; default: 60, with --quick 5")
    parser.add_argument("--timeout", type=float, default=900, help="most seconds of a run")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no repetition after this time")
    parser.add_argument("--quick", action="store_true", help="short inputs")
    parser.add_argument("--scratch", type=Path, default=SCRATCH)
    parser.add_argument("--results", type=Path, help="default: a file in history/, with --quick in the scratch folder")
    options = parser.parse_args(arguments)
    if options.quick and options.minutes < float("inf"):
        parser.error("--minutes: measurements of --quick are not kept, so they cannot be continued")
    options.repeat = options.repeat or (1 if options.quick else 3)
    options.seconds = options.seconds or (5 if options.quick else 60)
    return options


def main(arguments: list[str]) -> int:
    options = parse_options(arguments)
    options.scratch.mkdir(parents=True, exist_ok=True)
    results = options.results or (options.scratch / "quick.jsonl" if options.quick else history_file())
    if options.quick and not options.results:
        results.unlink(missing_ok=True)
    store = Store(options.scratch, QUICK_FILE_ROWS if options.quick else FILE_ROWS)
    runner = Runner(store, options.seconds, options.timeout)
    if options.kafka:
        with KafkaInput() as kafka:
            status = measure_all(runner, options, kafka, results)
    else:
        status = measure_all(runner, options, None, results)
    print(f"measurements: {results}", file=sys.stderr)
    compare.main([str(results)])
    goals.main([str(results)])
    return status


if __name__ == "__main__":
    end_cleanly_on_signals()
    sys.exit(main(sys.argv[1:]))
