"""Compare the measurements of all engines in Markdown tables.

    python compare.py history/2026-11-23-1a2b3c4d.jsonl

Every number is the median of the repetitions, with the least and the greatest one after it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from measurement import Measurement, parse_measurement

ENGINES = ("flink", "flink-mini-batch", "spark", "everfold")
TITLES = {"flink": "Flink", "flink-mini-batch": "Flink, mini-batch", "spark": "Spark", "everfold": "everfold"}
Groups: TypeAlias = dict[tuple[str, str], dict[str, list[Measurement]]]


def read_lines(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the parsed lines of files of JSON lines."""
    return (json.loads(line) for path in paths for line in path.read_text().splitlines())


def read_measurements(paths: Iterable[Path]) -> list[Measurement]:
    """Return the measurements in files of JSON lines; the last one if a repetition was measured again."""
    measured = (parse_measurement(fields) for fields in read_lines(paths) if "short" in fields)
    return list({each.key: each for each in measured}.values())


def group_measurements(measurements: Iterable[Measurement]) -> Groups:
    """Return the repetitions of each engine, by data and query."""
    groups: Groups = {}
    for one in measurements:
        groups.setdefault((one.data, one.query), {}).setdefault(one.engine, []).append(one)
    return groups


def format_rates(groups: Groups) -> str:
    """Return a table of the rates, and everfold's relative to the others."""
    engines = [engine for engine in ENGINES if any(engine in each for each in groups.values())]
    others = [engine for engine in engines if engine != "everfold"] if "everfold" in engines else []
    head = ["data", "query", *(f"{TITLES[each]}, M/s" for each in engines)]
    head += [f"everfold / {TITLES[other]}" for other in others]
    rows = []
    for (data, query), measured in groups.items():
        cells = [_format_rate(measured.get(engine, [])) for engine in engines]
        ratios = [format_spread(compute_ratios(measured, [other])) for other in others]
        rows.append([data, query, *cells, *ratios])
    return format_table(head, rows, texts=2)


def format_runs(groups: Groups) -> str:
    """Return a table with a line for each engine: whole runs, start-up, processor time, memory."""
    head = ["data", "query", "engine", "rows", "whole run, s", "whole run, M/s", "start-up, s"]
    head += ["processor, s per million rows", "driver, MB", "workers, MB"]
    rows = []
    for (data, query), measured in groups.items():
        for engine in (each for each in ENGINES if each in measured):
            runs = measured[engine]
            rows.append(
                [
                    *(data, query, TITLES[engine], f"{runs[-1].long.rows:,}"),
                    format_spread([run.long.seconds for run in runs], digits=1),
                    format_spread([run.long.rows_per_s / 1e6 for run in runs]),
                    format_spread([run.startup_seconds for run in runs], digits=1),
                    format_spread([run.cpu_per_million for run in runs]),
                    f"{max(run.long.driver_mb for run in runs):,}",
                    f"{max(run.long.workers_mb for run in runs):,}",
                ]
            )
    return format_table(head, rows, texts=3)


def compute_ratios(measured: dict[str, list[Measurement]], others: Sequence[str]) -> list[float]:
    """Return everfold's rate relative to the fastest of some engines in each repetition."""
    fastest: dict[int, float] = {}
    for run in (run for other in others for run in measured.get(other, [])):
        fastest[run.repetition] = max(run.rate, fastest.get(run.repetition, 0))
    return [run.rate / fastest[run.repetition] for run in measured.get("everfold", []) if run.repetition in fastest]


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int) -> str:
    """Return a Markdown table whose columns after the first `texts` are numbers."""
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def format_spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median, and the least and the greatest value if there are several."""
    if not values:
        return ""
    shown: Callable[[float], str] = f"{{:.{digits}f}}".format
    spread = f" ({shown(min(values))}–{shown(max(values))})" if len(values) > 1 else ""
    return shown(statistics.median(values)) + spread


def _format_rate(runs: Sequence[Measurement]) -> str:
    return "wrong" if any(not run.right for run in runs) else format_spread([run.rate / 1e6 for run in runs])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the measurements of all engines.")
    parser.add_argument("results", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    groups = group_measurements(read_measurements(options.results))
    print(format_rates(groups), format_runs(groups), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
