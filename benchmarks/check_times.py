"""Measures how long `everfold check` takes over every pair of queries in tests/cases/compat: inside one process, and as a command.

    python check_times.py                       # both, some minutes: a command a pair
    python check_times.py --only process

Prints a Markdown table, a line for each file of cases: the median and the longest time of a pair, from the texts to the printed judgement, and the median
of the processor's time in it, which says more where other programs run. A wrong verdict, or a time over the aim, fails the run. In one process every pair
is asked once before it is measured, so imports are not in it.
"""

from __future__ import annotations

import argparse
import io
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

CASES = Path(__file__).resolve().parent.parent / "tests" / "cases" / "compat"
AIMS_S = {"process": 0.3, "command": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An old and a new query, and what is to be said of them."""

    name: str
    old: str
    new: str
    verdict: Verdict


def pairs(path: Path) -> Iterator[Pair]:
    """The pairs of a file of cases."""
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    tables = read.get("tables", "")
    for query in read["queries"]:
        for change in query["changes"]:
            old, new = tables + query["old"], tables + change["new"]
            yield Pair(name=change["name"], old=old, new=new, verdict=Verdict(change["verdict"]))


def in_process(pair: Pair) -> int:
    """The exit code of the judgement."""
    old, new = (
        Script(text=text, source=f"{name}.sql", folder=Path(), name=name)
        for name, text in (("old", pair.old), ("new", pair.new))
    )
    with redirect_stdout(io.StringIO()):
        return check(old, new, RunOptions(), "text")


def as_command(pair: Pair) -> int:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "old.sql"), Path(folder, "new.sql")]
        for file, text in zip(files, (pair.old, pair.new), strict=True):
            file.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "everfold", "check", *map(str, files)]
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode


WAYS: dict[str, Callable[[Pair], int]] = {"process": in_process, "command": as_command}


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """How long a question took, and how much of that some processor worked for it."""

    wall_s: float
    cpu_s: float


def measure(ask: Callable[[Pair], int], pair: Pair) -> Time:
    """Asks. AssertionError when the answer is wrong."""
    began, cpu = time.perf_counter(), _cpu_s()
    code = ask(pair)
    found = Time(wall_s=time.perf_counter() - began, cpu_s=_cpu_s() - cpu)
    assert code == pair.verdict.exit_code, f"{pair.name}: exit code {code}, not {pair.verdict.exit_code}"
    return found


def _cpu_s() -> float:
    """What this process and its children have had of the processors."""
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
    for path in sorted(CASES.glob("*.compat.yaml")):
        cases = list(pairs(path))
        here: dict[str, list[Time]] = {}
        for way in ways:
            if way == "process":
                for pair in cases:
                    in_process(pair)
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
