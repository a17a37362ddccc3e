"""Run the benchmarks: make the data, measure every engine in a separate process, compare.

    python run.py                                  # two data sets, three engines, half an hour
    python run.py --quick --engines flink spark    # a million rows

Results are stored as JSON lines next to the data.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import compare
import make_stream
from flink_environment import flink_python, parquet_jars

HERE = Path(__file__).resolve().parent
SCRATCH = HERE.parent / "scratch" / "bench"
QUICK_ROWS = 1_000_000
FEWEST_FILES = 4  # fewer files would not make a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """An input, and the queries that are measured over it."""

    name: str
    rows: int
    keys: int
    queries: tuple[str, ...]


DATA_SETS = (
    DataSet(
        name="1k-keys",
        rows=10_000_000,
        keys=1000,
        queries=(
            *("tumble", "hop", "cumulate", "session", "cascade", "over_range", "over_rows", "over_all"),
            *("group", "count_distinct", "retract"),
        ),
    ),
    DataSet(name="1m-keys", rows=5_000_000, keys=1_000_000, queries=("tumble", "session", "group", "retract")),
    DataSet(name="20m-keys", rows=20_000_000, keys=20_000_000, queries=("group",)),
)
NOT_IN_SPARK = ("cumulate", "cascade", "over_range", "over_rows", "over_all", "count_distinct", "retract")
GROUPS = ("group", "count_distinct", "retract")
"""The queries for which Flink has a mini-batch mode."""


def command(engine: str, data: Path, queries: Sequence[str]) -> list[str]:
    """Return the command that measures an engine."""
    if engine.startswith("flink"):
        jars = ":".join(map(str, parquet_jars()))
        mode = ["--mini-batch"] if engine == "flink-mini-batch" else []
        return [str(flink_python()), str(HERE / "run_flink.py"), "--data", str(data), "--jars", jars, *mode, *queries]
    return [sys.executable, str(HERE / f"run_{engine}.py"), "--data", str(data), *queries]


def measure(engine: str, data: Path, queries: Sequence[str], log: Path) -> list[str]:
    """Run an engine's script and return its measurements. All other output goes to the log."""
    with log.open("w") as errors:
        done = subprocess.run(
            command(engine, data, queries), check=False, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    if done.returncode != 0:
        raise SystemExit(f"{engine} failed on {data.name}: see {log}")
    return [line for line in done.stdout.splitlines() if line.startswith("{")]


def prepare(data_set: DataSet, folder: Path, rows: int) -> Path:
    """Return the folder of a data set, and create it if it does not exist.

    Its name contains its size.
    """
    data = folder / f"{data_set.name}-{rows // 1000}k-rows"
    if not (data / "lanes").exists():
        files = max(rows // 1_000_000, FEWEST_FILES)
        make_stream.main(["--out", str(data), "--rows", str(rows), "--keys", str(data_set.keys), "--files", str(files)])
    return data


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("--engines", nargs="+", choices=compare.ENGINES, default=list(compare.ENGINES))
    parser.add_argument("--repeat", type=int, default=1, help="measurements of each query; the median counts")
    parser.add_argument("--data-sets", nargs="+", choices=[each.name for each in DATA_SETS], help="default: all")
    parser.add_argument("--queries", nargs="+", help="default: all")
    parser.add_argument("--quick", action="store_true", help="a million rows of each data set")
    parser.add_argument("--scratch", type=Path, default=SCRATCH)
    options = parser.parse_args(arguments)
    options.scratch.mkdir(parents=True, exist_ok=True)
    results = options.scratch / ("quick.jsonl" if options.quick else "results.jsonl")
    results.write_text("")
    for data_set in (each for each in DATA_SETS if not options.data_sets or each.name in options.data_sets):
        data = prepare(data_set, options.scratch, QUICK_ROWS if options.quick else data_set.rows)
        for engine in options.engines * options.repeat:
            queries = [each for each in data_set.queries if engine != "flink-mini-batch" or each in GROUPS]
            queries = [each for each in queries if not options.queries or each in options.queries]
            if engine == "spark":
                queries = [each for each in queries if each not in NOT_IN_SPARK]
            if not queries:
                continue
            lines = measure(engine, data, queries, options.scratch / f"{engine}-{data.name}.log")
            with results.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)
            print(*lines, sep="\n", file=sys.stderr, flush=True)
    return compare.main([str(results), "--data", str(options.scratch)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
