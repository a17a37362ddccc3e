"""Compare the small batches and the start of two versions of everfold, on a machine that is not steady.

    git worktree add --detach ../before 7275393
    python compare_versions.py --before ../before/src --now ../src

Each version runs the same query as a job in its own process, over a folder of its own that it keeps
watching. A file of 500 rows is moved into one folder, then into the other: the two batches of a
pair are about a second apart, so a change in the speed of the machine meets both. Which version is
first alternates. `batch` is the time from the move of the file until Spark has committed the
batch, `processor` the user and system time of all processes of the version until it is idle, and
`start` the time from the command until the first batch is committed, each version alone.

The ratios are `now` divided by `before`: the median of all pairs after the first ten of each
repetition, with the middle 95 % of the medians of 2,000 samples that are drawn from the pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import floor
import numpy as np
from compare import format_table
from engine_process import end_cleanly_on_signals, end_session, sample_session
from queries import QUERIES
from query import BLACKHOLE, parquet_connector

ORDER = BEFORE, NOW = ("before", "now")
BATCH, PROCESSOR, START = "batch", "processor", "start"
_POLL_S = 0.002
_QUIET_S = 0.2
"""A version is idle when it has committed nothing for so long."""
_TIMEOUT_S = 120.0
_SAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What the same work took in both versions, in milliseconds."""

    query: str
    measure: str
    before: float
    now: float

    @property
    def ratio(self) -> float:
        return self.now / self.before


class RunningVersion:
    """A job of one version, and the folder that it watches."""

    def __init__(self, source: Path, query: str, folder: Path, first: Path) -> None:
        self._input, self._job = folder / "data", folder / "job"
        self._input.mkdir(parents=True)
        os.rename(first, self._input / first.name)
        script = folder / "job.sql"
        script.write_text(_write_script(query, self._input))
        self._log = (folder / "log").open("w")
        self._commits: Path | None = None
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "everfold", "run", str(script), "--state", str(self._job), "--master", "local[2]"],
            env={**os.environ, "PYTHONPATH": str(source.resolve())},
            stdout=self._log,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_session(self._process)
        self._log.close()

    def start(self) -> float:
        """Wait for the first batch; return the milliseconds since the command."""
        self._wait_for_commit(set())
        took = time.perf_counter() - self._started
        self._wait_until_idle()
        return took * 1000

    def run_batch(self, file: Path) -> dict[str, float]:
        """Let the job read a file; return what the batch took, in milliseconds."""
        committed = self._list_commits()
        cpu = sample_session(self._process.pid).cpu_seconds
        start = time.perf_counter()
        os.rename(file, self._input / file.name)
        self._wait_for_commit(committed)
        took = time.perf_counter() - start
        self._wait_until_idle()
        used = sample_session(self._process.pid).cpu_seconds - cpu
        return {BATCH: took * 1000, PROCESSOR: used * 1000}

    def _list_commits(self) -> set[str]:
        if self._commits is None:
            self._commits = next(self._job.glob("**/commits"), None)
        return set() if self._commits is None else {name for name in os.listdir(self._commits) if name.isdigit()}

    def _wait_for_commit(self, known: set[str]) -> None:
        deadline = time.perf_counter() + _TIMEOUT_S
        while not self._list_commits() - known:
            if self._process.poll() is not None or time.perf_counter() > deadline:
                raise RuntimeError(f"no batch: {Path(self._log.name).read_text()}")
            time.sleep(_POLL_S)

    def _wait_until_idle(self) -> None:
        committed = self._list_commits()
        while True:
            time.sleep(_QUIET_S)
            if (now := self._list_commits()) == committed:
                return
            committed = now


def _write_script(query: str, data: Path) -> str:
    measured = QUERIES[query]
    connector = {**parquet_connector(data), "format": "json", "source.monitor-interval": "10ms"}
    statements = [
        *measured.source_statements(connector),
        measured.sink_statement(BLACKHOLE),
        f"INSERT INTO snk {measured.select}",
    ]
    return "".join(f"{each};\n" for each in statements)


def measure_batches(query: str, sources: dict[str, Path], batches: int, folder: Path) -> Iterator[Pair]:
    """Start both versions, let them read files in turns, and end them."""
    files = _write_files(folder, batches + 1)
    with ExitStack() as running:
        versions = {}
        for name in ORDER:
            version = RunningVersion(sources[name], query, folder / name, files[name][0])
            versions[name] = running.enter_context(version)
            version.start()
        for number in range(1, batches + 1):
            turn = ORDER if number % 2 else ORDER[::-1]
            took = {name: versions[name].run_batch(files[name][number]) for name in turn}
            if number > floor.WARM_UP:
                for measure in (BATCH, PROCESSOR):
                    yield Pair(query=query, measure=measure, **{name: took[name][measure] for name in ORDER})


def measure_start(query: str, sources: dict[str, Path], order: Sequence[str], folder: Path) -> Pair:
    """Start one version after the other."""
    files = _write_files(folder, 1)
    took = {}
    for name in order:
        with RunningVersion(sources[name], query, folder / name, files[name][0]) as version:
            took[name] = version.start()
    return Pair(query=query, measure=START, **took)


def _write_files(folder: Path, number: int) -> dict[str, list[Path]]:
    for name in ORDER:
        floor.write_input(folder / name / "files", number)
    return {name: sorted((folder / name / "files").iterdir()) for name in ORDER}


def format_pairs(pairs: Sequence[Pair]) -> str:
    """Return a table of the medians and of the ratios with their range."""
    rows = []
    for query, measure in dict.fromkeys((one.query, one.measure) for one in pairs):
        same = [one for one in pairs if (one.query, one.measure) == (query, measure)]
        least, most = _estimate_range([one.ratio for one in same])
        medians = [
            f"{statistics.median(values):.0f}" for values in ([one.before for one in same], [one.now for one in same])
        ]
        ratio = f"{statistics.median(one.ratio for one in same):.3f}"
        rows.append([query, measure, str(len(same)), *medians, ratio, f"{least:.3f}", f"{most:.3f}"])
    return format_table(["query", "measure", "pairs", "before, ms", "now, ms", "ratio", "from", "to"], rows, texts=2)


def _estimate_range(ratios: Sequence[float]) -> tuple[float, float]:
    drawn = np.random.default_rng(0).choice(np.array(ratios), (_SAMPLES, len(ratios)))
    least, most = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(least), float(most)


def _measure(
    queries: Sequence[str], sources: dict[str, Path], batches: int, repeat: int, starts: int
) -> Iterator[Pair]:
    for _ in range(repeat):
        for query in queries:
            with tempfile.TemporaryDirectory() as name:
                yield from measure_batches(query, sources, batches, Path(name).resolve())
    for number in range(starts):
        for query in queries:
            with tempfile.TemporaryDirectory() as name:
                yield measure_start(query, sources, ORDER if number % 2 else ORDER[::-1], Path(name).resolve())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the small batches and the start of two versions.")
    parser.add_argument("--before", type=Path, required=True, help="the folder src of the earlier version")
    parser.add_argument("--now", type=Path, required=True, help="the folder src of the later version")
    parser.add_argument("--queries", nargs="+", choices=sorted(QUERIES), default=["tumble", "group"])
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--starts", type=int, default=6, help="pairs of starts for each query")
    options = parser.parse_args(arguments)
    end_cleanly_on_signals()
    sources = {BEFORE: options.before, NOW: options.now}
    pairs = []
    for pair in _measure(options.queries, sources, options.batches, options.repeat, options.starts):
        pairs.append(pair)
        print(json.dumps(asdict(pair)), file=sys.stderr, flush=True)
    print(format_pairs(pairs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
