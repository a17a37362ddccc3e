"""Measure how long the shell takes from its command to the prompt and to the first rows.

    python shell_start.py
    python shell_start.py --repeat 5 --memory-only

The shell runs in a terminal. Three times are measured from the command: until the prompt is on the
screen (on Linux also the processor time until then), until a query on the memory engine that is typed at the prompt has its result, and until a
query on Spark has. The last one, warm, is that of a second query on the same Spark, from Enter to
its result. The queries group a small JSON file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from compare import format_table
from terminal import TerminalScreen

_TABLE = "CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');\r"
_QUERY = "SELECT k, SUM(v) AS {name} FROM t GROUP BY k;\r"
PROMPT, CPU, MEMORY, COLD, WARM = (
    "prompt",
    "prompt, processor time",
    "first row in memory",
    "first row on Spark",
    "second query on Spark",
)


def measure(folder: Path, *, on_spark: bool) -> dict[str, float]:
    """Run one shell, and return the seconds of each step."""
    started = time.perf_counter()
    arguments = ["sql", *(["--engine", "spark"] if on_spark else [])]
    screen = TerminalScreen(folder, folder / "cache", arguments=arguments)
    found: dict[str, float] = {}
    try:
        screen.wait_for("everfold>")
        found[PROMPT] = time.perf_counter() - started
        stat = Path("/proc", str(screen.process.pid), "stat")
        if stat.exists():
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            found[CPU] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        screen.type(_TABLE)
        screen.wait_for("Table t created.")
        screen.type(_QUERY.format(name="first"))
        screen.wait_for(" first |")
        found[COLD if on_spark else MEMORY] = time.perf_counter() - started
        if on_spark:
            screen.wait_for("rows in set")
            screen.type("\\clear\r")
            screen.wait_for("rows in set", absent=True)
            again = time.perf_counter()
            screen.type(_QUERY.format(name="second"))
            screen.wait_for(" second |")
            found[WARM] = time.perf_counter() - again
    finally:
        screen.process.close(force=True)
    if on_spark:  # its prompt appears later: options are checked first
        del found[PROMPT]
        found.pop(CPU, None)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memory-only", action="store_true", help="do not start Spark")
    options = parser.parse_args(arguments)
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in" / "a").write_text("".join(f'{{"k": "k{at % 3}", "v": {at}}}\n' for at in range(30)))
        for _ in range(options.repeat):
            for on_spark in (False,) if options.memory_only else (False, True):
                for step, seconds in measure(folder, on_spark=on_spark).items():
                    times.setdefault(step, []).append(seconds)
    rows = [(step, f"{statistics.median(all_):.2f}", f"{min(all_):.2f}") for step, all_ in times.items()]
    print(format_table(("step", "median, s", "least"), rows, texts=1))


if __name__ == "__main__":
    main()
