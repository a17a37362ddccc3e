"""Measure how long `everfold check` takes for every pair of queries in tests/cases/compat: in one
process, and as a command.

    python check_times.py                       # both, some minutes: one command per pair
    python check_times.py --only process

The output is a Markdown table with one line per case file: the median and the longest time of a
pair, from the scripts to the printed report, and the median CPU time, which is more reliable when
other programs run. A wrong verdict, or a time over the aim, fails the run. In one process every
pair runs once before it is measured, so imports are not included. A command runs once before the
first measured command, so that Python has compiled its modules.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import yaml

from everfold.cli.check import check
from everfold.cli.run import RunOptions, Script
from everfold.compat import Verdict
from everfold.errors import EXIT_WRONG_USE, EverfoldError

REFUSED = ("an order that a stream does not support", "its column becomes a time attribute")
"""Pairs whose new script declares its tables, and is one that `everfold run` refuses."""
CASES = Path(__file__).resolve().parent.parent / "tests" / "cases" / "compat"
AIMS_S = {"process": 0.3, "command": 1.0}
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment of a command as users have it:

Python compiles a module once. Compiling all of them again takes longer than everything else.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An old and a new query, and the expected verdict."""

    name: str
    old: str
    new: str
    verdict: Verdict
    dialect: str


def read_pairs(path: Path) -> Iterator[Pair]:
    """Yield the pairs of a case file."""
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    tables, dialect = read.get("tables", ""), read.get("dialect", "flink")
    for query in read["queries"]:
        for change in query["changes"]:
            old, new = tables + query["old"], tables + change["new"]
            yield Pair(name=change["name"], old=old, new=new, verdict=Verdict(change["verdict"]), dialect=dialect)


def check_in_process(pair: Pair) -> int:
    """Check a pair in this process. Return the exit code."""
    old, new = (
        Script(text=text, source=f"{name}.sql", folder=Path(), name=name)
        for name, text in (("old", pair.old), ("new", pair.new))
    )
    with redirect_stdout(io.StringIO()):
        try:
            return check(old, new, RunOptions(dialect=pair.dialect), "text")
        except EverfoldError as error:
            return error.exit_code


def check_as_command(pair: Pair) -> int:
    """Check a pair in a separate process. Return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "old.sql"), Path(folder, "new.sql")]
        for file, text in zip(files, (pair.old, pair.new), strict=True):
            file.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "everfold", "check", *map(str, files), "--dialect", pair.dialect]
        return subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_ENVIRONMENT
        ).returncode


WAYS: dict[str, Callable[[Pair], int]] = {"process": check_in_process, "command": check_as_command}


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """The wall time of a check, and its CPU time."""

    wall_s: float
    cpu_s: float


def measure(run_check: Callable[[Pair], int], pair: Pair) -> Time:
    """Run and time a check. Raise AssertionError when the verdict is wrong."""
    began, cpu = time.perf_counter(), _cpu_s()
    code = run_check(pair)
    found = Time(wall_s=time.perf_counter() - began, cpu_s=_cpu_s() - cpu)
    expected = EXIT_WRONG_USE if pair.name in REFUSED else pair.verdict.exit_code
    assert code == expected, f"{pair.name}: exit code {code}, not {expected}"
    return found


def _cpu_s() -> float:
    """Return the CPU time of this process and its children."""
    used = [getrusage(of) for of in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure how long `everfold check` takes.")
    parser.add_argument("--only", choices=list(WAYS))
    options = parser.parse_args(arguments)
    ways = [options.only] if options.only else list(WAYS)
    heads = [f"{way}, {what}" for way in ways for what in ("median", "longest", "processor")]
    print(f"| cases | pairs | {' | '.join(heads)} |\n| --- | ---: |{' ---: |' * len(heads)}")
    taken: dict[str, list[Time]] = {way: [] for way in ways}
    if "command" in ways:
        check_as_command(next(read_pairs(next(CASES.glob("*.compat.yaml")))))
    for path in sorted(CASES.glob("*.compat.yaml")):
        cases = list(read_pairs(path))
        here: dict[str, list[Time]] = {}
        for way in ways:
            if way == "process":
                for pair in cases:
                    check_in_process(pair)
            here[way] = [measure(WAYS[way], pair) for pair in cases]
            taken[way] += here[way]
        print(_line(path.name.partition(".")[0], here), flush=True)
    print(_line("all", taken))
    return int(any(each.wall_s > AIMS_S[way] for way in ways for each in taken[way]))


def _line(name: str, taken: dict[str, list[Time]]) -> str:
    cells = [name, str(len(next(iter(taken.values()))))]
    for times in taken.values():
        wall, cpu = [each.wall_s for each in times], [each.cpu_s for each in times]
        cells += [f"{each:.3f} s" for each in (statistics.median(wall), max(wall), statistics.median(cpu))]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
