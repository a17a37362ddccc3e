"""Measure how long SQL shells take from the command to the prompt and to the first rows.

    python shell_start.py
    python shell_start.py --repeat 5 --shells everfold duckdb

The shells run in a terminal, in turns. Three times are measured: from the command until the prompt
is on the screen, from the command until the rows of a query that is typed at the prompt are, and
for a second query of the same shell from Enter to its rows. The queries group a small JSON file.
`everfold-spark` runs them on Spark. `flink` is Flink's SQL client with a cluster of its own, and
`duckdb` the command line of DuckDB: both are installed here at the first call.
On Linux, the processor time until the prompt is shown too, without that of child processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from compare import format_table
from data_sets import SCRATCH
from flink_environment import flink_shell
from terminal import EVERFOLD, TerminalScreen

DUCKDB_CLI = "duckdb-cli==1.5.6"
_TABLE = "CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json');"
_QUERY = "SELECT k, SUM(v) + {number} AS s FROM t GROUP BY k;"
_ROWS, _GROUPS = 30, 3
_SUM = sum(range(0, _ROWS, _GROUPS))
"""The sum of the first group, by which the rows of a query are recognized on the screen."""
_FIRST, _SECOND = 1_000_000, 2_000_000
PROMPT, CPU, ROWS, AGAIN = "prompt", "processor", "first rows", "second query"


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell. program: its command. setup: the statements that declare the table `t`."""

    program: Sequence[str]
    prompt: str
    setup: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


def find_duckdb() -> Shell:
    """Return the command line of DuckDB. The first call installs it."""
    folder = SCRATCH / DUCKDB_CLI
    program = folder / "duckdb_cli" / "duckdb"
    if not program.exists():
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(folder), DUCKDB_CLI]
        subprocess.run(install, check=True)
    setup = "CREATE VIEW t AS FROM read_json('{folder}/*.json', columns = {{k: 'VARCHAR', v: 'INTEGER'}});"
    # In its other mode, it asks the terminal for its colors.
    return Shell([str(program), "-dark-mode"], "memory D", [setup])


def find_spark_sql() -> Shell:
    """Return the shell of Spark."""
    import pyspark

    home = Path(pyspark.__file__).parent
    variables = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    setup = "CREATE TEMPORARY VIEW t (k STRING, v INT) USING json OPTIONS (path '{folder}');"
    return Shell([str(home / "bin" / "spark-sql"), "--master", "local[2]"], "spark-sql (default)>", [setup], variables)


def find_flink() -> Shell:
    """Return the SQL client of Flink, which starts a cluster for each query."""
    program = flink_shell()
    settings = {"execution.target": "local", "sql-client.execution.result-mode": "tableau"}
    setup = [*(f"SET '{name}' = '{value}';" for name, value in settings.items()), _TABLE]
    return Shell([str(program)], "Flink SQL>", setup, {"FLINK_HOME": str(program.parent.parent)})


SHELLS: dict[str, Callable[[], Shell]] = {
    "everfold": lambda: Shell([*EVERFOLD, "sql"], "everfold>", [_TABLE]),
    "everfold-spark": lambda: Shell([*EVERFOLD, "sql", "--engine", "spark"], "everfold>", [_TABLE]),
    "duckdb": find_duckdb,
    "spark-sql": find_spark_sql,
    "flink": find_flink,
}


def measure(shell: Shell, folder: Path) -> dict[str, float]:
    """Run a shell, and return the seconds of each step."""
    started = time.perf_counter()
    screen = TerminalScreen(
        folder, folder / "cache", columns=120, lines=60, program=shell.program, variables=shell.variables
    )
    found: dict[str, float] = {}
    try:
        screen.wait_for(shell.prompt)
        found[PROMPT] = time.perf_counter() - started
        stat = Path("/proc", str(screen.process.pid), "stat")
        if stat.exists():
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            found[CPU] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        for statement in (*shell.setup, _QUERY):
            screen.type(statement.format(folder=folder / "in", number=_FIRST) + "\r")
        screen.wait_for(str(_FIRST + _SUM))
        found[ROWS] = time.perf_counter() - started
        screen.wait_for(str(_FIRST + _SUM + _ROWS // _GROUPS))  # the row of the second group
        time.sleep(1)
        started = time.perf_counter()
        screen.type(_QUERY.format(number=_SECOND) + "\r")
        screen.wait_for(str(_SECOND + _SUM))
        found[AGAIN] = time.perf_counter() - started
    finally:
        screen.close()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--shells", nargs="+", choices=SHELLS, default=[*SHELLS])
    options = parser.parse_args(arguments)
    shells = {name: SHELLS[name]() for name in options.shells}
    times: dict[str, dict[str, list[float]]] = {name: {} for name in options.shells}
    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        (folder / "in").mkdir()
        lines = (f'{{"k": "k{at % _GROUPS}", "v": {at}}}\n' for at in range(_ROWS))
        (folder / "in" / "a.json").write_text("".join(lines))
        for _ in range(options.repeat):
            for name, shell in shells.items():
                for step, seconds in measure(shell, folder).items():
                    times[name].setdefault(step, []).append(seconds)
    steps = (PROMPT, CPU, ROWS, AGAIN)
    rows = [
        (shell, *(f"{statistics.median(found[step]):.2f} (least {min(found[step]):.2f})" for step in steps))
        for shell, found in times.items()
    ]
    print(format_table(("shell, median s", *steps), rows, texts=1))


if __name__ == "__main__":
    main()
