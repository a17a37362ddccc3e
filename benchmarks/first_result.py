"""Measure how long the first result of a streaming query takes after its command.

    python first_result.py
    python first_result.py --repeat 5

`everfold run` starts COUNT(*) by key over a folder with one small JSON file, which it keeps
watching; the time ends with the first printed row. In turns with it, each in new processes:

- session: everfold's own Spark session, with its settings and its class archive, alone: the time
  until it is there.
- minimal: the minimal query of `floor.py` in such a session, until `foreachBatch` has the rows of
  the first batch: what Spark takes for a query of this shape, without parsing, planning, checking
  of tables, or the operator.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import floor
from compare import format_table
from pyspark import cloudpickle

from everfold.spark.session import create_session, start_spark

_SCRIPT = """\
CREATE TABLE src (a BIGINT, c BIGINT) WITH (
  'connector' = 'filesystem', 'path' = 'data', 'format' = 'json', 'source.monitor-interval' = '1s');
CREATE TABLE snk (a BIGINT, n BIGINT) WITH ('connector' = 'print');
INSERT INTO snk SELECT a, COUNT(*) FROM src GROUP BY a;
"""
_END_S = 30.0
SESSION, MINIMAL, EVERFOLD = "session", "minimal", "everfold"


def time_everfold(folder: Path) -> float:
    """Return the seconds from the command to its first row, and stop it."""
    script = folder / "job.sql"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-m", "everfold", "run", str(script), "--master", "local[2]"]
    return _time_until(command, "+I[")


def time_part(part: str, folder: Path) -> float:
    """Return the seconds from the start of this script with `--part` to its line."""
    return _time_until([sys.executable, __file__, "--part", part, "--folder", str(folder)], "ready")


def _time_until(command: list[str], text: str) -> float:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        if not any(text in line for line in process.stdout):
            raise RuntimeError(f"{command} ended without a result")
        return time.perf_counter() - start
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_END_S)


def run_part(part: str, folder: Path) -> None:
    """Start a session, for `minimal` run the query in it too, and print a line."""
    spark = create_session(start_spark(master="local[2]", conf={}, log_file=folder / "spark.log"), 2)

    def received() -> None:
        print("ready", flush=True)

    if part == MINIMAL:
        cloudpickle.register_pickle_by_value(floor)  # type: ignore[no-untyped-call]  # workers cannot import it
        floor.run_minimal(spark, folder / "data", folder / "query", received)
    else:
        received()
    spark.stop()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure how long the first result takes after the command.")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--part", choices=(SESSION, MINIMAL), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        run_part(options.part, options.folder)
        return 0
    times: dict[str, list[float]] = {}
    ways: dict[str, Callable[[Path], float]] = {
        SESSION: lambda folder: time_part(SESSION, folder),
        MINIMAL: lambda folder: time_part(MINIMAL, folder),
        EVERFOLD: time_everfold,
    }
    for _ in range(options.repeat):
        for name, run in ways.items():
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made).resolve()
                floor.write_input(folder / "data", 1)
                times.setdefault(name, []).append(run(folder))
                print(json.dumps({"part": name, "seconds": round(times[name][-1], 2)}), file=sys.stderr, flush=True)
    rows = [
        [name, *(f"{each:.2f}" for each in (statistics.median(of), min(of), max(of)))] for name, of in times.items()
    ]
    print(format_table(["part", "median, s", "least", "most"], rows, texts=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
